"""A leader with callers by HTTP as a simulated process: the real machines of both, between callers, workers and a disk.

Like `roles/leader/http/clients.py` with other hands. Workers are simple: they run a job and say so, or get lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from tests.sim.callers.caller import Visit
from tests.sim.disk import Disk
from tests.sim.nodes.leader import NodePart
from tests.sim.process import Process

from wakugumi.core.ids import ClientId, ConnId, JobId, WorkerId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.callers import events as cv
from wakugumi.core.leader.callers.machine import CallersMachine
from wakugumi.core.leader.events import LeaderDo
from wakugumi.core.leader.journal.entries import LeaderKeep
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.core.step import Step
from wakugumi.core.subject import parse_pattern

if TYPE_CHECKING:
    from tests.sim.callers.world import CallersWorld

PATTERNS: Final = (parse_pattern("job.assign.>"),)


class HttpLeader(Process):
    """The leader of a world, over all its lives."""

    kind = "leader"
    machine: LeaderMachine
    callers: CallersMachine

    def __init__(self, world: CallersWorld) -> None:
        super().__init__(world, "leader")  # type: ignore[arg-type]
        self.here = world
        self.disk = Disk(self)  # type: ignore[arg-type]
        self.visits: dict[int, Visit] = {}
        """All requests that the machine of callers knows."""
        self.sessions: set[ConnId] = set()
        self.workers: dict[ConnId, SimpleWorker | NodePart] = {}
        self.is_stopping = False
        self._is_first = True
        self._heard: deque[cv.CallersEvent] = deque()
        self._is_hearing = False
        self._look_at = float("inf")

    @property
    def is_listening(self) -> bool:
        return self.alive and not self.is_stopping

    # Its life.

    def born(self) -> None:
        world, conns = self.here, count(1)
        self.visits, self.sessions, self.workers = {}, set(), {}
        self.is_stopping, self._is_first = False, True
        self._heard.clear()
        self._is_hearing = False
        self._look_at = float("inf")
        self._numbers = count(1)
        self.new_conn = lambda: ConnId(next(conns))
        self.disk.reopen()
        self.machine = LeaderMachine(
            self.random.random, now=self.clock.now, keeps=world.keeps, queue_jobs_max=world.queue_max
        )
        self.callers = CallersMachine(world.cap, self.new_conn, world.bounds)
        if world.keeps:
            self.machine.recover(self.disk.read_all(), self.clock.now)
            self.machine.check()

    def died(self, power: bool) -> None:
        del power
        self.disk.crash()
        for visit in [visit for want in self.here.wants for visit in want.visits]:
            visit.lost()
        for worker in list(self.workers.values()):
            if isinstance(worker, SimpleWorker):
                worker.lose()

    def has_work(self) -> bool:
        return self.alive and bool(self.visits)

    def stop(self, deadline_s: float) -> None:
        """As by a signal: it drains, and answers those that wait when it ends."""
        if self.is_listening:
            self.is_stopping = True
            self.post(ev.StopWanted())
            life = self.life
            self.clock.after(deadline_s, lambda: self._close() if self.alive and life == self.life else None)

    def _close(self) -> None:
        self.hear(cv.CallersClosed())
        self.die(power=False, why="it was asked to stop")

    # The machine of callers.

    def enter(self, visit: Visit, client: ClientId) -> None:
        """A request came, and its input is received."""

        def enter() -> None:
            why = self.machine.why_not(visit.want.job)
            if self._is_first:
                self._is_first = False
                self.hear(cv.ResultsAdopted(self.machine.unclaimed(ClientId("http"))))
            if why is not None:
                visit.refused(why.code)
            else:
                visit.number, visit.life = next(self._numbers), self.life
                self.visits[visit.number] = visit
                self.hear(cv.JobWanted(visit.number, client, visit.want.job, visit.says))

        self._soon(enter)

    def say_gone(self, visit: Visit) -> None:
        self._soon(lambda: self.hear(cv.HttpCallerGone(visit.number)), visit.life)

    def written(self, visit: Visit) -> None:
        self._soon(lambda: self.hear(cv.AnswerWritten(visit.number)), visit.life)

    def _soon(self, call: Callable[[], None], life: int = 0) -> None:
        """Now, or when it is resumed; never in another life."""
        if self.alive and (life or self.life) == self.life:
            if self.paused:
                self.when_resumed(call)
            else:
                call()

    def hear(self, event: cv.CallersEvent | None) -> None:
        """None: the time that it asked for has come."""
        self._heard.append(event)  # type: ignore[arg-type]
        if self._is_hearing:
            return
        self._is_hearing = True
        while self._heard and self.alive:
            one = self._heard.popleft()
            now = self.clock.now
            step = self.callers.tick(now) if one is None else self.callers.handle([one], now)
            if self.here.looks_closely():
                self.callers.check()
            if one is not None:
                self.here.tell("callers", "<", one)
            self.here.judge.look_at_confirms(one, step.do)
            for effect in step.do:
                self.here.tell("callers", ">", effect)
                self._act(effect)
        self._is_hearing = False
        wake_at = self.callers.wake_at()
        if self.alive and wake_at is not None and wake_at < self._look_at:
            self._look_at = wake_at
            life = self.life
            self.clock.at(wake_at, lambda: self._soon(self._look, life))

    def _look(self) -> None:
        self._look_at = float("inf")
        self.hear(None)
        if self.alive:
            self.here.judge.look_for_gone(self)

    def _act(self, effect: cv.CallersDo) -> None:
        match effect:
            case cv.TellLeader(event):
                self.post(event)
            case cv.GiveResult(number, result):
                self.visits[number].given(result)
            case cv.ReleaseRequest(number):
                del self.visits[number]
            case cv.RefuseRequest(number, code, _):
                self.visits.pop(number).refused(code)
            case cv.DropRequest(number):
                self.visits.pop(number).dropped()
            case cv.LookAtCallers(numbers):
                gone = [number for number in numbers if self.visits[number].is_gone]
                self.hear(cv.CallersSeen(gone, self.is_stopping))
            case cv.SessionOpened(conn):
                self.sessions.add(conn)
            case cv.SessionClosed(conn):
                self.sessions.remove(conn)
            case cv.WarnOfCaller(text):
                self.here.judge.counts[f"complaint: {text}"] += 1

    # The leader's machine: keep, then perform.

    def stepped(self, step: Step[LeaderKeep, LeaderDo]) -> None:
        if self.doom == "handled" and (step.keep or step.do):
            self.die(power=False, why="killed before its step was kept")
            return
        for effect in step.at_once:
            self.do(effect)
        if step.keep or self.disk.busy:
            self.disk.commit(step)
        else:
            self.perform(step.do)

    def committed(self, leaf: int, step: Step[LeaderKeep, LeaderDo]) -> None:
        if self.doom == "committed":
            self.die(power=False, why="killed after its step was kept, before it was performed")
            return
        if leaf:
            self.disk.performed_leaf = leaf
        self.perform(step.do)

    def do(self, effect: Any) -> None:
        if isinstance(effect, ev.LoadPayloads):
            leaf, jobs = effect.leaf, effect.jobs
            self.post(ev.PayloadsLoaded(leaf, jobs, self.disk.payloads(leaf, jobs)))
        elif isinstance(effect, ev.LeaderStopped):
            self._close()
        elif not isinstance(effect, ev.SendAnswer | ev.SendNo | ev.BlobsFreed):
            if effect.conn in self.sessions:
                self.hear(effect)
            elif (worker := self.workers.get(effect.conn)) is not None:
                worker.perform(effect)


class SimpleWorker:
    """Runs what it is given. One that is lost forgets its jobs, and comes back."""

    def __init__(self, world: CallersWorld, number: int, slots: int) -> None:
        self.world = world
        self.id = WorkerId(number.to_bytes(16, "big"))
        self.slots = slots
        self.conn: ConnId | None = None
        self.running: dict[JobId, int] = {}
        """The number of the execution."""

    def join(self) -> None:
        leader = self.world.leader
        if self.conn is None and leader.alive:
            self.conn = leader.new_conn()
            leader.workers[self.conn] = self
            leader.post(
                ev.WorkerJoined(self.conn, self.id, "worker", PATTERNS, False, False, False, True, slots=self.slots)
            )
            leader.post(ev.Credited(self.conn, self.slots))

    def lose(self) -> None:
        """Its connection ends, and so do its programs."""
        if self.conn is not None:
            leader = self.world.leader
            del leader.workers[self.conn]
            if leader.alive:
                leader.post(ev.Left(self.conn))
            for job in self.running:
                self.world.judge.excuse(job)
            self.conn, self.running = None, {}

    def perform(self, effect: LeaderDo) -> None:
        if isinstance(effect, ev.SendAssign):
            number = self.running[effect.job] = self.world.judge.runs(effect.job, effect.payload)
            takes_s = self.world.random.choice(self.world.takes_s)
            self.world.clock.after(takes_s, lambda: self._end(effect.job, effect.payload, number))
        elif isinstance(effect, ev.SendCancel) and effect.job in self.running:
            self._say(effect.job, b"FAILED", b"", "cancelled")

    def _end(self, job: JobId, body: bytes, number: int) -> None:
        if self.running.get(job) == number:
            is_ok = self.world.faults.random() >= self.world.fails
            self._say(job, b"OK" if is_ok else b"FAILED", body, "" if is_ok else "exit")

    def _say(self, job: JobId, status: bytes, body: bytes, reason: str) -> None:
        assert self.conn is not None
        number = self.running.pop(job)
        payload = b"%s|%s|%d|" % (status, body, number) + b"." * self.world.random.choice([0, 10, 100])
        self.world.leader.post(ev.Acked(self.conn, job, not reason, reason, payload))
        self.world.leader.post(ev.Credited(self.conn, 1))
