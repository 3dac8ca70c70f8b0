"""A worker as a simulated process: the real `slots` between a wire, programs that take their time, and a folder.

Its id and the results of finished programs outlive it; its programs do not, for its guardian ends them. An old worker
is the same machine that asks for none of our own types, and so is never greeted: nine types, written is delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from tests.sim.health import POISON_S
from tests.sim.jobs import Execution, digest_of
from tests.sim.leader import Hello
from tests.sim.net import Link
from tests.sim.process import Process

from wakugumi.core.backoff import with_jitter
from wakugumi.core.ids import ConnId, JobId, WorkerId
from wakugumi.core.leader import events as lev
from wakugumi.core.runner import events as ev
from wakugumi.core.runner.events import SlotsDo
from wakugumi.core.runner.slots import Slots
from wakugumi.core.subject import Pattern
from wakugumi.limits.client import RECONNECT_MAX_S, WORKER_RECONNECT_FIRST_S
from wakugumi.limits.runner import DONE_TTL_S, KILL_GRACE_S

if TYPE_CHECKING:
    from tests.sim.world import World

NOT_BEGUN: Final = b"-"
"""What stands for the number of the execution where there was none."""
UNSYNCED_S: Final = 30.0
"""What the folder took in this long before a power loss may be lost: results are not synced one by one."""


class WorkerSettings(msgspec.Struct, frozen=True):
    """What differs from worker to worker."""

    leader: int
    """Which of the world's leaders it serves, counted from 0."""
    old: bool
    slots: int
    patterns: tuple[Pattern, ...]
    busy_share: float
    """How often others keep its CPU busy."""


class Done(NamedTuple):
    """A finished job in the folder."""

    ok: bool
    reason: str
    payload: bytes
    at: float
    request: bytes = b""
    """The digest of what was run."""


