"""A job that a worker runs already, or has done, is not run twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world, job_id


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


@pytest.mark.spec("L4")
def test_a_job_that_a_worker_already_runs_is_not_run_twice(world: World) -> None:
    job = job_id(77)
    worker = world.worker("w", holds=False)
    worker.holds(running=[job])
    worker.credit(9)
    desk = world.client()
    desk.submit(job=job)
    desk.gets_receipt(job)
    worker.gets_nothing()
    assert world.status().running == 1
    worker.acks(job)
    desk.gets_result(job)


@pytest.mark.spec("L4")
def test_a_job_that_was_submitted_first_is_not_run_twice_either(world: World) -> None:
    desk, worker = world.client(), world.worker("w", holds=False)
    one, two = desk.submits(2)
    worker.holds(running=[one], finished=[two])
    worker.credit(9)
    worker.gets_nothing()
    worker.acks(two)
    desk.gets_result(two)
    worker.acks(one)
    desk.gets_result(one)


@pytest.mark.spec("L4")
@pytest.mark.parametrize("ok", [True, False])
def test_a_result_that_a_worker_already_has_answers_the_submit(world: World, ok: bool) -> None:
    job = job_id(77)
    worker = world.worker("w", holds=False)
    worker.holds(finished=[job])
    worker.acks(job) if ok else worker.fails(job)
    worker.leaves()
    desk = world.client()
    desk.submit(job=job)
    desk.gets_receipt(job)
    desk.gets_result(job)


@pytest.mark.spec("L3", "L4")
@pytest.mark.parametrize("reason", ["worker-error", "disk", "cancelled"])
def test_a_claimed_attempt_that_failed_is_made_again(world: World, reason: str) -> None:
    job = job_id(77)
    worker = world.worker("w", holds=False)
    worker.holds(running=[job])
    worker.fails(job, reason)
    desk = world.client()
    desk.submit(job=job)
    desk.gets_receipt(job)
    worker.credit(1)
    worker.gets(job)


@pytest.mark.spec("L4")
def test_a_claim_of_a_worker_that_is_gone_means_nothing(world: World) -> None:
    job = job_id(77)
    worker = world.worker("w", holds=False)
    worker.holds(running=[job])
    worker.leaves()
    desk, other = world.client(), world.worker("other", credit=1)
    desk.submit(job=job)
    desk.gets_receipt(job)
    other.gets(job)


@pytest.mark.spec("L4")
def test_a_claim_that_is_not_made_again_after_a_reconnect_means_nothing(world: World) -> None:
    job = job_id(77)
    worker = world.worker("w", holds=False)
    worker.holds(running=[job])
    worker.leaves()
    world.wait(1)
    again = world.worker("w", credit=1)
    desk = world.client()
    desk.submit(job=job)
    desk.gets_receipt(job)
    again.gets(job)


@pytest.mark.spec("L4")
def test_two_workers_claim_a_job_and_the_first_result_wins(world: World) -> None:
    job = job_id(77)
    a, b = world.worker("a", holds=False), world.worker("b", holds=False)
    a.holds(finished=[job])
    a.acks(job, b"first")
    b.holds(running=[job])
    desk = world.client()
    desk.submit(job=job)
    desk.gets_receipt(job)
    desk.gets_result(job, b"first")


@pytest.mark.spec("L4")
@pytest.mark.parametrize("answers", [False, True])
def test_a_claim_that_came_before_its_job_is_held_against_the_patterns_when_the_job_comes(
    world: World, answers: bool
) -> None:
    job = job_id(77)
    thief = world.worker("thief", "job.assign.public.>", holds=False)
    thief.holds(running=[job])
    if answers:
        thief.acks(job, b"forged")
    desk, other = world.client(), world.worker("other", "job.assign.secret", credit=1)
    desk.submit("secret", job=job)
    world.complains("outside its patterns")
    desk.gets_receipt(job)
    other.gets(job)
    other.acks(job)
    desk.gets_result(job)


@pytest.mark.spec("L4")
@pytest.mark.parametrize("claims_first", [True, False])
def test_neither_an_answer_nor_a_claim_of_another_worker_takes_a_claim_away(world: World, claims_first: bool) -> None:
    job = job_id(77)
    honest = world.worker("honest", "job.assign.secret", holds=False)
    honest.holds(running=[job])
    thief = world.worker("thief", "job.assign.public.>", holds=False)
    if claims_first:
        thief.holds(running=[job])
    else:
        thief.holds()
        thief.acks(job, b"forged")
        world.complains("nobody submitted")
    desk = world.client()
    desk.submit("secret", job=job)
    if claims_first:
        world.complains("outside its patterns")
    desk.gets_receipt(job)
    honest.acks(job)
    desk.gets_result(job)
