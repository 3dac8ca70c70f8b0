"""One seed, one world of downloads: users fetch large parts of their results from a place.

    plan ──► live through it: downloads begin, faults come ──► heal ──► drain ──► each has ended, right and in time

A third of the worlds is calm: no fault happens, and then each arrives, and no byte is sent twice.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, Final

from tests.sim.clock import Clock
from tests.sim.downloads.client import Download
from tests.sim.downloads.judge import DownloadJudge
from tests.sim.downloads.place import BLOB_BUSY, DENIED, FULL, DownloadPlace
from tests.sim.process import Process
from tests.sim.story import Story

CALM_SHARE: Final = 1 / 3
LIVE_S: Final = 90.0
DRAIN_S: Final = 600.0
"""The most tries at a place that sends nothing, twice over."""
FAULTS: Final = (
    *("place away", "place slow", "place cuts", "place lies", "place full", "place busy", "place denies"),
    *("content lost", "client killed", "client paused", "client slow", "download left", "disk full"),
)


class DownloadWorld:
    """Make it from a seed, and `run` it: it returns what happened, or raises Broken."""

    def __init__(self, seed: int, *, story: Story | None = None) -> None:
        self.seed = seed
        self.story = story
        self.random = random = Random(f"downloads-{seed}")
        self.faults = Random(f"downloads-faults-{seed}")
        self.clock = Clock()
        self.began_at = self.clock.now
        self.turn_s = random.choice([0.0, 0.001, 0.02])
        self.is_stormy = random.random() >= CALM_SHARE
        self.judge = self.checker = DownloadJudge(self)
        self.place = DownloadPlace(self)
        self.downloads = [self._draw(number) for number in range(random.randint(8, 40))]
        self._looks = random.random() < 0.5
        self.kinds = [kind for kind in FAULTS if self.faults.random() < 0.4] if self.is_stormy else []

    def run(self) -> Counter[str]:
        comes_s = self.random.choice([1.0, 10.0, 0.9 * LIVE_S])
        for download in self.downloads:
            self.clock.after(comes_s * self.random.random(), download.start)
        for _ in range(self.faults.randint(1, 16) if self.kinds else 0):
            self.clock.after(min(comes_s + 10.0, LIVE_S) * self.faults.random(), self._befall)
        self.clock.run_until(self.clock.now + LIVE_S)
        self._heal()
        self.clock.run_until(self.clock.now + DRAIN_S, lambda: all(one.is_over for one in self.downloads))
        self.judge.look_at_the_end()
        counts = self.judge.counts
        counts["worlds"] = 1
        counts["jobs"] = len(self.downloads)
        counts["virtual seconds"] = int(self.clock.now - self.began_at)
        return counts

    def tell(self, who: str, what: str, about: Any) -> None:
        if self.story is not None:
            self.story.add(self.clock.now, who, what, about)

    def looks_closely(self) -> bool:
        return self._looks

    def process_died(self, process: Process) -> None:
        """Its user begins anew, unless the download was left."""
        assert isinstance(process, Download)
        if not process.is_over:
            self.clock.after(1.0 + 5.0 * self.faults.random(), lambda: None if process.alive else process.start())

    def _draw(self, number: int) -> Download:
        sha256 = f"{self.random.randint(1, 20):064}"
        size = self.place.sizes.setdefault(sha256, self.random.choice([1_000, 1_000_000, 50_000_000, 300_000_000]))
        return Download(self, number, sha256, size)

    # Faults.

    def _befall(self) -> None:
        random, kind, place = self.faults, self.faults.choice(self.kinds), self.place
        self.judge.counts[f"fault: {kind}"] += 1
        self.judge.counts[f"met: {kind}"] += any(one.has_work() for one in self.downloads)
        self.tell("world", kind, None)
        download = random.choice(self.downloads)
        last_s = random.choice([2.0, 10.0, 80.0]) * random.random()
        match kind:
            case "place away":
                place.go_away()
            case "place slow":
                place.is_slow = True
            case "place cuts":
                place.cuts = random.choice([0.5, 1.0])
            case "place lies":
                place.lies = True
            case "place full":
                place.refuses = FULL
            case "place busy":
                place.refuses = BLOB_BUSY
            case "place denies":
                place.refuses = DENIED
            case "content lost":
                place.lost.add(download.sha256)
            case "client killed" if download.has_work():
                download.die(power=False)
            case "client paused" if download.has_work():
                download.pause()
                self.clock.after(last_s, download.resume)
            case "client slow":
                download.slow_s = random.random()
            case "download left":
                download.leave()
            case "disk full":
                download.disk_is_full = True
                self.clock.after(last_s, lambda: setattr(download, "disk_is_full", False))
            case _:
                pass
        if kind.startswith("place"):
            self.clock.after(last_s, place.heal)

    def _heal(self) -> None:
        self.kinds = []
        self.place.heal()
        for download in self.downloads:
            download.resume()
            if not download.alive and not download.is_over:
                download.start()
