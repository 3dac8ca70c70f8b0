"""Jobs that used up their attempts, and jobs that want more: who is tried again, who is buried, who comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import TIMEOUT_S, ClientEnd, WorkerEnd, World, a_world

from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.leader.admin import actions
from wakugumi.core.leader.answer_records import DeadAnswer, DeadDoneAnswer, LetterAnswer
from wakugumi.core.leader.jobs import dead_letters as module
from wakugumi.core.leader.questions import AskDead, AskDrop, AskLetter, AskRequeue, Question
from wakugumi.limits.leader import ACK_MARGIN_S, BACKOFF_MAX_S, KEPT_RESULT_TTL_S
from wakugumi.limits.wire import HEARTBEAT_S

pytestmark = pytest.mark.spec("L3")


@pytest.fixture(params=[True, False], ids=["journal", "memory"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with a_world(attempts_max=2, keeps=request.param) as world:
        yield world


def test_a_dead_job_is_a_letter_with_every_attempt_and_what_it_printed_last(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    job = _dies(desk, worker, "disk")
    assert desk.gets_failure(job, "dead") == "dead: 2 attempts failed, the last one on w by disk"
    answer = world.ask(AskLetter(show_job_id(job)))
    assert isinstance(answer, LetterAnswer)
    assert (answer.letter.reason, answer.letter.attempts, answer.letter.client) == ("disk", 2, "desk")
    assert [(row.attempt, row.worker, row.outcome, row.output) for row in answer.attempts] == [
        (1, "w", "disk", "said 1"),
        (2, "w", "disk", "said 2"),
    ]
    assert answer.attempts[0].began_s > answer.attempts[0].ended_s > answer.attempts[1].ended_s >= 0
    assert world.status().letters == 1


def test_a_letter_stays_when_its_result_was_taken_and_forgotten(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    job = _dies(desk, worker)
    desk.gets_failure(job, "dead")
    desk.confirms(job)
    world.wait(2 * KEPT_RESULT_TTL_S)
    assert _listed(world, AskDead()) == [job]


def test_a_letter_that_is_requeued_is_run_again_with_its_own_request_and_all_its_attempts(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    job = _dies(desk, worker, payload=b"what to do")
    desk.gets_failure(job, "dead")
    desk.confirms(job)
    assert _done(world, AskRequeue(jobs=[show_job_id(job)])) == 1
    assert _listed(world, AskDead()) == []
    desk.claims(job)
    desk.gets_receipt(job)
    worker.credit(1)
    worker.gets(job)
    worker.fails(job, "disk")
    world.wait(BACKOFF_MAX_S)
    worker.credit(1)
    worker.gets(job)
    worker.acks(job)
    desk.gets_result(job)


def test_a_letter_that_is_dropped_is_gone(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    job = _dies(desk, worker)
    desk.gets_failure(job, "dead")
    assert _done(world, AskDrop(jobs=[show_job_id(job)])) == 1
    assert _listed(world, AskDead()) == []
    assert world.ask_in_vain(AskLetter(show_job_id(job))) == "unknown-job"
    desk.submit(job=job, payload=b"anything")
    desk.gets_receipt(job)
    worker.gets(job)


def test_a_dead_job_that_is_submitted_again_is_no_letter_any_more(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    job = _dies(desk, worker)
    desk.gets_failure(job, "dead")
    desk.submit(job=job)
    desk.gets_receipt(job)
    worker.gets(job)
    assert _listed(world, AskDead()) == []
    assert world.ask_in_vain(AskLetter(show_job_id(job))) == "not-dead"


def test_letters_are_chosen_by_id_subject_and_reason(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    late, lost = _dies(desk, worker, "disk", word="calc.a"), _dies(desk, worker, "worker-error", word="calc.b")
    desk.gets_failure(late, "dead")
    desk.gets_failure(lost, "dead")
    assert _listed(world, AskDead()) == [late, lost]
    assert _listed(world, AskDead(reason="disk")) == [late]
    assert _listed(world, AskDead(pattern="job.assign.*.b")) == [lost]
    assert _listed(world, AskDead(limit=1)) == [lost]
    assert _listed(world, AskDead(jobs=[show_job_id(lost)], reason="disk")) == []
    answer = world.ask(AskRequeue(jobs=["nonsense", show_job_id(world.new_job()), show_job_id(late)]))
    assert isinstance(answer, DeadDoneAnswer)
    assert (answer.done, len(answer.unknown)) == (1, 2)
    worker.gets(late)
    assert _done(world, AskDrop()) == 1


def test_the_oldest_letters_go_when_there_are_too_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEAD_MAX", 2)
    desk, worker = world.client(), world.worker("w", credit=1)
    jobs = [_dies(desk, worker) for _ in range(4)]
    for job in jobs:
        desk.gets_failure(job, "dead")
    assert _listed(world, AskDead()) == jobs[2:]


def test_a_letter_that_is_pushed_out_before_its_client_heard_of_it_stays_a_result(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEAD_MAX", 1)
    desk, worker = world.client(), world.worker("w", credit=1)
    heard = _dies(desk, worker)
    desk.confirms(heard)
    unheard = _dies(desk, worker)
    desk.leaves()
    other = world.client("other")
    last = _dies(other, worker)
    assert _listed(world, AskDead()) == [last]
    assert heard not in world.leader.jobs
    back = world.client()
    back.claims(unheard)
    back.gets_receipt(unheard)
    back.gets_failure(unheard, "dead")
    desk.inbox.clear()
    other.inbox.clear()


def test_a_confirm_of_what_was_before_does_not_settle_a_job_that_was_requeued(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    job = _dies(desk, worker)
    desk.gets_failure(job, "dead")
    desk.confirms(job)
    _done(world, AskRequeue(jobs=[show_job_id(job)]))
    worker.gets(job)
    worker.acks(job)
    again = world.client()
    again.confirms(job)  # said again over the new connection
    assert job in world.leader.clients.results.undelivered
    again.claims(job)
    again.gets_receipt(job)
    again.gets_result(job)
    again.confirms(job)
    assert job not in world.leader.clients.results.undelivered


def test_many_letters_are_requeued_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "JOURNAL_MOVED_BYTES_MAX", 700)
    with a_world(attempts_max=2) as world:
        desk, worker = world.client(), world.worker("w", credit=1)
        jobs = [_dies(desk, worker) for _ in range(5)]
        answer = world.ask(AskRequeue())
        assert isinstance(answer, DeadDoneAnswer)
        assert (answer.done, answer.left) == (3, 2)
        assert _listed(world, AskDead()) == jobs[3:]
        assert _done(world, AskRequeue()) == 2
        desk.inbox.clear()
        worker.gets_some()


@pytest.mark.spec("L7")
@pytest.mark.parametrize("requeue", [True, False])
def test_letters_survive_their_leader_and_so_does_what_was_done_about_them(requeue: bool) -> None:
    with a_world(attempts_max=2, payload_memory_bytes=0) as world:
        desk, worker = world.client(), world.worker("w", credit=1)
        one, two = _dies(desk, worker, payload=b"this"), _dies(desk, worker)
        desk.confirms(one)
        world.restart()
        assert _listed(world, AskDead()) == [one, two]
        answer = world.ask(AskLetter(show_job_id(one)))
        assert isinstance(answer, LetterAnswer)
        assert [row.output for row in answer.attempts] == ["said 1", "said 2"]
        shown = [show_job_id(one)]
        _done(world, AskRequeue(shown) if requeue else AskDrop(shown))
        world.restart()
        assert _listed(world, AskDead()) == [two]
        worker = world.worker("w", credit=1)
        if requeue:
            worker.gets(one)
        worker.gets_nothing()


# A program's own failure.


@pytest.mark.spec("W6")
@pytest.mark.parametrize("reason", ["exit", "timeout", ""])
def test_a_programs_own_failure_is_its_answer(world: World, reason: str) -> None:
    desk, worker = world.client(), world.worker("w", credit=2)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.fails(job, reason, b"as it failed")
    desk.gets_result(job, b"as it failed")
    world.wait(BACKOFF_MAX_S)
    worker.gets_nothing()
    assert [attempt.outcome for attempt in world.leader.jobs[job].history] == [reason or "exit"]


@pytest.mark.spec("W6")
@pytest.mark.parametrize("reason", ["exit", "timeout", ""])
def test_with_retries_it_is_tried_again_and_the_last_failure_is_its_answer(world: World, reason: str) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    job = desk.submit(retries=3)
    desk.gets_receipt(job)
    for pause_s in (1.0, 2.0, 4.0):
        worker.gets(job)
        worker.fails(job, reason, b"not yet")
        worker.credit(1)
        world.wait(pause_s - 0.1)
        worker.gets_nothing()
        world.wait(0.1)
    worker.gets(job)
    worker.fails(job, reason, b"the last one")
    desk.gets_result(job, b"the last one")
    assert world.status().letters == 0


@pytest.mark.spec("W6")
def test_exits_and_timeouts_count_against_the_same_retries(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=3)
    job = desk.submit(retries=2)
    desk.gets_receipt(job)
    for reason in ("timeout", "exit", "timeout"):
        worker.gets(job)
        worker.fails(job, reason, reason.encode())
        world.wait(BACKOFF_MAX_S)
    desk.gets_result(job, b"timeout")


@pytest.mark.spec("W6", "L3")
def test_an_old_worker_that_does_not_answer_in_time_is_another_attempt(world: World) -> None:
    """Nobody knows whether the program took that long: the worker may be gone."""
    desk, worker = world.client(), world.worker("w", credit=2, old=True)
    (job,) = desk.submits(1)
    worker.gets(job)
    world.wait(TIMEOUT_S + ACK_MARGIN_S + 2 * HEARTBEAT_S)
    worker.gets(job)
    assert [attempt.outcome for attempt in world.leader.jobs[job].history] == ["ack-late"]


def test_a_limit_that_was_broken_is_an_answer_with_retries_too(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    job = desk.submit(retries=3)
    desk.gets_receipt(job)
    worker.gets(job)
    worker.fails(job, "memory-limit", b"too much")
    desk.gets_result(job, b"too much")


def test_attempts_that_the_grid_lost_are_counted_apart_from_retries(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    job = desk.submit(retries=2)
    desk.gets_receipt(job)
    for reason in ("exit", "disk", "timeout", "disk"):
        worker.gets(job)
        worker.fails(job, reason)
        worker.credit(1)
        world.wait(BACKOFF_MAX_S)
    desk.gets_failure(job, "dead")


def _dies(
    desk: ClientEnd, worker: WorkerEnd, reason: str = "disk", *, word: str = "calc", payload: bytes = b"request"
) -> JobId:
    """A job that fails twice; the worker has credit again afterwards, the client still has to take its result."""
    job = desk.submit(word, payload=payload)
    receipt = [effect for effect in desk.inbox if job in getattr(effect, "jobs", ())]
    for effect in receipt:
        desk.inbox.remove(effect)
    for attempt in (1, 2):
        worker.gets(job)
        desk.world.wait(1.0)
        worker.fails(job, reason, printed=f"said {attempt}")
        worker.credit(1)
        desk.world.wait(BACKOFF_MAX_S)
    return job


def _listed(world: World, question: AskDead) -> list[JobId]:
    answer = world.ask(question)
    assert isinstance(answer, DeadAnswer)
    by_name = {show_job_id(job): job for job in world.leader.jobs}
    return [by_name[row.job] for row in answer.dead]


def _done(world: World, question: Question) -> int:
    answer = world.ask(question)
    assert isinstance(answer, DeadDoneAnswer)
    return answer.done
