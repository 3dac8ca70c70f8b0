"""How does a job go on that the leader or a caller gave to this machine, and who gets its slots when it has ended?

    assign ─► looked up on the disk ─► started ─► ended ─► answered; its slots: repaid, taken by waiting jobs, or
    offered
        └─ answered, given back by a sick machine, due, or waiting

Due jobs take the next slots that come free, before any new caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wakugumi.core.ids import JobId
from wakugumi.core.runner import events as ev
from wakugumi.core.runner.callers import STOPPING
from wakugumi.core.runner.events import Ticket
from wakugumi.core.runner.finished import CANCELLED
from wakugumi.core.runner.jobs_here import Lookup, PendingRun
from wakugumi.core.runner.leader_line import LeaderKind
from wakugumi.core.runner.slots_state import SlotsState
from wakugumi.limits.runner import CREDIT_HELD_MAX_S

_NEVER: Final = float("inf")
_NOT_STARTED: Final = "cancelled before it was started"


class Assignments:
    __slots__ = (
        "_answers",
        "_callers",
        "_complained",
        "_cpu",
        "_credit",
        "_digest",
        "_do",
        "_health",
        "_jobs",
        "_kept",
        "_line",
        "_rests",
        "_state",
    )

    def __init__(self, state: SlotsState, digest: Callable[[Ticket], bytes], *, rests: bool) -> None:
        self._state = state
        self._digest = digest
        self._rests = rests
        self._complained = False
        self._do = state.do
        self._line = state.line
        self._credit = state.credit
        self._jobs = state.jobs
        self._callers = state.callers
        self._kept = state.kept
        self._answers = state.answers
        self._health = state.health
        self._cpu = state.cpu

    def assign(self, job: JobId, ticket: Ticket, slots: int, now: float) -> None:
        paid = self._credit.pay(slots)
        if self._jobs.has(job):
            # The running job answers this assignment when it ends (W4); the credit goes back (F7).
            self._callers.ours.discard(job)
            self._jobs.repeat(job, ticket)
            if paid:
                self._release(slots, now)
        elif not paid:
            self._assigned_without_credit(job, ticket, slots, now)
        elif self._health.is_sick and self._health.gives_back():
            self._give_back(job)
            self._release(slots, now)
        elif self._credit.borrowed and (self._jobs.due or self._state.unused() < slots):
            self._jobs.due[job] = PendingRun(ticket, slots)
        else:
            self._fill(job, ticket, slots, now)

    def _assigned_without_credit(self, job: JobId, ticket: Ticket, slots: int, now: float) -> None:
        """No leader may do so (L2). One such job per slot may wait, so that a small mistake costs no attempt."""
        if not self._complained:
            self._complained = True
            self._do.append(ev.ComplainAboutLeader("the leader assigned a job without credit"))
        if slots > 1:
            text = f"it needs {slots} slots, and the leader had credit for {self._credit.credit}"
            self._do.append(ev.SendFailure(job, "worker-error", text))
        elif self._credit.take_unsent():
            self._fill(job, ticket, 1, now)
        elif self._line.leaving:
            self._do.append(ev.SendFailure(job, "worker-error", "the worker is leaving and takes no more jobs"))
        elif len(self._jobs.waiting) < self._credit.slots:
            self._jobs.waiting[job] = ticket
        else:
            self._do.append(ev.SendFailure(job, "worker-error", "assigned without credit, and the worker is full"))

    def _fill(self, job: JobId, ticket: Ticket, slots: int, now: float) -> None:
        """Begin a job that has its slots; release them if it needs none."""
        if not self._begin(job, ticket, slots, now):
            self._release(slots, now)

    def _begin(self, job: JobId, ticket: Ticket, slots: int, now: float) -> bool:
        """Run the job, unless it has finished here before. False if it is answered already and needs no slot."""
        kept = self._kept
        if kept.was_cancelled(job):
            kept.forget(job)
        elif (owed := kept.owed_here(job)) is not None:
            result, request = owed
            if self._is_answered_by(request, ticket):
                self._answers.answer(job, result, request)
                self._callers.answer(job, result, request, kept=True)
                return False
            kept.forget(job)
        elif kept.may_be_on_disk(job, now):
            stands = kept.failure_stands(job, old_leader=self._line.kind is LeaderKind.OLD)
            self._jobs.looking[job] = Lookup(ticket, stands, slots)
            self._do.append(ev.LoadResult(job))
            return True
        if self._health.is_sick and self._health.gives_back():
            self._give_back(job)
            return False
        self._start(job, ticket, slots, now)
        return True

    def _is_answered_by(self, request: bytes, ticket: Ticket) -> bool:
        """Does a result of this request answer an assignment of this ticket? If either request is unknown, the job's
        id alone decides (SPEC L6)."""
        return not request or (wanted := self._digest(ticket)) == request or not wanted

    def _start(self, job: JobId, ticket: Ticket, slots: int, now: float) -> None:
        self._jobs.running[job] = slots
        self._do.append(ev.StartProgram(job, ticket))
        if self._cpu.measure_at == _NEVER:
            self.measure(now)

    def _start_unless_sick(self, job: JobId, ticket: Ticket, slots: int, now: float) -> None:
        if self._health.gives_back():
            self._give_back(job)
            self._release(slots, now)
        else:
            self._start(job, ticket, slots, now)

    def loaded(self, event: ev.ResultLoaded, now: float) -> None:
        job = event.job
        lookup = self._jobs.looking.pop(job, None)
        if lookup is None:
            if (pending := self._callers.asked.pop(job, None)) is not None:
                self._loaded_for_caller(pending, event, now)
            elif self._answers.again.is_searched(job):
                self._answers.loaded(event)
        elif (
            event.payload is not None
            and (event.ok or lookup.failure_stands)
            and self._is_answered_by(event.request, lookup.ticket)
        ):
            self._answers.answer(job, event.payload, event.request)
            self._callers.answer(job, event.payload, event.request, kept=True)
            self._release(lookup.slots, now)
        else:
            self._kept.forget(job)
            self._start_unless_sick(job, lookup.ticket, lookup.slots, now)

    def _loaded_for_caller(self, pending: PendingRun, found: ev.ResultLoaded, now: float) -> None:
        """Answer with any OK result. A failed job runs again: a new request is a new attempt."""
        job = found.job
        if self._jobs.has(job):  # Assigned meanwhile: callers are answered when the job ends.
            return
        if found.payload is not None and found.ok:
            self._callers.answer(job, found.payload, found.request, kept=True)
        elif self._line.leaving:
            self._callers.refuse(job, "stopping", STOPPING)
        elif self._state.free() < pending.slots:
            self._callers.refuse(job, "busy", "all slots are taken")
        else:
            if not self._kept.owes(job):  # The leader waits for that failure, and gets the result of this run instead.
                self._callers.ours.add(job)
            self._kept.forget(job)
            if self._line.is_offered:
                self._credit.borrow(pending.slots)
            self._start(job, pending.ticket, pending.slots, now)

    def cancel(self, job: JobId, now: float) -> None:
        jobs = self._jobs
        if job in jobs.running:
            if job not in jobs.cancelling:
                self._do.append(ev.KillProgram(job, CANCELLED))
            jobs.cancelling[job] = None
            return
        freed = jobs.take_unstarted(job)
        if freed is None:
            return
        self._do.append(ev.SendFailure(job, CANCELLED, _NOT_STARTED))
        self._callers.refuse_assigned(job, CANCELLED, _NOT_STARTED)
        if freed:
            self._release(freed, now)

    def cancel_wanted(self, job: JobId, now: float) -> None:
        if self._callers.asked.pop(job, None) is not None and not self._jobs.has(job):
            self._callers.refuse(job, CANCELLED, _NOT_STARTED)
        self.cancel(job, now)

    def ended(self, event: ev.ProgramEnded, now: float) -> None:
        job, jobs, callers = event.job, self._jobs, self._callers
        slots = jobs.running.pop(job)
        anew = jobs.cancelling.pop(job, None)
        if event.fault and self._rests:  # Report the fault first, so that retries go to another worker.
            self.fall_sick(event.reason, event.fault, now)
        repeated = jobs.repeated.pop(job, None) if jobs.repeated else None
        if anew is not None and not event.ok:
            # Cancelled, then assigned again: an ack now would answer the new assignment.
            self._start_unless_sick(job, anew, slots, now)
            return
        wanted = repeated if anew is None else anew
        if wanted is not None and not self._is_answered_by(event.request, wanted):
            callers.ours.discard(job)
            self._start_unless_sick(job, wanted, slots, now)
            return
        if job in callers.ours:
            callers.ours.remove(job)
            self._kept.remember(job, now)
        else:
            reason = "" if event.ok else event.reason or "failed"
            self._kept.finish(job, reason, event.payload, now, event.request)
            if self._answers.sends_results:
                self._answers.answer(job, event.payload, event.request)
        if callers.waiting:
            callers.answer(job, event.payload, event.request)
        self._release(slots, now, event.ran_s)

    # Slots come free.

    def _release(self, slots: int, now: float, ran_s: float = 0.0) -> None:
        """Waiting jobs take these slots, or their credit goes back: at once, or once the CPU allows, after a program
        that ran for `ran_s` (W2)."""
        credit, waiting = self._credit, self._jobs.waiting
        if credit.borrowed:
            slots = self._repay(slots, now)
        while waiting and slots:
            job = next(iter(waiting))
            slots -= self._begin(job, waiting.pop(job), 1, now)
        if slots and self._line.is_offered:
            if credit.keeps:
                credit.kept += slots
            elif ran_s > 0 and self._cpu.is_crowded:
                self._hold(slots, now, now + min(ran_s, CREDIT_HELD_MAX_S))
            else:
                credit.offered += slots

    def _repay(self, slots: int, now: float) -> int:
        """Pay back borrowed slots, then begin due jobs. Returns how many slots are left to offer."""
        due = self._jobs.due
        while True:
            slots = self._credit.repay(slots)
            if not due:
                return slots
            job, pending = next(iter(due.items()))
            if pending.slots > self._state.unused():
                return slots
            del due[job]
            if not self._begin(job, pending.ticket, pending.slots, now):
                slots += pending.slots

    def _hold(self, slots: int, now: float, until: float) -> None:
        cpu = self._cpu
        self._credit.hold(slots, until)
        if not cpu.held_by and self._line.kind is LeaderKind.OWN:
            cpu.held_by = cpu.others
            self.beat(now)  # The leader should know why there is no credit before users ask it.
        cpu.held_by = cpu.others

    def beat(self, now: float) -> None:
        cpu = self._cpu
        self._do.append(ev.SendRunnerHeartbeat(cpu.held_by))
        cpu.held_by = cpu.others if self._credit.held else 0.0
        self._line.heartbeat_sent(now)

    def measure(self, now: float) -> None:
        if self._cpu.plan(now):
            self._do.append(ev.MeasureCpu())

    # The machine is sick (W9).

    def fall_sick(self, code: str, why: str, now: float) -> None:
        """Give back jobs that have not begun."""
        self._health.fall_sick(code, why, now)
        if self._line.is_offered and self._health.gives_back():
            waiting, due = self._jobs.take_queued()
            for job in waiting:
                self._give_back(job)
            for job, slots in due:
                self._give_back(job)
                self._release(slots, now)

    def _give_back(self, job: JobId) -> None:
        """The job has not begun here; its leader has other workers."""
        health = self._health
        self._do.append(ev.SendFailure(job, health.code, f"this machine is out of order: {health.why}", begun=False))
        self._callers.refuse_assigned(job, health.code, health.why)

    def rest_known(self, now: float) -> None:
        """All jobs that the leader assigned for its old credit have arrived. The rest of that credit is void."""
        if self._health.acknowledged():
            credit = self._credit
            credit.void(self._jobs.due_slots())
            if credit.borrowed:
                credit.kept = self._repay(credit.kept, now)
            self._health.offer_kept()

    def leave_unstarted(self) -> None:
        """The leader is gone. Forget jobs that have not started: it assigns them to others."""
        for job in self._jobs.leave_unstarted():
            self._callers.refuse_assigned(job, "busy", "its leader went away before it was started")
        self._complained = False
