"""The runner's state machine, as scripts: what it hears, what it does, and that it does nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.slots_script import (
    BUSY,
    CAP,
    FAILURE,
    HUGE,
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
    ended_huge,
    failed,
    job,
    with_earlier_life,
    with_old_leader,
    with_own_leader,
)
from tests.kit.slots_storm import SlotsInAnyOrder

from wakugumi.core.greeting import SILENT_LEFT, WELCOME_AGAIN_WITHIN_S, WELCOME_WITHIN_S
from wakugumi.core.ids import JobId
from wakugumi.core.runner.cpu_watch import CPU_SAMPLE_S
from wakugumi.core.runner.events import (
    Assigned,
    Cancelled,
    ComplainAboutLeader,
    CpuMeasured,
    Fetched,
    ForgetResult,
    HangUpOnLeader,
    KillProgram,
    LeaderAlive,
    LeaderWelcomed,
    LinkLost,
    LoadResult,
    MeasureCpu,
    Opened,
    Probe,
    Probed,
    ProgramEnded,
    Recovered,
    RestKnown,
    ResultLoaded,
    ResultsConfirmed,
    RunnerStopped,
    SendAck,
    SendCredit,
    SendFailure,
    SendHolding,
    SendLeaving,
    SendResting,
    SendRunnerHeartbeat,
    SlotsDo,
    SlotsEvent,
    StartProgram,
    StopAsked,
)
from wakugumi.core.runner.finished import DONE_IDS_MAX, FOUND_MAX
from wakugumi.core.runner.leader_line import LeaderKind
from wakugumi.core.runner.resend import RESENT_AT_ONCE
from wakugumi.core.runner.slots import CLEAN_UP_S, Slots
from wakugumi.limits.runner import CREDIT_HELD_MAX_S, DONE_TTL_S, PROBE_FIRST_S, PROBE_MAX_S
from wakugumi.limits.wire import DRAIN_DEADLINE_S, HEARTBEAT_S, SILENCE_MAX_S

# Jobs that take several slots.


@pytest.mark.spec("F7")
def test_a_job_of_several_slots_takes_as_much_credit_and_gives_it_back() -> None:
    script = with_own_leader(slots=4)
    assert script.hear(Assigned(A, REQUEST, 3)) == [StartProgram(A, REQUEST)]
    assert script.hear(Assigned(B, REQUEST)) == [StartProgram(B, REQUEST)]
    assert script.hear(ended(A)) == [SendAck(A, RESULT), SendCredit(3)]
    assert script.hear(ended(B)) == [SendAck(B, RESULT), SendCredit(1)]


@pytest.mark.spec("F7", "W4")
def test_a_large_job_assigned_twice_gives_all_its_credit_back() -> None:
    script = with_own_leader(slots=4)
    script.hear(Assigned(A, REQUEST, 2))
    assert script.hear(Assigned(A, REQUEST, 2)) == [SendCredit(2)]
    assert script.hear(ended(A)) == [SendAck(A, RESULT), SendCredit(2)]
    assert script.hear(Assigned(A, REQUEST, 2)) == [SendAck(A, RESULT), SendCredit(2)], "it is answered already"


@pytest.mark.spec("W2")
def test_all_slots_of_a_large_job_are_held_while_others_keep_the_cpu_busy() -> None:
    script = with_own_leader(slots=4)
    script.hear(Assigned(A, REQUEST, 3), BUSY)
    assert script.hear(ended(A)) == [SendAck(A, RESULT)]
    assert script.tick(CREDIT_HELD_MAX_S) == [SendCredit(3)]


@pytest.mark.spec("L4")
def test_what_a_large_job_takes_is_not_offered_to_the_next_leader() -> None:
    script = with_own_leader(slots=4)
    script.hear(Assigned(A, REQUEST, 3))
    script.hear(LinkLost())
    assert script.hear(Opened(), LeaderWelcomed()) == [SendHolding((A,), ()), SendCredit(1)]
    assert script.hear(ResultsConfirmed(()), ended(A)) == [SendAck(A, RESULT), SendCredit(3)]


def test_a_large_job_that_is_cancelled_and_wanted_after_all_keeps_its_slots() -> None:
    script = with_own_leader(slots=4)
    script.hear(Assigned(A, REQUEST, 2))
    assert script.hear(Cancelled((A,)), Assigned(A, REQUEST, 2)) == [KillProgram(A, "cancelled"), SendCredit(2)]
    assert script.hear(failed(A, "cancelled")) == [StartProgram(A, REQUEST)]
    assert script.hear(ended(A)) == [SendAck(A, RESULT), SendCredit(2)]


def test_an_old_leader_takes_one_credit_for_each_job_whatever_it_asks_for() -> None:
    script = with_old_leader(slots=2)
    script.hear(Assigned(A, REQUEST, 9))
    script.hear(Assigned(B, REQUEST, 9))
    assert script.hear(ended(A), ended(B)) == [SendAck(A, RESULT), SendAck(B, RESULT), SendCredit(2)]


def test_a_large_job_without_enough_credit_is_sent_back() -> None:
    script = with_own_leader(slots=2)
    complaint, failure = script.hear(Assigned(A, REQUEST, 3))
    assert isinstance(complaint, ComplainAboutLeader)
    assert isinstance(failure, SendFailure)
    assert (failure.job, failure.code) == (A, "worker-error")


# The leader comes.


@pytest.mark.spec("F7", "L4")
def test_an_own_leader_hears_what_is_held_and_then_all_slots_as_credit() -> None:
    script = SlotsScript(slots=4)
    assert script.hear(Opened()) == []
    assert script.hear(LeaderWelcomed()) == [SendHolding((), ()), SendCredit(4)]


@pytest.mark.spec("F4", "F7")
def test_a_leader_that_gives_no_welcome_in_time_is_an_old_one_and_gets_credit_alone() -> None:
    script = SlotsScript(slots=4)
    script.hear(Opened())
    assert script.slots.wake_at() == script.now + WELCOME_WITHIN_S
    assert script.tick(WELCOME_WITHIN_S / 2) == []
    assert script.tick(WELCOME_WITHIN_S / 2) == [SendCredit(4)]
    assert script.slots.line is LeaderKind.OLD


@pytest.mark.spec("O1")
def test_a_leader_that_proved_who_it_is_and_gives_no_welcome_gets_no_credit_and_no_job_of_it_is_run() -> None:
    script = SlotsScript(slots=4)
    assert script.hear(Opened(secured=True), Assigned(A, REQUEST)) == []
    assert script.tick(WELCOME_AGAIN_WITHIN_S) == [HangUpOnLeader("the leader did not greet within 5 s")]


@pytest.mark.spec("L4", "W7")
def test_where_an_own_leader_was_a_silent_one_is_dead_rather_than_old_and_no_result_is_given_to_it() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(LinkLost(), ended(A))
    for _ in range(SILENT_LEFT):
        script.hear(Opened())
        assert script.tick(WELCOME_AGAIN_WITHIN_S) == [HangUpOnLeader("the leader did not greet within 5 s")]
        script.hear(LinkLost())
    script.hear(Opened())
    assert SendAck(A, RESULT) in script.tick(WELCOME_WITHIN_S), "it is not at home any more, it seems"


@pytest.mark.spec("F4")
def test_a_late_welcome_is_still_answered_with_what_is_held_but_offers_no_credit_twice() -> None:
    script = with_old_leader()
    script.hear(*assigned(A))
    assert script.hear(LeaderWelcomed()) == [SendHolding((A,), ())]
    assert script.hear(LeaderWelcomed()) == []


@pytest.mark.spec("O6", "W7")
def test_who_listens_and_says_nothing_gets_credit_but_no_result_before_it_has_assigned_a_job() -> None:
    script = SlotsScript(old_leader=False)
    script.hear(Opened())
    script.hear(LeaderWelcomed())
    script.hear(*assigned(A))
    script.hear(LinkLost())
    script.hear(ended(A))
    for _ in range(SILENT_LEFT):
        script.hear(Opened())
        script.tick(WELCOME_AGAIN_WITHIN_S)
    script.hear(Opened())
    assert script.tick(WELCOME_WITHIN_S) == [SendCredit(2)]
    assert script.slots.unconfirmed == 1
    assert SendAck(A, RESULT) in script.hear(*assigned(B))


def test_a_late_welcome_of_one_that_was_not_believed_gets_the_results_too() -> None:
    script = SlotsScript(old_leader=False)
    script.hear(Opened(), LeaderWelcomed(), *assigned(A), LinkLost(), ended(A))
    for _ in range(SILENT_LEFT):
        script.hear(Opened())
        script.tick(WELCOME_AGAIN_WITHIN_S)
    script.hear(Opened())
    assert script.tick(WELCOME_WITHIN_S) == [SendCredit(2)]
    assert script.hear(LeaderWelcomed()) == [SendHolding((), (A,)), SendAck(A, RESULT)]


@pytest.mark.spec("F4", "F7")
def test_a_job_before_any_welcome_shows_an_old_leader_and_takes_a_slot_out_of_the_credit() -> None:
    script = SlotsScript(slots=4)
    said = script.hear(Opened(), *assigned(A))
    assert said == [
        ComplainAboutLeader("the leader assigned a job without credit"),
        StartProgram(A, REQUEST),
        SendCredit(3),
    ]


# Jobs run.


@pytest.mark.spec("W2", "F9")
def test_the_ack_and_its_credit_leave_together() -> None:
    script = with_own_leader()
    assert script.hear(*assigned(A)) == [StartProgram(A, REQUEST)]
    assert script.hear(ended(A)) == [SendAck(A, RESULT), SendCredit(1)]
    assert script.hear(ResultsConfirmed((A,))) == []


@pytest.mark.spec("W2")
def test_several_ends_of_one_turn_give_their_credit_back_in_one_frame() -> None:
    script = with_own_leader()
    script.hear(*assigned(A, B))
    assert script.hear(ended(A), ended(B)) == [SendAck(A, RESULT), SendAck(B, RESULT), SendCredit(2)]


@pytest.mark.spec("W6")
def test_a_failing_program_is_an_answer_like_any_other() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    assert script.hear(failed(A)) == [SendAck(A, FAILURE), SendCredit(1)]


# The CPU limit.


@pytest.mark.spec("W2")
def test_credit_is_held_while_others_keep_the_cpu_busy_and_goes_back_once_they_do_not() -> None:
    script = with_own_leader()
    script.hear(*assigned(A, B), BUSY)
    assert script.hear(ended(A), ended(B)) == [SendAck(A, RESULT), SendAck(B, RESULT)]
    assert script.hear(BUSY) == []
    assert script.hear(QUIET) == [SendCredit(2)]


@pytest.mark.spec("W2")
def test_held_credit_goes_back_in_time_however_busy_others_are() -> None:
    script = with_own_leader()
    script.hear(*assigned(A, B), BUSY)
    script.hear(ended(A))
    script.tick(CREDIT_HELD_MAX_S / 2)
    script.hear(ended(B))
    assert script.tick(CREDIT_HELD_MAX_S / 2) == [SendCredit(1)]
    assert script.tick(CREDIT_HELD_MAX_S / 2) == [SendCredit(1)]


@pytest.mark.spec("W2")
def test_a_use_of_exactly_the_cap_is_not_below_it() -> None:
    script = with_own_leader()
    script.hear(*assigned(A), CpuMeasured(CAP))
    assert script.hear(ended(A)) == [SendAck(A, RESULT)]


@pytest.mark.spec("W2")
def test_the_cpu_is_looked_at_from_time_to_time_while_a_job_runs_or_credit_is_held_and_not_otherwise() -> None:
    script = with_own_leader()
    script.looks.clear()
    script.hear(*assigned(A))
    assert script.looks == [MeasureCpu()]
    script.hear(BUSY, *assigned(B))
    assert script.looks == [MeasureCpu()]
    script.tick(CPU_SAMPLE_S)
    assert script.looks == [MeasureCpu()] * 2
    script.hear(ended(A), ended(B))
    script.tick(CPU_SAMPLE_S)
    assert script.looks == [MeasureCpu()] * 3
    script.hear(QUIET)
    script.tick(CPU_SAMPLE_S)
    script.tick(CPU_SAMPLE_S)
    assert script.looks == [MeasureCpu()] * 3


@pytest.mark.spec("W2", "F7")
def test_credit_that_is_held_when_the_leader_goes_is_offered_to_the_next_and_only_once() -> None:
    script = with_own_leader()
    script.hear(*assigned(A), BUSY)
    script.hear(ended(A), ResultsConfirmed((A,)))
    script.hear(LinkLost(), Opened())
    assert script.hear(LeaderWelcomed()) == [SendHolding((), ()), SendCredit(2)]
    assert script.hear(QUIET) == []


# The same job again.


@pytest.mark.spec("W4", "F7")
def test_a_running_job_assigned_again_gives_its_credit_back_and_is_answered_when_it_is_done() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    assert script.hear(*assigned(A)) == [SendCredit(1)]
    assert script.hear(ended(A)) == [SendAck(A, RESULT), SendCredit(1)]


@pytest.mark.spec("W4", "F7")
@pytest.mark.parametrize("leader", [with_own_leader, with_old_leader])
def test_a_finished_job_assigned_again_is_answered_from_the_disk_and_not_run(
    leader: Callable[..., SlotsScript],
) -> None:
    script = leader()
    script.hear(*assigned(A))
    script.hear(ended(A), ResultsConfirmed((A,)))
    assert script.hear(*assigned(A)) == [LoadResult(A)]
    assert script.hear(ResultLoaded(A, True, RESULT)) == [SendAck(A, RESULT), SendCredit(1)]


@pytest.mark.spec("W4", "F7")
def test_a_job_that_is_being_looked_for_and_assigned_once_more_is_looked_for_once() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(ended(A), ResultsConfirmed((A,)))
    assert script.hear(*assigned(A, A)) == [LoadResult(A), SendCredit(1)]
    assert script.hear(ResultLoaded(A, True, RESULT)) == [SendAck(A, RESULT), SendCredit(1)]


@pytest.mark.spec("W2", "W4")
def test_credit_of_a_job_that_did_not_run_is_not_held() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(ended(A), BUSY)
    assert script.hear(*assigned(A)) == [SendAck(A, RESULT), SendCredit(1)]
    script.hear(ResultsConfirmed((A,)), *assigned(A))
    assert script.hear(ResultLoaded(A, True, RESULT)) == [SendAck(A, RESULT), SendCredit(1)]


@pytest.mark.spec("W4")
def test_a_result_that_is_gone_from_the_disk_is_made_again() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(ended(A), ResultsConfirmed((A,)))
    script.hear(*assigned(A))
    assert script.hear(ResultLoaded(A, False, None)) == [StartProgram(A, REQUEST)]


@pytest.mark.spec("W4")
def test_a_result_that_is_gone_before_it_was_confirmed_is_made_again_too_and_no_longer_owed() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(ended_huge(A))
    assert script.hear(*assigned(A)) == [LoadResult(A)]
    assert script.hear(ResultLoaded(A, False, None)) == [StartProgram(A, REQUEST)]
    assert script.slots.unconfirmed == 0


@pytest.mark.spec("W4")
def test_a_failure_that_is_not_confirmed_yet_answers_an_assignment_that_crossed_it() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(failed(A))
    assert script.hear(*assigned(A), ResultsConfirmed((A,))) == [SendAck(A, FAILURE), ForgetResult(A), SendCredit(1)]


@pytest.mark.spec("W4")
def test_a_confirmation_that_comes_after_the_assignment_does_not_make_it_a_retry() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(ProgramEnded(A, False, "exit", HUGE))
    assert script.hear(*assigned(A), ResultsConfirmed((A,))) == [LoadResult(A), ForgetResult(A)]
    assert script.hear(ResultLoaded(A, False, HUGE)) == [SendAck(A, HUGE), SendCredit(1)]


@pytest.mark.spec("L3", "L6")
def test_a_confirmed_failure_assigned_again_is_a_retry_and_runs() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(failed(A, "timeout"))
    assert script.hear(ResultsConfirmed((A,)), *assigned(A)) == [ForgetResult(A), StartProgram(A, REQUEST)]


@pytest.mark.spec("W4")
def test_a_failure_told_to_an_old_leader_is_answered_again_for_it_never_confirms() -> None:
    script = with_old_leader()
    script.hear(*assigned(A))
    script.hear(failed(A))
    assert script.hear(*assigned(A)) == [LoadResult(A)]
    assert script.hear(ResultLoaded(A, False, FAILURE)) == [SendAck(A, FAILURE), SendCredit(1)]


@pytest.mark.spec("W4")
def test_a_result_of_an_earlier_life_answers_if_it_is_ok_and_runs_again_if_it_failed() -> None:
    script = SlotsScript()
    script.hear(Recovered([(A, 5.0), (B, 5.0)]))
    assert script.hear(Opened(), LeaderWelcomed()) == [SendHolding((), (), (B, A)), SendCredit(2)]
    assert script.hear(*assigned(A, B)) == [LoadResult(A), LoadResult(B)]
    assert script.hear(ResultLoaded(A, True, RESULT)) == [SendAck(A, RESULT), SendCredit(1)]
    assert script.hear(ResultLoaded(B, False, FAILURE)) == [StartProgram(B, REQUEST)]


@pytest.mark.spec("W4")
def test_a_finished_job_is_known_for_its_time_and_then_forgotten() -> None:
    script = with_own_leader()
    script.hear(*assigned(A, B))
    script.hear(ended(A), ResultsConfirmed((A,)))
    script.tick(DONE_TTL_S - CLEAN_UP_S)
    script.hear(LeaderAlive(), LinkLost(), Opened(), LeaderWelcomed())
    assert script.hear(*assigned(A)) == [LoadResult(A)]
    script.hear(ResultLoaded(A, True, RESULT), LinkLost(), ended(B))
    script.tick(CLEAN_UP_S)
    script.hear(Opened(), LeaderWelcomed(), ResultsConfirmed((B,)))
    assert script.hear(*assigned(A)) == [StartProgram(A, REQUEST)]
    assert script.hear(*assigned(B)) == [LoadResult(B)]


@pytest.mark.spec("W4")
def test_when_memory_had_to_forget_the_disk_is_asked_about_every_job() -> None:
    script = with_own_leader()
    assert script.hear(*assigned(A)) == [StartProgram(A, REQUEST)]
    script.hear(Recovered([(job(number), 1.0) for number in range(10, 10 + DONE_IDS_MAX + 1)]))
    assert script.hear(*assigned(B)) == [LoadResult(B)]
    assert script.hear(ResultLoaded(B, False, None)) == [StartProgram(B, REQUEST)]
    script.hear(ended(A), ended(B))
    script.now += DONE_TTL_S
    assert script.hear(*assigned(C)) == [StartProgram(C, REQUEST)]


# The leader goes, and comes back.


@pytest.mark.spec("L4", "W7")
def test_without_a_leader_jobs_go_on_and_their_results_wait_for_the_next_connection() -> None:
    script = with_own_leader()
    script.hear(*assigned(A, B))
    assert script.hear(LinkLost()) == []
    assert script.hear(ended(A)) == []
    script.hear(Opened())
    assert script.hear(LeaderWelcomed()) == [SendHolding((B,), (A,)), SendAck(A, RESULT), SendCredit(1)]


@pytest.mark.spec("W7")
def test_a_result_is_sent_over_every_new_connection_until_it_is_confirmed() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(ended(A))
    for _ in range(2):
        assert script.slots.owes(A)
        script.hear(LinkLost())
        script.tick(DONE_TTL_S)  # It is kept for as long as it takes, whatever the disk does.
        script.hear(Opened())
        assert script.hear(LeaderWelcomed()) == [SendHolding((), (A,)), SendAck(A, RESULT), SendCredit(2)]
    script.hear(ResultsConfirmed((A,)), LinkLost(), Opened())
    assert script.hear(LeaderWelcomed()) == [SendHolding((), ()), SendCredit(2)]
    assert not script.slots.owes(A)


@pytest.mark.spec("F9", "W7")
def test_for_an_old_leader_written_is_delivered() -> None:
    script = with_old_leader()
    script.hear(*assigned(A, B))
    assert script.hear(ended(A)) == [SendAck(A, RESULT), SendCredit(1)]
    script.hear(LinkLost())
    script.hear(ended(B), Opened())
    assert script.tick(WELCOME_WITHIN_S) == [SendAck(B, RESULT), SendCredit(2)]
    script.hear(LinkLost(), Opened())
    assert script.tick(WELCOME_WITHIN_S) == [SendCredit(2)]


@pytest.mark.spec("W7")
def test_many_waiting_results_are_sent_a_few_at_a_time() -> None:
    count = RESENT_AT_ONCE + 2
    jobs = [job(number) for number in range(count)]
    acks = [SendAck(each, RESULT) for each in jobs]
    script = with_own_leader(slots=count)
    script.hear(*assigned(*jobs))
    script.hear(LinkLost(), *(ended(each) for each in jobs), Opened())
    said = script.hear(LeaderWelcomed())
    assert said == [SendHolding((), tuple(jobs)), *acks[:RESENT_AT_ONCE], SendCredit(count)]
    assert script.hear(ResultsConfirmed((jobs[0],))) == acks[-2:-1]
    script.hear(LinkLost(), Opened())
    assert script.hear(LeaderWelcomed())[1:-1] == acks[1 : RESENT_AT_ONCE + 1]
    assert script.hear(ResultsConfirmed((jobs[1], jobs[2]))) == acks[-1:]


@pytest.mark.spec("W7", "F9")
def test_an_old_leader_gets_all_waiting_results_at_once_for_it_confirms_none() -> None:
    count = RESENT_AT_ONCE + 1
    jobs = [job(number) for number in range(count)]
    script = with_old_leader(slots=count)
    script.hear(*assigned(*jobs))
    script.hear(LinkLost(), *(ended(each) for each in jobs), Opened())
    assert script.tick(WELCOME_WITHIN_S) == [*(SendAck(each, RESULT) for each in jobs), SendCredit(count)]


@pytest.mark.spec("W7")
@pytest.mark.parametrize("leader", [with_own_leader, with_old_leader])
def test_waiting_results_that_are_too_large_for_memory_are_read_from_the_disk(
    leader: Callable[..., SlotsScript],
) -> None:
    count = RESENT_AT_ONCE + 1
    jobs = [job(number) for number in range(count)]
    script = leader(slots=count)
    own = script.slots.line is LeaderKind.OWN
    script.hear(*assigned(*jobs))
    script.hear(LinkLost(), *(ended_huge(each) for each in jobs), Opened())
    said = script.hear(LeaderWelcomed())[1:] if own else script.tick(WELCOME_WITHIN_S)
    assert said == [*map(LoadResult, jobs[:-1]), SendCredit(count)]
    said = script.hear(ResultLoaded(jobs[0], True, HUGE))
    if own:
        assert said == [SendAck(jobs[0], HUGE)]
        said = script.hear(ResultsConfirmed((jobs[0],)))
        assert said == [LoadResult(jobs[-1])]
    else:
        assert said == [SendAck(jobs[0], HUGE), LoadResult(jobs[-1])]


@pytest.mark.spec("W7")
def test_a_waiting_result_that_is_gone_from_the_disk_is_told_as_a_failure_that_may_be_tried_again() -> None:
    count = RESENT_AT_ONCE + 1
    jobs = [job(number) for number in range(count)]
    script = with_own_leader(slots=count)
    script.hear(*assigned(*jobs))
    script.hear(LinkLost(), *(ended_huge(each) for each in jobs), Opened(), LeaderWelcomed())
    gone = SendFailure(jobs[0], "worker-error", "its result is no longer on the worker's disk")
    assert script.hear(ResultLoaded(jobs[0], False, None)) == [gone, LoadResult(jobs[-1])]
    assert script.slots.unconfirmed == count - 1


@pytest.mark.spec("L4")
def test_what_was_not_started_when_the_leader_went_is_forgotten() -> None:
    script = with_own_leader(slots=1)
    script.hear(*assigned(A))
    script.hear(ended(A), ResultsConfirmed((A,)))
    assert script.hear(*assigned(A)) == [LoadResult(A)]
    script.hear(*assigned(B))
    script.hear(LinkLost())
    assert script.hear(ResultLoaded(A, True, RESULT), Opened()) == []
    assert script.hear(LeaderWelcomed()) == [SendHolding((), ()), SendCredit(1)]


# The worker was started anew.


GONE = "its result is no longer on the worker's disk"


@pytest.mark.spec("W4", "W7")
def test_a_fetched_result_of_an_earlier_life_is_sent_and_owed_until_it_is_confirmed() -> None:
    script = with_earlier_life(A, B)
    assert script.hear(Fetched((A,))) == [LoadResult(A)]
    assert not script.slots.owes(A)
    assert script.hear(ResultLoaded(A, True, RESULT)) == [SendAck(A, RESULT)]
    assert script.slots.owes(A)
    script.hear(LinkLost(), Opened())
    assert script.hear(LeaderWelcomed()) == [SendHolding((), (A,), (B,)), LoadResult(A), SendCredit(2)]
    assert script.hear(ResultLoaded(A, True, RESULT)) == [SendAck(A, RESULT)]
    assert script.hear(ResultsConfirmed((A,))) == []
    script.hear(LinkLost(), Opened())
    assert script.hear(LeaderWelcomed()) == [SendHolding((), (), (B,)), SendCredit(2)]


@pytest.mark.spec("W6", "W7")
def test_a_fetched_failure_is_an_answer_and_once_confirmed_never_again() -> None:
    script = with_earlier_life(A)
    script.hear(Fetched((A,)))
    assert script.hear(ResultLoaded(A, False, FAILURE, "exit")) == [SendAck(A, FAILURE)]
    assert script.hear(ResultsConfirmed((A,)), *assigned(A)) == [ForgetResult(A), StartProgram(A, REQUEST)]


@pytest.mark.spec("W7")
def test_a_fetched_result_that_is_gone_is_told_as_a_failure_that_may_be_tried_again() -> None:
    script = with_earlier_life(A)
    assert script.hear(Fetched((A, B))) == [LoadResult(A), LoadResult(B)]
    assert script.hear(ResultLoaded(A, False, None)) == [SendFailure(A, "worker-error", GONE)]
    assert script.hear(ResultLoaded(B, False, None)) == [SendFailure(B, "worker-error", GONE)]
    script.hear(LinkLost(), Opened())
    assert script.hear(LeaderWelcomed()) == [SendHolding((), ()), SendCredit(2)]


@pytest.mark.spec("L10")
def test_a_job_that_was_cancelled_in_an_earlier_life_has_no_result_to_fetch() -> None:
    script = with_earlier_life(A)
    script.hear(Fetched((A,)))
    gone = SendFailure(A, "worker-error", GONE)
    assert script.hear(ResultLoaded(A, False, FAILURE, "cancelled")) == [gone]


@pytest.mark.spec("W4")
def test_a_job_that_was_assigned_anew_and_runs_is_not_answered_from_the_disk() -> None:
    script = with_earlier_life(A)
    script.hear(*assigned(A))
    assert script.hear(Fetched((A,))) == []
    assert script.hear(ResultLoaded(A, False, FAILURE, "exit")) == [StartProgram(A, REQUEST)]
    assert script.hear(Fetched((A,))) == []
    assert script.hear(ended(A)) == [SendAck(A, RESULT), SendCredit(1)]


@pytest.mark.spec("W4")
def test_an_assignment_that_crosses_a_fetch_makes_the_job_run_and_answers_once() -> None:
    script = with_earlier_life(A)
    assert script.hear(Fetched((A,))) == [LoadResult(A)]
    assert script.hear(*assigned(A)) == [LoadResult(A)]
    assert script.hear(ResultLoaded(A, False, FAILURE, "exit")) == [StartProgram(A, REQUEST)]
    assert script.hear(ResultLoaded(A, False, FAILURE, "exit")) == []
    assert script.hear(ended(A)) == [SendAck(A, RESULT), SendCredit(1)]


@pytest.mark.spec("W7")
def test_fetched_results_are_sent_a_few_at_a_time_together_with_those_that_wait() -> None:
    count = RESENT_AT_ONCE + 2
    jobs = [job(number) for number in range(10, 10 + count)]
    script = SlotsScript(slots=1)
    script.hear(Recovered([(each, 1.0) for each in jobs]), Opened(), LeaderWelcomed(), *assigned(A))
    script.hear(LinkLost(), ended(A), Opened())
    assert SendAck(A, RESULT) in script.hear(LeaderWelcomed())
    assert script.hear(Fetched(jobs)) == [LoadResult(each) for each in jobs[: RESENT_AT_ONCE - 1]]
    for each in jobs[: RESENT_AT_ONCE - 1]:
        assert script.hear(ResultLoaded(each, True, RESULT)) == [SendAck(each, RESULT)]
    assert script.hear(Fetched(jobs[:1])) == []
    assert script.hear(ResultsConfirmed((A,))) == [LoadResult(jobs[-3])]
    assert script.hear(ResultsConfirmed((jobs[0], jobs[1]))) == [LoadResult(jobs[-2]), LoadResult(jobs[-1])]


@pytest.mark.spec("W7")
def test_what_was_fetched_and_not_sent_when_the_leader_went_is_offered_again() -> None:
    script = with_earlier_life(A)
    script.hear(Fetched((A,)), LinkLost())
    assert script.hear(ResultLoaded(A, True, RESULT), Opened()) == []
    assert script.hear(LeaderWelcomed()) == [SendHolding((), (), (A,)), SendCredit(2)]


@pytest.mark.spec("W4")
def test_the_age_of_what_an_earlier_life_left_counts_from_the_start() -> None:
    script = SlotsScript()
    script.hear(Recovered([(A, 100 * DONE_TTL_S)]))
    script.tick(DONE_TTL_S - CLEAN_UP_S)
    assert script.hear(Opened(), LeaderWelcomed())[0] == SendHolding((), (), (A,))
    script.hear(LinkLost())
    script.tick(CLEAN_UP_S)
    assert script.hear(Opened(), LeaderWelcomed())[0] == SendHolding((), ())


def test_only_as_many_are_offered_as_fit_a_frame_and_no_more_are_fetched_at_once() -> None:
    jobs = [job(number) for number in range(FOUND_MAX + 1)]
    script = SlotsScript(slots=1)
    script.hear(Recovered([(each, 60.0 - at / FOUND_MAX) for at, each in enumerate(jobs)]))
    assert script.hear(Opened(), LeaderWelcomed())[0] == SendHolding((), (), tuple(jobs[:0:-1]))
    assert len(script.hear(Fetched(jobs))) == RESENT_AT_ONCE + 1
    assert script.hear(Fetched(jobs[-RESENT_AT_ONCE - 1 :]))[-1] == SendFailure(
        jobs[-1], "worker-error", "more was fetched than this worker offered"
    )


def test_a_leader_that_did_not_greet_fetches_nothing() -> None:
    script = SlotsScript()
    script.hear(Recovered([(A, 1.0)]), Opened())
    assert script.hear(Fetched((A,))) == []


@pytest.mark.spec("W7")
def test_a_worker_that_leaves_first_sends_what_was_fetched() -> None:
    script = with_earlier_life(A)
    script.hear(Fetched((A,)))
    assert script.hear(StopAsked()) == [SendLeaving()]
    assert script.hear(ResultLoaded(A, True, RESULT)) == [SendAck(A, RESULT)]
    assert script.hear(ResultsConfirmed((A,))) == [RunnerStopped()]


# Cancel.


@pytest.mark.spec("L10", "W3")
def test_cancel_kills_the_program_and_the_ack_says_so() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    assert script.hear(Cancelled((A, B))) == [KillProgram(A, "cancelled")]
    assert script.hear(Cancelled((A,))) == []
    assert script.hear(failed(A, "cancelled")) == [SendAck(A, FAILURE), SendCredit(1)]


@pytest.mark.spec("L6", "L10")
def test_a_cancelled_job_that_is_wanted_after_all_runs_again_once_its_program_is_dead() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(Cancelled((A,)))
    assert script.hear(Assigned(A, b"anew")) == [SendCredit(1)]
    assert script.hear(failed(A, "cancelled")) == [StartProgram(A, b"anew")]
    assert script.hear(ended(A)) == [SendAck(A, RESULT), SendCredit(1)]


@pytest.mark.spec("L6", "L10")
def test_a_cancelled_job_assigned_again_runs_even_before_its_failure_is_confirmed() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(Cancelled((A,)))
    script.hear(failed(A, "cancelled"))
    assert script.hear(*assigned(A)) == [StartProgram(A, REQUEST)]


@pytest.mark.spec("L4", "L10")
def test_a_cancelled_job_wanted_after_all_is_not_run_again_for_a_leader_that_is_gone() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(Cancelled((A,)))
    script.hear(*assigned(A))
    script.hear(LinkLost())
    assert script.hear(failed(A, "cancelled")) == []
    assert script.hear(Opened(), LeaderWelcomed()) == [SendHolding((), (A,)), SendAck(A, FAILURE), SendCredit(2)]


@pytest.mark.spec("L10")
def test_a_program_that_finishes_before_its_cancel_reaches_it_is_ok() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(Cancelled((A,)), *assigned(A))
    assert script.hear(ended(A)) == [SendAck(A, RESULT), SendCredit(1)]


@pytest.mark.spec("L10")
def test_a_job_that_was_not_started_yet_is_cancelled_without_a_program() -> None:
    script = with_own_leader(slots=1)
    script.hear(*assigned(A))
    script.hear(ended(A), ResultsConfirmed((A,)))
    script.hear(*assigned(A))
    script.hear(*assigned(B))
    cancelled = "cancelled before it was started"
    assert script.hear(Cancelled((B,))) == [SendFailure(B, "cancelled", cancelled)]
    assert script.hear(Cancelled((A,))) == [SendFailure(A, "cancelled", cancelled), SendCredit(1)]
    assert script.hear(ResultsConfirmed((A, B)), ResultLoaded(A, True, RESULT)) == []


# A leader that assigns without credit.


@pytest.mark.spec("L2")
def test_jobs_without_credit_wait_for_a_slot_one_for_each_and_the_rest_is_sent_back() -> None:
    script = with_own_leader(slots=1)
    script.hear(*assigned(A))
    assert script.hear(*assigned(B)) == [ComplainAboutLeader("the leader assigned a job without credit")]
    full = "assigned without credit, and the worker is full"
    assert script.hear(*assigned(B, C)) == [SendFailure(C, "worker-error", full)]
    assert script.hear(ended(A)) == [SendAck(A, RESULT), StartProgram(B, REQUEST)]
    assert script.hear(ended(B)) == [SendAck(B, RESULT), SendCredit(1)]


@pytest.mark.spec("L2")
def test_each_connection_is_told_of_once_that_it_assigns_without_credit() -> None:
    script = with_own_leader(slots=2)
    script.hear(*assigned(A, B))
    complaint = ComplainAboutLeader("the leader assigned a job without credit")
    assert script.hear(*assigned(C, D)) == [complaint]
    script.hear(LinkLost(), Opened(), LeaderWelcomed())
    assert script.hear(*assigned(C, D)) == [complaint]


@pytest.mark.spec("L2", "W2")
def test_a_job_without_credit_takes_a_slot_that_is_held_for_the_cpu() -> None:
    script = with_own_leader(slots=1)
    script.hear(*assigned(A), BUSY)
    script.hear(ended(A))
    script.hear(*assigned(B))
    assert script.hear(QUIET) == []
    assert script.hear(ended(B)) == [SendAck(B, RESULT), SendCredit(1)]


@pytest.mark.spec("L2", "W4")
def test_waiting_jobs_that_have_an_answer_take_no_slot_and_the_next_one_does() -> None:
    script = with_own_leader(slots=3)
    script.hear(*assigned(A, B))
    script.hear(ended(A), ended(B))
    script.hear(*assigned(job(10), job(11), job(12)))
    script.hear(*assigned(A, B, C))
    said = script.hear(ended(job(10)))
    assert said == [SendAck(job(10), RESULT), SendAck(A, RESULT), SendAck(B, RESULT), StartProgram(C, REQUEST)]


@pytest.mark.spec("F7")
def test_a_duplicate_without_credit_gives_none_back() -> None:
    script = with_own_leader(slots=1)
    script.hear(*assigned(A))
    assert script.hear(*assigned(A)) == []


# The end.


@pytest.mark.spec("L10")
def test_asked_to_stop_it_says_so_finishes_what_runs_and_goes_when_all_is_confirmed() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    assert script.hear(StopAsked()) == [SendLeaving()]
    assert script.hear(ended(A)) == [SendAck(A, RESULT)]
    assert script.hear(ResultsConfirmed((A,))) == [RunnerStopped()]
    assert script.hear(*assigned(B)) == []
    assert script.tick(1_000.0) == []
    assert script.slots.wake_at() is None


@pytest.mark.spec("L10")
def test_an_idle_worker_stops_at_once_with_or_without_a_leader() -> None:
    assert with_own_leader().hear(StopAsked()) == [SendLeaving(), RunnerStopped()]
    assert with_old_leader().hear(StopAsked()) == [RunnerStopped()]
    assert SlotsScript().hear(StopAsked()) == [RunnerStopped()]


@pytest.mark.spec("L10")
def test_an_assignment_that_crossed_the_farewell_is_still_done_but_no_more_than_was_offered() -> None:
    script = with_own_leader()
    script.hear(*assigned(A), StopAsked())
    assert script.hear(*assigned(B)) == [StartProgram(B, REQUEST)]
    said = script.hear(*assigned(C))
    assert said[1:] == [SendFailure(C, "worker-error", "the worker is leaving and takes no more jobs")]
    assert script.hear(ended(A), ended(B)) == [SendAck(A, RESULT), SendAck(B, RESULT)]


@pytest.mark.spec("L10")
def test_no_credit_is_given_back_by_a_worker_that_leaves() -> None:
    script = with_own_leader(slots=3)
    script.hear(*assigned(A, B, C))
    assert script.hear(ended(C), StopAsked()) == [SendAck(C, RESULT), SendLeaving()]
    script = with_own_leader()
    script.hear(*assigned(A, B), BUSY)
    script.hear(ended(A), StopAsked())
    assert script.hear(QUIET) == []
    assert script.tick(CREDIT_HELD_MAX_S) == []


@pytest.mark.spec("L10", "W7")
def test_a_leaving_worker_that_lost_its_leader_comes_back_to_deliver_and_offers_nothing() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(StopAsked(), LinkLost())
    assert script.hear(ended(A)) == []
    script.hear(Opened())
    assert script.hear(LeaderWelcomed()) == [SendHolding((), (A,)), SendAck(A, RESULT), SendLeaving()]
    assert script.hear(ResultsConfirmed((A,))) == [RunnerStopped()]


@pytest.mark.spec("L10")
def test_asked_twice_it_stops_now() -> None:
    script = with_own_leader()
    script.hear(*assigned(A))
    script.hear(StopAsked())
    assert script.hear(StopAsked(), ended(A)) == [RunnerStopped()]


@pytest.mark.spec("L10")
def test_what_runs_too_long_after_the_first_word_is_not_waited_for() -> None:
    script = with_old_leader()
    script.hear(*assigned(A))
    script.hear(StopAsked())
    assert script.tick(DRAIN_DEADLINE_S / 2) == []
    assert script.tick(DRAIN_DEADLINE_S / 2) == [RunnerStopped()]


# Signs of life.


@pytest.mark.spec("L3")
def test_an_own_leader_gets_heartbeats_and_an_old_one_none() -> None:
    script = with_own_leader()
    assert script.tick(HEARTBEAT_S) == [SendRunnerHeartbeat()]
    assert script.tick(HEARTBEAT_S) == [SendRunnerHeartbeat()]
    script = with_old_leader()
    assert script.tick(HEARTBEAT_S) == []


@pytest.mark.spec("L3")
@pytest.mark.parametrize(
    "sign", [LeaderAlive(), ResultsConfirmed((A,)), Fetched(()), Cancelled((A,)), Assigned(A, REQUEST)]
)
def test_silence_ends_the_connection_and_any_word_is_a_sign_of_life(sign: SlotsEvent) -> None:
    script = with_own_leader()
    script.tick(SILENCE_MAX_S - 1)
    script.hear(sign)
    received_at = script.now
    assert script.tick(SILENCE_MAX_S - 1) == [SendRunnerHeartbeat()]
    assert script.slots.wake_at() <= received_at + SILENCE_MAX_S  # type: ignore[operator]
    assert script.tick(1) == [HangUpOnLeader("nothing heard from the leader for 30 s")]
    assert script.hear(LinkLost()) == []
    assert script.slots.line is LeaderKind.DOWN
    assert script.hear(*assigned(B)) == []


def test_an_old_leader_may_be_silent_for_ever() -> None:
    script = with_old_leader()
    assert script.tick(10 * SILENCE_MAX_S) == []


# A sick machine.


def with_resting_leader(slots: int = 2) -> SlotsScript:
    """One that takes it that a worker is out of order."""
    script = SlotsScript(slots)
    script.hear(Opened())
    script.hear(LeaderWelcomed(rests=True))
    return script


def not_begun(which: JobId) -> SendFailure:
    return SendFailure(which, "disk", "this machine is out of order: no room", begun=False)


SICK = "no room"
FAULT = ProgramEnded(A, False, "disk", FAILURE, fault=SICK)


@pytest.mark.spec("W9")
def test_a_sick_machine_says_so_first_and_offers_nothing() -> None:
    script = with_resting_leader(slots=3)
    script.hear(*assigned(A, B))
    assert script.hear(FAULT) == [SendResting(SICK), SendAck(A, FAILURE)]
    assert script.hear(ended(B)) == [SendAck(B, RESULT)]
    assert script.hear(RestKnown()) == []


@pytest.mark.spec("W9")
def test_what_was_assigned_before_the_leader_knew_is_given_back_and_the_rest_of_the_credit_is_void() -> None:
    script = with_resting_leader(slots=3)
    script.hear(*assigned(A))
    script.hear(FAULT)
    assert script.hear(*assigned(B)) == [not_begun(B)]
    assert script.hear(Probed("")) == [SendResting("")], "the leader may still use the credit that it has"
    assert script.hear(*assigned(C)) == [StartProgram(C, REQUEST)]
    assert script.hear(RestKnown()) == [SendCredit(2)]
    assert script.hear(ended(C)) == [SendAck(C, RESULT), SendCredit(1)]


@pytest.mark.spec("W9", "W6")
def test_how_a_program_ended_that_broke_its_machine_is_not_said_of_jobs_that_were_not_begun() -> None:
    script = with_resting_leader(slots=3)
    script.hear(*assigned(A))
    script.hear(ProgramEnded(A, False, "timeout", FAILURE, fault=SICK))
    said = SendFailure(B, "worker-error", "this machine is out of order: no room", begun=False)
    assert script.hear(*assigned(B)) == [said], "a timeout would be this job's answer"


@pytest.mark.spec("W9")
def test_a_sick_machine_probes_by_itself_less_and_less_often() -> None:
    script = with_resting_leader()
    script.hear(*assigned(A))
    script.hear(FAULT, RestKnown())
    pause_s = PROBE_FIRST_S
    for _ in range(8):
        said: list[SlotsDo] = []
        for _ in range(4):
            assert Probe() not in said
            script.hear(LeaderAlive())
            said = script.tick(pause_s / 4)
        assert Probe() in said
        assert script.hear(Probed(SICK)) == []
        pause_s = min(2 * pause_s, PROBE_MAX_S)
    assert script.hear(Probed("no descriptors")) == [SendResting("no descriptors")]
    assert script.hear(RestKnown(), Probed("")) == [SendResting(""), SendCredit(2)]


@pytest.mark.spec("W9")
def test_a_new_leader_is_told_before_it_could_assign_anything() -> None:
    script = with_resting_leader()
    script.hear(*assigned(A))
    script.hear(FAULT, LinkLost(), Opened())
    assert script.hear(LeaderWelcomed(rests=True)) == [SendHolding((), (A,)), SendResting(SICK), SendAck(A, FAILURE)]
    assert script.hear(RestKnown(), Probed("")) == [SendResting(""), SendCredit(2)]


@pytest.mark.spec("W9")
def test_a_leader_that_does_not_know_of_rests_gets_no_credit_back() -> None:
    """It would count what is given back as an attempt: so what it assigns is tried."""
    script = with_own_leader(slots=2)
    script.hear(*assigned(A))
    assert script.hear(FAULT) == [SendAck(A, FAILURE)]
    assert script.hear(*assigned(B)) == [StartProgram(B, REQUEST)]
    assert script.hear(ended(B)) == [SendAck(B, RESULT)]
    assert script.hear(Probed("")) == [SendCredit(2)]


@pytest.mark.spec("W9")
def test_a_program_that_began_and_broke_its_machine_is_answered_for_as_ever() -> None:
    script = with_resting_leader()
    script.hear(*assigned(A, B))
    assert script.hear(ProgramEnded(B, False, "disk", FAILURE, 9.0, SICK)) == [SendResting(SICK), SendAck(B, FAILURE)]
    assert script.hear(ended(A)) == [SendAck(A, RESULT)]


@pytest.mark.spec("W9")
def test_a_machine_that_never_rests_goes_on() -> None:
    machine = Slots(1, CAP, rests=False)
    machine.handle([Opened(), LeaderWelcomed(rests=True), *assigned(A)], 0.0)
    assert list(machine.handle([FAULT], 0.1).do) == [SendAck(A, FAILURE), SendCredit(1)]
    machine.check()


# Others that keep the CPU busy.


@pytest.mark.spec("W2")
@given(ran_s=st.floats(0.0, 10.0), slots=st.integers(1, 4))
def test_credit_is_held_back_for_as_long_as_the_job_ran_and_never_longer_than_two_seconds(
    ran_s: float, slots: int
) -> None:
    script = with_own_leader(slots=4)
    script.hear(BUSY, Assigned(A, REQUEST, slots))
    began_at = script.now
    said = script.hear(ProgramEnded(A, True, "", RESULT, ran_s))
    while SendCredit(slots) not in said:
        wake_at = script.slots.wake_at()
        assert wake_at is not None
        said = script.tick(wake_at - script.now)
        script.hear(BUSY)
    assert script.now - began_at == pytest.approx(min(ran_s, CREDIT_HELD_MAX_S), abs=1e-6)


@pytest.mark.spec("W2")
def test_the_leader_is_told_at_once_that_credit_is_held_back_and_by_how_much_use() -> None:
    script = with_own_leader(slots=2)
    script.hear(*assigned(A, B), BUSY)
    script.hear(ended(A))
    assert script.told == [SendRunnerHeartbeat(0.9)]
    script.hear(ended(B))
    assert script.told == [SendRunnerHeartbeat(0.9)], "it knows"
    script.tick(CREDIT_HELD_MAX_S)
    script.tick(HEARTBEAT_S)
    assert script.told == [SendRunnerHeartbeat(0.9)] * 2
    assert script.tick(HEARTBEAT_S) == [SendRunnerHeartbeat()]


TestAnyOrder = SlotsInAnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


# The same id with another request (L6).

MONDAY, TUESDAY = b"monday".ljust(16, b"."), b"tuesday".ljust(16, b".")


def ran(which: JobId, request: bytes, *, ok: bool = True) -> ProgramEnded:
    return ProgramEnded(which, ok, "" if ok else "exit", RESULT if ok else FAILURE, request=request)


@pytest.mark.spec("L6", "W4")
@pytest.mark.parametrize("ok", [True, False])
def test_a_result_that_is_owed_answers_only_its_own_request(ok: bool) -> None:
    script = with_own_leader()
    script.hear(Assigned(A, b"monday"))
    script.hear(ran(A, MONDAY, ok=ok))
    assert script.hear(Assigned(A, b"monday"))[0] == SendAck(A, RESULT if ok else FAILURE, MONDAY)
    assert script.hear(Assigned(A, b"tuesday")) == [StartProgram(A, b"tuesday")]
    assert script.hear(ran(A, TUESDAY)) == [SendAck(A, RESULT, TUESDAY), SendCredit(1)]


@pytest.mark.spec("L6", "W4")
def test_a_result_on_the_disk_answers_only_its_own_request() -> None:
    script = with_own_leader()
    script.hear(Assigned(A, b"monday"))
    script.hear(ran(A, MONDAY), ResultsConfirmed([A]))
    assert script.hear(Assigned(A, b"monday")) == [LoadResult(A)]
    assert script.hear(ResultLoaded(A, True, RESULT, "", MONDAY)) == [SendAck(A, RESULT, MONDAY), SendCredit(1)]
    assert script.hear(Assigned(A, b"tuesday")) == [LoadResult(A)]
    assert script.hear(ResultLoaded(A, True, RESULT, "", MONDAY)) == [StartProgram(A, b"tuesday")]


@pytest.mark.spec("L6", "W4")
def test_a_result_of_before_there_were_digests_answers_by_its_id() -> None:
    script = with_own_leader()
    script.hear(Recovered([(A, 1.0)]))
    assert script.hear(Assigned(A, b"tuesday")) == [LoadResult(A)]
    assert script.hear(ResultLoaded(A, True, RESULT)) == [SendAck(A, RESULT), SendCredit(1)]


@pytest.mark.spec("L6", "W4")
@pytest.mark.parametrize("ok", [True, False])
def test_another_request_that_comes_while_the_first_one_runs_is_run_after_it(ok: bool) -> None:
    script = with_own_leader()
    script.hear(Assigned(A, b"monday"))
    assert script.hear(Assigned(A, b"tuesday")) == [SendCredit(1)], "it waits for the run, and takes no slot"
    assert script.hear(ran(A, MONDAY, ok=ok)) == [StartProgram(A, b"tuesday")]
    assert script.hear(ran(A, TUESDAY)) == [SendAck(A, RESULT, TUESDAY), SendCredit(1)]


@pytest.mark.spec("L6", "W4")
def test_the_same_request_that_comes_while_it_runs_is_answered_by_it() -> None:
    script = with_own_leader()
    script.hear(Assigned(A, b"monday"))
    script.hear(Assigned(A, b"monday"))
    assert script.hear(ran(A, MONDAY)) == [SendAck(A, RESULT, MONDAY), SendCredit(1)]


@pytest.mark.spec("L6", "L4")
def test_what_another_leader_had_assigned_meanwhile_is_forgotten_with_its_connection() -> None:
    script = with_own_leader()
    script.hear(Assigned(A, b"monday"), Assigned(A, b"tuesday"))
    script.hear(LinkLost())
    script.hear(ran(A, MONDAY))
    assert SendAck(A, RESULT, MONDAY) in script.hear(Opened(), LeaderWelcomed()), (
        "its digest tells of which request it is"
    )


@pytest.mark.spec("L6")
def test_what_is_cancelled_and_assigned_anew_is_answered_by_its_own_request_alone() -> None:
    script = with_own_leader()
    script.hear(Assigned(A, b"monday"), Cancelled([A]), Assigned(A, b"tuesday"))
    assert script.hear(ran(A, MONDAY)) == [StartProgram(A, b"tuesday")], "it was faster than the cancel"


@pytest.mark.spec("L6")
def test_what_has_not_begun_is_begun_with_what_was_assigned_last() -> None:
    script = with_own_leader()
    script.hear(Recovered([(A, 1.0)]))
    assert script.hear(Assigned(A, b"monday"), Assigned(A, b"tuesday")) == [LoadResult(A), SendCredit(1)]
    assert script.hear(ResultLoaded(A, True, RESULT, "", MONDAY)) == [StartProgram(A, b"tuesday")]
