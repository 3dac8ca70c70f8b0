"""What a worker's answer means for its job, as scripts: the first one, late ones, those of strangers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import TIMEOUT_S, World, a_world, job_id

from wakugumi.limits.leader import ACK_MARGIN_S
from wakugumi.limits.wire import HEARTBEAT_S, SILENCE_MAX_S

LATE_S = TIMEOUT_S + ACK_MARGIN_S + HEARTBEAT_S
"""By then the leader has looked, and an old worker's ack is late."""


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


@pytest.mark.spec("L3")
def test_a_late_ack_is_accepted_and_the_other_attempt_is_cancelled(world: World) -> None:
    desk, late = world.client(), world.worker("late", old=True, credit=1)
    (job,) = desk.submits(1)
    late.gets(job)
    world.wait(LATE_S + 1)
    other = world.worker("other", credit=1)
    other.gets(job)
    late.acks(job, b"at last")
    desk.gets_result(job, b"at last")
    other.gets_cancel(job)
    other.fails(job, "cancelled")
    assert world.status().finished_ok == 1


@pytest.mark.spec("L3")
def test_the_first_result_wins_and_whoever_was_late_is_cancelled(world: World) -> None:
    desk, late = world.client(), world.worker("late", old=True, cancels=True, credit=1)
    (job,) = desk.submits(1)
    late.gets(job)
    world.wait(LATE_S + 1)
    other = world.worker("other", credit=1)
    other.gets(job)
    other.acks(job, b"first")
    desk.gets_result(job, b"first")
    late.gets_cancel(job)
    late.acks(job, b"second")
    desk.gets_nothing()
    assert world.status().finished_ok == 1


@pytest.mark.spec("L3", "L10")
def test_a_worker_that_was_late_and_got_the_job_again_is_told_once_to_stop(world: World) -> None:
    desk, worker = world.client(), world.worker("w", old=True, cancels=True, credit=2)
    (job,) = desk.submits(1)
    worker.gets(job)
    world.wait(LATE_S + 1)
    worker.gets(job)
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    worker.gets_cancel(job)


def test_a_reason_that_is_no_code_is_not_remembered(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.fails(job, "x" * 1_000_000)
    desk.gets_result(job)
    assert "attempt 1 ended: exit" in world.story(job)


@pytest.mark.spec("L3")
@pytest.mark.parametrize("ok", [True, False])
def test_a_late_ack_is_accepted_while_the_job_waits_for_its_next_attempt(world: World, ok: bool) -> None:
    desk, worker = world.client(), world.worker("w", old=True, credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    world.wait(LATE_S)
    assert world.status().backing_off == 1
    worker.acks(job) if ok else worker.fails(job)
    desk.gets_result(job)
    assert world.status().backing_off == 0
    world.wait(10)
    assert world.status().queued == 0


@pytest.mark.spec("L3")
def test_a_late_ack_is_accepted_while_the_job_is_queued_again(world: World) -> None:
    desk, worker = world.client(), world.worker("w", old=True, credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    world.wait(LATE_S + 1)
    assert world.status().queued == 1
    worker.acks(job)
    desk.gets_result(job)
    worker.credit(1)
    worker.gets_nothing()


@pytest.mark.spec("L3")
def test_a_late_word_that_the_attempt_failed_does_not_end_the_other_one(world: World) -> None:
    desk, late = world.client(), world.worker("late", old=True, credit=1)
    (job,) = desk.submits(1)
    late.gets(job)
    world.wait(LATE_S + 1)
    other = world.worker("other", credit=1)
    other.gets(job)
    late.fails(job, "worker-error")
    assert world.status().running == 1
    other.acks(job)
    desk.gets_result(job)


@pytest.mark.spec("L3")
def test_an_ack_from_a_worker_that_was_never_given_the_job_is_dropped(world: World) -> None:
    desk, worker, liar = world.client(), world.worker("w", credit=1), world.worker("liar")
    (job,) = desk.submits(1)
    worker.gets(job)
    liar.acks(job, b"a lie")
    world.complains("liar", "never given")
    liar.acks(job_id(77))
    world.complains("liar", "nobody submitted")
    worker.acks(job)
    desk.gets_result(job)


def test_every_ack_is_confirmed_so_that_the_worker_can_let_go_of_it(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.acks(job, b"first")
    worker.acks(job, b"first")
    desk.gets_result(job, b"first")


@pytest.mark.spec("F11")
@pytest.mark.parametrize("reason", ["unknown-program", "bad-name", "bad-request", "output-limit", "bad-result"])
def test_what_can_never_work_fails_at_once(world: World, reason: str) -> None:
    desk, worker = world.client(), world.worker("w", credit=9)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.fails(job, reason)
    desk.gets_result(job)
    assert world.story(job)[-2] == f"attempt 1 ended: {reason}"


@pytest.mark.spec("L3")
def test_an_ack_is_a_sign_of_life(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=100, heartbeats=True)
    worker.falls_silent()
    for _ in range(4):
        (job,) = desk.submits(1)
        worker.gets(job)
        world.wait(SILENCE_MAX_S / 2)
        worker.acks(job)
        desk.gets_result(job)
    (job,) = desk.submits(1)
    worker.gets(job)
