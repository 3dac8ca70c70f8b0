"""Was content wrong, a download given up too early or too late, or a place asked too often?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tests.sim.checker import BROKEN, LEAKED, LOST, Broken
from tests.sim.downloads.place import FINAL

from wakugumi.core.transfers.transfers import Arrived
from wakugumi.errors import Refused

if TYPE_CHECKING:
    from tests.sim.downloads.client import Download
    from tests.sim.downloads.world import DownloadWorld
    from tests.sim.process import Process

BACK_S: Final = 12.0
"""A place that is back in this time is met by another try."""
TRIES_MAX: Final = 8
"""More tries than this are for ever."""
PAUSE_S: Final = 0.3


class DownloadJudge:
    """Of one world."""

    def __init__(self, world: DownloadWorld) -> None:
        self._world = world
        self.counts: Counter[str] = Counter()
        self._failed_at: dict[Download, float] = {}
        """First failure of a download in this life."""
        self._last: dict[Download, tuple[float, Exception | None]] = {}
        self._tries: Counter[Download] = Counter()
        self._came: Counter[Download] = Counter()

    def broken(self, download: Download | None, what: str, sort: str = BROKEN) -> None:
        raise Broken(None, what if download is None else f"{download.name}: {what}", sort)

    def process_died(self, _process: Process) -> None:
        self.counts["clients that died"] += 1

    def begins(self, download: Download) -> None:
        self._failed_at.pop(download, None)
        self._last.pop(download, None)
        self._tries[download] = self._came[download] = 0

    def tries(self, download: Download) -> None:
        self.counts["tries"] += 1
        self._tries[download] += 1
        at, error = self._last.get(download, (0.0, None))
        if isinstance(error, Refused) and error.code in FINAL:
            self.broken(download, f"is tried again after {error.code}")
        if error is not None and self._world.clock.now - at < PAUSE_S:
            self.broken(download, "is tried again without a pause")
        if self._tries[download] > TRIES_MAX:
            self.broken(download, "is tried for ever")

    def tried(self, download: Download, error: Exception | None) -> None:
        now = self._world.clock.now
        self._last[download] = now, error
        if error is not None:
            self._failed_at.setdefault(download, now)

    def came(self, download: Download, size: int) -> None:
        self.counts["bytes"] += size
        self._came[download] += size
        if not self._world.is_stormy and self._came[download] > download.size:
            self.broken(download, "was sent bytes twice")

    def ended(self, download: Download, outcome: Any) -> None:
        now, error = self._world.clock.now, self._last[download][1]
        if isinstance(outcome, Arrived):
            self.counts["downloads arrived"] += 1
            if error is not None or download.at != download.size or download.is_wrong:
                self.broken(download, f"arrived with {download.at} of {download.size} bytes after {error!r}")
            return
        self.counts[f"given up: {getattr(error, 'code', '') or 'lost'}"] += 1
        if not self._world.is_stormy:
            self.broken(download, f"was given up: {error!r}", LOST)
        is_final = isinstance(error, Refused) and error.code in FINAL
        if not is_final and now - self._failed_at[download] < BACK_S:
            self.broken(download, f"was given up after {now - self._failed_at[download]:.1f} s: {error!r}", LOST)
        if outcome.error is not error or outcome.unforeseen is not None:
            self.broken(download, f"tells {outcome!r} and not {error!r}")

    def look_at_the_end(self) -> None:
        for download in self._world.downloads:
            if not download.is_over:
                self.broken(download, "has no end", LOST)
            if download.alive and download.machine.wake_at() is not None:
                self.broken(download, "has left a timer", LEAKED)
        if self._world.place.fetches:
            self.broken(None, "fetches are left", LEAKED)
