"""How many jobs may run here, which of them, and what does the leader hear? The runner's state machine.

Every slot is in one place: *offered* to the leader as credit, *busy* with a job (or with looking whether the job has
finished before), *held* back because others keep the machine's CPU busy (W2), or *kept* because the machine is sick
(W9). While a leader listens and the worker is not leaving, these add up to all slots; without a leader there is no
credit, and jobs go on running. A job takes one slot, or as many as it asks for.

Callers of this machine want jobs as well (N1, N2). Credit cannot be taken back, so they *borrow* slots that the leader
was offered: what it assigns meanwhile is *due*, and takes the next slots that come free, before any new caller.

    credit + due + busy + held + kept - borrowed = slots   never more is busy than there is, whoever wants it

A machine is *sick* once a job failed by its fault, until a probe of its own finds that programs can be started. The
leader is told why; what it assigns until it knows that is given back, and then the credit that it still had is void.

    DOWN ── Opened ──► GREETING ── Welcomed ──► OWN     says what it holds, then offers credit; results until confirmed
     ▲                     └─ no Welcome in time ──► OLD   nine types only: offers credit; written is delivered (F9)
     └──────────── LinkLost, or silence ◄──────────┴──────┘

Which results answer a repeated assignment is decided by the rule at the top of `finished`. Those that a leader has to
be told again, or that it fetches, go a few at a time.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, assert_never

from wakugumi.core.ids import MACHINE_FAULTS, JobId
from wakugumi.core.runner import events as ev
from wakugumi.core.runner.events import SlotsDo, SlotsEvent, SlotsStep
from wakugumi.core.runner.finished import CANCELLED, FinishedJobs
from wakugumi.core.runner.resend import Resending
from wakugumi.core.step import Step
from wakugumi.limits.runner import CREDIT_HELD_MAX_S, DONE_TTL_S, PROBE_FIRST_S, PROBE_MAX_S
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.limits.wire import DRAIN_DEADLINE_S, HEARTBEAT_S, SILENCE_MAX_S

WELCOME_WAIT_S: Final = 1.0
"""An own leader greets at once; one that says nothing for this long is an old one."""
WELCOME_AGAIN_WAIT_S: Final = 5.0
SILENT_LEFT: Final = 3
"""Where an own leader was, one that says nothing is rather dead than old: after this long it is left and dialled again,
so often. To an old one results would be told, and forgotten; and its death is noticed by the system alone, late."""
CPU_SAMPLE_S: Final = 0.5
"""Between two looks at the CPU while jobs run: shorter ones see only the kernel's ticks of 10 ms."""
CLEAN_UP_S: Final = 60.0
"""How often finished jobs are looked through for those whose time is over."""

_NEVER: Final = float("inf")
_NOT_STARTED: Final = "cancelled before it was started"
_STOPPING: Final = "this machine takes no more jobs"


class LeaderKind(IntEnum):
    """Who is at the other end; from OLD on, somebody listens."""

    DOWN = 0
    GREETING = 1
    OLD = 2
    OWN = 3


class _Look(NamedTuple):
    payload: bytes
    failure_stands: bool
    """Decided when the job is assigned: a confirmation that comes after it cannot make it a retry."""
    slots: int


class _Wish(NamedTuple):
    """A job that is to be run, and how many slots it takes."""

    payload: bytes
    slots: int


class _Callers:
    """What callers of this machine want.

    An object of its own also because Python reads the attributes of one that has thirty of them more slowly: a tenth
    of a job's time in here.
    """

    __slots__ = ("asked", "ours", "waiting")

    def __init__(self) -> None:
        self.asked: dict[JobId, _Wish] = {}
        """Wanted, and the disk is asked whether they have finished before. That takes no slot."""
        self.waiting: set[JobId] = set()
        """Callers wait for these."""
        self.ours: set[JobId] = set()
        """Those of the running that callers alone want: the leader does not hear of them."""


