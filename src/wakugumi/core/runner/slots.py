"""How many jobs may run here, which of them, and what is sent to the leader? The runner's state machine.

    credit        where is every slot: offered to the leader, busy, held back or kept
    jobs_here     where is every assigned job: running, looked up on the disk, due or waiting
    leader_line   which kind of leader is connected, and does it still answer
    answers       which results are sent to the leader, now or again
    callers       which jobs do callers of this machine want (N1, N2)
    health        can programs be started here (W9)
    cpu_watch     do other programs leave enough CPU (W2)
    assignments   how does each job go on, from its assignment until its slots are free again

`slots_state` holds these parts. This file dispatches events to them, and connects and disconnects the leader. Without a
leader there is no credit, and running jobs continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, assert_never

from wakugumi.core.ids import JobId
from wakugumi.core.runner import events as ev
from wakugumi.core.runner.assignments import Assignments
from wakugumi.core.runner.events import SlotsEvent, SlotsStep
from wakugumi.core.runner.leader_line import LeaderKind
from wakugumi.core.runner.slots_state import SlotsState
from wakugumi.core.step import Step
from wakugumi.limits.runner import DONE_TTL_S
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.limits.wire import DRAIN_DEADLINE_S

CLEAN_UP_S: Final = 60.0
"""Pause between two searches for finished jobs whose TTL is over."""

_NEVER: Final = float("inf")


class Slots:
    """The slots of one machine, offered to one leader and to callers of the machine itself."""

    def __init__(
        self,
        slots: int,
        cpu_cap: float,
        done_ttl_s: float = DONE_TTL_S,
        *,
        rests: bool = True,
        digest: Callable[[ev.Ticket], bytes] = lambda _: b"",
        old_leader: bool = False,
    ) -> None:
        """With `rests=False` a sick machine goes on taking jobs, which fail: for a leader that has no other worker.
        `digest` identifies the request of a ticket; empty if unknown. A leader that does not greet speaks the nine old
        types. With `old_leader` such a leader gets results at once, otherwise only after it has assigned a job: any
        process can listen on a port."""
        assert 1 <= slots <= CREDIT_MAX
        self.slots = slots
        self._trusts_old = old_leader
        self._stopped = False
        self._stop_by = _NEVER
        self._clean_up_at = 0.0
        self.state = SlotsState(slots, cpu_cap, done_ttl_s)
        self._assignments = Assignments(self.state, digest, rests=rests)
        self._do = self.state.do
        self._line = self.state.line
        self._credit = self.state.credit
        self._jobs = self.state.jobs
        self._answers = self.state.answers
        self._cpu = self.state.cpu

    @property
    def line(self) -> LeaderKind:
        return self._line.kind

    @property
    def leaving(self) -> bool:
        """This machine takes no more jobs."""
        return self._line.leaving

    @property
    def running(self) -> int:
        return len(self._jobs.running)

    @property
    def unconfirmed(self) -> int:
        return self.state.kept.owed_count

    @property
    def free(self) -> int:
        """Number of slots that a caller of this machine can have now."""
        return self.state.free()

    def has(self, job: JobId) -> bool:
        """Does the job run, or is it about to run?"""
        return self.state.has(job)

    def owes(self, job: JobId) -> bool:
        """Is the job's result unconfirmed? Then the disk must keep it (W7)."""
        return self.state.kept.owes(job)

    # The four methods of a state machine.

    def handle(self, events: Sequence[SlotsEvent], now: float) -> SlotsStep:
        for event in events:
            if self._stopped:
                break
            self._on_event(event, now)
        return self._step()

    def tick(self, now: float) -> SlotsStep:
        if self._stopped:
            return _NOTHING
        if self._stop_by <= now:
            self._stop()
            return self._step()
        line, cpu, health = self._line, self._cpu, self.state.health
        if why := line.why_hang_up(now):
            self._do.append(ev.HangUpOnLeader(why))
            self._lost()
        elif line.greeted_by <= now:
            self._take_as_old()
        elif line.beat_at <= now:
            self._assignments.beat(now)
        if cpu.measure_at <= now:
            cpu.measure_at = _NEVER
            if self._jobs.running or self._credit.held:
                self._assignments.measure(now)
        self._credit.offer_held(now)
        if health.probe_at <= now:
            health.probe()
        if self._clean_up_at <= now:
            self.state.kept.expire(now)
            self._clean_up_at = now + CLEAN_UP_S
        return self._step()

    def wake_at(self) -> float | None:
        if self._stopped:
            return None
        probe_at = self.state.health.probe_at
        at = min(self._clean_up_at, self._cpu.measure_at, self._line.wake_at(), self._stop_by, probe_at)
        return min(at, self._credit.held[0]) if self._credit.held else at

    def check(self) -> None:
        self.state.check()

    # Events.

    def _on_event(self, event: SlotsEvent, now: float) -> None:
        if isinstance(event, ev.ProgramEnded):
            self._assignments.ended(event, now)
        elif isinstance(event, ev.Assigned):
            self._line.received_at = now
            if self._line.kind is LeaderKind.OWN:
                self._assignments.assign(event.job, event.ticket, event.slots, now)
            elif self._line.kind is not LeaderKind.DOWN and not self._line.secured:
                self._assigned_by_old(event, now)
        elif isinstance(event, ev.ResultsConfirmed):
            self._line.received_at = now
            self._answers.confirm(event.jobs)
        elif isinstance(event, ev.ResultsWritten):
            self._answers.written()
        elif isinstance(event, ev.CpuMeasured):
            self._cpu.others = event.others
            if not self._cpu.is_crowded:
                self._credit.offer_all_held()
        elif isinstance(event, ev.ResultLoaded):
            self._assignments.loaded(event, now)
        elif isinstance(event, ev.LeaderAlive):
            self._line.received_at = now
        elif isinstance(event, ev.Cancelled):
            self._line.received_at = now
            for job in event.jobs:
                if job not in self.state.callers.ours:
                    self._assignments.cancel(job, now)
        elif isinstance(event, ev.Fetched):
            self._line.received_at = now
            self._answers.fetch(event.jobs)
        elif isinstance(event, ev.Opened):
            self._line.opened(now, secured=event.secured)
        elif isinstance(event, ev.LeaderWelcomed):
            self._welcomed(event, now)
        elif isinstance(event, ev.Probed):
            self.state.health.probed(event.why, now)
        elif isinstance(event, ev.RestKnown):
            self._line.received_at = now
            self._assignments.rest_known(now)
        elif isinstance(event, ev.LinkLost):
            self._lost()
        elif isinstance(event, ev.StopAsked):
            self._leave(now)
        elif isinstance(event, ev.CallerWants):
            self.state.callers.want(event, here=self.has(event.job), leaving=self.leaving, slots=self.slots)
        elif isinstance(event, ev.CallerCancels):
            self._assignments.cancel_wanted(event.job, now)
        elif isinstance(event, ev.Recovered):
            self.state.kept.find(event.done, now)
        else:
            assert_never(event)

    # The leader connects and disconnects.

    def _welcomed(self, event: ev.LeaderWelcomed, now: float) -> None:
        """Send the held jobs first, so that the leader assigns none of them elsewhere (W7, L4); then credit."""
        line, state = self._line, self.state
        if line.kind not in (LeaderKind.GREETING, LeaderKind.OLD):
            return
        late = line.kind is LeaderKind.OLD
        line.welcomed(now)
        theirs = tuple([job for job in self._jobs.running if job not in state.callers.ours])
        self._do.append(ev.SendHolding(theirs, tuple(state.kept.owed), tuple(state.kept.earlier)))
        state.health.welcomed(rests=event.rests)
        self._answers.begin()
        if not late:
            self._offer_all()
        if line.leaving:
            self._do.append(ev.SendLeaving())

    def _assigned_by_old(self, event: ev.Assigned, now: float) -> None:
        """An old leader does not know jobs of several slots, and used one credit."""
        self._trusts_old = True  # The peer assigns jobs, so it is a leader.
        if self._line.kind is LeaderKind.GREETING:  # A leader of our own would have greeted first.
            self._take_as_old()
        self._answers.begin()
        self._assignments.assign(event.job, event.ticket, 1, now)

    def _take_as_old(self) -> None:
        """Any peer gets credit: an old leader sends nothing before it has some."""
        self._line.taken_as_old()
        if self._trusts_old:
            self._answers.begin()
        self._offer_all()

    def _offer_all(self) -> None:
        if not self._line.leaving:
            self._credit.offer(self.slots - self._jobs.busy())

    def _lost(self) -> None:
        """Jobs continue, and results wait."""
        self._line.lost()
        self._credit.withdraw()
        self._cpu.held_by = 0.0
        self.state.health.unlinked()
        self._assignments.leave_unstarted()
        self._answers.end()

    def _leave(self, now: float) -> None:
        if self._line.leaving:
            self._stop()
            return
        self._line.leaving = True
        self._stop_by = now + DRAIN_DEADLINE_S
        self._credit.withdraw_unsent()
        if self._line.kind is LeaderKind.OWN:
            self._do.append(ev.SendLeaving())

    def _stop(self) -> None:
        """Jobs that still run get no answer: the leader counts this worker as lost and assigns them to others."""
        self._stopped = True
        self._do.append(ev.RunnerStopped())

    def _step(self) -> SlotsStep:
        if self._credit.offered and not self._answers.again.is_full:
            self._do.append(ev.SendCredit(self._credit.take_offered()))
        if self._line.leaving and not self._stopped and self.state.is_done():
            self._stop()
        return Step(do=self.state.take_steps()) if self._do else _NOTHING


_NOTHING: Final[SlotsStep] = Step()
