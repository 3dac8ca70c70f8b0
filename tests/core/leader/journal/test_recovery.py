"""A leader dies, and the next one goes on from its journal: who comes back to what, and what is done again."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.kit import leader_world
from tests.kit.leader_world import World, a_world, subject

from wakugumi.core.backoff import parse_policies
from wakugumi.core.ids import ClientId, ConnId, JobId, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.admin.overview import capacity
from wakugumi.core.leader.admin.overview import status as status_of
from wakugumi.core.leader.answer_records import CancelAnswer, JobsAnswer, StatusAnswer
from wakugumi.core.leader.jobs import lifecycle
from wakugumi.core.leader.jobs.states import JobState
from wakugumi.core.leader.journal import leaves
from wakugumi.core.leader.journal.entries import KeepJob, KeepResult, KeepWhole
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.core.leader.questions import AskCancel, AskJob, AskJobs, AskStatus, AskWorkers
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Pattern, Subject, is_valid_subject
from wakugumi.limits.leader import KEPT_RESULT_TTL_S, REATTACH_GRACE_S, RECOVERY_GRACE_S, UNDELIVERED_TTL_S
from wakugumi.limits.scheduling import CREDIT_MAX

pytestmark = pytest.mark.spec("L7")


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


def test_what_was_queued_is_queued_again_in_its_order_and_runs_though_its_client_is_away(world: World) -> None:
    jobs = world.client().submits(5)
    world.restart()
    world.worker("w", credit=9).gets(*jobs)


@pytest.mark.parametrize("set_back_s", [0.0, 86_400.0])
def test_jobs_that_the_journal_moved_are_still_the_oldest(
    world: World, monkeypatch: pytest.MonkeyPatch, set_back_s: float
) -> None:
    monkeypatch.setattr(leaves, "JOURNAL_SLACK_BYTES", 0)
    desk, worker = world.client(), world.worker("w", "job.assign.short")
    oldest = desk.submits(3)
    world.wait(1.0)
    for job in desk.submits(40, "short"):
        worker.credit(1)
        worker.gets(job)
        worker.acks(job)
        desk.gets_result(job)
        desk.confirms(job)
    jobs = oldest + desk.submits(3)
    for number, (at, data) in world.journal.by_number.items():
        world.journal.by_number[number] = at + set_back_s, data
    world.wait(1.0)
    jobs += desk.submits(3)
    world.wait(2 * KEPT_RESULT_TTL_S)
    assert [record.job for record in world.kept if isinstance(record, KeepWhole)] == oldest
    for _ in range(2):
        world.restart()
        answer = world.ask(AskJobs(limit=3))
        assert isinstance(answer, JobsAnswer)
        assert [row.job for row in answer.jobs] == [show_job_id(job) for job in jobs[-3:]]
    world.worker("another", credit=len(jobs)).gets(*jobs)


def test_a_client_that_is_away_has_the_cap_it_had(world: World) -> None:
    first, second, _ = world.client(cap=2).submits(3)
    world.restart()
    world.worker("w", credit=9).gets(first, second)


@pytest.mark.spec("L4")
def test_a_worker_that_comes_back_keeps_what_it_runs_and_nobody_else_gets_it(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=2)
    runs, queued = desk.submits(2)
    worker.gets(runs, queued)
    world.restart()
    other = world.worker("other", credit=5)
    other.gets_nothing()
    back = world.worker("w", holds=False)
    back.holds(running=[runs, queued])
    back.acks(runs)
    other.gets_nothing()
    desk = world.client()
    desk.claims(runs, queued)
    desk.gets_receipt(runs, queued)
    desk.gets_result(runs)
    back.acks(queued)
    desk.gets_result(queued)
    assert world.story(runs)[1:3] == ["attempt 1 began on worker w", "attempt 1 ended: ok"]


@pytest.mark.spec("L4")
def test_what_a_worker_no_longer_holds_when_it_is_back_is_queued_at_once(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=2)
    kept, gone = desk.submits(2)
    worker.gets(kept, gone)
    world.restart()
    other = world.worker("other", credit=5)
    back = world.worker("w", holds=False)
    back.holds(running=[kept])
    other.gets(gone)


@pytest.mark.spec("L4")
def test_what_nobody_claims_within_the_grace_is_queued_again(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    world.restart()
    other = world.worker("other", credit=5)
    world.wait(RECOVERY_GRACE_S - 0.1)
    other.gets_nothing()
    world.wait(0.1)
    other.gets(job)
    assert "attempt 1 ended: leader-lost" in world.story(job)


@pytest.mark.spec("L3")
def test_a_leader_that_dies_again_and_again_does_not_kill_a_job_but_one_that_takes_it_along_each_time_dies() -> None:
    with a_world(attempts_max=2) as world:
        (job,) = world.client().submits(1)
        for death in range(8):
            world.worker("w", credit=1).gets(job)
            world.restart()
            back = world.worker("w", holds=False)
            back.holds()
            assert world.leader.jobs[job].state is (JobState.DONE if death == 7 else JobState.QUEUED), death
            back.leaves()
        assert world.status().letters == 1


@pytest.mark.spec("W4", "W7")
def test_a_worker_that_was_started_anew_is_asked_for_the_results_that_are_waited_for(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=3)
    done, lost, taken = desk.submits(3)
    worker.gets(done, lost, taken)
    worker.acks(taken)
    desk.gets_result(taken)
    world.restart()
    back = world.worker("w", holds=False)
    back.holds(kept=[taken, done, world.new_job()])
    back.gets_fetch(done)
    back.acks(done)
    back.credit(1)
    back.gets(lost)


@pytest.mark.spec("W4")
def test_an_old_result_is_not_fetched_for_a_job_that_was_opened_again_since(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.fails(job)
    desk.gets_result(job)
    desk.confirms(job)
    desk.submit(job=job)
    desk.gets_receipt(job)
    worker.leaves()
    back = world.worker("w", holds=False)
    back.holds(kept=[job])
    back.credit(1)
    back.gets(job)


@pytest.mark.spec("F9")
def test_a_result_that_nobody_took_waits_for_its_client_and_one_that_was_taken_does_not(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=2)
    taken, waits = desk.submits(2)
    worker.gets(taken, waits)
    for job in (taken, waits):
        worker.acks(job)
        desk.gets_result(job)
    desk.confirms(taken)
    world.restart()
    old = world.client(old=True)
    old.gets_result(waits)
    world.restart()
    world.client(old=True).gets_nothing()


@pytest.mark.spec("L6")
def test_a_job_that_was_done_is_answered_and_not_run_again(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.acks(job)
    desk.gets_result(job)
    desk.confirms(job)
    world.restart()
    desk = world.client()
    desk.submit(job=job)
    desk.gets_result(job)
    desk.submit(job=job, payload=b"another")
    desk.gets_refusal(job, "conflict")


def test_a_job_the_leader_never_knew_is_unknown_to_the_next_one(world: World) -> None:
    desk = world.client()
    world.restart()
    desk = world.client()
    job = world.new_job()
    desk.claims(job)
    desk.gets_refusal(job, "unknown-job")


def test_a_job_that_backed_off_backs_off_anew(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.fails(job, "worker-error")
    world.restart(after_s=1_000.0)
    worker = world.worker("w", credit=1)
    world.wait(0.9)
    worker.gets_nothing()
    world.wait(0.1)
    worker.gets(job)


@pytest.mark.parametrize("step_s", [-86_400.0, 86_400.0, 10 * UNDELIVERED_TTL_S])
def test_a_clock_that_was_set_changes_nothing(world: World, step_s: float) -> None:
    desk, worker = world.client(), world.worker("w", credit=3)
    runs, fails, waits = desk.submits(3)
    worker.gets(runs, fails, waits)
    worker.fails(fails, "worker-error")
    worker.acks(waits)
    desk.gets_result(waits)
    for number, (at, data) in world.journal.by_number.items():
        world.journal.by_number[number] = at - step_s, data
    world.restart()
    back = world.worker("w", holds=False)
    back.holds(running=[runs])
    back.credit(5)
    back.gets_nothing()
    desk = world.client()
    desk.claims(waits)
    desk.gets_receipt(waits)
    desk.gets_result(waits)
    answer = world.ask(AskJobs())
    assert isinstance(answer, JobsAnswer)
    assert all(row.age_s >= 0 for row in answer.jobs)


def test_results_are_forgotten_in_their_time_counted_from_the_start(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=2)
    taken, waits = desk.submits(2)
    worker.gets(taken, waits)
    for job in (taken, waits):
        worker.acks(job)
        desk.gets_result(job)
    desk.confirms(taken)
    world.restart(after_s=5 * UNDELIVERED_TTL_S)
    assert set(world.leader.jobs) == {taken, waits}
    world.wait(KEPT_RESULT_TTL_S + 20.0)
    assert set(world.leader.jobs) == {waits}
    world.wait(UNDELIVERED_TTL_S)
    assert not world.leader.jobs
    world.restart()
    assert not world.leader.jobs


def test_a_job_that_was_cancelled_stays_cancelled(world: World) -> None:
    desk = world.client()
    (job,) = desk.submits(1)
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    world.restart()
    world.worker("w", credit=1).gets_nothing()
    desk = world.client()
    desk.claims(job)
    desk.gets_receipt(job)
    desk.gets_failure(job, "cancelled")


def test_a_leader_may_die_again_before_anyone_came_back(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (runs,) = desk.submits(1)
    worker.gets(runs)
    queued = world.client("other").submits(3)
    for _ in range(3):
        world.restart()
    back = world.worker("w", holds=False)
    back.holds(running=[runs])
    back.credit(9)
    back.gets(*queued)


# What is only in the journal.


@pytest.fixture
def lean() -> Iterator[World]:
    """No request is held in memory."""
    with a_world(payload_memory_bytes=0) as world:
        yield world


def test_a_request_that_is_only_in_the_journal_is_read_when_its_job_is_assigned(lean: World) -> None:
    desk, worker = lean.client(), lean.worker("w", credit=2)
    one, two = desk.submit(payload=b"first"), desk.submit(payload=b"second")
    assert [worker.takes(ev.SendAssign).payload for _ in range(2)] == [b"first", b"second"]
    assert lean.leader.lifecycle.memory_bytes == 0
    desk.gets_receipt(one)
    desk.gets_receipt(two)
    worker.acks(one)
    desk.gets_result(one)
    desk.submit(job=two, payload=b"something else")
    desk.gets_refusal(two, "conflict")


def test_jobs_of_one_leaf_are_read_together(lean: World) -> None:
    desk = lean.client()
    with lean.at_once():
        jobs = [desk.submit() for _ in range(3)]
    desk.gets_receipt(*jobs)
    lean.reads_journal = False
    worker = lean.worker("w", credit=3)
    (load,) = lean.loads
    assert list(load.jobs) == jobs
    lean.hear(lean.journal.load(load.leaf, load.jobs))
    worker.gets(*jobs)


def test_a_job_that_was_cancelled_while_it_was_read_gives_its_credit_back(lean: World) -> None:
    desk, worker = lean.client(), lean.worker("w", credit=1)
    lean.reads_journal = False
    first, second = desk.submits(2)
    desk.cancels(first)
    desk.gets_failure(first, "cancelled")
    worker.gets_cancel(first)
    for load in lean.loads:
        lean.hear(lean.journal.load(load.leaf, load.jobs))
    worker.gets(second)
    worker.gets_nothing()


@pytest.mark.spec("F7")
def test_credit_that_comes_back_does_not_pass_the_bound() -> None:
    """Its worker offered more while the job was read: beyond the bound it would be ranked as if it had none."""
    with a_world(payload_memory_bytes=0, policies=parse_policies("most-credit,calc=score")) as world:
        desk, worker = world.client(), world.worker("w", credit=CREDIT_MAX)
        world.reads_journal = False
        (first,) = desk.submits(1)
        worker.credit(1)
        desk.cancels(first)
        desk.gets_failure(first, "cancelled")
        worker.gets_cancel(first)
        world.reads_journal = True
        (second,) = desk.submits(1)
        worker.gets(second)


def test_a_worker_that_left_while_its_job_was_read_is_not_sent_it(lean: World) -> None:
    desk, worker = lean.client(), lean.worker("w", credit=1)
    lean.reads_journal = False
    (job,) = desk.submits(1)
    worker.leaves()
    again = lean.worker("w", holds=False)
    (load,) = lean.loads
    lean.hear(lean.journal.load(load.leaf, load.jobs))
    again.gets_nothing()
    again.holds()
    again.credit(1)
    lean.hear(lean.journal.load(lean.loads[-1].leaf, lean.loads[-1].jobs))
    again.gets(job)


@pytest.mark.spec("L4")
@pytest.mark.parametrize("is_finished", [True, False])
def test_a_worker_that_comes_back_too_late_keeps_what_nobody_else_has_begun(lean: World, is_finished: bool) -> None:
    """Another one was given it, and its request is still being read from the journal."""
    desk, worker, other = lean.client(), lean.worker("w", credit=1), lean.worker("other")
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.leaves()
    lean.reads_journal = False
    other.credit(1)
    lean.wait(2 * REATTACH_GRACE_S)
    again = lean.worker("w", holds=False)
    again.holds(finished=[job]) if is_finished else again.holds(running=[job])
    (load,) = lean.loads
    lean.hear(lean.journal.load(load.leaf, load.jobs))
    other.gets_nothing()
    again.acks(job)
    desk.gets_result(job)
    other.gets_nothing()
    lean.reads_journal = True
    (following,) = desk.submits(1)
    other.gets(following)


def test_a_request_that_cannot_be_read_fails_its_job_and_says_why(lean: World) -> None:
    desk, worker = lean.client(), lean.worker("w", credit=1)
    lean.reads_journal = False
    job, other = desk.submits(2)
    (load,) = lean.loads
    lean.hear(ev.PayloadsLoaded(load.leaf, load.jobs, {}))
    assert "journal" in desk.gets_failure(job, "input-lost")
    worker.gets_cancel(job)
    lean.hear(lean.journal.load(lean.loads[-1].leaf, lean.loads[-1].jobs))
    worker.gets(other)


def test_the_first_requests_are_held_in_memory_up_to_the_budget() -> None:
    with a_world(payload_memory_bytes=15) as world:
        desk = world.client()
        desk.submits(3)  # of seven bytes each
        assert world.leader.lifecycle.memory_bytes == 14
        assert world.leader.lifecycle.open_bytes == 21


# A disk that is nearly full.


@pytest.mark.spec("L9")
def test_while_the_disk_is_low_new_jobs_are_refused_and_those_that_were_accepted_go_on(world: World) -> None:
    desk = world.client()
    (job,) = desk.submits(1)
    old = world.client("old", old=True)
    world.hear(ev.DiskLow(True))
    old.takes(ev.PauseReading)
    refused = desk.submit()
    desk.gets_refusal(refused, "disk-full")
    worker = world.worker("w", credit=1)
    worker.gets(job)  # which makes room, in the end
    worker.acks(job)
    desk.gets_result(job)
    desk.confirms(job)
    assert world.status().disk_low
    world.hear(ev.DiskLow(False))
    old.takes(ev.ResumeReading)
    desk.submits(1)


def test_when_the_disk_is_low_nothing_is_kept_that_is_only_kept_for_those_who_ask_again(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=2)
    taken, waits = desk.submits(2)
    worker.gets(taken, waits)
    for job in (taken, waits):
        worker.acks(job)
        desk.gets_result(job)
    desk.confirms(taken)
    world.hear(ev.DiskLow(True))
    assert list(world.leader.jobs) == [waits]
    world.restart()
    assert list(world.leader.jobs) == [waits]


@pytest.mark.parametrize("forgetting", ["disk", "person"])
def test_a_job_that_was_called_off_is_not_forgotten_before_its_worker_could_be_told(
    world: World, forgetting: str
) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.leaves()
    if forgetting == "disk":
        desk.cancels(job)
        desk.gets_failure(job, "cancelled")
        desk.confirms(job)
        world.hear(ev.DiskLow(True))
    else:
        desk.leaves()
        everything = AskCancel(client="desk", forget=True)
        assert world.ask(everything) == CancelAnswer(1, 0, [], 1, 0)
        assert world.ask(everything) == CancelAnswer(0, 0, [], 0, 0)
    world.wait(RECOVERY_GRACE_S + 1)
    world.restart()
    back = world.worker("w", holds=False)
    back.holds(running=[job])
    back.gets_cancel(job)
    world.wait(KEPT_RESULT_TTL_S + 61)
    assert not world.leader.jobs


# A disk that takes nothing.


@pytest.mark.spec("L9")
def test_while_nothing_is_committed_questions_and_refusals_are_answered_at_once() -> None:
    """And say what is the matter. What depends on the disk waits for it."""
    leader = LeaderMachine(lambda: 0.5)
    conn, job = ConnId(1), JobId(bytes(16))
    leader.handle([ev.ClientJoined(conn, ClientId("desk"), 4, True, True)], 0.0)
    submit = ev.Submitted(conn, job, subject("a"), "a", 60.0, b"{}")
    leader.handle([ev.DiskLow(True), ev.CommitsStalled("the disk is full")], 1.0)
    step = leader.handle(
        [submit, *(ev.QuestionAsked(conn, b"", question) for question in (AskStatus(), AskWorkers()))], 2.0
    )
    refusal, status, workers = step.at_once
    assert isinstance(refusal, ev.SendRefusal)
    assert refusal.code == "disk-full"
    assert isinstance(status, ev.SendAnswer)
    assert isinstance(status.answer, StatusAnswer)
    assert status.answer.stalled == "the disk is full"
    assert isinstance(workers, ev.SendAnswer)
    assert not step.do
    step = leader.handle(
        [ev.QuestionAsked(conn, b"", AskJob(show_job_id(job))), ev.QuestionAsked(conn, b"", AskCancel(["x"]))], 3.0
    )
    assert [type(effect) for effect in step.at_once] == [ev.SendNo]
    assert [type(effect) for effect in step.do] == [ev.SendAnswer], "a cancel is kept before it is answered"
    assert capacity(leader)["free"] == 0
    leader.handle([ev.DiskLow(False), ev.CommitsStalled("")], 4.0)
    assert not status_of(leader, 4.0).stalled
    step = leader.handle([submit], 5.0)
    assert [type(effect) for effect in step.do] == [ev.SendReceipts]


# A leader that could hear nobody.


@pytest.mark.spec("L4")
@pytest.mark.parametrize("how", ["asleep", "deaf", "stalled"])
def test_a_leader_that_heard_nobody_for_a_while_takes_nobody_for_lost(world: World, how: str) -> None:
    desk, worker = world.client(heartbeats=True), world.worker("w", credit=1)
    away = world.worker("away", credit=1)
    one, two = desk.submits(2)
    worker.gets(one)
    away.gets(two)
    away.leaves()
    if how in {"deaf", "stalled"}:
        world.hear(ev.ReadingStopped(True) if how == "deaf" else ev.CommitsStalled("the disk is full"))
        for end in (desk, worker):
            end.falls_silent()
        world.wait(100.0)
        world.hear(ev.ReadingStopped(False) if how == "deaf" else ev.CommitsStalled(""))
    else:
        world.now += 100.0
        world.hear(ev.PeerHeard(worker.conn, 0.0))
    world.wait(1.0)
    worker.gets_nothing()
    desk.gets_nothing()
    back = world.worker("away", holds=False)
    back.holds(running=[two])
    back.acks(two)
    desk.gets_result(two)


def test_signs_of_life_and_welcomes_do_not_wait_for_the_disk(world: World) -> None:
    desk = world.client(heartbeats=True)
    desk.submits(1)
    step = world.leader.tick(world.now + 5.0)
    assert [type(effect) for effect in step.at_once] == [ev.SendPeerHeartbeat]
    joined = ev.ClientJoined(ConnId(99), ClientId("new"), 1, True, True)
    assert world.leader.handle([joined], world.now + 5.0).at_once == [ev.SendWelcome(ConnId(99))]


# What attempts printed.


def test_of_many_attempts_only_the_last_ones_keep_what_they_printed() -> None:
    with a_world() as world:
        desk, worker = world.client(), world.worker("w", credit=1)
        job = desk.submit(retries=10)
        desk.gets_receipt(job)
        for number in range(6):
            worker.gets(job)
            worker.fails(job, printed=f"said {number}")
            worker.credit(1)
            world.wait(70.0)
        outputs = [attempt.output for attempt in world.leader.jobs[job].history]
        assert outputs == ["", "", "", "said 3", "said 4", "said 5"]
        assert world.leader.lifecycle.output_bytes == 18
        worker.gets(job)
        world.restart()
        assert [attempt.output for attempt in world.leader.jobs[job].history] == outputs
        assert world.leader.lifecycle.output_bytes == 18


def test_what_attempts_printed_has_a_budget(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "OUTPUT_MEMORY_BYTES", 10)
    desk, worker = world.client(), world.worker("w", credit=2)
    one, two = desk.submits(2)
    worker.gets(one, two)
    worker.fails(one, "disk", printed="a" * 8)
    worker.fails(two, "disk", printed="b" * 8)
    assert [world.leader.jobs[job].history[0].output for job in (one, two)] == ["a" * 8, ""]


def test_what_a_job_asks_for_survives_its_leader_and_a_journal_from_before_there_was_any_is_read() -> None:
    with a_world() as world:
        desk = world.client()
        (urgent,) = desk.submits(1, requirements=(requirements := Requirements("k", 5, 2)))
        (plain,) = desk.submits(1)
        world.restart()
        assert world.leader.jobs[urgent].requirements == requirements
        assert world.leader.jobs[plain].requirements is None
        worker = world.worker("w", credit=3, slots=3)
        worker.gets(urgent, plain)
    record = KeepJob(urgent, desk.id, 1, subject("calc"), "calc", 1.0, 0, b"request")
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(record))
    assert fields[-3] is None
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fields[:-3]), type=KeepJob) == record


def test_a_journal_with_a_subject_that_is_refused_today_still_opens_and_its_job_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version took characters that nobody sees."""
    unseen = Subject(Pattern("job.assign.calc\u202e\u200ba"))
    assert not is_valid_subject(unseen)
    monkeypatch.setattr(leader_world, "subject", lambda _word: unseen)
    jobs = world.client().submits(3)
    monkeypatch.undo()
    world.restart()
    answer = world.ask(AskCancel([show_job_id(jobs[0])], pattern="job.assign.>"))
    assert isinstance(answer, CancelAnswer)
    assert answer.cancelled == 1
    world.worker("w", credit=9).gets(*jobs[1:])


def test_a_second_result_whose_reopening_is_lost_takes_the_place_of_the_first() -> None:
    job = JobId(bytes(15) + b"1")
    opened = KeepJob(job, ClientId("c"), 1, subject("x"), "p", 1.0, 0, b"x")
    records = [opened, KeepResult(job, False, "exit", b"no"), KeepResult(job, True, "ok", b"yes")]
    leader = LeaderMachine(lambda: 0.5)
    leader.recover([(1, 0.0, records)], 1.0)
    assert (leader.jobs[job].state, leader.jobs[job].ok, leader.jobs[job].result) == (JobState.DONE, True, b"yes")