class _MachineHealth:
    """Can programs be started here, and do others leave them enough of the CPU?"""

    __slots__ = (
        "can_tell",
        "code",
        "held_by",
        "is_sick",
        "keeps",
        "kept",
        "pause_s",
        "probe_at",
        "rests",
        "unknown",
        "why",
    )

    def __init__(self, *, rests: bool) -> None:
        self.rests = rests
        """It takes nothing while it is sick."""
        self.is_sick = False
        self.code = ""
        self.why = ""
        """What is wrong, as a code of the error table and in words."""
        self.keeps = False
        """What comes free is not offered."""
        self.kept = 0
        """Slots that are not offered because of it."""
        self.unknown = 0
        """So often the leader was told, and has not said that it knows: until then the credit that it has is not void,
        and it gets no other."""
        self.can_tell = False
        """The leader takes it."""
        self.probe_at = _NEVER
        self.pause_s = PROBE_FIRST_S
        self.held_by = 0.0
        """How much of the CPU others used when that was a reason to hold credit back, since the last heartbeat."""

    def turn(self, *, sick: bool | None = None, told: int = 0) -> None:
        """It is sick, or not; the leader was told, or knows."""
        if sick is not None:
            self.is_sick = sick
        self.unknown += told
        self.keeps = self.is_sick or self.unknown > 0

    def unlinked(self) -> None:
        self.kept = self.unknown = 0
        self.keeps = self.is_sick
        self.can_tell = False


