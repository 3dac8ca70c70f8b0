"""What clients want of jobs, as scripts: a repeated id, a question for jobs, a cancel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world, job_id

from wakugumi.core.leader import events as ev
from wakugumi.limits.leader import KEPT_RESULT_TTL_S, SWEEP_S


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


@pytest.mark.spec("L6")
def test_a_job_that_is_queued_or_running_is_attached_to(world: World) -> None:
    desk, worker = world.client(), world.worker("w")
    (job,) = desk.submits(1)
    desk.submit(job=job)
    desk.gets_receipt(job)
    worker.credit(9)
    worker.gets(job)
    again = world.client()
    again.submit(job=job)
    again.gets_receipt(job)
    worker.acks(job)
    desk.gets_result(job)
    again.gets_result(job)
    assert world.status().submitted == 1


@pytest.mark.spec("L6", "F11")
@pytest.mark.parametrize("state", ["queued", "running", "done"])
def test_the_same_id_with_another_request_is_refused(world: World, state: str) -> None:
    desk, old = world.client(), world.client("old", old=True)
    worker = world.worker("w", credit=int(state != "queued"))
    (job,) = desk.submits(1)
    if state != "queued":
        worker.gets(job)
    if state == "done":
        worker.acks(job)
        desk.gets_result(job)
    desk.submit(job=job, payload=b"another request")
    desk.gets_refusal(job, "conflict")
    old.submit(job=job, payload=b"another request")
    old.gets_failure(job, "conflict")


@pytest.mark.spec("K8", "L6")
def test_a_leader_says_which_jobs_it_knows_and_nobody_waits_for_them_by_that(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=3)
    done, failed, runs, queued, held = *desk.submits(4), world.new_job()
    stranger = world.new_job()
    worker.gets(done, failed, runs)
    worker.acks(done)
    worker.fails(failed)
    desk.gets_result(done)
    desk.gets_result(failed)
    desk.confirms(done)
    world.worker("of a leader without memory", holds=False).holds(running=[held])
    other = world.client("other")
    asked = [stranger, done, failed, runs, queued, held]
    assert other.asks_for(*asked) == {"unknown": [stranger], "known": [done, runs, queued, held], "failed": [failed]}
    worker.acks(runs)
    desk.gets_result(runs)
    other.gets_nothing()
    world.wait(KEPT_RESULT_TTL_S + SWEEP_S)
    assert other.asks_for(done, queued) == {"unknown": [done], "known": [queued]}


@pytest.mark.spec("F11")
def test_a_submit_that_cannot_be_read_is_refused_and_never_by_silence(world: World) -> None:
    desk, old = world.client(), world.client("old", old=True)
    for end in (desk, old):
        world.hear(ev.SubmitRefused(end.conn, job_id(7), "bad-request", "this is no job"))
    desk.gets_refusal(job_id(7), "bad-request")
    assert old.gets_failure(job_id(7), "bad-request") == "this is no job"


@pytest.mark.spec("L10")
def test_a_queued_job_is_cancelled(world: World) -> None:
    desk, worker = world.client(), world.worker("w")
    one, two = desk.submits(2)
    desk.cancels(one)
    desk.gets_failure(one, "cancelled")
    worker.credit(9)
    worker.gets(two)


@pytest.mark.spec("L10")
@pytest.mark.parametrize("old", [False, True])
def test_a_running_job_is_cancelled_and_its_worker_told_if_it_can_be(world: World, old: bool) -> None:
    desk, worker = world.client(), world.worker("w", old=old, credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    if not old:
        worker.gets_cancel(job)
    worker.fails(job, "cancelled")
    assert "attempt 1 ended: cancelled" in world.story(job)


@pytest.mark.spec("L10")
def test_a_job_that_backs_off_is_cancelled(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=9)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.fails(job, "worker-error")
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    world.wait(60)
    assert world.status().backing_off == 0


@pytest.mark.spec("L10")
def test_a_finished_job_an_unknown_one_and_a_strangers_are_not_cancelled(world: World) -> None:
    desk, stranger, worker = world.client(), world.client("stranger"), world.worker("w", credit=9)
    done, running = desk.submits(2)
    worker.gets(done, running)
    worker.acks(done)
    desk.gets_result(done)
    desk.cancels(done, job_id(77))
    stranger.cancels(running)


@pytest.mark.spec("F9", "F11")
def test_a_refusal_does_not_settle_the_job_whose_id_was_used_for_something_else(world: World) -> None:
    old, worker = world.client(old=True), world.worker("w", credit=1)
    job = old.submit()
    worker.gets(job)
    old.blocks()
    worker.acks(job)
    old.submit(job=job, payload=b"something else")
    old.gets_failure(job, "conflict")
    assert job in world.leader.clients.results.undelivered
    old.unblocks()
    old.gets_result(job)
    assert job not in world.leader.clients.results.undelivered
