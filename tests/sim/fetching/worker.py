"""A worker as a simulated process: the real fetching machine, a disk, and a door at which others fetch.

Jobs need contents. A job ends with the first refusal and drops its other needs, like `roles/runner/files/inputs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.sim.fetching.source import ContentSource, Partial, SimFetch
from tests.sim.process import Process

from wakugumi.core.files import events as se
from wakugumi.core.flows import Abandon, ActFailed, Answered, Perform
from wakugumi.core.ids import ConnId, WorkerId
from wakugumi.core.transfers import fetch_events as fe
from wakugumi.core.transfers.fetching import FetchMachine
from wakugumi.limits.files import UPLOADS_PER_WORKER_MAX

if TYPE_CHECKING:
    from tests.sim.fetching.leader import SourceLeader
    from tests.sim.fetching.world import FetchWorld

REDIAL_S = 5.0


class LeaderLine:
    """One connection: what is said arrives in order, unless the line is lost before."""

    def __init__(self, worker: FetchingProcess, leader: SourceLeader, conn: ConnId) -> None:
        self.worker = worker
        self.leader = leader
        self.conn = conn
        self.is_open = True
        self._there_at = self._here_at = 0.0

    def to_leader(self, event: se.SpreadEvent) -> None:
        self._there_at = self._send(self._there_at, lambda: self.leader.hear(self, event))

    def to_worker(self, event: fe.FetchEvent) -> None:
        self._here_at = self._send(self._here_at, lambda: self.worker.post(event))

    def _send(self, not_before: float, call: Callable[[], None]) -> float:
        clock = self.worker.clock
        at = max(not_before, clock.now + 0.02 * self.worker.random.random())
        clock.at(at, lambda: call() if self.is_open else None)
        return at

    def cut(self) -> None:
        if self.is_open:
            self.is_open = False
            self.leader.went(self)
            self.worker.lost(self)


class NeedyJob:
    """A job that waits for contents; told of each, once."""

    def __init__(self, number: int, needs: list[fe.Need]) -> None:
        self.name = f"job{number}"
        self.left = dict.fromkeys(needs)
        self.outcome = ""

    def __repr__(self) -> str:
        return self.name


class FetchingProcess(Process):
    """One worker, over all its lives. Its disk outlives it."""

    kind = "worker"
    machine: FetchMachine

    def __init__(self, world: FetchWorld, number: int) -> None:
        super().__init__(world, f"worker{number}")  # type: ignore[arg-type]
        self.here = world
        self.worker = WorkerId(number.to_bytes(16, "big"))
        self.disk: set[str] = set()
        self.partials: dict[str, Partial] = {}
        self.is_full = False
        self.line: LeaderLine | None = None
        self.has_blobs = False
        self.jobs: dict[NeedyJob, None] = {}
        self.fetches: dict[int, SimFetch] = {}
        self.door = ContentSource(world, self.name, UPLOADS_PER_WORKER_MAX)
        self.is_source = world.random.random() < 0.9
        """Others can reach it."""

    @property
    def url(self) -> str:
        return f"http://{self.name}/{self.life}" if self.is_source else ""

    def born(self) -> None:
        self.machine = FetchMachine(self.clock.now, self.random.random)
        door = self.door
        self.door = ContentSource(self.here, self.name, UPLOADS_PER_WORKER_MAX)
        self.door.contents = self.disk
        self.door.lies, self.door.is_slow, self.door.cuts = door.lies, door.is_slow, door.cuts
        self.later(2.0, self._dial)

    def died(self, power: bool) -> None:
        del power
        for fetch in self.fetches.values():
            fetch.stop()
        self.fetches.clear()
        self.door.close()
        self.machine.close()
        for job in self.jobs:
            self.here.judge.job_ended(self, job, "its worker died")
        self.jobs.clear()
        if self.line is not None:
            self.line.cut()

    def has_work(self) -> bool:
        return bool(self.fetches)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Unless this life ends before."""
        life = self.life
        self.clock.after(seconds * self.random.random(), lambda: call() if self.alive and life == self.life else None)

    # The leader.

    def _dial(self) -> None:
        leader = self.random.choice(self.here.leaders)
        if self.line is not None:
            return
        if not leader.alive or self.paused:
            self.later(REDIAL_S, self._dial)
            return
        line = self.line = LeaderLine(self, leader, ConnId(self.here.next_number()))
        leader.lines[line.conn] = line
        self.has_blobs = not leader.is_old
        if leader.is_old:
            line.to_worker(fe.NoBlobsOffered())
            return
        line.to_leader(se.WorkerCame(line.conn, self.worker, self.name, (), True))
        line.to_leader(se.Stocked(line.conn, True, self.url, "key", sorted(self.disk), (), {}))
        self.post(fe.BlobsOffered())

    def lost(self, line: LeaderLine) -> None:
        if self.line is line:
            self.line, self.has_blobs = None, False
            if self.alive:
                self.post(fe.OfferLost())
                self.later(REDIAL_S, self._dial)

    def tell_stock(self, here: list[str], gone: list[str]) -> None:
        if self.line is not None and self.has_blobs:
            self.line.to_leader(se.Stocked(self.line.conn, False, self.url, "key", here, gone, {}))

    def evict(self, sha256: str) -> None:
        self.disk.discard(sha256)
        self.tell_stock([], [sha256])

    # Jobs.

    def start_job(self, job: NeedyJob, *, soon: bool) -> None:
        for need in list(job.left):
            if need.sha256 in self.disk:
                del job.left[need]
        if not job.left:
            self.here.judge.job_ended(self, job, "all was here")
            return
        self.jobs[job] = None
        for need in job.left:
            self.post(fe.ContentNeeded(need, job, soon))

    def cancel(self, job: NeedyJob, why: str = "cancelled") -> None:
        if job in self.jobs:
            del self.jobs[job]
            for need in job.left:
                self.post(fe.NeedDropped(need, job))
            self.here.judge.job_ended(self, job, why)

    def _told(self, end: fe.NeedEnded) -> None:
        job = end.waiter
        assert isinstance(job, NeedyJob)
        self.here.judge.told(self, job, end)
        if job not in self.jobs:
            return
        del job.left[end.need]
        if end.error is not None:
            self.cancel(job, f"refused: {end.error.code}")
        elif not job.left:
            del self.jobs[job]
            self.here.judge.job_ended(self, job, "done")

    # The machine.

    def do(self, effect: Any) -> None:
        match effect:
            case fe.SendWant():
                self._send_want(effect)
            case fe.NeedEnded():
                self._told(effect)
            case Perform(number, fe.IsBlobHere() as look):
                is_here = look.sha256 in self.disk
                if is_here:
                    self.tell_stock([look.sha256], [])
                self._answer(number, is_here)
            case Perform(number, fe.FetchBlob() as act):
                self._fetch(number, act)
            case Abandon(number):
                if (fetch := self.fetches.pop(number, None)) is not None:
                    fetch.stop()
            case _:
                pass

    def _send_want(self, effect: fe.SendWant) -> None:
        self.here.judge.wants(self, effect)
        line, need = self.line, effect.need
        if line is None or not self.has_blobs:
            return
        sha256, size = self.here.content_of(need)
        is_here = sha256 in self.here.kept
        line.to_leader(
            se.BlobWanted(
                line.conn,
                effect.want.to_bytes(16, "big"),
                need.sha256,
                need.size,
                need.cache_id,
                need.name,
                effect.why,
                here=is_here,
                is_sure=is_here and size == need.size,
            )
        )

    def _fetch(self, number: int, act: fe.FetchBlob) -> None:
        if act.sha256 in self.disk:
            self.tell_stock([act.sha256], [])
            self._answer(number, None)
            return
        life, source = self.life, self._source_at(act.url)

        def answer(error: Exception | None) -> None:
            if life != self.life or self.fetches.pop(number, None) is None:
                return
            if error is None:
                self.tell_stock([act.sha256], [])
                self._answer(number, None)
            else:
                self.post(ActFailed(number, error))

        self.fetches[number] = SimFetch(self, act, source, answer)
        self.here.judge.fetches(self)

    def _source_at(self, url: str) -> ContentSource | None:
        if not url:
            return None if self.line is None or not self.line.leader.alive else self.line.leader.door
        return next((one.door for one in self.here.workers if one.url == url and one.alive), None)

    def _answer(self, number: int, answer: Any) -> None:
        for _ in range(2 if self.here.is_stormy and self.here.faults.random() < 0.02 else 1):
            self.post(Answered(number, answer))
