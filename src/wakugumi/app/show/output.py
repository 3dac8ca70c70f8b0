"""How is something shown? stdout is data, in the form that was asked for; stderr is talk.

    table   for people: columns, with colour on a terminal and just as readable without
    json    for programs: the leader's answer as it is
    quiet   for pipes: ids, one per line

Only this module prints (a test reads the source for it). Control characters of foreign text are made visible
(`core/visible_text.py`), so that no name, message or output commands this terminal; the one exception is `program_out`.
`rich` is loaded only to draw on a terminal.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO, TypeAlias

from wakugumi.core.visible_text import visible, visible_json

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    from wakugumi.core.leader.answer_records import Spread

_STYLES: Final = {
    "ok": "green",
    "running": "cyan",
    "ready": "green",
    "busy": "cyan",
    "failed": "red",
    "away": "yellow",
    "backoff": "yellow",
    "draining": "yellow",
    "leaving": "yellow",
}
_CODES: Final = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


_KEPT: Final = "\t"
"""Of a line: programs set their columns by it. A cell of a table has none."""
_SHOW_CURSOR: Final = b"\x1b[?25h"


class Styled(NamedTuple):
    """A few words that are shown in a style, where the stream has colours."""

    text: str
    style: str


Part: TypeAlias = str | Styled
"""Of a line: its parts are set one after the other, with a blank between them, as `print` does."""


def say(*parts: Part) -> None:
    """Talk: the parts as one line on stderr."""
    _tell(_line(parts, sys.stderr))


def say_lines(lines: Sequence[str]) -> None:
    """Several lines on stderr in one write, so that they stay together."""
    _tell("\n".join(visible(line, _KEPT) for line in lines))


def say_error(text: str, hint: str = "") -> None:
    """The error, and the hint. Further lines of the text are indented, so that none of them passes for a hint."""
    first, *more = text.split("\n")
    say(colour("error:", "red"), first)
    for line in more:
        say(f"       {line}")
    if hint:
        say()
        say(colour("hint:", "cyan"), hint)


def is_drawable(stream: TextIO | None) -> bool:
    """Is a person looking at it, through a terminal that can move its cursor?"""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb"}


def colour(text: str, style: str) -> Styled:
    """The text in this style, where a stream shows colours."""
    return Styled(text, style)


def json_out(record: Any) -> None:
    """Any record of ours, as indented JSON."""
    import msgspec

    print(visible_json(msgspec.json.format(msgspec.json.encode(record), indent=2).decode()))


def json_line_out(record: Any) -> None:
    """Any record of ours as JSON on one line, flushed."""
    import msgspec

    print(visible_json(msgspec.json.encode(record).decode()), flush=True)


def line_out(*parts: Part, flush: bool = False) -> None:
    """Data: one line on stdout."""
    print(_line(parts, sys.stdout), flush=flush)


def lines_out(lines: Sequence[str], *, flush: bool = False) -> None:
    if lines:
        print("\n".join(visible(line, _KEPT) for line in lines), flush=flush)


def fields_out(rows: Sequence[tuple[str, str]]) -> None:
    """Names and values, the values in one column."""
    width = max(len(name) for name, _ in rows)
    lines_out([f"{name:<{width}}  {value}" for name, value in rows])


def show(how: str, record: Any, quiet: Sequence[str], table: Callable[[], None] | Sequence[str]) -> None:
    """A record in the form that was asked for: as JSON, as its quiet lines, or as a table or lines for people."""
    if how == "json":
        json_out(record)
    elif how == "quiet":
        lines_out(quiet)
    elif callable(table):
        table()
    else:
        lines_out(table)


def program_out(stream: TextIO | None, text: str) -> None:
    """The output of a user's program, unchanged. Its bytes are UTF-8, also where our stream has another encoding."""
    buffer = getattr(stream, "buffer", None)
    if buffer is not None and text:
        buffer.write(text.encode(errors="replace"))
        buffer.flush()


def draw_over(text: str) -> None:
    """Talk that takes the place of the line before, on a terminal."""
    sys.stderr.write(f"\r\x1b[K{visible(text)}")
    sys.stderr.flush()


def show_cursor() -> None:
    """A progress bar may have hidden it."""
    if is_drawable(sys.stderr):
        os.write(2, _SHOW_CURSOR)


def console(*, stderr: bool = False) -> Console:
    """A console of `rich` that makes control characters of all text visible."""
    from rich.console import Console

    class Guarded(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for piece in super().render(renderable, options):
                yield piece if piece.control else piece._replace(text=visible(piece.text, "\n\t"))

    return Guarded(stderr=stderr, highlight=False, markup=False, emoji=False)


def rich_line(*parts: Part) -> Text:
    """The line that `say` would write, for a console."""
    from rich.text import Text

    pieces = [part if isinstance(part, Styled) else Styled(part, "") for part in parts]
    return Text(" ").join(Text(visible(piece.text, _KEPT), style=piece.style) for piece in pieces)


def table_out(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table. A title that begins with `#` is a column of numbers, which stand right."""
    if is_drawable(sys.stdout):
        _rich_table(titles, rows)
        return
    cells = [[title.lstrip("#") for title in titles], *([visible(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(titles))]
    for row in cells:
        padded = (
            cell.rjust(width) if title.startswith("#") else cell.ljust(width)
            for cell, width, title in zip(row, widths, titles)
        )
        print("  ".join(padded).rstrip())


def duration(seconds: float) -> str:
    """`0.25 s`, `12.3 s`, `4 min 05 s`, `3 h 20 min`, `5 d 2 h`: as exact as a person needs it."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def brief(seconds: float) -> str:
    """`0.3 ms`, `45 ms`, `1.2 s`, `50 s`, `12 min`, `30 h`, `5 d`: two digits and a unit, for a narrow column."""
    for unit_s, unit, until_s in ((0.001, "ms", 1), (1, "s", 100), (60, "min", 6_000), (3_600, "h", 172_800)):
        if seconds < until_s:
            amount = seconds / unit_s
            return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def spread(told: Spread) -> str:
    """`12 ms / 40 ms / 1.2 s`: half, 95 and 99 of 100 took at most that; `-` if there were none."""
    return " / ".join(map(brief, (told.p50_s, told.p95_s, told.p99_s))) if told.count else "-"


def ago(seconds: float) -> str:
    return f"{duration(seconds)} ago"


def size(count: int) -> str:
    """`900 bytes`, `12.3 KiB`, `4.0 MiB`"""
    if count < 1024:
        return one(count, "byte")
    amount = count / 1024
    for unit in ("KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def one(count: int, noun: str) -> str:
    """`1 job`, `3 jobs`, `12,000 jobs`"""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _rich_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title.lstrip("#"), justify="right" if title.startswith("#") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell), style=_STYLES.get(cell, "")) for cell in row))
    console().print(table)


def _line(parts: Sequence[Part], stream: TextIO | None) -> str:
    coloured = not os.environ.get("NO_COLOR") and is_drawable(stream)
    return " ".join(
        visible(part, _KEPT)
        if isinstance(part, str)
        else f"\x1b[{_CODES[part.style]}m{visible(part.text)}\x1b[0m"
        if coloured
        else visible(part.text)
        for part in parts
    )


def _tell(text: str) -> None:
    """All talk, and all logs: no secret of a key passes."""
    if sys.stderr is None:
        return
    from wakugumi.wire.access_line import hide_keys  # Most commands have nothing to say.

    # A closed stderr does not stop the work: only the data must arrive.
    with contextlib.suppress(OSError):
        print(hide_keys(text), file=sys.stderr, flush=True)
