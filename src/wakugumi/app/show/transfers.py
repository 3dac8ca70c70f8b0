"""How far are large files on their way? Bars on a terminal, once it takes longer than a moment; elsewhere a line now
and then, so that whoever reads the log of a script sees that it goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.app.show.output import console, is_drawable, one, say, size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from wakugumi.roles.client.files.uploads import FileTransfer
    from wakugumi.roles.client.grid import Grid

_LOOK_EVERY_S: Final = 0.2
_SHOWN_AFTER_S: Final = 1.0
"""Who waits for less does not want to read."""
_BARS_MAX: Final = 8
LINE_EVERY_S: Final = 30.0
"""Where nobody looks: often enough to see that it goes on, and seldom enough for a log."""


@asynccontextmanager
async def shown(grid: Grid, files: object, more: Callable[[], str] = str) -> AsyncIterator[None]:
    """Tell what this grid reads and sends, if there are files at all; in lines also what there is `more` to say."""
    if not files:
        yield
        return
    tasks = Tasks()
    view = Bars() if is_drawable(sys.stderr) else TransferLines(monotonic(), more)
    tasks.start_loop(partial(_watch, grid, view), name="progress of transfers")
    try:
        yield
    finally:
        await tasks.close()
        view.close()


def in_brief(rows: Sequence[FileTransfer]) -> str:
    """`3 files on their way, 41%`; empty if there are none."""
    if not rows:
        return ""
    total = sum(row.total_bytes for row in rows)
    done = sum(row.done_bytes for row in rows)
    return f"{one(len(rows), 'file')} on the way, {done / max(total, 1):.0%}"


class TransferLines:
    """One line about all of it, every half a minute."""

    def __init__(self, now: float, more: Callable[[], str]) -> None:
        self._more = more
        self._next_at = now + LINE_EVERY_S

    def show(self, rows: Sequence[FileTransfer], now: float) -> None:
        if now < self._next_at:
            return
        self._next_at = now + LINE_EVERY_S
        text = "; ".join(filter(None, (_in_full(rows), self._more())))
        if text:
            say(text)

    def close(self) -> None:
        """What has become of it is said by others."""


class Bars:
    """One bar for each transfer that has taken a while."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._since: dict[tuple[str, str], float] = {}
        self._bars: dict[tuple[str, str], TaskID] = {}

    def show(self, rows: Sequence[FileTransfer], now: float) -> None:
        known = {(row.what, row.name): row for row in rows}
        self._since = {key: self._since.get(key, now) for key in known}
        for key in [key for key in self._bars if key not in known]:
            assert self._progress is not None
            self._progress.remove_task(self._bars.pop(key))
        for key, row in known.items():
            if now - self._since[key] < _SHOWN_AFTER_S:
                continue
            if key not in self._bars and len(self._bars) < _BARS_MAX:
                self._bars[key] = self._drawn().add_task(f"{row.what} {row.name}", total=row.total_bytes)
            if key in self._bars:
                self._drawn().update(self._bars[key], completed=row.done_bytes)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _drawn(self) -> Progress:
        if self._progress is None:
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=None, complete_style="cyan", finished_style="green"),
                DownloadColumn(binary_units=True),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=console(stderr=True),
                transient=True,
                expand=True,
            )
            self._progress.start()
        return self._progress


async def _watch(grid: Grid, view: Bars | TransferLines) -> None:
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        view.show(grid.transfers(), monotonic())


def _in_full(rows: Sequence[FileTransfer]) -> str:
    if len(rows) == 1:
        row = rows[0]
        return f"{row.what} {row.name}: {size(row.done_bytes)} of {size(row.total_bytes)}"
    return f"{in_brief(rows)} of {size(sum(row.total_bytes for row in rows))}" if rows else ""
