"""Which errors are there? Writes docs/reference/errors.md from the table of codes, exit codes and exceptions.

.venv/bin/python -m tools.errors_page            `make docs` calls it
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

from tools.attribute_docs import attribute_docs

from wakugumi import errors

PAGE = Path(__file__).absolute().parents[1] / "docs" / "reference" / "errors.md"
HEAD = """\
# Errors
Made by `make docs` from `errors.py`; a test compares it with the source.

A code stands in a `Refusal`, in the `Reason` of a FAILED result ([Protocol](protocol.md)), in the JSON of an HTTP
problem ([Jobs over HTTP](../use/http.md)) and in `Refused.code` in Python. *Again*: the same request may succeed
later, unchanged; an attempt that ended with such a reason is followed by another one. *HTTP* is the status of the
answer, *exit* the exit code of `waku`. A message of `waku` ends with the hint.
"""


def _lines() -> Iterator[str]:
    yield HEAD
    for sender, codes in errors.CODES_BY_SENDER.items():
        yield f"## {sender}"
        yield "| code | meaning | hint | again | HTTP | exit |"
        yield "|---|---|---|---|---|---|"
        for code, row in codes.items():
            again = "yes" if row.retry else "no"
            cells = (f"`{code}`", row.meaning, row.hint, again, str(row.http_status), str(row.exit_code))
            yield f"| {' | '.join(cells)} |"
        yield ""
    yield "## Exit codes of `waku`"
    yield "| exit code | meaning |"
    yield "|---|---|"
    yield "| 0 | Everything that was asked for is done. |"
    for name, text in attribute_docs(Path(errors.__file__)).items():
        if name.startswith("EXIT_"):
            yield f"| {getattr(errors, name)} | {text} |"
    yield ""
    yield "## Exceptions in Python"
    yield "| exception | meaning |"
    yield "|---|---|"
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, errors.WakugumiError):
            yield f"| `{name}` | {' '.join((kind.__doc__ or '').split())} |"


def errors_page() -> str:
    return "\n".join(_lines()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(errors_page(), encoding="utf-8")
