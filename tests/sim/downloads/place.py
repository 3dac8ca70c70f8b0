"""The place that a client downloads from, and one fetch: a place may be away, busy, slow, cut at any byte, lie, answer
nonsense, or have lost the content.

Bytes that came stay in the client's file, also wrong ones: the next try goes on behind them. Wrong bytes show at the
end, as a refusal (`adapters/blobs/temporary`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from wakugumi.errors import Lost, Refused

if TYPE_CHECKING:
    from tests.sim.downloads.client import Download
    from tests.sim.downloads.world import DownloadWorld

SPEED: Final = 10_000_000.0
"""Bytes a second."""
SILENCE_S: Final = 30.0
"""A place that sends no byte for this long is lost."""
FULL, BLOB_BUSY, DENIED = "full", "blob-busy", "denied"
FINAL: Final = frozenset({"no-blob", "blob-broken", DENIED, "disk"})
"""Refusals that no further try changes."""


class DownloadPlace:
    """One place, over all its troubles."""

    def __init__(self, world: DownloadWorld) -> None:
        self.world = world
        self.sizes: dict[str, int] = {}
        self.lost: set[str] = set()
        self.is_away = self.is_slow = self.lies = False
        self.refuses = ""
        """Code of its refusals."""
        self.cuts = 0.0
        self.fetches: dict[PlaceFetch, None] = {}

    @property
    def is_well(self) -> bool:
        return not (self.is_away or self.is_slow or self.lies or self.refuses or self.cuts)

    def heal(self) -> None:
        self.is_away = self.is_slow = self.lies = False
        self.refuses = ""
        self.cuts = 0.0

    def go_away(self) -> None:
        self.is_away = True
        for fetch in list(self.fetches):
            fetch.cut()


class PlaceFetch:
    """One fetch under way. `answer` is called once, with None or an error, unless it is stopped."""

    def __init__(self, place: DownloadPlace, download: Download, answer: Callable[[Exception | None], None]) -> None:
        self._place = place
        self._download = download
        self._answer = answer
        self._world = place.world
        self._is_over = False
        self._began_at = 0.0
        self.was_well = place.is_well
        place.fetches[self] = None
        self._after(0.1 * self._world.random.random(), self._begin)

    def stop(self) -> None:
        """The client ends, or does not want the content any more."""
        self._is_over = True
        self._place.fetches.pop(self, None)

    def cut(self) -> None:
        self._keep()
        self._end(Lost("cut off", "dead"))

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self._world.clock.after(seconds, lambda: None if self._is_over else call())

    def _end(self, error: Exception | None) -> None:
        if not self._is_over:
            self.stop()
            self._answer(error)

    def _begin(self) -> None:
        place, download, faults = self._place, self._download, self._world.faults
        if place.is_away:
            self._end(Lost("nobody listens", "refused"))
        elif place.refuses:
            self._end(Refused(place.refuses, "not now, or never"))
        elif download.sha256 in place.lost:
            self._end(Refused("no-blob", "it was here"))
        elif download.disk_is_full:
            self._end(Refused("disk", "no room"))
        else:
            self._began_at = self._world.clock.now
            whole_s = (download.size - download.at) / SPEED
            if place.is_slow:
                self._after(SILENCE_S, lambda: self._end(Lost("no byte came", "slow")))
            elif faults.random() < place.cuts:
                self._after(whole_s * faults.random(), self.cut)
            else:
                self._after(whole_s, self._finish)

    def _keep(self) -> None:
        """Bytes until now are in the file."""
        if self._began_at and not self._place.is_slow:
            self._came(int((self._world.clock.now - self._began_at) * SPEED))

    def _came(self, moved: int) -> None:
        download = self._download
        moved = min(moved, download.size - download.at)
        self._world.judge.came(download, moved)
        download.at += moved
        download.is_wrong |= moved > 0 and self._place.lies

    def _finish(self) -> None:
        self._came(self._download.size)
        if self._download.is_wrong:
            self._download.at, self._download.is_wrong = 0, False
            self._end(Refused("blob-broken", "another content"))
        else:
            self._end(None)
