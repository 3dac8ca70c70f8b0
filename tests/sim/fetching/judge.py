"""Does each need end, with the right content, without fetching twice, and is no source left busy?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.sim.checker import BROKEN, LEAKED, LOST, TWICE, Broken

from wakugumi.core.transfers import fetch_events as fe
from wakugumi.limits.files import FETCHES_MAX, LARGE_TRANSFERS_MAX
from wakugumi.limits.runner import LARGE_WORK_BYTES

if TYPE_CHECKING:
    from tests.sim.fetching.source import ContentSource
    from tests.sim.fetching.worker import FetchingProcess, NeedyJob
    from tests.sim.fetching.world import FetchWorld
    from tests.sim.process import Process

SPAN_S = 5.0
WANTS_PER_SPAN_MAX = 12
"""Wants of one need in a span: a second try follows at once, later ones after growing pauses."""


class FetchJudge:
    """Of one world."""

    def __init__(self, world: FetchWorld) -> None:
        self._world = world
        self.counts: Counter[str] = Counter()
        self._bytes: Counter[tuple[str, str]] = Counter()
        """Bytes that came, by worker and content."""
        self._wants: Counter[tuple[str, int, fe.Need, int]] = Counter()
        self._told: set[tuple[NeedyJob, fe.Need]] = set()
        self._liars: set[str] = set()

    def broken(self, what: str, sort: str = BROKEN) -> None:
        raise Broken(None, what, sort)

    def process_died(self, _process: Process) -> None:
        self.counts["processes that died"] += 1

    # Sources.

    def serves(self, source: ContentSource, worker: FetchingProcess) -> None:
        self.counts["fetches that moved bytes"] += 1
        if source is worker.door:
            self.broken(f"{worker.name} fetches from itself")

    def lied(self, source: ContentSource | None) -> None:
        self.counts["lies that were found"] += 1
        if source is not None and source.name not in self._world.liars:
            self.broken(f"{source.name} is accused of a lie, and never told one")

    def came(self, worker: FetchingProcess, sha256: str, count: int) -> None:
        if count < 0:
            self.broken(f"{worker.name} loses bytes of {sha256}")
        row = worker.name, sha256
        self._bytes[row] += count
        if not self._world.is_stormy and self._bytes[row] > self._world.sizes[sha256]:
            self.broken(f"{worker.name} fetches bytes of {sha256} twice")

    # Workers.

    def fetches(self, worker: FetchingProcess) -> None:
        self.counts["fetches"] += 1
        acts = [fetch.act for fetch in worker.fetches.values()]
        if len(acts) > FETCHES_MAX:
            self.broken(f"{worker.name} fetches {len(acts)} contents at once")
        if len({act.sha256 for act in acts}) < len(acts):
            self.broken(f"{worker.name} fetches one content twice at the same time")
        if sum(act.size > LARGE_WORK_BYTES for act in acts) > LARGE_TRANSFERS_MAX:
            self.broken(f"{worker.name} fetches too many large contents at once")

    def wants(self, worker: FetchingProcess, want: fe.SendWant) -> None:
        self.counts["wants"] += 1
        if worker.line is None:
            self.broken(f"{worker.name} wants {want.need}, and has no leader")
        row = worker.name, want.want, want.need, int(self._world.clock.now / SPAN_S)
        self._wants[row] += 1
        if self._wants[row] > WANTS_PER_SPAN_MAX:
            self.broken(f"{worker.name} wants {want.need} again and again without a pause")

    def told(self, worker: FetchingProcess, job: NeedyJob, end: fe.NeedEnded) -> None:
        if (job, end.need) in self._told:
            self.broken(f"{job} is told twice of {end.need}", TWICE)
        self._told.add((job, end.need))
        if end.error is None:
            self.counts["needs: here"] += 1
            if (end.sha256, end.size) != self._world.content_of(end.need):
                self.broken(f"{job} gets {end.sha256} for {end.need}")
            if end.sha256 not in worker.disk and not self._world.is_stormy:
                self.broken(f"{job} is told that {end.sha256} is here, and it is not")
            return
        self.counts[f"needs: {end.error.code}"] += 1
        is_kept = self._world.content_of(end.need)[0] in self._world.kept
        has_old = any(leader.is_old for leader in self._world.leaders)
        is_right = {
            "no-blob": not is_kept or self._world.is_stormy or has_old,
            "no-cache": has_old or end.need.cache_id not in self._world.caches,
            "disk": self.counts["fault: disk full"] > 0,
            "blob-broken": bool(self._world.liars),
            "worker-error": self._world.is_stormy,
        }
        if not is_right.get(end.error.code, False):
            self.broken(f"{end.need} is refused to {job} without a cause: {end.error}")

    def job_ended(self, _worker: FetchingProcess, job: NeedyJob, outcome: str) -> None:
        if job.outcome:
            self.broken(f"{job} ends twice: {job.outcome}, {outcome}", TWICE)
        job.outcome = outcome
        self.counts[f"jobs: {outcome}"] += 1

    # The end.

    def look_at_the_end(self) -> None:
        world = self._world
        for job in world.jobs:
            if not job.outcome:
                self.broken(f"{job} waits for {list(job.left)}", LOST)
        for worker in world.workers:
            machine = worker.machine
            self._look(worker.name, {
                "fetches": len(machine.by_want), "turns": machine.turns.taken,
                "asked": sum(machine.line.taken.values()), "in line": sum(map(len, machine.line.waiting.values())),
                "acts": len(worker.fetches),
                "served": len(worker.door.serving), "timers": int(machine.wake_at() is not None),
            })  # fmt: skip
            machine.check()
            machine.close()
        for leader in world.leaders:
            counters = leader.machine.sources.counters()
            self._look(leader.name, {
                "sources that are busy": counters.fetching, "wants in line": counters.waiting,
                "served": len(leader.door.serving),
            })  # fmt: skip
            leader.machine.check()

    def _look(self, name: str, left: dict[str, int]) -> None:
        if any(left.values()):
            self.broken(f"{name} has left {left}", LEAKED)
