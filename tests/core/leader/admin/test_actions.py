"""What administrators have done, as scripts: cancel many, drain, resume."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world, job_id

from wakugumi.core.ids import show_job_id
from wakugumi.core.leader.admin import actions
from wakugumi.core.leader.answer_records import CancelAnswer, ClientRow
from wakugumi.core.leader.questions import AskCancel, AskDrain, AskResume
from wakugumi.limits.leader import KEPT_RESULT_TTL_S, SWEEP_S
from wakugumi.limits.wire import HEARTBEAT_S


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


@pytest.mark.spec("L10")
def test_jobs_are_cancelled_by_id_by_client_and_by_pattern(world: World) -> None:
    desk, other, worker = world.client(), world.client("other"), world.worker("w", "job.assign.done", credit=1)
    (done,) = desk.submits(1, "done")
    worker.gets(done)
    worker.acks(done)
    desk.gets_result(done)
    (a,), (b,), (c,) = desk.submits(1, "calc.a"), desk.submits(1, "calc.b"), desk.submits(1, "draw")
    (d,), (e,) = other.submits(1, "calc.a"), other.submits(1, "draw")

    def cancel(question: AskCancel) -> CancelAnswer:
        answer = world.ask(question)
        assert isinstance(answer, CancelAnswer)
        return answer

    ids = [show_job_id(job) for job in (a, a, done, job_id(77))] + ["no id"]
    assert cancel(AskCancel(jobs=ids)) == CancelAnswer(1, 1, [show_job_id(job_id(77)), "no id"])
    desk.gets_failure(a, "cancelled")
    assert cancel(AskCancel(client="desk", pattern="job.assign.calc.*")) == CancelAnswer(1, 0, [])
    desk.gets_failure(b, "cancelled")
    assert cancel(AskCancel(pattern="job.assign.calc.>")) == CancelAnswer(1, 0, [])
    other.gets_failure(d, "cancelled")
    assert cancel(AskCancel(jobs=[show_job_id(e)], client="desk")) == CancelAnswer(0, 0, [])
    assert cancel(AskCancel(client="desk")) == CancelAnswer(1, 0, [])
    desk.gets_failure(c, "cancelled")
    assert world.ask_in_vain(AskCancel()) == "bad-request"


@pytest.mark.spec("L9", "L10")
def test_what_a_client_left_behind_that_will_not_come_back_is_removed_but_for_a_trace_of_what_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "CANCELLED_AT_ONCE_MAX", 4)
    gone, stays, worker = world.client("gone"), world.client("stays"), world.worker("w", credit=1)
    jobs = gone.submits(6)
    (other,) = stays.submits(1)
    worker.gets(jobs[0])
    worker.acks(jobs[0])
    gone.gets_result(jobs[0])
    gone.leaves()
    worker.credit(1)
    running = jobs[1]
    worker.gets(running)
    assert world.status().busiest[0] == ClientRow("gone", False, 100, 1, 6, 448 + 70)
    assert world.ask(AskCancel(client="gone", forget=True)) == CancelAnswer(3, 1, [], 4, 2)
    assert world.ask(AskCancel(client="gone", forget=True)) == CancelAnswer(2, 0, [], 2, 0)
    worker.gets_cancel(running)
    assert list(world.leader.jobs) == [running, other]
    world.wait(KEPT_RESULT_TTL_S + SWEEP_S + HEARTBEAT_S)
    assert list(world.leader.jobs) == [other]
    assert list(world.leader.clients.by_id) == ["stays"]
    world.restart()
    assert list(world.leader.jobs) == [other]
    assert world.ask_in_vain(AskCancel(pattern="a..b")) == "bad-subject"
    assert world.status().queued == 1


@pytest.mark.spec("L10")
def test_a_drained_worker_finishes_and_gets_nothing_more_until_it_is_taken_back(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=2)
    (one,) = desk.submits(1)
    worker.gets(one)
    world.ask(AskDrain("w"))
    (two,) = desk.submits(1)
    worker.acks(one)
    desk.gets_result(one)
    worker.credit(1)
    worker.gets_nothing()
    world.ask(AskResume("w"))
    worker.gets(two)


@pytest.mark.spec("L10")
def test_a_worker_that_is_drained_while_it_is_away_stays_drained(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=2)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.leaves()
    world.ask(AskDrain("w"))
    again = world.worker("w", holds=False)
    again.holds(running=[job])
    again.credit(1)
    desk.submits(1)
    again.gets_nothing()


def test_nobody_drains_a_worker_that_is_not_there(world: World) -> None:
    assert world.ask_in_vain(AskDrain("w")) == "unknown-worker"
    assert world.ask_in_vain(AskResume("w")) == "unknown-worker"


@pytest.mark.spec("L10")
def test_a_drained_worker_stays_drained_when_its_connection_blinks(world: World) -> None:
    worker = world.worker("w", credit=1)
    world.ask(AskDrain("w"))
    worker.leaves()
    back = world.worker("w", credit=1)
    (job,) = world.client().submits(1)
    back.gets_nothing()
    world.ask(AskResume("w"))
    back.gets(job)
