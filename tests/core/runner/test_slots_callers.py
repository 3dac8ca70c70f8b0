"""Callers of a machine share its slots with a leader: as scripts, and in any order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from tests.kit.slots_script import (
    BUSY,
    CAP,
    FAILURE,
    QUIET,
    REQUEST,
    RESULT,
    A,
    B,
    C,
    D,
    SlotsScript,
    assigned,
    ended,
    failed,
    job,
    with_earlier_life,
    with_old_leader,
    with_own_leader,
)
from tests.kit.slots_storm import SlotsInAnyOrder

from wakugumi.core.ids import JobId
from wakugumi.core.runner.events import (
    AnswerCaller,
    Assigned,
    CallerCancels,
    CallerWants,
    Cancelled,
    Fetched,
    KillProgram,
    LeaderWelcomed,
    LinkLost,
    LoadResult,
    Opened,
    Recovered,
    RefuseCaller,
    ResultLoaded,
    ResultsConfirmed,
    RunnerStopped,
    SendAck,
    SendCredit,
    SendFailure,
    SendHolding,
    SendLeaving,
    SlotsDo,
    StartProgram,
    StopAsked,
)
from wakugumi.core.runner.slots import CLEAN_UP_S, Slots
from wakugumi.limits.runner import DONE_TTL_S

MINE = b"a caller's request"
FULL = "all slots are taken"
NOT_STARTED = "cancelled before it was started"


def wanted(script: SlotsScript, *jobs: JobId, slots: int = 1) -> list[SlotsDo]:
    """They are wanted, and the disk has nothing of them. Returns what follows from that."""
    said = []
    for each in jobs:
        assert script.hear(CallerWants(each, MINE, slots)) == [LoadResult(each)]
        said += script.hear(ResultLoaded(each, False, None))
    return said


def started(*jobs: JobId) -> list[StartProgram]:
    return [StartProgram(each, MINE) for each in jobs]


# Callers alone.


@pytest.mark.spec("N2")
def test_without_a_leader_a_caller_s_job_runs_and_is_answered() -> None:
    script = SlotsScript()
    assert wanted(script, A) == started(A)
    assert (script.slots.running, script.slots.free) == (1, 1)
    assert script.hear(ended(A)) == [AnswerCaller(A, RESULT)]
    assert script.slots.free == 2


@pytest.mark.spec("N4")
def test_what_is_ok_on_the_disk_answers_at_once_however_busy_the_machine_is() -> None:
    script = SlotsScript(slots=1)
    wanted(script, A)
    assert script.hear(CallerWants(B, MINE)) == [LoadResult(B)]
    assert script.hear(ResultLoaded(B, True, RESULT)) == [AnswerCaller(B, RESULT, kept=True)]


@pytest.mark.spec("N1", "N2")
def test_a_failure_on_the_disk_is_run_again() -> None:
    script = SlotsScript()
    wanted(script, A)
    assert script.hear(failed(A)) == [AnswerCaller(A, FAILURE)]
    script.hear(CallerWants(A, MINE))
    assert script.hear(ResultLoaded(A, False, FAILURE, "exit")) == started(A)


@pytest.mark.spec("N3")
def test_beyond_its_slots_a_machine_is_busy() -> None:
    script = SlotsScript(slots=2)
    assert wanted(script, A, B) == started(A, B)
    assert script.slots.free == 0
    assert wanted(script, C) == [RefuseCaller(C, "busy", FULL)]
    script.hear(ended(A))
    assert wanted(script, C) == started(C)


def test_a_caller_of_a_job_that_runs_or_is_looked_for_waits_for_the_same_run() -> None:
    script = SlotsScript()
    script.hear(CallerWants(A, MINE))
    assert script.hear(CallerWants(A, b"another")) == []
    assert script.slots.has(A)
    assert script.hear(ResultLoaded(A, False, None)) == started(A)
    assert script.hear(CallerWants(A, MINE)) == []
    assert script.hear(ended(A)) == [AnswerCaller(A, RESULT)]
    assert not script.slots.has(A)


def test_a_caller_s_job_may_take_several_slots_but_not_more_than_there_are() -> None:
    script = SlotsScript(slots=3)
    assert wanted(script, A, slots=2) == started(A)
    assert wanted(script, B, slots=2) == [RefuseCaller(B, "busy", FULL)]
    text = "it needs 4 slots, and there are 3"
    assert script.hear(CallerWants(C, MINE, 4)) == [RefuseCaller(C, "bad-request", text)]
    script.hear(ended(A))
    assert script.slots.free == 3


def test_a_caller_cancels_what_runs_and_what_is_only_looked_for() -> None:
    script = SlotsScript()
    wanted(script, A)
    script.hear(CallerWants(B, MINE))
    assert script.hear(CallerCancels(B)) == [RefuseCaller(B, "cancelled", NOT_STARTED)]
    assert script.hear(ResultLoaded(B, False, None)) == []
    assert script.hear(CallerCancels(A)) == [KillProgram(A, "cancelled")]
    assert script.hear(CallerCancels(A), CallerCancels(C)) == []


def test_those_who_wait_for_a_cancelled_job_get_its_failure() -> None:
    script = SlotsScript()
    wanted(script, A)
    assert script.hear(CallerCancels(A), CallerWants(A, MINE)) == [KillProgram(A, "cancelled")]
    assert script.hear(failed(A, "cancelled")) == [AnswerCaller(A, FAILURE)]


# Slots that the leader was offered.


@pytest.mark.spec("F7", "N3")
def test_a_caller_borrows_a_slot_that_was_offered_and_its_end_gives_the_leader_nothing_new() -> None:
    script = with_own_leader(slots=2)
    assert wanted(script, A) == started(A)
    assert script.hear(ended(A)) == [AnswerCaller(A, RESULT)], "the leader has that credit still"
    assert script.hear(*assigned(B, C)) == [StartProgram(B, REQUEST), StartProgram(C, REQUEST)]


@pytest.mark.spec("L2", "N3")
def test_a_job_for_which_the_leader_paid_takes_the_next_free_slot_before_any_caller() -> None:
    script = with_own_leader(slots=2)
    wanted(script, A, B)
    assert script.hear(*assigned(C)) == [], "never more runs than there are slots, and it is no fault of the leader's"
    assert script.slots.free == 0
    assert script.hear(ended(A)) == [AnswerCaller(A, RESULT), StartProgram(C, REQUEST)]
    assert wanted(script, D) == [RefuseCaller(D, "busy", FULL)]
    assert script.hear(ended(C)) == [SendAck(C, RESULT)], "its slot pays back what B has borrowed"
    assert script.hear(ended(B)) == [AnswerCaller(B, RESULT), SendCredit(1)]


@pytest.mark.spec("L2")
def test_due_jobs_take_what_comes_free_in_their_order_also_large_ones() -> None:
    script = with_own_leader(slots=3)
    wanted(script, A, B, slots=1)
    assert script.hear(Assigned(C, REQUEST, 2), Assigned(D, REQUEST)) == []
    assert script.slots.free == 0, "one is unused, and C is first"
    assert script.hear(ended(A)) == [AnswerCaller(A, RESULT), StartProgram(C, REQUEST)]
    assert script.hear(ended(B)) == [AnswerCaller(B, RESULT), StartProgram(D, REQUEST)]
    assert script.hear(ended(C), ended(D)) == [SendAck(C, RESULT), SendAck(D, RESULT), SendCredit(3)]


def test_a_due_job_that_is_cancelled_gives_its_credit_back_and_lets_the_next_one_pass() -> None:
    script = with_own_leader(slots=3)
    wanted(script, A, B)
    script.hear(Assigned(C, REQUEST, 2), Assigned(D, REQUEST))
    assert script.hear(Cancelled((C,))) == [SendFailure(C, "cancelled", NOT_STARTED), StartProgram(D, REQUEST)]
    assert script.hear(ended(A), ended(B)) == [AnswerCaller(A, RESULT), AnswerCaller(B, RESULT), SendCredit(2)]


def test_a_due_job_that_has_an_answer_needs_no_slot_in_the_end() -> None:
    script = with_own_leader(slots=1)
    script.hear(*assigned(A))
    script.hear(ended(A))
    wanted(script, B)
    assert script.hear(*assigned(A), CallerWants(A, MINE)) == []
    answers = [AnswerCaller(B, RESULT), SendAck(A, RESULT), AnswerCaller(A, RESULT, kept=True)]
    assert script.hear(ended(B)) == [*answers, SendCredit(1)]


@pytest.mark.spec("F7")
def test_a_duplicate_pays_back_first_what_was_borrowed() -> None:
    script = with_own_leader(slots=3)
    script.hear(*assigned(A))
    wanted(script, B)
    assert script.hear(*assigned(A)) == []
    assert script.hear(ended(B)) == [AnswerCaller(B, RESULT), SendCredit(1)]


@pytest.mark.spec("W2")
def test_a_caller_takes_first_what_is_held_back_because_of_the_cpu() -> None:
    script = with_own_leader(slots=2)
    script.hear(*assigned(A, B), BUSY)
    script.hear(ended(A))
    assert wanted(script, C) == started(C)
    assert script.hear(QUIET) == []
    assert script.hear(ended(C), ended(B)) == [AnswerCaller(C, RESULT), SendAck(B, RESULT), SendCredit(2)]


@pytest.mark.spec("L4")
def test_a_new_leader_is_offered_what_callers_left_and_does_not_hear_of_their_jobs() -> None:
    script = with_own_leader(slots=3)
    wanted(script, A)
    script.hear(*assigned(B), LinkLost())
    assert wanted(script, C) == started(C)
    assert script.hear(Opened(), LeaderWelcomed()) == [SendHolding((B,), ())]
    assert script.hear(ended(A)) == [AnswerCaller(A, RESULT), SendCredit(1)]


def test_while_a_job_waits_that_was_assigned_without_credit_callers_are_sent_away() -> None:
    script = with_own_leader(slots=1)
    script.hear(*assigned(A))
    script.hear(*assigned(B))
    assert wanted(script, C) == [RefuseCaller(C, "busy", FULL)]


# The same job from both sides.


@pytest.mark.spec("W4", "W7")
def test_a_caller_s_result_is_not_owed_to_the_leader() -> None:
    script = with_own_leader()
    wanted(script, A)
    script.hear(ended(A))
    assert script.slots.unconfirmed == 0
    script.hear(LinkLost(), Opened())
    assert script.hear(LeaderWelcomed()) == [SendHolding((), ()), SendCredit(2)]


@pytest.mark.spec("W4", "F7")
def test_a_caller_s_job_that_the_leader_assigns_runs_once_and_answers_both() -> None:
    script = with_own_leader()
    wanted(script, A)
    assert script.hear(*assigned(A)) == [], "its credit pays for the slot that was borrowed"
    assert script.hear(ended(A)) == [SendAck(A, RESULT), AnswerCaller(A, RESULT), SendCredit(1)]
    assert script.slots.owes(A)


@pytest.mark.spec("W4")
def test_a_caller_of_the_leader_s_job_waits_for_it() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    assert script.hear(CallerWants(A, MINE)) == []
    assert script.hear(ended(A)) == [SendAck(A, RESULT), AnswerCaller(A, RESULT), SendCredit(1)]


@pytest.mark.spec("W4")
def test_what_callers_had_made_answers_the_leader_too() -> None:
    script = with_own_leader()
    wanted(script, A)
    script.hear(ended(A))
    assert script.hear(*assigned(A)) == [LoadResult(A)]
    assert script.hear(ResultLoaded(A, True, RESULT)) == [SendAck(A, RESULT), SendCredit(1)]


@pytest.mark.spec("W4")
def test_a_job_assigned_while_it_is_looked_for_is_started_once() -> None:
    script = with_own_leader()
    script.hear(CallerWants(A, MINE))
    assert script.hear(*assigned(A)) == [StartProgram(A, REQUEST)]
    assert script.hear(ResultLoaded(A, False, None)) == []
    assert script.hear(ended(A)) == [SendAck(A, RESULT), AnswerCaller(A, RESULT), SendCredit(1)]


@pytest.mark.spec("W4")
def test_a_look_for_the_leader_answers_a_caller_as_well() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(ended(A), ResultsConfirmed((A,)))
    assert script.hear(*assigned(A), CallerWants(A, MINE)) == [LoadResult(A)]
    said = script.hear(ResultLoaded(A, True, RESULT))
    assert said == [SendAck(A, RESULT), AnswerCaller(A, RESULT, kept=True), SendCredit(1)]


@pytest.mark.spec("W7")
def test_a_failure_that_the_leader_has_not_confirmed_is_run_again_for_both() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(failed(A))
    script.hear(CallerWants(A, MINE))
    assert script.hear(ResultLoaded(A, False, FAILURE, "exit")) == started(A)
    assert script.hear(ResultsConfirmed((A,))) == [], "what it confirms is no longer the result"
    assert script.hear(ended(A)) == [SendAck(A, RESULT), AnswerCaller(A, RESULT)]
    assert script.slots.owes(A)


@pytest.mark.spec("W7")
def test_a_result_of_an_earlier_life_that_the_leader_fetches_while_it_is_made_anew_is_owed() -> None:
    script = with_earlier_life(A)
    script.hear(CallerWants(A, MINE))
    assert script.hear(ResultLoaded(A, False, FAILURE, "exit")) == started(A)
    assert script.hear(Fetched((A,))) == []
    assert script.hear(ended(A)) == [SendAck(A, RESULT), AnswerCaller(A, RESULT)]


@pytest.mark.spec("W7")
def test_a_fetch_whose_look_is_overtaken_by_a_caller_is_answered_by_the_new_run() -> None:
    script = with_earlier_life(A)
    assert script.hear(Fetched((A,)), CallerWants(A, MINE)) == [LoadResult(A), LoadResult(A)]
    assert script.hear(ResultLoaded(A, False, FAILURE, "exit")) == started(A)
    assert script.hear(ResultLoaded(A, False, None)) == []
    assert script.hear(ended(A)) == [SendAck(A, RESULT), AnswerCaller(A, RESULT)]


@pytest.mark.spec("L10")
def test_the_leader_cannot_cancel_what_callers_alone_want() -> None:
    script = with_own_leader()
    wanted(script, A)
    assert script.hear(Cancelled((A,))) == []


@pytest.mark.spec("L10")
def test_what_the_leader_cancels_is_cancelled_for_callers_too() -> None:
    script = with_own_leader(slots=1)
    script.hear(*assigned(A), CallerWants(A, MINE))
    assert script.hear(Cancelled((A,))) == [KillProgram(A, "cancelled")]
    assert script.hear(failed(A, "cancelled")) == [SendAck(A, FAILURE), AnswerCaller(A, FAILURE), SendCredit(1)]
    wanted(script, B)
    script.hear(*assigned(C))
    script.hear(CallerWants(C, MINE))
    failure = SendFailure(C, "cancelled", NOT_STARTED)
    assert script.hear(Cancelled((C,))) == [failure, RefuseCaller(C, "cancelled", NOT_STARTED)]


@pytest.mark.spec("L10")
def test_a_caller_may_cancel_the_leader_s_job_and_the_leader_hears_it() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    assert script.hear(CallerCancels(A)) == [KillProgram(A, "cancelled")]
    assert script.hear(failed(A, "cancelled")) == [SendAck(A, FAILURE), SendCredit(1)]


def test_a_job_cancelled_here_and_assigned_by_the_leader_runs_anew_for_both() -> None:
    script = with_own_leader()
    wanted(script, A)
    script.hear(CallerCancels(A))
    assert script.hear(*assigned(A)) == []
    assert script.hear(failed(A, "cancelled")) == [StartProgram(A, REQUEST)]
    assert script.hear(ended(A)) == [SendAck(A, RESULT), AnswerCaller(A, RESULT), SendCredit(1)]


def test_callers_of_a_job_that_was_due_when_the_leader_went_are_told_to_come_again() -> None:
    script = with_own_leader(slots=1)
    wanted(script, A)
    script.hear(*assigned(B))
    script.hear(CallerWants(B, MINE))
    assert script.hear(LinkLost()) == [RefuseCaller(B, "busy", "its leader went away before it was started")]
    assert script.hear(ended(A)) == [AnswerCaller(A, RESULT)]


def test_an_old_leader_shares_the_slots_as_well() -> None:
    script = with_old_leader(slots=1)
    wanted(script, A)
    assert script.hear(*assigned(B)) == []
    assert script.hear(ended(A)) == [AnswerCaller(A, RESULT), StartProgram(B, REQUEST)]
    assert script.hear(ended(B)) == [SendAck(B, RESULT), SendCredit(1)]


# How long they are known.


@pytest.mark.spec("N4")
def test_a_machine_that_keeps_results_for_days_knows_them_for_days() -> None:
    script = SlotsScript()
    script.slots = Slots(2, CAP, done_ttl_s=10 * DONE_TTL_S)
    script.tick()
    script.hear(Recovered([(A, 9.5 * DONE_TTL_S), (B, 1.0)]), Opened(), LeaderWelcomed(), LinkLost())
    script.tick(DONE_TTL_S - CLEAN_UP_S)
    assert script.hear(Opened(), LeaderWelcomed())[0] == SendHolding((), (), (B, A)), "as long as a leader may need"
    script.hear(LinkLost())
    script.tick(CLEAN_UP_S)
    assert script.hear(Opened(), LeaderWelcomed())[0] == SendHolding((), (), (B,))


# The end.


@pytest.mark.spec("L10")
def test_a_machine_that_stops_takes_no_more_and_finishes_what_callers_wait_for() -> None:
    script = SlotsScript()
    wanted(script, A)
    script.hear(CallerWants(B, MINE), CallerWants(C, MINE))
    assert script.hear(StopAsked()) == []
    stopping = "this machine takes no more jobs"
    assert script.hear(CallerWants(D, MINE)) == [RefuseCaller(D, "stopping", stopping)]
    assert script.hear(ResultLoaded(B, False, None)) == [RefuseCaller(B, "stopping", stopping)]
    assert script.hear(ended(A)) == [AnswerCaller(A, RESULT)]
    assert script.hear(ResultLoaded(C, True, RESULT)) == [AnswerCaller(C, RESULT, kept=True), RunnerStopped()]


@pytest.mark.spec("L10")
def test_a_machine_that_stops_still_does_what_was_due() -> None:
    script = with_own_leader(slots=1)
    wanted(script, A)
    script.hear(*assigned(B))
    assert script.hear(StopAsked()) == [SendLeaving()]
    assert script.hear(ended(A)) == [AnswerCaller(A, RESULT), StartProgram(B, REQUEST)]
    assert script.hear(ended(B), ResultsConfirmed((B,))) == [SendAck(B, RESULT), RunnerStopped()]


class AnyOrderWithCallers(SlotsInAnyOrder):
    """The same world, and callers who want and cancel the same six jobs.

    What must hold: never more runs than there are slots; each caller is told once, and none waits for nothing; the
    leader is told of no job that it never asked for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.callers: set[JobId] = set()
        self.leaders: set[JobId] = set()
        """What the leader ever assigned or fetched."""
        self.wishes: dict[JobId, int] = {}

    @rule(number=st.integers(1, 6), slots=st.sampled_from([1, 1, 1, 2, 3]))
    def want(self, number: int, slots: int) -> None:
        if self.stopped:
            return
        which_job = job(number)
        self.callers.add(which_job)
        if not self.machine.has(which_job):
            self.wishes[which_job] = slots
        self.hear(CallerWants(which_job, MINE, slots))

    @rule(number=st.integers(1, 6), slots=st.sampled_from([1, 1, 2]))
    def want_and_look(self, number: int, slots: int) -> None:
        self.want(number, slots)
        while self.loads:
            self.load()

    @precondition(lambda self: not self.up)
    @rule()
    def be_greeted(self) -> None:
        self.connect()
        self.welcome()

    @precondition(lambda self: self.up and self.credit > 0)
    @rule(number=st.integers(1, 6))
    def assign_all(self, number: int) -> None:
        """One job for each credit: also for what was borrowed."""
        while self.up and self.credit > 0 and number < 12:
            self.assign(number, 1)
            number += 1

    @rule(number=st.integers(1, 6))
    def cancel_here(self, number: int) -> None:
        self.hear(CallerCancels(job(number)))

    @precondition(lambda self: self.disk)
    @rule(slots=st.integers(1, 3))
    def die_and_live_again(self, slots: int) -> None:
        self.callers.clear()
        super().die_and_live_again(slots)

    def heed(self, do: Sequence[SlotsDo]) -> None:
        self.leaders |= self.unanswered.keys()
        for effect in do:
            if isinstance(effect, AnswerCaller):
                self.callers.remove(effect.job)
            elif isinstance(effect, RefuseCaller):
                self.callers.remove(effect.job)
                if effect.text == FULL:
                    assert self.machine.free < self.wishes[effect.job], "there is room, and it was sent away"
            elif isinstance(effect, SendHolding):
                assert set(effect.running) <= self.leaders
                assert set(effect.finished) <= self.leaders
                assert self.running.keys() - set(effect.running) <= self.wishes.keys()
                effect = SendHolding(tuple(self.running), effect.finished, effect.kept)  # noqa: PLW2901
            elif isinstance(effect, SendAck):
                assert effect.job in self.leaders
            elif isinstance(effect, RunnerStopped):
                self.callers.clear()
            super().heed([effect])

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "machine"):
            return
        self.machine.check()
        assert self.machine.state.jobs.running.keys() == self.running.keys() or self.stopped
        assert sum(self.machine.state.jobs.running.values()) <= self.machine.slots
        if not self.stopped:
            assert self.callers == self.machine.state.callers.waiting

    def teardown(self) -> None:
        super().teardown()
        assert not self.callers, "somebody waits, and nothing will come"


TestAnyOrderWithCallers = AnyOrderWithCallers.TestCase
TestAnyOrderWithCallers.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