class Worker(Process):
    """One worker, over all its lives."""

    kind = "worker"
    machine: Slots

    def __init__(self, world: World, number: int, settings: WorkerSettings) -> None:
        super().__init__(world, f"worker{number}")
        self.settings = settings
        self.leader = world.leaders[settings.leader]
        self.number = number
        self.worker_id = WorkerId(bytes([0xA0 + number]) * 16)
        self.sick_until = -1.0
        self.spells = 0
        """How often it fell sick."""
        self.folder: dict[JobId, Done] = {}
        self.running: dict[JobId, Execution] = {}
        self.stopping = False
        self.line: Line | None = None
        self._pause_s = WORKER_RECONNECT_FIRST_S
        self.served = False

    def has_work(self) -> bool:
        return self.alive and bool(self.running or self.machine.unconfirmed)

    def is_cut_off(self) -> bool:
        """It has a connection that the network has cut, or that ended behind what it reads slowly, and has not noticed
        it."""
        link = None if self.line is None else self.line.link
        return link is not None and bool(link.harm) and link.number not in self.world.net.links

    # Its life.

    def born(self) -> None:
        self.running = {}
        self.line = None
        self.stopping = False
        self._pause_s = WORKER_RECONNECT_FIRST_S
        self.machine = Slots(self.settings.slots, 0.75, digest=digest_of, old_leader=self.settings.old)
        now = self.clock.now
        self.post(ev.Recovered([(job, now - done.at) for job, done in self.folder.items()]))
        self._dial()

    def died(self, power: bool) -> None:
        for execution in self.running.values():
            execution.end(self.clock.now, "its worker died")
        self.running = {}
        if power:
            now = self.clock.now
            for job in [job for job, done in self.folder.items() if now - done.at < UNSYNCED_S]:
                if self.random.random() < 0.5:
                    del self.folder[job]
        if self.line is not None and self.line.link is not None:
            if power:
                self.line.link.cut(soon=False)
            else:
                self.line.link.close(self.line, lose=True)
        self.line = None

    def _dial(self) -> None:
        self.line = Line(self)
        self.world.net.dial(self.name, self.line, self.leader)

    def lost(self, line: Line, why: str) -> None:
        """Its line is gone, or could not be had: again, after a pause that grows while no leader serves us."""
        if line.link is not None:
            if line.link.harm:
                self.world.checker.trouble(self.name, line.link.harm)
            line.link.close(line, lose=True)
            self.post(ev.LinkLost())
        self.line = None
        if self.served:
            self.served = False
            self._pause_s = WORKER_RECONNECT_FIRST_S
        wait_s = with_jitter(self._pause_s, self.random.random())
        self._pause_s = min(2 * self._pause_s, RECONNECT_MAX_S)
        life = self.life

        def dial() -> None:
            if life == self.life and self.alive:
                if self.paused:
                    self.when_resumed(dial)
                else:
                    self._dial()

        self.clock.after(wait_s, dial)

    # What `slots` asks for.

    def do(self, effect: SlotsDo) -> None:
        if isinstance(effect, ev.StartProgram):
            self._start(effect.job, effect.ticket)
        elif isinstance(effect, ev.KillProgram):
            self._kill(effect.job, effect.code)
        elif isinstance(effect, ev.LoadResult):
            done = self._load(effect.job)
            if done is None:
                self.post(ev.ResultLoaded(effect.job, False, None))
            else:
                self.post(ev.ResultLoaded(effect.job, done.ok, done.payload, done.reason, done.request))
        elif isinstance(effect, ev.ForgetResult):
            if effect.job not in self.running:
                self.folder.pop(effect.job, None)
        elif isinstance(effect, ev.MeasureCpu):
            self.post(ev.CpuMeasured(0.9 if self.random.random() < self.settings.busy_share else 0.1))
        elif isinstance(effect, ev.Probe):
            life = self.life
            self.clock.after(0.05, lambda: self._probed(life))
        elif isinstance(effect, ev.HealthChanged):
            self.world.tell(self.name, f"is out of order: {effect.why}" if effect.why else "is in order", None)
        elif isinstance(effect, ev.HangUpOnLeader):
            if self.line is not None:
                if effect.why.startswith("nothing heard") and self.line.link is not None:
                    self.world.checker.silent(self.line.link, self.name)
                self.line.hang_up()
        elif isinstance(effect, ev.ComplainAboutLeader):
            self.world.checker.complained(self.name, effect.text)
        elif isinstance(effect, ev.RunnerStopped):
            self.die(power=False, why="it was asked to stop")
        elif self.line is None or self.line.link is None:
            pass
        elif isinstance(effect, ev.TellWhenResultsWritten):
            self._tell_when_written(self.line, self.line.link)
        else:
            self._say(self.line.link, effect)

    def _say(self, link: Link, effect: SlotsDo) -> None:
        conn = ConnId(link.number)
        message: object
        if isinstance(effect, ev.SendAck):
            ok, reason = read_result(effect.payload)
            begun = not effect.payload.endswith(NOT_BEGUN)
            blobs = self.world.blobs_of(effect.payload)
            output = "" if begun else "not begun"
            request = b"" if self.settings.old else effect.request
            message = lev.Acked(conn, effect.job, ok, reason, effect.payload, output, blobs, begun, request)
        elif isinstance(effect, ev.SendCredit):
            message = lev.Credited(conn, effect.amount)
        elif isinstance(effect, ev.SendRunnerHeartbeat):
            message = lev.PeerHeard(conn, 0.5, effect.held_by)
        elif isinstance(effect, ev.SendResting):
            message = lev.Rested(conn, effect.why)
        elif isinstance(effect, ev.SendHolding):
            message = lev.WorkerHolds(conn, effect.running, effect.finished, effect.kept)
        elif isinstance(effect, ev.SendFailure):
            failed = b"FAILED|%s|-" % effect.code.encode()
            output = "" if effect.begun else "not begun"
            blobs = self.world.blobs_of(failed)
            message = lev.Acked(conn, effect.job, False, effect.code, failed, output, blobs, effect.begun)
        elif isinstance(effect, ev.SendLeaving):
            message = lev.Leaving(conn)
        else:
            raise AssertionError(effect)
        link.up.send((message,))

    def _tell_when_written(self, line: Line, link: Link) -> None:
        def tell() -> None:
            if line.lives():
                self.post(ev.ResultsWritten())

        link.up.when_written(tell)

    # Its programs and its folder.

    def _start(self, job: JobId, payload: bytes) -> None:
        assert job not in self.running
        self.folder.pop(job, None)
        life = self.life
        request = self.world.requests[job]
        if not self.world.health.has(self.number, request.program):
            self.clock.after(0.01, lambda: self._turn_down(job, "unknown-program", "", life))
            return
        if self.sick_until > self.clock.now:
            self.world.checker.turned_down_by_sick(self, job)
            self.clock.after(0.01, lambda: self._turn_down(job, "disk", "no room", life))
            return
        if request.too_large:
            self.clock.after(0.01, lambda: self._turn_down(job, "disk", "its inputs do not fit", life))
            return
        execution = self.running[job] = self.world.checker.started(self, job, payload)
        self.clock.after(execution.takes_s, lambda: self._ended(execution, life))

    def _kill(self, job: JobId, code: str) -> None:
        execution = self.running.get(job)
        if execution is not None and not execution.killed:
            execution.killed = code
            life = self.life
            self.clock.after(KILL_GRACE_S * self.random.random(), lambda: self._ended(execution, life))

    def _ended(self, execution: Execution, life: int) -> None:
        job = execution.job
        if life != self.life or self.running.get(job) is not execution:
            return
        del self.running[job]
        reason = execution.killed or execution.reason
        execution.end(self.clock.now, reason or "ok")
        status = (b"FAILED" if reason else b"OK") + bytes(self.world.printed_bytes(job))
        payload = b"%s|%s|%d" % (status, reason.encode(), execution.number)
        request = digest_of(execution.payload)
        self.folder[job] = Done(not reason, reason, payload, self.clock.now, request)
        fault = ""
        if self.world.requests[job].poison and not execution.killed:
            fault = "a program broke it"
            self.fall_sick(POISON_S)
        self.post(
            ev.ProgramEnded(job, not reason, reason, payload, self.clock.now - execution.started_at, fault, request)
        )

    # Its health.

    def fall_sick(self, seconds: float) -> None:
        if self.sick_until <= self.clock.now:
            self.spells += 1
        self.sick_until = max(self.sick_until, self.clock.now + seconds)

    def _turn_down(self, job: JobId, reason: str, fault: str, life: int) -> None:
        """It could not be started. What is not the machine's fault is on the disk, as any result."""
        if life == self.life and self.alive:
            payload = b"FAILED|%s|%s" % (reason.encode(), NOT_BEGUN)
            if not fault:
                self.folder[job] = Done(False, reason, payload, self.clock.now)
            self.post(ev.ProgramEnded(job, False, reason, payload, 0.0, fault))

    def _probed(self, life: int) -> None:
        if life == self.life and self.alive:
            self.post(ev.Probed("no room" if self.sick_until > self.clock.now else ""))

    def _load(self, job: JobId) -> Done | None:
        done = self.folder.get(job)
        if done is not None and self.clock.now - done.at > DONE_TTL_S + 1.0 and not self.machine.owes(job):
            del self.folder[job]
            return None
        return done


