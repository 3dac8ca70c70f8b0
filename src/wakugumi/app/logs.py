"""How does a log line look? `key=value` for people, one JSON object per line for machines; always on stderr.

A value from outside cannot make a second line or a second field, and no control character reaches the terminal.
Secrets of keys are hidden where the line is written (`show/output.py`), in messages, fields and tracebacks alike.
"""

from __future__ import annotations

import faulthandler
import logging
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from wakugumi.app.client_settings import LogSettings
from wakugumi.app.settings import tell_used_by
from wakugumi.app.show.output import say, say_lines
from wakugumi.core.visible_text import visible_json

log = logging.getLogger("wakugumi.app")

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/[]@")


def start(logged: LogSettings, *, quiet: bool = False) -> None:
    """Log to stderr. `quiet` is for commands that show their results themselves."""
    handler = _Stderr()
    handler.setFormatter(_Json() if logged.log_json else _KeyValue())
    level = logged.log_level or ("warning" if quiet else "info")
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    tell_used_by(say if quiet else log.info)
    sys.excepthook = _last_words
    threading.excepthook = lambda last: _last_words(last.exc_type, last.exc_value, last.exc_traceback)
    sys.unraisablehook = lambda last: _last_words(last.exc_type, last.exc_value, last.exc_traceback)
    if not quiet and not faulthandler.is_enabled():
        with suppress(ValueError, AttributeError, RuntimeError):  # stderr is no file, or none at all
            faulthandler.enable()  # A crash inside a library, such as for want of memory, leaves a stack.


def _last_words(kind: type[BaseException], error: BaseException | None, where: TracebackType | None) -> None:
    """Shows the traceback of a bug; it may quote text of a stranger, so every line is indented."""
    import traceback

    first, _, rest = "".join(traceback.format_exception(kind, error, where)).rstrip("\n").partition("\n")
    say_lines([first, *_set_in(rest).split("\n")])


class _Stderr(logging.Handler):
    """Looks up stderr for each line: a progress bar replaces it for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        say_lines(self.format(record).split("\n"))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a line; a record may have further `fields`, as in the access log."""
    from datetime import UTC, datetime  # Most commands have nothing to log.

    at = datetime.fromtimestamp(record.created, UTC)
    return {
        "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "from": record.name.removeprefix("wakugumi."),
        "msg": record.getMessage(),
        **getattr(record, "fields", {}),
    }


class _KeyValue(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = " ".join(f"{key}={_quoted(str(value))}" for key, value in _fields(record).items())
        return f"{line}\n{_set_in(self.formatException(record.exc_info))}" if record.exc_info else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import json

        fields = _fields(record)
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return visible_json(json.dumps(fields, ensure_ascii=False))


def _set_in(trace: str) -> str:
    """Indents a trace: no line of an error's text can pass for a line of the log."""
    return "\n".join(f"    {line}" for line in trace.split("\n"))


def _quoted(text: str) -> str:
    """Quoted if a blank or a quote would make two values of it, or a line break two lines."""
    if text and _PLAIN.issuperset(text):
        return text
    import json

    return visible_json(json.dumps(text, ensure_ascii=False))
