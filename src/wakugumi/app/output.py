"""How is something shown? stdout is data, in the form that was asked for; stderr is talk.

    table   for people: columns, with colour on a terminal and just as readable without
    json    for programs: the leader's answer as it is
    quiet   for pipes: ids, one per line

Nothing of `rich` is loaded unless a terminal is there to draw on.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from wakugumi.core.questions import Spread

__all__ = [
    "ago",
    "brief",
    "colour",
    "duration",
    "json_out",
    "lines_out",
    "one",
    "say",
    "say_error",
    "size",
    "spread",
    "table_out",
]

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


def say(text: str = "") -> None:
    """Talk: one line on stderr."""
    if sys.stderr is None:
        return
    # Nobody may be listening. The work goes on all the same; it is the data that must arrive.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def say_error(text: str, hint: str = "") -> None:
    """What is wrong, and what to do about it."""
    say(f"{colour('error:', 'red')} {text}")
    if hint:
        say(f"\n{colour('hint:', 'cyan')} {hint}")


def is_drawable(stream: TextIO | None) -> bool:
    """Is a person looking at it, through a terminal that can move its cursor?"""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb"}


def colour(text: str, style: str, stream: TextIO | None = None) -> str:
    """The text in this style, where the stream shows colours."""
    where = sys.stderr if stream is None else stream
    if os.environ.get("NO_COLOR") or not is_drawable(where):
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def json_out(record: Any) -> None:
    """Any record of ours, as indented JSON."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(record), indent=2).decode())


def lines_out(lines: Sequence[str]) -> None:
    for line in lines:
        print(line)


def table_out(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table. A title that begins with `#` is a column of numbers, which stand right."""
    if is_drawable(sys.stdout):
        _rich_table(titles, rows)
        return
    cells = [[title.lstrip("#") for title in titles], *rows]
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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title.lstrip("#"), justify="right" if title.startswith("#") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console().print(table)
