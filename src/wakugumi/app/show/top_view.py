"""What does `waku top` show? An answer of the leader as lines of a given width and height.

    header       the state of the leader; errors come first, in red
    sections     workers, subjects, groups, failures, clients: a title and a row for each

A section that has no room for all its rows ends with "… and N more"; one without any room is left out, the last one
first. A table that is too wide loses its least important columns, and then the end of its names. The same lines are
drawn on a terminal and printed into a pipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias
from unicodedata import combining, east_asian_width

from wakugumi.app.show.output import ago, brief, duration, one, size
from wakugumi.core.leader import answer_records as an
from wakugumi.core.subject import Pattern, is_address
from wakugumi.core.visible_text import visible

Line: TypeAlias = list[tuple[str, str]]
"""Pieces of text, each with its style."""

GAP: Final = "  "
BAR_CELLS: Final = 10
NAME_CHARS_MIN: Final = 12
"""To so many a name is cut before another column goes."""
ROWS_WORTHWHILE: Final = 3
"""A section without room for so many lines below its title is left out."""
BAD: Final = "bold red"
TITLE: Final = "bold"
DIM: Final = "dim"
_STATE_STYLES: Final = {
    "ready": "green",
    "busy": "cyan",
    "sending": "cyan",
    "held back": "yellow",
    "away": "yellow",
    "draining": "yellow",
    "leaving": "yellow",
    "resting": "red",
}


class Column(NamedTuple):
    title: str
    cells: list[Line]
    rank: int = 0
    """A narrow table loses the columns with the highest rank first; 0 stays."""
    right: bool = True
    cut: bool = False
    """It may lose its end."""


class Section(NamedTuple):
    columns: list[Column]
    rows: int
    total: int
    """Of which `rows` are here."""


def view(
    answer: an.TopAnswer, leader: str, width: int, height: int | None = None, *, silent_s: float = 0.0
) -> list[Line]:
    """At most `height` lines; all that there is without one. `silent_s`: for so long the leader has not answered."""
    lines = _header(answer.status, leader, width, silent_s)
    sections = [it for it in _sections(answer) if it.rows]
    if height is None:
        rows = [it.rows + (it.total > it.rows) for it in sections]
    else:
        sections, rows = _fit(sections, height - len(lines))
    for section, room in zip(sections, rows):
        lines.append([])
        lines += _table(section, width, room)
    return [_cut(line, width) for line in (lines if height is None else lines[:height])]


def plain(line: Line) -> str:
    return "".join(text for text, _ in line)


# The header.


def _header(status: an.StatusAnswer, leader: str, width: int, silent_s: float) -> list[Line]:
    wrong = []
    if silent_s:
        wrong.append(f"no answer for {duration(silent_s)}: waiting for the leader")
    if status.stalled:
        wrong.append(f"nothing is committed: {status.stalled}")
    if status.disk_low:
        wrong.append("its disk is nearly full: nothing is accepted")
    elif status.full:
        wrong.append("full: no further jobs are accepted")
    lines: list[Line] = [[(visible(text), BAD)] for text in wrong]
    lines += _flow(
        [
            [("waku top", TITLE), (f"  {visible(leader)}", "")],
            [(f"up {duration(status.up_s)}", "")],
            [("with a journal", "") if status.durable else ("in memory only", "yellow")],
        ],
        width,
    )
    counts = [
        ("queued", f"{status.queued:,}", ""),
        ("running", f"{status.running:,} of {one(status.slots, 'slot')}", ""),
        ("in", f"{_rate(status.submitted_per_s)}/s", ""),
        ("out", f"{_rate(status.finished_per_s)}/s", ""),
        ("ok", f"{status.finished_ok:,}", ""),
        ("failed", f"{status.finished_failed:,}", ""),
        ("backing off", f"{status.backing_off:,}" if status.backing_off else "", "yellow"),
        ("not fetched", f"{status.undelivered:,}" if status.undelivered else "", ""),
        ("dead letters", f"{status.letters:,}" if status.letters else "", "red"),
    ]
    return lines + _flow([[(f"{name} ", DIM), (text, style)] for name, text, style in counts if text], width)


def _flow(pieces: Iterable[Line], width: int) -> list[Line]:
    """One after the other, in as many lines as it takes."""
    lines: list[Line] = [[]]
    for piece in pieces:
        if lines[-1] and _length(lines[-1]) + 3 + _length(piece) > width:
            lines.append([])
        lines[-1] += [("   ", ""), *piece] if lines[-1] else piece
    return lines


# The sections, in the order in which they are shown and in which they matter.


def _sections(answer: an.TopAnswer) -> list[Section]:
    return [
        _workers(answer.workers, answer.workers_total),
        _subjects(answer.status),
        _groups(answer.status),
        _failures(answer.failures),
        _clients(answer.status.busiest),
    ]


def _workers(rows: Sequence[an.WorkerRow], total: int) -> Section:
    why = [_texts("why", [row.why or "-" for row in rows], 3, cut=True)] if any(row.why for row in rows) else []
    return Section(
        [
            _texts("worker", [row.name or row.worker[:8] for row in rows], cut=True),
            Column("", [_bar(_busy(row), _slots(row)) for row in rows], 3, right=False),
            _numbers("slots", [f"{_busy(row)}/{_slots(row)}" for row in rows]),
            _numbers("cpu", [f"{row.cpu:.0%}" for row in rows], 2),
            Column("state", [[(visible(row.state), _STATE_STYLES.get(row.state, ""))] for row in rows], 1, right=False),
            *why,
            _texts("hears", [_heard(row) for row in rows], 4, cut=True),
        ],
        len(rows),
        max(total, len(rows)),
    )


def _slots(row: an.WorkerRow) -> int:
    """Old workers do not say how many they have."""
    return max(row.slots, row.credit) if row.slots else row.running + row.credit


def _busy(row: an.WorkerRow) -> int:
    """A job may take several slots. Slots held back because of the CPU count as busy."""
    return max(0, _slots(row) - row.credit) if row.slots else row.running


def _subjects(status: an.StatusAnswer) -> Section:
    rows = status.subjects
    columns = [
        _texts("subject", [_short(row.subject) for row in rows], cut=True),
        _numbers("queued", [f"{row.queued:,}" for row in rows]),
        _numbers("running", [f"{row.figures.running:,}" for row in rows]),
        _numbers("in/s", [_rate(row.figures.recent.submitted_per_s) for row in rows], 2),
        *_figures([row.figures for row in rows]),
    ]
    return Section(columns, len(rows), max(status.subjects_total, len(rows)))


def _groups(status: an.StatusAnswer) -> Section:
    rows = status.groups
    columns = [
        _texts("group", [row.group for row in rows], cut=True),
        _numbers("queued", [f"{row.queued:,}" for row in rows]),
        _numbers("running", [f"{row.figures.running:,}" for row in rows]),
        _numbers("slots", [f"{row.slots:,}" for row in rows], 2),
        _numbers("workers", [f"{row.workers:,}" for row in rows], 2),
        *_figures([row.figures for row in rows]),
    ]
    return Section(columns, len(rows), max(status.groups_total, len(rows)))


def _figures(rows: Sequence[an.Figures]) -> list[Column]:
    """Rates and times of the last minute, and failures since the leader began."""
    return [
        _numbers("out/s", [_rate(row.recent.finished_per_s) for row in rows], 1),
        *_percentiles("wait p50", [row.recent.dispatch_delay for row in rows], 4),
        *_percentiles("run p50", [row.recent.run_time for row in rows], 6),
        _troubles("failed", [row.finished_failed for row in rows], 3),
        _troubles("again", [row.redelivered for row in rows], 7),
        _troubles("dead", [row.dead for row in rows], 5),
    ]


def _percentiles(title: str, spreads: Sequence[an.Spread], rank: int) -> list[Column]:
    cells = [map(brief, (it.p50_s, it.p95_s, it.p99_s)) if it.count else ("-", "-", "-") for it in spreads]
    return [_numbers(name, texts, rank) for name, texts in zip((title, "p95", "p99"), zip(*cells))]


def _failures(rows: Sequence[an.FailureRow]) -> Section:
    return Section(
        [
            _numbers("failed", [ago(row.ago_s) for row in rows]),
            Column("reason", [[(visible(row.reason), "red")] for row in rows], right=False),
            _texts("program", [row.program for row in rows], cut=True),
            _texts("worker", [row.worker or "-" for row in rows], 1),
            _texts("job", [row.job for row in rows], 2),
            _texts("subject", [_short(row.subject) for row in rows], 3),
        ],
        len(rows),
        len(rows),
    )


def _clients(rows: Sequence[an.ClientRow]) -> Section:
    return Section(
        [
            _texts("client", [row.client for row in rows], cut=True),
            _texts("is", ["here" if row.connected else "away" for row in rows], 1),
            _numbers("unfinished", [f"{row.unfinished:,}" for row in rows]),
            _numbers("running", [f"{row.running} of {row.cap}" for row in rows]),
            _numbers("not fetched", [size(row.unfetched_bytes) for row in rows], 2),
        ],
        len(rows),
        len(rows),
    )


def _texts(title: str, texts: Sequence[str], rank: int = 0, *, cut: bool = False) -> Column:
    return Column(title, [[(visible(text), "")] for text in texts], rank, right=False, cut=cut)


def _numbers(title: str, texts: Sequence[str], rank: int = 0) -> Column:
    return Column(title, [[(text, "")] for text in texts], rank)


def _troubles(title: str, counts: Sequence[int], rank: int) -> Column:
    return Column(title, [[(f"{count:,}", "red" if count else DIM)] for count in counts], rank)


def _short(subject: str) -> str:
    """All begin with the same words, which say nothing."""
    return subject.removeprefix("job.assign.")


def _heard(row: an.WorkerRow) -> str:
    """Its patterns; its own address, which follows from its name, only if there is no other."""
    groups = [it for it in row.patterns if not is_address(Pattern(it), row.name)] or row.patterns
    return " ".join(map(_short, groups))


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.1f}"


def _bar(busy: int, slots: int) -> Line:
    """A cell for each slot, up to ten; then each stands for several. A single running job fills one."""
    cells = min(slots, BAR_CELLS)
    full = -(-busy * cells // slots) if slots else 0
    return [("█" * full, "cyan"), ("·" * (cells - full) + " " * (BAR_CELLS - cells), DIM)]


# How it fits.


def _fit(sections: list[Section], room: int) -> tuple[list[Section], list[int]]:
    """Which sections are shown, and with how many lines each: nobody gets more than it can use, the rest is shared."""
    wants = [section.rows + (section.total > section.rows) for section in sections]
    while wants and sum(2 + min(want, ROWS_WORTHWHILE) for want in wants) > room:  # with a blank line and a title
        wants.pop()
    left = room - 2 * len(wants)
    given = [0] * len(wants)
    while left > 0 and given != wants:
        for at, want in enumerate(wants):
            if given[at] < want and left > 0:
                given[at] += 1
                left -= 1
    return sections[: len(wants)], given


def _table(section: Section, width: int, room: int) -> list[Line]:
    """Its title line, and `room` lines below it."""
    shown = section.rows if room >= section.rows + (section.total > section.rows) else room - 1
    columns = [column._replace(cells=column.cells[:shown]) for column in section.columns]
    widths = _widths(columns, width)
    while sum(widths) + len(GAP) * (len(widths) - 1) > width and any(column.rank for column in columns):
        last = max(column.rank for column in columns)
        columns = [column for column in columns if column.rank != last]
        widths = _widths(columns, width)
    lines = [_row([[(column.title, TITLE)] for column in columns], columns, widths)]
    lines += [_row([column.cells[at] for column in columns], columns, widths) for at in range(shown)]
    if shown < section.total:
        lines.append([(f"… and {section.total - shown:,} more", DIM)])
    return lines


def _widths(columns: Sequence[Column], width: int) -> list[int]:
    """As wide as their cells; if that is too wide, those that may be cut give way, the widest first."""
    widths = [max([len(column.title), *map(_length, column.cells)]) for column in columns]
    least = [min(now, NAME_CHARS_MIN) if column.cut else now for column, now in zip(columns, widths)]
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while over > 0:
        at = max(range(len(widths)), key=lambda at: widths[at] - least[at])
        if widths[at] == least[at]:
            break
        widths[at] -= 1
        over -= 1
    return widths


def _row(cells: Sequence[Line], columns: Sequence[Column], widths: Sequence[int]) -> Line:
    row: Line = []
    for cell, column, width in zip(cells, columns, widths):
        if row:
            row.append((GAP, ""))
        shown = _cut(cell, width)
        blank = (" " * (width - _length(shown)), "")
        row += [blank, *shown] if column.right else [*shown, blank]
    return row


def _cut(line: Line, width: int) -> Line:
    if _length(line) <= width:
        return line
    room = width - 1
    cut: Line = []
    for text, style in line:
        end = 0
        while end < len(text) and (taken := _columns(text[end])) <= room:
            room -= taken
            end += 1
        cut.append((text[:end], style))
        if end < len(text):
            break
    return [*cut, ("…", "")] if width > 0 else []


def _length(line: Line) -> int:
    """In columns of a terminal, of which some letters take two."""
    return sum(len(text) if text.isascii() else sum(map(_columns, text)) for text, _ in line)


def _columns(letter: str) -> int:
    return 2 if east_asian_width(letter) in "WF" else 0 if combining(letter) else 1