class Slots:
    """The slots of one machine, offered to one leader and to callers of the machine itself."""

    def __init__(
        self,
        slots: int,
        cpu_cap: float,
        done_ttl_s: float = DONE_TTL_S,
        *,
        rests: bool = True,
        digest: Callable[[bytes], bytes] = lambda _: b"",
        old_leader: bool = False,
    ) -> None:
        """If it never `rests`, a sick machine goes on taking jobs, which fail: for a leader that has no other. `digest`
        tells which request a payload is; empty if that cannot be told. `old_leader`: a leader that says nothing is one
        of the nine types, and gets results at once; else only after it has assigned a job, for anybody can listen."""
        assert 1 <= slots <= CREDIT_MAX
        self._believes = old_leader
        self._telling = False
        """The leader at this line gets results."""
        self._digest = digest
        self.slots = slots
        self.cpu_cap = cpu_cap
        self.line = LeaderKind.DOWN
        self.leaving = False
        self._stopped = False
        self._do: list[SlotsDo] = []

        self._credit = 0
        """What the leader may use: told to it, and not yet used."""
        self._offered = 0
        """What this step adds to it. Between steps it is zero, unless the line is full: whoever cannot get its results
        away asks for no more work."""
        self._held: list[float] = []
        """When each slot that waits for the CPU is offered at the latest, the next one first."""
        self._health = _MachineHealth(rests=rests)
        self._running: dict[JobId, int] = {}
        """And how many slots each takes."""
        self._cancelling: dict[JobId, bytes | None] = {}
        """Those of the running that are being killed; with a payload, if they were assigned anew meanwhile."""
        self._repeated: dict[JobId, bytes] = {}
        """Of the running: what was assigned under the same id meanwhile. It may be another request."""
        self._looking: dict[JobId, _Look] = {}
        """Assigned, and the disk is asked whether they have finished before."""
        self._waiting: dict[JobId, bytes] = {}
        """Assigned without credit: they take the next slot that comes free. None of them asks for more than one."""
        self._due: dict[JobId, _Wish] = {}
        """Assigned for credit that callers have borrowed, in the order in which they take what comes free."""
        self._borrowed = 0
        """Of the credit, due jobs included: slots in which a caller's job runs."""
        self._callers = _Callers()
        self._kept = FinishedJobs(done_ttl_s)
        self._again = Resending(self._kept)
        self._complained = False

        self._others = 0.0
        self._measured_at = -_NEVER
        self._measure_at = _NEVER
        self._heard_at = 0.0
        self._beat_at = _NEVER
        self._greeted_by = _NEVER
        self._silent_left = 0
        """How many that do not greet are still left before one is taken as old."""
        self._stop_by = _NEVER
        self._clean_up_at = 0.0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def unconfirmed(self) -> int:
        return self._kept.owed_count

    @property
    def free(self) -> int:
        """How many slots a caller of this machine can have now."""
        return 0 if self.leaving or self._due or self._waiting else self._unused()

    def has(self, job: JobId) -> bool:
        """Does it run, or is it about to?"""
        return self._has(job) or job in self._callers.asked

    def owes(self, job: JobId) -> bool:
        """Is its result still to be confirmed? Then the disk must not forget it (W7)."""
        return self._kept.owes(job)

    # The four doors.

    def handle(self, events: Sequence[SlotsEvent], now: float) -> SlotsStep:
        for event in events:
            if self._stopped:
                break
            self._hear(event, now)
        return self._step()

    def tick(self, now: float) -> SlotsStep:
        if self._stopped:
            return _NOTHING
        if self._stop_by <= now:
            self._stop()
            return self._step()
        if self._greeted_by <= now:
            if self._silent_left:
                self._silent_left -= 1
                self._hang_up(f"the leader did not greet within {WELCOME_AGAIN_WAIT_S:.0f} s")
            else:
                self._take_as_old()
        if self.line is LeaderKind.OWN and self._heard_at + SILENCE_MAX_S <= now:
            self._hang_up(f"nothing heard from the leader for {SILENCE_MAX_S:.0f} s")
        elif self._beat_at <= now:
            self._beat(now)
        if self._measure_at <= now:
            self._measure_at = _NEVER
            if self._running or self._held:
                self._measure(now)
        while self._held and self._held[0] <= now:
            del self._held[0]
            self._offered += 1
        if self._health.probe_at <= now:
            self._health.probe_at = _NEVER
            self._do.append(ev.Probe())
        if self._clean_up_at <= now:
            self._kept.expire(now)
            self._clean_up_at = now + CLEAN_UP_S
        return self._step()

    def wake_at(self) -> float | None:
        if self._stopped:
            return None
        at = min(
            self._clean_up_at,
            self._measure_at,
            self._beat_at,
            self._greeted_by,
            self._stop_by,
            self._health.probe_at,
        )
        if self.line is LeaderKind.OWN:
            at = min(at, self._heard_at + SILENCE_MAX_S)
        return min(at, self._held[0]) if self._held else at

    def check(self) -> None:
        busy = self.slots - self._unused()
        assert busy <= self.slots
        assert len(self._waiting) <= self.slots
        assert not self._waiting or self._due or busy == self.slots, "a job waits although a slot is free"
        due = sum(wish.slots for wish in self._due.values())
        assert not self._due or next(iter(self._due.values())).slots > self._unused(), "a job is due, and has room"
        assert 0 <= self._borrowed <= self._credit + due
        assert not (self._borrowed and (self._held or self._health.kept)), "a slot is kept, and one was borrowed"
        assert self._credit >= 0
        assert self._offered == 0 or self._again.is_full
        assert not self._do
        kept = self._health.kept
        assert kept >= 0
        assert self._health.keeps == (self._health.is_sick or self._health.unknown > 0)
        assert not kept or self._health.keeps, "a slot is kept, and nothing is wrong"
        assert not (self._held and self._health.keeps), "a slot is offered soon, and the machine is sick"
        in_use = self._credit + self._offered + due + busy + len(self._held) + kept - self._borrowed
        assert in_use == self.slots if self._offering() else in_use <= self.slots
        if not self._listening():
            assert in_use == self._busy()
            assert not any((self._looking, self._waiting, self._due, self._health.unknown))
            assert self._again.is_idle
        assert (self.line is LeaderKind.OWN) == (self._beat_at < _NEVER)
        assert (self.line is LeaderKind.GREETING) == (self._greeted_by < _NEVER)
        places = [*self._running, *self._looking, *self._waiting, *self._due]
        assert len(places) == len(set(places)), "a job is in two places"
        assert self._cancelling.keys() <= self._running.keys()
        assert self._repeated.keys() <= self._running.keys()
        assert self._callers.ours <= self._running.keys()
        assert all(self.has(job) for job in self._callers.waiting), "a caller waits for nothing"
        assert not any(job in self._running for job in self._kept.owed), "a result that is owed is of a job that runs"
        assert not any(job in self._running for job in self._kept.earlier), "a job runs, and its old result is offered"
        assert list(self._held) == sorted(self._held)
        self._kept.check()
        self._again.check()

    # What happened.

    def _hear(self, event: SlotsEvent, now: float) -> None:
        if isinstance(event, ev.ProgramEnded):
            self._ended(event, now)
        elif isinstance(event, ev.Assigned):
            self._assigned(event.job, event.payload, event.slots, now)
        elif isinstance(event, ev.ResultsConfirmed):
            self._heard_at = now
            self._confirmed(event.jobs)
        elif isinstance(event, ev.ResultsWritten):
            self._again.written()
            self._send_more()
        elif isinstance(event, ev.CpuMeasured):
            self._others = event.others
            if event.others < self.cpu_cap:
                self._offered += len(self._held)
                self._held.clear()
        elif isinstance(event, ev.ResultLoaded):
            self._loaded(event, now)
        elif isinstance(event, ev.LeaderHeard):
            self._heard_at = now
        elif isinstance(event, ev.Cancelled):
            self._heard_at = now
            for job in event.jobs:
                if job not in self._callers.ours:
                    self._cancel(job, now)
        elif isinstance(event, ev.Fetched):
            self._heard_at = now
            self._fetch(event.jobs)
        elif isinstance(event, ev.Opened):
            assert self.line is LeaderKind.DOWN
            self.line = LeaderKind.GREETING
            self._greeted_by = now + (WELCOME_AGAIN_WAIT_S if self._silent_left else WELCOME_WAIT_S)
        elif isinstance(event, ev.LeaderWelcomed):
            self._welcomed(event, now)
        elif isinstance(event, ev.Probed):
            self._probed(event.why, now)
        elif isinstance(event, ev.RestKnown):
            self._heard_at = now
            self._rest_known(now)
        elif isinstance(event, ev.LinkLost):
            self._lost()
        elif isinstance(event, ev.StopAsked):
            self._leave(now)
        elif isinstance(event, ev.CallerWants):
            self._want(event)
        elif isinstance(event, ev.CallerCancels):
            self._cancel_wanted(event.job, now)
        elif isinstance(event, ev.Recovered):
            self._kept.find(event.done, now)
        else:
            assert_never(event)

    def _welcomed(self, event: ev.LeaderWelcomed, now: float) -> None:
        """W7, L4: first what is held, so that the leader gives none of it to others; then credit."""
        if self.line not in (LeaderKind.GREETING, LeaderKind.OLD):
            return
        late = self.line is LeaderKind.OLD
        self.line = LeaderKind.OWN
        self._health.can_tell = event.rests
        self._silent_left = SILENT_LEFT
        self._greeted_by = _NEVER
        self._heard_at = now
        self._beat_at = now + HEARTBEAT_S
        theirs = tuple([job for job in self._running if job not in self._callers.ours])
        self._do.append(ev.SendHolding(theirs, tuple(self._kept.owed), tuple(self._kept.earlier)))
        if self._health.is_sick:
            self._tell_rest()
        self._begin_telling()
        if not late:
            self._offer_all()
        if self.leaving:
            self._do.append(ev.SendLeaving())

    def _take_as_old(self) -> None:
        """Credit is told to anybody, for an old leader says nothing before it has some."""
        self.line = LeaderKind.OLD
        self._greeted_by = _NEVER
        if self._believes:
            self._begin_telling()
        self._offer_all()

    def _begin_telling(self) -> None:
        if not self._telling:
            self._telling = True
            self._again.begin()
            self._send_more()

    def _offer_all(self) -> None:
        if not self.leaving:
            self._offer(self.slots - self._busy())

    def _hang_up(self, why: str) -> None:
        self._do.append(ev.HangUpOnLeader(why))
        self._lost()

    def _lost(self) -> None:
        """Jobs go on and results wait. What was not started is forgotten: the leader gives it to others."""
        self.line = LeaderKind.DOWN
        self._greeted_by = self._beat_at = _NEVER
        self._credit = self._offered = self._borrowed = 0
        self._held.clear()
        self._health.held_by = 0.0
        self._health.unlinked()
        for job in (*self._looking, *self._waiting, *self._due):
            if job in self._callers.waiting and job not in self._callers.asked:
                self._send_away(job, "busy", "its leader went away before it was started")
        self._looking.clear()
        self._waiting.clear()
        self._due.clear()
        self._cancelling = dict.fromkeys(self._cancelling)
        self._repeated.clear()
        self._telling = False
        self._again.end()
        self._complained = False

    def _assigned(self, job: JobId, payload: bytes, slots: int, now: float) -> None:
        self._heard_at = now
        if self.line is LeaderKind.DOWN:
            return
        if self.line is not LeaderKind.OWN:
            self._believes = True  # Whatever this is, it gives out jobs.
        if self.line is LeaderKind.GREETING:  # An own leader would have greeted first.
            self._take_as_old()
        if self.line is LeaderKind.OLD:  # It knows nothing of several slots, and took one.
            self._begin_telling()
            slots = 1
        paid = self._credit >= slots
        if paid:
            self._credit -= slots
        if self._has(job):
            # It is answered when it is done (W4), and gives its credit back (F7).
            self._callers.ours.discard(job)
            self._repeat(job, payload)
            if paid:
                self._release(slots, now)
        elif not paid:
            self._assigned_without_credit(job, payload, slots, now)
        elif self._health.is_sick and self._gives_back():
            self._give_back(job)
            self._release(slots, now)
        elif self._borrowed and (self._due or self._unused() < slots):
            self._due[job] = _Wish(payload, slots)
        else:
            self._fill(job, payload, slots, now)

    def _repeat(self, job: JobId, payload: bytes) -> None:
        """What has not begun is begun with what was assigned last. What runs is looked at when it ends."""
        if job in self._cancelling:
            self._cancelling[job] = payload
        elif job in self._running:
            self._repeated[job] = payload
        elif job in self._looking:
            self._looking[job] = self._looking[job]._replace(payload=payload)
        elif job in self._due:
            self._due[job] = self._due[job]._replace(payload=payload)
        else:
            self._waiting[job] = payload

    def _assigned_without_credit(self, job: JobId, payload: bytes, slots: int, now: float) -> None:
        """No leader may do so (L2). One job more for each slot may wait, so that a small mistake costs no attempt."""
        if not self._complained:
            self._complained = True
            self._do.append(ev.ComplainAboutLeader("the leader assigned a job without credit"))
        if slots > 1:
            text = f"it needs {slots} slots, and the leader had credit for {self._credit}"
            self._do.append(ev.SendFailure(job, "worker-error", text))
        elif self._offered:
            self._offered -= 1
            self._fill(job, payload, 1, now)
        elif self._held:
            self._held.pop()
            self._fill(job, payload, 1, now)
        elif self._health.kept:
            self._health.kept -= 1
            self._fill(job, payload, 1, now)
        elif self.leaving:
            self._do.append(ev.SendFailure(job, "worker-error", "the worker is leaving and takes no more jobs"))
        elif len(self._waiting) < self.slots:
            self._waiting[job] = payload
        else:
            self._do.append(ev.SendFailure(job, "worker-error", "assigned without credit, and the worker is full"))

    def _ended(self, event: ev.ProgramEnded, now: float) -> None:
        job = event.job
        slots = self._running.pop(job)
        anew = self._cancelling.pop(job, None)
        if event.fault and self._health.rests:  # That is said first: what is tried again goes to another worker.
            self._fall_sick(event.reason, event.fault, now)
        repeated = self._repeated.pop(job, None) if self._repeated else None
        if anew is not None and not event.ok:
            # Cancelled, then wanted after all: an ack now would pass for the answer to the new assignment.
            self._start_unless_sick(job, anew, slots, now)
            return
        wanted = repeated if anew is None else anew
        if wanted is not None and not self._is_answered_by(event.request, wanted):
            self._callers.ours.discard(job)
            self._start_unless_sick(job, wanted, slots, now)
            return
        callers = self._callers
        if job in callers.ours:
            callers.ours.remove(job)
            self._kept.remember(job, now)
        else:
            reason = "" if event.ok else event.reason or "failed"
            self._kept.finish(job, reason, event.payload, now, event.request)
            if self._telling:
                self._answer(job, event.payload, event.request)
        if callers.waiting:
            self._tell(job, event.payload, event.request)
        self._release(slots, now, event.ran_s)

    def _loaded(self, event: ev.ResultLoaded, now: float) -> None:
        job = event.job
        look = self._looking.pop(job, None)
        if look is None:
            if (wish := self._callers.asked.pop(job, None)) is not None:
                self._asked_the_disk(wish, event, now)
            elif self._again.is_looked_for(job):
                self._send_from_disk(event)
        elif (
            event.payload is not None
            and (event.ok or look.failure_stands)
            and self._is_answered_by(event.request, look.payload)
        ):
            self._answer(job, event.payload, event.request)
            self._tell(job, event.payload, event.request, kept=True)
            self._release(look.slots, now)
        elif self._gives_back():
            self._kept.forget(job)
            self._give_back(job)
            self._release(look.slots, now)
        else:
            self._kept.forget(job)
            self._start(job, look.payload, look.slots, now)

    def _confirmed(self, jobs: Sequence[JobId]) -> None:
        for job in jobs:
            if self._kept.confirm(job):
                self._do.append(ev.ForgetResult(job))
        if self._again.settle(jobs):
            self._send_more()

    def _fetch(self, jobs: Sequence[JobId]) -> None:
        if self.line is not LeaderKind.OWN:
            return
        for job in self._again.fetch(jobs):
            if not self._is_theirs(job):
                self._do.append(ev.SendFailure(job, "worker-error", "more was fetched than this worker offered"))
        self._send_more()

    def _cancel(self, job: JobId, now: float) -> None:
        if job in self._running:
            if job not in self._cancelling:
                self._do.append(ev.KillProgram(job, CANCELLED))
            self._cancelling[job] = None
            return
        freed = self._looking.pop(job, None) or self._due.pop(job, None)
        if freed is None and self._waiting.pop(job, None) is None:
            return
        self._do.append(ev.SendFailure(job, CANCELLED, _NOT_STARTED))
        if job in self._callers.waiting and job not in self._callers.asked:
            self._send_away(job, CANCELLED, _NOT_STARTED)
        if freed is not None:
            self._release(freed.slots, now)

    def _leave(self, now: float) -> None:
        if self.leaving:
            self._stop()
            return
        self.leaving = True
        self._stop_by = now + DRAIN_DEADLINE_S
        self._offered = self._health.kept = 0
        self._held.clear()
        if self.line is LeaderKind.OWN:
            self._do.append(ev.SendLeaving())

    # What callers of this machine want.

    def _want(self, event: ev.CallerWants) -> None:
        job = event.job
        if self.has(job):  # Whoever wants it waits for the same end, also for that of a job which is being killed.
            self._callers.waiting.add(job)
        elif self.leaving:
            self._send_away(job, "stopping", _STOPPING)
        elif event.slots > self.slots:
            self._send_away(job, "bad-request", f"it needs {event.slots} slots, and there are {self.slots}")
        else:
            self._callers.waiting.add(job)
            self._callers.asked[job] = _Wish(event.payload, event.slots)
            self._do.append(ev.LoadResult(job))

    def _asked_the_disk(self, wish: _Wish, found: ev.ResultLoaded, now: float) -> None:
        """What is OK is answered, whoever had it made. A failure is run again: whoever asks anew wants another try."""
        job = found.job
        if self._has(job):  # Assigned meanwhile: callers are told when it is done.
            return
        if found.payload is not None and found.ok:
            self._tell(job, found.payload, found.request, kept=True)
        elif self.leaving:
            self._send_away(job, "stopping", _STOPPING)
        elif self.free < wish.slots:
            self._send_away(job, "busy", "all slots are taken")
        else:
            if not self._kept.owes(job):  # The leader waits for that failure: then it gets what comes of this run.
                self._callers.ours.add(job)
            self._kept.forget(job)
            self._borrow(wish.slots)
            self._start(job, wish.payload, wish.slots, now)

    def _cancel_wanted(self, job: JobId, now: float) -> None:
        if self._callers.asked.pop(job, None) is not None and not self._has(job):
            self._send_away(job, CANCELLED, _NOT_STARTED)
        self._cancel(job, now)

    def _tell(self, job: JobId, payload: bytes, request: bytes, *, kept: bool = False) -> None:
        if job in self._callers.waiting:
            self._callers.waiting.remove(job)
            self._callers.asked.pop(job, None)
            self._do.append(ev.AnswerCaller(job, payload, request, kept))

    def _send_away(self, job: JobId, code: str, text: str) -> None:
        self._callers.waiting.discard(job)
        self._do.append(ev.RefuseCaller(job, code, text))

    def _borrow(self, slots: int) -> None:
        """Slots for a caller: first those of which the leader has not heard."""
        if not self._offering():
            return
        unheard = min(slots, self._offered)
        self._offered -= unheard
        slots -= unheard
        while slots and self._held:
            self._held.pop()
            slots -= 1
        kept = min(slots, self._health.kept)
        self._health.kept -= kept
        self._borrowed += slots - kept

    def _repay(self, slots: int, now: float) -> int:
        """Slots came free: they pay back what was borrowed, and due jobs take them. How many are left to be offered?"""
        while True:
            repaid = min(slots, self._borrowed)
            self._borrowed -= repaid
            slots -= repaid
            if not self._due:
                return slots
            job, wish = next(iter(self._due.items()))
            if wish.slots > self._unused():
                return slots
            del self._due[job]
            if not self._begin(job, wish.payload, wish.slots, now):
                slots += wish.slots

    # What follows from it.

    def _fill(self, job: JobId, payload: bytes, slots: int, now: float) -> None:
        """Free slots for this job."""
        if not self._begin(job, payload, slots, now):
            self._release(slots, now)

    def _begin(self, job: JobId, payload: bytes, slots: int, now: float) -> bool:
        """Run it, unless it has finished here before. False if it is answered already and needs no slot."""
        if self._kept.was_cancelled(job):
            self._kept.forget(job)
        elif (owed := self._kept.owed_here(job)) is not None:
            result, request = owed
            if self._is_answered_by(request, payload):
                self._answer(job, result, request)
                self._tell(job, result, request, kept=True)
                return False
            self._kept.forget(job)
        elif self._kept.may_be_on_disk(job, now):
            stands = self._kept.failure_stands(job, old_leader=self.line is LeaderKind.OLD)
            self._looking[job] = _Look(payload, stands, slots)
            self._do.append(ev.LoadResult(job))
            return True
        if self._health.is_sick and self._gives_back():
            self._give_back(job)
            return False
        self._start(job, payload, slots, now)
        return True

    def _is_answered_by(self, request: bytes, payload: bytes) -> bool:
        """Is a result of this request the answer to what was assigned? Where it is not known of which request a result
        is, the id alone decides (SPEC L6)."""
        return not request or (wanted := self._digest(payload)) == request or not wanted

    def _start(self, job: JobId, payload: bytes, slots: int, now: float) -> None:
        self._running[job] = slots
        self._do.append(ev.StartProgram(job, payload))
        if self._measure_at == _NEVER:
            self._measure(now)

    def _start_unless_sick(self, job: JobId, payload: bytes, slots: int, now: float) -> None:
        if self._gives_back():
            self._give_back(job)
            self._release(slots, now)
        else:
            self._start(job, payload, slots, now)

    def _release(self, slots: int, now: float, ran_s: float = 0.0) -> None:
        """Slots came free: jobs that wait take them, or their credit goes back, at once or, after a program that ran so
        long, when the CPU allows (W2)."""
        if self._borrowed:
            slots = self._repay(slots, now)
        while self._waiting and slots:
            job = next(iter(self._waiting))
            slots -= self._begin(job, self._waiting.pop(job), 1, now)
        if slots and self._offering():
            if self._health.keeps:
                self._health.kept += slots
            elif self._others >= self.cpu_cap and ran_s > 0:
                self._hold(slots, now, now + min(ran_s, CREDIT_HELD_MAX_S))
            else:
                self._offered += slots

    def _offer(self, slots: int) -> None:
        """The leader may use these, unless the machine is sick."""
        if self._health.keeps:
            self._health.kept += slots
        else:
            self._offered += slots

    def _hold(self, slots: int, now: float, until: float) -> None:
        for _ in range(slots):
            insort(self._held, until)
        if not self._health.held_by and self.line is LeaderKind.OWN:
            self._health.held_by = self._others
            self._beat(now)  # The leader should know why there is no credit before people ask it.
        self._health.held_by = self._others

    def _beat(self, now: float) -> None:
        self._do.append(ev.SendRunnerHeartbeat(self._health.held_by))
        self._health.held_by = self._others if self._held else 0.0
        self._beat_at = now + HEARTBEAT_S

    def _answer(self, job: JobId, payload: bytes, request: bytes) -> None:
        """Tell the leader, or have it told when the line is written."""
        if self._again.is_full:
            self._again.wait(job)
            return
        self._do.append(ev.SendAck(job, payload, request))
        if self._again.gave(len(payload)):
            self._do.append(ev.TellWhenResultsWritten())
        if self.line is LeaderKind.OLD:
            self._kept.deliver(job)

    def _send_more(self) -> None:
        """Results that wait, as many as may be on their way; to an old leader, which confirms nothing, all of them."""
        while (job := self._again.next(self._is_theirs)) is not None:
            owed = self._kept.owed_here(job)
            if owed is None:
                self._again.look(job)
                self._do.append(ev.LoadResult(job))
            else:
                self._send_again(job, *owed)

    def _send_from_disk(self, found: ev.ResultLoaded) -> None:
        job, owed = found.job, self._kept.owes(found.job)
        if self._is_theirs(job):  # Assigned anew meanwhile: that is what its leader waits for now.
            self._again.drop(job)
        elif found.payload is None or (found.reason == CANCELLED and not owed):
            # The leader was told of a result and waits for it: it must hear that there is none. A cancelled one is
            # none either, for nobody fetches what he has cancelled: it is wanted after all.
            self._again.drop(job)
            self._kept.forget(job)
            self._do.append(ev.SendFailure(job, "worker-error", "its result is no longer on the worker's disk"))
        else:
            if not owed:
                self._kept.fetched(job, ok=found.ok)
            self._send_again(job, found.payload, found.request)
        self._send_more()

    def _send_again(self, job: JobId, payload: bytes, request: bytes) -> None:
        if self._again.is_full:
            self._again.wait(job)
            return
        self._again.told(job, confirms=self.line is LeaderKind.OWN)
        self._answer(job, payload, request)

    # The machine's health (W9).

    def _fall_sick(self, code: str, why: str, now: float) -> None:
        """Nothing can be started here, or what was made cannot be kept."""
        health = self._health
        news = health.why != why
        # How the program ended that broke the machine, say by its timeout, is not said of jobs that were not begun.
        health.code, health.why = code if code in MACHINE_FAULTS else "worker-error", why
        if health.probe_at == _NEVER and not health.is_sick:
            health.pause_s = PROBE_FIRST_S
            health.probe_at = now + PROBE_FIRST_S
        health.turn(sick=True)
        if news:
            self._do.append(ev.HealthChanged(why))
        if not self._offering():
            return
        kept = len(self._held) + self._offered
        self._held.clear()
        self._offered = 0
        self._offer(kept)
        if news:
            self._tell_rest()
        if self._gives_back():
            waiting, due = list(self._waiting), self._due
            self._waiting.clear()
            self._due = {}
            for job in waiting:
                self._give_back(job)
            for job, wish in due.items():
                self._give_back(job)
                self._release(wish.slots, now)

    def _probed(self, why: str, now: float) -> None:
        health = self._health
        if not health.is_sick:
            return
        if why:
            if why != health.why:
                health.why = why
                self._do.append(ev.HealthChanged(why))
                self._tell_rest()
            health.pause_s = min(2 * health.pause_s, PROBE_MAX_S)
            health.probe_at = now + health.pause_s
            return
        health.turn(sick=False)
        health.why = ""
        self._do.append(ev.HealthChanged(""))
        self._tell_rest()
        self._offer_kept()

    def _tell_rest(self) -> None:
        if self.line is LeaderKind.OWN and self._health.can_tell:
            self._do.append(ev.SendResting(self._health.why))
            self._health.turn(told=int(self._health.is_sick))

    def _rest_known(self, now: float) -> None:
        """What the leader assigned for the credit that it had has come. The rest of it is void."""
        health = self._health
        if not health.unknown:
            return
        health.turn(told=-1)
        due = sum(wish.slots for wish in self._due.values())
        borrowed = min(self._borrowed, due)
        health.kept += self._credit - self._borrowed + borrowed
        self._credit, self._borrowed = 0, borrowed
        if self._borrowed:
            health.kept = self._repay(health.kept, now)
        self._offer_kept()

    def _offer_kept(self) -> None:
        health = self._health
        if not health.keeps:
            if self._offering():
                self._offered += health.kept
            health.kept = 0

    def _gives_back(self) -> bool:
        """It would be tried in vain, and the leader takes it back. An old one counts that as an attempt."""
        return self._health.is_sick and self.line is LeaderKind.OWN and self._health.can_tell

    def _give_back(self, job: JobId) -> None:
        """It is not begun here: its leader has others."""
        health = self._health
        self._do.append(ev.SendFailure(job, health.code, f"this machine is out of order: {health.why}", begun=False))
        if job in self._callers.waiting and job not in self._callers.asked:
            self._send_away(job, health.code, health.why)

    def _measure(self, now: float) -> None:
        """The latest sample decides, so that in the common case the credit goes back together with the ack."""
        if self._measured_at + CPU_SAMPLE_S <= now:
            self._measured_at = now
            self._do.append(ev.MeasureCpu())
        self._measure_at = self._measured_at + CPU_SAMPLE_S

    def _busy(self) -> int:
        """Slots in which something runs."""
        return sum(self._running.values())

    def _unused(self) -> int:
        """Slots in which nothing runs, whoever may use them."""
        return self.slots - self._busy() - sum([look.slots for look in self._looking.values()])

    def _has(self, job: JobId) -> bool:
        """It runs, or it was assigned and is about to."""
        return job in self._running or job in self._looking or job in self._waiting or job in self._due

    def _is_theirs(self, job: JobId) -> bool:
        """It is here, and the leader is answered when it is done: from now on also if callers alone wanted it."""
        self._callers.ours.discard(job)
        return self._has(job)

    def _listening(self) -> bool:
        return self.line >= LeaderKind.OLD

    def _offering(self) -> bool:
        return self.line >= LeaderKind.OLD and not self.leaving

    def _stop(self) -> None:
        """What still runs is not answered for: to the leader this worker is lost, and its jobs go to others."""
        self._stopped = True
        self._do.append(ev.RunnerStopped())

    def _step(self) -> SlotsStep:
        if self._offered and not self._again.is_full:
            self._credit += self._offered
            self._do.append(ev.SendCredit(self._offered))
            self._offered = 0
        if self.leaving and not self._stopped and self._nothing_left():
            self._stop()
        if not self._do:
            return _NOTHING
        do, self._do = self._do, []
        return Step(do=do)

    def _nothing_left(self) -> bool:
        if self._running or self._looking or self._waiting or self._due or self._callers.asked or self._kept.owed_count:
            return False
        return not self._again.is_promised


_NOTHING: Final[SlotsStep] = Step()
