"""How far is the work? Bars on a terminal, a line now and then elsewhere; both on stderr, both from the same rows.

Tally           the inputs of a command: one bar, a line every 5 s
shown_transfers files to the leader: a bar for each that takes longer than a moment, a line every 30 s
downloads.py    one file from the leader, in a thread: one line that is drawn over, or a line every 30 s
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.app.show.output import Part, Styled, console, duration, is_drawable, one, rich_line, say, size

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, Task, TaskID
    from rich.text import Text

    from wakugumi.roles.client.files.uploads import FileTransfer
    from wakugumi.roles.client.grid import Grid

LINE_EVERY_S: Final = 30.0
"""Between two lines about files: often enough to show progress, seldom enough for a log."""
_TALLY_LINE_EVERY_S: Final = 5.0
_RATE_OVER_S: Final = 10.0
"""The rate is that of the last seconds, and does not jump with every job."""
_LOOK_EVERY_S: Final = 0.2
_SHOWN_AFTER_S: Final = 1.0
"""A transfer that is done sooner gets no bar."""
_BARS_MAX: Final = 8


class Tally:
    """The inputs of a command, counted by what became of them."""

    def __init__(self, total: int, skipped: int = 0, clock: Callable[[], float] = monotonic) -> None:
        self.total = total
        self.skipped = skipped
        """Inputs that an earlier run has done."""
        self.ok = 0
        self.failed = 0
        self.running = 0
        self.doing = ""
        """The slow work of this moment, if there is any."""
        self.sending = ""
        """Files on their way to the leader, in a few words."""
        self._clock = clock
        self._started_at = clock()
        self._marks: deque[tuple[float, int]] = deque([(self._started_at, 0)])

    @property
    def ended(self) -> int:
        """Inputs that this run has ended."""
        return self.ok + self.failed

    @property
    def left(self) -> int:
        return self.total - self.skipped - self.ended

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started_at

    def add(self, *, ok: bool) -> None:
        if ok:
            self.ok += 1
        else:
            self.failed += 1
        now = self._clock()
        if now - self._marks[-1][0] > _RATE_OVER_S / 50:
            self._marks.append((now, self.ended))
            while now - self._marks[0][0] > _RATE_OVER_S and len(self._marks) > 2:
                self._marks.popleft()

    def note(self, doing: str) -> None:
        self.doing = doing

    def rate(self) -> float:
        """Jobs per second in the last seconds."""
        at, ended = self._marks[0]
        passed = self._clock() - at
        return (self.ended - ended) / passed if passed > 0 else 0.0

    def text(self) -> str:
        """`120 of 240 done, 2 failed, 2 running, 18.2/s, 6.5 s left`"""
        return ", ".join([f"{self.skipped + self.ok:,} of {self.total:,} done", *(it.text for it in self.figures())])

    def figures(self) -> Iterator[Styled]:
        """All but the first figure of `text`."""
        if self.failed:
            yield Styled(f"{self.failed:,} failed", "red")
        if self.running:
            yield Styled(f"{self.running:,} running", "cyan")
        if self.sending:
            yield Styled(self.sending, "cyan")
        if (rate := self.rate()) > 0 and self.ended:
            yield Styled(f"{rate:.1f}/s", "")
            if self.left:
                yield Styled(f"{duration(self.left / rate)} left", "dim")
        if self.doing:
            yield Styled(self.doing, "dim")

    def summary(self, out: str, *, stopped: bool) -> str:
        """The last line of a command."""
        done = [f"{self.skipped + self.ok:,} of {one(self.total, 'input')} done"]
        if self.skipped:
            done[0] += f" ({self.skipped:,} before)"
        if self.failed:
            done.append(f"{self.failed:,} failed")
        if self.ended:
            done.append(f"in {duration(self.elapsed_s)}")
        return f"{'stopped: ' if stopped else ''}{', '.join(done)}; results are in {out}"


def progress(tally: Tally) -> Bars | Lines:
    """A drawer of this tally. Its owner calls `show` after each change and now and then, and `close` at the end."""
    if not is_drawable(sys.stderr):
        return Lines(tally.text, _TALLY_LINE_EVERY_S)
    bars = Bars(lambda: [BarRow("", tally.skipped + tally.ended, tally.total)], lambda: _tally_columns(tally))
    bars.show()
    return bars


@asynccontextmanager
async def shown_transfers(grid: Grid, files: object, more: Callable[[], str] = str) -> AsyncIterator[None]:
    """Shows the files that this grid reads and sends, if there are any; lines end with the text of `more`."""
    if not files:
        yield
        return

    def rows() -> list[BarRow]:
        return [BarRow(f"{it.what} {it.name}", it.done_bytes, it.total_bytes) for it in grid.transfers()]

    tasks = Tasks()
    drawn: Bars | Lines
    if is_drawable(sys.stderr):
        drawn = Bars(rows, byte_columns, _SHOWN_AFTER_S)
    else:
        drawn = Lines(lambda: transfer_text(grid.transfers(), more()), LINE_EVERY_S)

    async def watch() -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            drawn.show()

    tasks.start_loop(watch, name="progress of transfers")
    try:
        yield
    finally:
        await tasks.close()
        drawn.close()


def in_brief(rows: Sequence[FileTransfer]) -> str:
    """`3 files on the way, 41%`; empty if there are none."""
    if not rows:
        return ""
    total = sum(row.total_bytes for row in rows)
    done = sum(row.done_bytes for row in rows)
    return f"{one(len(rows), 'file')} on the way, {done / max(total, 1):.0%}"


def transfer_text(rows: Sequence[FileTransfer], more: str) -> str:
    """`sending big.bin: 60.0 MiB of 1.0 GiB; 3 workers: 1 ok, 2 waiting`, the last part being `more`."""
    text = ""
    if len(rows) == 1:
        row = rows[0]
        text = f"{row.what} {row.name}: {size(row.done_bytes)} of {size(row.total_bytes)}"
    elif rows:
        text = f"{in_brief(rows)} of {size(sum(row.total_bytes for row in rows))}"
    return "; ".join(filter(None, (text, more)))


class Lines:
    """A line of text every so many seconds, if there is a text. `tell` gets it; by default it is a line on stderr."""

    def __init__(
        self,
        text: Callable[[], str],
        every_s: float,
        *,
        first_s: float | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._text = text
        self._every_s = every_s
        self._next_at = monotonic() + (every_s if first_s is None else first_s)
        self._tell = tell or say
        self.has_told = False

    def show(self) -> None:
        now = monotonic()
        if now >= self._next_at:
            self._next_at = now + self._every_s
            if text := self._text():
                self.has_told = True
                self._tell(text)

    def say(self, *parts: Part) -> None:
        """A line that stays."""
        say(*parts)

    def close(self) -> None:
        """The outcome is reported by the command."""


class BarRow(NamedTuple):
    """One bar, known by its label."""

    label: str
    done: int
    total: int


class Bars:
    """A bar for each row that has been there for `after_s`. A thread of its own draws them several times a second."""

    def __init__(
        self, rows: Callable[[], Sequence[BarRow]], columns: Callable[[], list[ProgressColumn]], after_s: float = 0.0
    ) -> None:
        self._rows = rows
        self._columns = columns
        self._after_s = after_s
        self._since: dict[str, float] = {}
        self._bars: dict[str, TaskID] = {}
        self.drawn: Progress | None = None
        """The display of `rich`, from the first bar on."""

    def show(self) -> None:
        now = monotonic()
        known = {row.label: row for row in self._rows()}
        self._since = {label: self._since.get(label, now) for label in known}
        for label in [label for label in self._bars if label not in known]:
            self._display().remove_task(self._bars.pop(label))
        for label, row in known.items():
            if now - self._since[label] < self._after_s:
                continue
            if label not in self._bars and len(self._bars) < _BARS_MAX:
                self._bars[label] = self._display().add_task(label, total=row.total)
            if label in self._bars:
                self._display().update(self._bars[label], completed=row.done)

    def say(self, *parts: Part) -> None:
        """A line that stays, above the bars."""
        self._display().console.print(rich_line(*parts), soft_wrap=True)

    def close(self) -> None:
        if self.drawn is not None:
            self.drawn.stop()

    def _display(self) -> Progress:
        if self.drawn is None:
            from rich.progress import Progress

            screen = console(stderr=True)
            self.drawn = Progress(*self._columns(), console=screen, refresh_per_second=8, transient=True, expand=True)
            self.drawn.start()
        return self.drawn


def _bar_column() -> ProgressColumn:
    from rich.progress import BarColumn

    return BarColumn(bar_width=None, complete_style="cyan", finished_style="green")


def byte_columns() -> list[ProgressColumn]:
    from rich.progress import DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    label = TextColumn("{task.description}", markup=False)
    return [label, _bar_column(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn()]


def _tally_columns(tally: Tally) -> list[ProgressColumn]:
    from rich.progress import ProgressColumn, TextColumn
    from rich.text import Text

    class FiguresColumn(ProgressColumn):
        max_refresh = 0.25

        def render(self, task: Task) -> Text:  # noqa: ARG002 -- the tally has all figures
            return Text("  ").join(Text(it.text, style=it.style) for it in tally.figures())

    return [_bar_column(), TextColumn("{task.completed:,.0f}/{task.total:,.0f}"), FiguresColumn()]