class Line:
    """A worker's connection, from the dial on."""

    __slots__ = ("deaf", "ended", "life", "link", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.life = worker.life
        self.link: Link | None = None
        self.deaf = False
        self.ended = False

    def on_open(self, link: Link) -> None:
        if not self.lives():
            link.close(self, lose=True)
            return
        worker = self.worker
        if worker.paused:
            worker.when_resumed(lambda: self.on_open(link))
            return
        self.link = link
        own = not worker.settings.old
        joined = lev.WorkerJoined(
            ConnId(link.number),
            worker.worker_id,
            worker.name,
            worker.settings.patterns,
            own,
            own,
            own,
            own,
            worker.settings.slots if own else 0,
            blobs=True,
            key=worker.name if worker.world.guests.guarded else "",
        )
        link.up.send((Hello(joined, ConnId(0), worker.name),))
        worker.post(ev.Opened())

    def on_message(self, message: object) -> None:
        if self.lives() and not self.deaf:
            if isinstance(message, ev.Assigned | ev.LeaderWelcomed):
                self.worker.served = True
            if isinstance(message, ev.Assigned) and self.link is not None:
                self.worker.world.checker.assignment_came(self.worker, ConnId(self.link.number), message.job)
            self.worker.post(message)

    def on_alive(self) -> None:
        if self.lives() and not self.deaf:
            self.worker.post(ev.LeaderAlive())

    def on_blocked(self, blocked: bool) -> None:
        """`slots` asks when what it said is written."""

    def on_lost(self, why: str) -> None:
        if self.lives():
            self.ended = True
            self.worker.lost(self, why)

    def hang_up(self) -> None:
        self.deaf = True
        self.worker.clock.after(0.0, lambda: self.on_lost("hung up"))

    def lives(self) -> bool:
        return not self.ended and self.worker.life == self.life and self.worker.alive


def read_result(payload: bytes) -> tuple[bool, str]:
    """Whether a result is OK, and if not, why."""
    status, reason, _ = payload.split(b"|")
    return status.rstrip(b"\0") == b"OK", reason.decode()
