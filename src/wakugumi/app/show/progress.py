"""How far is it? A bar on a terminal, a line every few seconds elsewhere; both on stderr, both from the same Tally."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from wakugumi.app.show.output import Part, console, duration, is_drawable, one, rich_line, say

if TYPE_CHECKING:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

_LINE_EVERY_S: Final = 5.0
_RATE_OVER_S: Final = 10.0
"""A rate that follows what happens now, and does not jump with every job."""


class Tally:
    """What has become of so many inputs."""

    def __init__(self, total: int, skipped: int = 0, clock: Callable[[], float] = monotonic) -> None:
        self.total = total
        self.skipped = skipped
        """Done before, and not done again."""
        self.ok = 0
        self.failed = 0
        self.running = 0
        self.doing = ""
        """What takes its time just now, if anything does."""
        self.sending = ""
        """What is said of files on their way."""
        self._clock = clock
        self._started_at = clock()
        self._marks: deque[tuple[float, int]] = deque([(self._started_at, 0)])

    @property
    def ended(self) -> int:
        """Of this run."""
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
        """Jobs per second of late."""
        at, ended = self._marks[0]
        passed = self._clock() - at
        return (self.ended - ended) / passed if passed > 0 else 0.0

    def text(self) -> str:
        """`120 of 240 done, 2 failed, 2 running, 18.2/s, 6.5 s left`"""
        parts = [f"{self.skipped + self.ok:,} of {self.total:,} done"]
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if self.running:
            parts.append(f"{self.running:,} running")
        if self.sending:
            parts.append(self.sending)
        if (rate := self.rate()) > 0 and self.ended:
            parts.append(f"{rate:.1f}/s")
            if self.left:
                parts.append(f"{duration(self.left / rate)} left")
        if self.doing:
            parts.append(self.doing)
        return ", ".join(parts)


class Progress(Protocol):
    def show(self) -> None:
        """The tally has changed, or some time has passed."""

    def say(self, *parts: Part) -> None:
        """A line that stays."""

    def close(self) -> None: ...


def progress(tally: Tally) -> Progress:
    return _Bar(tally) if is_drawable(sys.stderr) else _Lines(tally)


class _Lines:
    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._next_at = monotonic() + _LINE_EVERY_S

    def show(self) -> None:
        now = monotonic()
        if now >= self._next_at:
            self._next_at = now + _LINE_EVERY_S
            say(self._tally.text())

    def say(self, *parts: Part) -> None:
        say(*parts)

    def close(self) -> None:
        """The summary follows, and says it all."""


class _Bar:
    """Drawn by a thread of its own, eight times a second, whatever the rest does."""

    def __init__(self, tally: Tally) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._tally = tally
        self._progress = Progress(
            BarColumn(bar_width=None, complete_style="cyan", finished_style="green"),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            _column(self._figures),
            console=console(stderr=True),
            refresh_per_second=8,
            transient=True,
            expand=True,
        )
        self._task = self._progress.add_task("", total=tally.total)
        self._progress.start()
        self.show()

    def show(self) -> None:
        self._progress.update(self._task, completed=self._tally.skipped + self._tally.ended)

    def say(self, *parts: Part) -> None:
        self._progress.console.print(rich_line(*parts), soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()

    def _figures(self) -> Text:
        from rich.text import Text

        tally = self._tally
        text = Text()
        if tally.failed:
            text.append(f"{tally.failed:,} failed  ", style="red")
        text.append(f"{tally.running:,} running", style="cyan")
        if tally.sending:
            text.append(f"  {tally.sending}", style="cyan")
        if tally.ended and (rate := tally.rate()) > 0:
            text.append(f"  {rate:.1f}/s")
            if tally.left:
                text.append(f"  {duration(tally.left / rate)} left", style="dim")
        if tally.doing:
            text.append(f"  {tally.doing}", style="dim")
        return text


def _column(render: Callable[[], Text]) -> ProgressColumn:
    from rich.progress import ProgressColumn

    class FiguresColumn(ProgressColumn):
        max_refresh = 0.25

        def render(self, task: Task) -> Text:  # noqa: ARG002 -- all is in the tally
            return render()

    return FiguresColumn()


def summary(tally: Tally, out: str, *, stopped: bool) -> str:
    """The last word, on one line."""
    what = [f"{tally.skipped + tally.ok:,} of {one(tally.total, 'input')} done"]
    if tally.skipped:
        what[0] += f" ({tally.skipped:,} before)"
    if tally.failed:
        what.append(f"{tally.failed:,} failed")
    if tally.ended:
        what.append(f"in {duration(tally.elapsed_s)}")
    return f"{'stopped: ' if stopped else ''}{', '.join(what)}; results are in {out}"
