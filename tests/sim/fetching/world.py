"""One seed, one world of contents that workers need: leaders choose the sources, workers serve each other.

    plan ──► live through it: jobs come, faults come ──► heal ──► drain ──► each need has ended, no source is busy

A third of the worlds is calm: no fault happens, and then no byte may be fetched twice and no need refused.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, Final

from tests.sim.clock import Clock
from tests.sim.fetching.judge import FetchJudge
from tests.sim.fetching.leader import SourceLeader
from tests.sim.fetching.source import ContentSource
from tests.sim.fetching.worker import FetchingProcess, NeedyJob
from tests.sim.process import DOOMS, Process
from tests.sim.story import Story

from wakugumi.core.files.events import CacheFile
from wakugumi.core.transfers.fetch_events import Need
from wakugumi.limits.runner import LARGE_WORK_BYTES

CALM_SHARE: Final = 1 / 3
LIVE_S: Final = 120.0
DRAIN_S: Final = 3_000.0
SETTLE_S: Final = 3.0
"""The last words of a worker reach its leader; no deadline of the leader helps out."""
FAULTS: Final = (
    *("source lies", "source slow", "source cuts", "source full", "worker killed", "worker doomed", "worker paused"),
    *("leader killed", "leader paused", "leader doomed", "place lies", "place cuts", "place slow"),
    *("line lost", "disk full", "content evicted", "job cancelled"),
)


class FetchWorld:
    """Make it from a seed, and `run` it: it returns what happened, or raises Broken."""

    def __init__(self, seed: int, *, story: Story | None = None) -> None:
        self.seed = seed
        self.story = story
        self.random = random = Random(f"fetching-{seed}")
        self.faults = Random(f"fetching-faults-{seed}")
        self.clock = Clock()
        self.began_at = self.clock.now
        self._numbers = 0
        self.turn_s = random.choice([0.0, 0.001, 0.02])
        self.is_stormy = random.random() >= CALM_SHARE
        self.judge = self.checker = FetchJudge(self)
        self.liars: set[str] = set()
        self.sizes = {f"{number:064}": self._size() for number in range(1, random.randint(2, 12))}
        self.kept = {sha256 for sha256 in self.sizes if random.random() < 0.95}
        """Contents in the places of all leaders."""
        self.caches = {
            f"cache{number}": {"file": CacheFile("file", *random.choice(list(self.sizes.items())))}
            for number in range(random.randint(0, 6))
        }
        old = random.random() < 0.1
        self.leaders = [
            SourceLeader(self, number, is_old=old and number == 1) for number in range(random.randint(1, 2))
        ]
        self.workers = [FetchingProcess(self, number) for number in range(1, random.randint(2, 6))]
        self.jobs: list[NeedyJob] = []
        self._jobs_due = random.randint(2, 40)
        self._looks = random.random() < 0.5
        self.kinds = [kind for kind in FAULTS if self.faults.random() < 0.4] if self.is_stormy else []

    def run(self) -> Counter[str]:
        for process in (*self.leaders, *self.workers):
            process.start()
        comes_s = self.random.choice([3.0, 20.0, 0.8 * LIVE_S])
        for _ in range(self._jobs_due):
            self.clock.after(comes_s * self.random.random(), self._new_job)
        for _ in range(self.faults.randint(1, 20) if self.kinds else 0):
            self.clock.after(min(comes_s + 30.0, LIVE_S) * self.faults.random(), self._befall)
        self.clock.run_until(self.clock.now + LIVE_S)
        self._heal()
        self.clock.run_until(self.clock.now + DRAIN_S, self._is_at_rest)
        self.clock.run_until(self.clock.now + SETTLE_S)
        self.judge.look_at_the_end()
        counts = self.judge.counts
        counts["worlds"] = 1
        counts["jobs"] = len(self.jobs)
        counts["virtual seconds"] = int(self.clock.now - self.began_at)
        return counts

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def content_of(self, need: Need) -> tuple[str, int]:
        """Hash and size of a needed content; empty if a cache is unknown."""
        if need.sha256:
            return need.sha256, need.size
        file = self.caches.get(need.cache_id, {}).get(need.name)
        return ("", 0) if file is None else (file.sha256, file.size)

    def tell(self, who: str, what: str, about: Any) -> None:
        if self.story is not None:
            self.story.add(self.clock.now, who, what, about)

    def looks_closely(self) -> bool:
        return self._looks

    def process_died(self, process: Process) -> None:
        self.clock.after(1.0 + 20.0 * self.faults.random(), lambda: None if process.alive else process.start())

    def _is_at_rest(self) -> bool:
        are_told = len(self.jobs) == self._jobs_due and all(job.outcome for job in self.jobs)
        return are_told and not any(one.machine.by_want for one in self.workers)

    def _size(self) -> int:
        return self.random.choice([1_000, 1_000_000, 30_000_000, LARGE_WORK_BYTES + 1])

    def _new_job(self) -> None:
        random = self.random
        worker = random.choice(self.workers)
        if not worker.alive or not worker.has_blobs:  # Such a worker refuses jobs with files, or gets none.
            self.clock.after(5.0, self._new_job)
            return
        needs = [Need(*random.choice(list(self.sizes.items()))) for _ in range(random.randint(0, 3))]
        needs += [
            Need(cache_id=random.choice([*self.caches, "unknown"]), name="file")
            for _ in range(random.choice([0, 0, 1, 2]))
        ]
        job = NeedyJob(len(self.jobs), needs or [Need(*next(iter(self.sizes.items())))])
        self.jobs.append(job)
        worker.start_job(job, soon=random.random() < 0.7)

    # Faults.

    def _befall(self) -> None:
        random, kind = self.faults, self.faults.choice(self.kinds)
        self.judge.counts[f"fault: {kind}"] += 1
        self.tell("world", kind, None)
        worker, leader = random.choice(self.workers), random.choice(self.leaders)
        last_s = 1.0 + 20.0 * random.random()
        match kind:
            case "source lies" | "place lies":
                self._spoil(worker.door if kind == "source lies" else leader.door)
            case "source slow" | "place slow":
                door = worker.door if kind == "source slow" else leader.door
                door.is_slow = True
                self.clock.after(last_s, lambda: setattr(door, "is_slow", False))
            case "source cuts" | "place cuts":
                (worker.door if kind == "source cuts" else leader.door).cuts = random.choice([0.5, 1.0])
            case "source full":
                worker.door.is_full = True
            case "worker killed":
                worker.die(power=False)
            case "worker doomed" if worker.alive:
                worker.doom = random.choice(DOOMS)
            case "leader killed":
                leader.die(power=False)
            case "leader doomed" if leader.alive:
                leader.doom = random.choice(DOOMS)
            case "worker paused" | "leader paused":
                process: Process = worker if kind == "worker paused" else leader
                if process.alive:
                    process.pause()
                    self.clock.after(last_s, process.resume)
            case "line lost" if worker.line is not None:
                worker.line.cut()
            case "disk full":
                worker.is_full = True
                self.clock.after(last_s, lambda: setattr(worker, "is_full", False))
            case "content evicted" if worker.disk and worker.alive:
                worker.evict(random.choice(sorted(worker.disk)))
            case "job cancelled" if worker.jobs and worker.alive:
                worker.cancel(random.choice(list(worker.jobs)))
            case _:
                pass

    def _spoil(self, door: ContentSource) -> None:
        door.lies = True
        self.liars.add(door.name)

    def _heal(self) -> None:
        self.kinds = []
        for leader in self.leaders:
            leader.doom = None
            leader.resume()
            leader.door.heal()
            if not leader.alive:
                leader.start()
        for worker in self.workers:
            worker.doom = None
            worker.is_full = False
            worker.resume()
            if not worker.alive:
                worker.start()
            worker.door.heal()
