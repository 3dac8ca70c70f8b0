"""A runner's slots in any order of events: what must always hold, and that all comes to rest."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.kit.slots_script import CAP, HUGE, REQUEST, RESULT, job

from wakugumi.core.ids import JobId
from wakugumi.core.runner.events import (
    Assigned,
    Cancelled,
    CpuMeasured,
    Fetched,
    ForgetResult,
    HangUpOnLeader,
    KillProgram,
    LeaderWelcomed,
    LinkLost,
    LoadResult,
    Opened,
    Probe,
    Probed,
    ProgramEnded,
    Recovered,
    RestKnown,
    ResultLoaded,
    ResultsConfirmed,
    ResultsWritten,
    RunnerStopped,
    SendAck,
    SendCredit,
    SendFailure,
    SendHolding,
    SendResting,
    SlotsDo,
    SlotsEvent,
    StartProgram,
    StopAsked,
    TellWhenResultsWritten,
)
from wakugumi.core.runner.leader_line import LeaderKind
from wakugumi.core.runner.slots import Slots
from wakugumi.limits.runner import PROBE_MAX_S


class SlotsInAnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order, against a world that remembers what it was told.

    The world is a disk, the programs that run, and a leader that counts credit by itself. Each job has an *attempt*
    open from its assignment or its fetch until the ack; the leader breaks the rules only by assigning without credit.
    Now and then the worker dies, with all that runs, and begins another life with the same disk.
    """

    @initialize(slots=st.integers(1, 3))
    def begin(self, slots: int) -> None:
        self.machine = Slots(slots, CAP, old_leader=True)
        self.now = 0.0
        self.running: dict[JobId, None] = {}
        self.killing: dict[JobId, None] = {}
        self.loads: list[JobId] = []
        self.disk: dict[JobId, str] = {}
        """Finished jobs, and why they failed; empty if they are OK."""
        self.offered: tuple[JobId, ...] = ()
        self.confirmed_failures: set[JobId] = set()
        self.credit = 0
        self.overdrawn = False
        self.unanswered: dict[JobId, None] = {}
        self.acked: list[JobId] = []
        self.up = self.stopped = self.is_full = False
        self.rests_told = self.probes = 0

    # What the leader and the network do.

    @precondition(lambda self: not self.up)
    @rule()
    def connect(self) -> None:
        self.up = True
        self.hear(Opened())

    @precondition(lambda self: self.up)
    @rule(rests=st.booleans())
    def welcome(self, rests: bool = True) -> None:
        self.hear(LeaderWelcomed(rests))

    @precondition(lambda self: self.up and self.rests_told)
    @rule()
    def rest_is_known(self) -> None:
        """What the leader assigned before it knew has come; the credit that it still had is void."""
        self.rests_told -= 1
        self.credit = 0
        self.hear(RestKnown())

    @precondition(lambda self: self.up)
    @rule()
    def lose(self) -> None:
        self.down()
        self.hear(LinkLost())

    @precondition(lambda self: self.up and self.credit > 0)
    @rule(number=st.integers(1, 6), slots=st.integers(1, 3))
    def assign(self, number: int, slots: int) -> None:
        """An old leader knows nothing of several slots: it takes one credit, whatever the request says."""
        slots = min(slots, self.credit)
        self.credit -= slots if self.machine.line is LeaderKind.OWN else 1
        self.unanswered[job(number)] = None
        self.hear(Assigned(job(number), REQUEST, slots))

    @precondition(lambda self: self.up and self.credit == 0)
    @rule(number=st.integers(1, 6), slots=st.sampled_from([1, 1, 2]))
    def assign_without_credit(self, number: int, slots: int) -> None:
        self.overdrawn = True
        self.unanswered[job(number)] = None
        self.hear(Assigned(job(number), REQUEST, slots))

    @precondition(lambda self: self.up and self.acked)
    @rule()
    def confirm(self) -> None:
        jobs, self.acked = self.acked, []
        self.confirmed_failures |= {each for each in jobs if self.machine.owes(each) and self.disk.get(each)}
        if self.is_full:  # Then the leader took what it was told before as the answer to the assignment as well.
            for each in jobs:
                if not self.machine.has(each):
                    self.unanswered.pop(each, None)
        self.hear(ResultsConfirmed(jobs))

    @precondition(lambda self: self.is_full)
    @rule()
    def write(self) -> None:
        self.is_full = False
        self.hear(ResultsWritten())

    @precondition(lambda self: self.up and self.offered)
    @rule(which=st.integers(0, 10))
    def fetch(self, which: int) -> None:
        which_job = self.offered[which % len(self.offered)]
        if not self.machine.owes(which_job):  # else it was fetched before, and its ack is on the way
            self.unanswered[which_job] = None
        self.hear(Fetched((which_job,)))

    @precondition(lambda self: self.up)
    @rule(number=st.integers(1, 6))
    def cancel(self, number: int) -> None:
        self.hear(Cancelled((job(number),)))

    # What the machine does.

    @precondition(lambda self: self.running)
    @rule(ok=st.booleans(), which=st.integers(0, 10), huge=st.booleans(), ran_s=st.sampled_from([0.0, 0.1, 5.0]))
    def end(self, ok: bool, which: int, huge: bool, ran_s: float = 1.0, fault: str = "") -> None:
        which_job = list(self.running)[which % len(self.running)]
        del self.running[which_job]
        ok = ok and which_job not in self.killing
        reason = "" if ok else "cancelled" if which_job in self.killing else "disk" if fault else "exit"
        self.killing.pop(which_job, None)
        self.disk[which_job] = reason
        self.confirmed_failures.discard(which_job)
        self.hear(ProgramEnded(which_job, ok, reason, HUGE if huge else RESULT, ran_s, fault))

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 10), fault=st.sampled_from(["no room", "no descriptors"]))
    def end_by_a_fault(self, which: int, fault: str) -> None:
        self.end(ok=False, which=which, huge=False, fault=fault)

    @precondition(lambda self: self.probes)
    @rule(why=st.sampled_from(["", "", "no room"]))
    def probe(self, why: str) -> None:
        self.probes -= 1
        self.hear(Probed(why))

    @precondition(lambda self: self.loads)
    @rule()
    def load(self) -> None:
        which_job = self.loads.pop(0)
        reason = self.disk.get(which_job)
        self.hear(ResultLoaded(which_job, reason == "", None if reason is None else RESULT, reason or ""))

    @precondition(lambda self: self.disk)
    @rule(slots=st.integers(1, 3))
    def die_and_live_again(self, slots: int) -> None:
        self.down()
        self.running.clear()
        self.killing.clear()
        self.loads.clear()
        self.stopped = False
        self.probes = 0
        self.machine = Slots(slots, CAP, old_leader=True)
        self.hear(Recovered([(each, 1.0) for each in self.disk]))
        assert not self.confirmed_failures & self.disk.keys(), "a failure that the leader knows could be told again"

    @rule(others=st.sampled_from([0.0, CAP, 1.0]))
    def measure(self, others: float) -> None:
        self.hear(CpuMeasured(others))

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0, 2.0, 6.0, 31.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.heed(self.machine.tick(self.now).do)
        wake_at = self.machine.wake_at()
        assert (wake_at is None) == self.stopped
        assert wake_at is None or wake_at > self.now

    @precondition(lambda self: len(self.disk) > 3)
    @rule()
    def stop(self) -> None:
        self.hear(StopAsked())

    # What must hold.

    def hear(self, event: SlotsEvent) -> None:
        self.heed(self.machine.handle([event], self.now).do)

    def down(self) -> None:
        self.up = self.overdrawn = self.is_full = False
        self.credit = self.rests_told = 0
        self.unanswered.clear()
        self.acked.clear()
        self.offered = ()

    def heed(self, do: Sequence[SlotsDo]) -> None:
        for effect in do:
            assert not self.stopped, "nothing follows Stopped"
            if isinstance(effect, StartProgram):
                assert effect.job not in self.running, "one job runs once at a time"
                assert self.disk.pop(effect.job, "none") != "", "what is OK is never run again"
                self.running[effect.job] = None
            elif isinstance(effect, KillProgram):
                assert effect.job in self.running
                self.killing[effect.job] = None
            elif isinstance(effect, LoadResult):
                self.loads.append(effect.job)
            elif isinstance(effect, ForgetResult):
                assert self.disk.pop(effect.job, "gone"), "what is OK is not forgotten"
            elif isinstance(effect, SendHolding):
                assert set(effect.running) == self.running.keys()
                assert set(effect.kept) <= self.disk.keys(), "what is offered is there"
                assert not set(effect.kept) & (set(effect.running) | set(effect.finished)), "each is told once"
                self.offered = effect.kept
            elif isinstance(effect, SendAck | SendFailure):
                self.unanswered.pop(effect.job, None)
                self.acked.append(effect.job)
                assert not self.is_full or isinstance(effect, SendFailure), "more is said than is written"
            elif isinstance(effect, TellWhenResultsWritten):
                self.is_full = True
            elif isinstance(effect, SendCredit):
                assert self.up
                assert effect.amount > 0
                self.credit += effect.amount
            elif isinstance(effect, SendResting):
                assert self.up
                self.rests_told += bool(effect.why)
            elif isinstance(effect, Probe):
                assert self.machine.state.health.is_sick
                self.probes += 1
                assert self.probes == 1
            elif isinstance(effect, HangUpOnLeader):
                self.down()
            elif isinstance(effect, RunnerStopped):
                self.stopped = True

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "machine"):
            return
        self.machine.check()
        assert len(self.running) <= self.machine.slots
        assert self.machine.state.jobs.running.keys() == self.running.keys() or self.stopped
        if not self.overdrawn:
            busy = sum(self.machine.state.jobs.running.values())
            assert self.credit + busy <= self.machine.slots, "more was offered than there is"

    def teardown(self) -> None:
        """Let everything come to rest: then each assignment of this connection is answered, and all credit is back."""
        if not hasattr(self, "machine"):
            return
        for _ in range(100):
            if self.loads:
                self.load()
            elif self.running:
                self.end(ok=True, which=0, huge=False)
            elif self.is_full:
                self.write()
            else:
                break
        while self.rests_told:
            self.rest_is_known()
        if self.machine.state.health.is_sick and not self.stopped:
            self.tick(0.0 if self.probes else PROBE_MAX_S)  # Long silence ends a connection.
            if self.probes:
                self.probe("")
        if self.stopped:
            return
        assert not self.machine.state.health.is_sick
        assert not self.unanswered
        self.hear(CpuMeasured(0.0))
        if self.machine.line >= LeaderKind.OLD and not self.machine.leaving and not self.overdrawn:
            assert self.credit == self.machine.slots
