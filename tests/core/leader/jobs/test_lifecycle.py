"""What may happen to a job, and what is counted and kept of it?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world

from wakugumi.core.leader.jobs.states import BACKOFF, DONE, QUEUED, RUNNING
from wakugumi.core.leader.journal.entries import KeepAttempt, KeepDeclined, KeepJob, KeepOutcome, KeepResult

REQUEST = b"request"


@pytest.fixture
def world() -> Iterator[World]:
    with a_world(attempts_max=2) as world:
        yield world


def test_a_job_is_queued_runs_and_is_done(world: World) -> None:
    desk, lifecycle = world.client(), world.leader.lifecycle
    (job,) = desk.submits(1)
    record = world.leader.jobs[job]
    assert (record.state, lifecycle.open_bytes, lifecycle.memory_bytes) == (QUEUED, len(REQUEST), len(REQUEST))
    worker = world.worker("w", credit=1)
    worker.gets(job)
    states = [record.state]
    worker.acks(job)
    desk.gets_result(job)
    assert [*states, record.state] == [RUNNING, DONE]
    assert (lifecycle.open_bytes, lifecycle.memory_bytes, record.payload) == (0, 0, None)
    assert (lifecycle.counts.submitted, lifecycle.counts.finished_ok, lifecycle.counts.finished_failed) == (1, 1, 0)
    assert [type(record) for record in world.kept] == [KeepJob, KeepAttempt, KeepResult]


def test_a_lost_attempt_is_repeated_after_a_delay_and_the_last_one_makes_it_dead(world: World) -> None:
    desk, lifecycle = world.client(), world.leader.lifecycle
    (job,) = desk.submits(1)
    worker = world.worker("w", credit=2)
    worker.gets(job)
    worker.fails(job, "worker-error", printed="why")
    record = world.leader.jobs[job]
    assert (record.state, lifecycle.backing_off, lifecycle.output_bytes) == (BACKOFF, 1, len("why"))
    assert lifecycle.wake_at() == record.since > world.now
    world.wait(record.since - world.now)
    assert lifecycle.backing_off == 0
    worker.gets(job)
    worker.fails(job, "worker-error")
    assert "2 attempts failed" in desk.gets_failure(job, "dead")
    counts = lifecycle.counts
    assert (counts.redelivered, counts.dead, counts.finished_failed) == (1, 1, 1)
    assert [attempt.number for attempt in record.history] == [1, 2]
    assert [kept.output for kept in world.kept if isinstance(kept, KeepOutcome)] == ["why", ""]


def test_a_job_that_is_given_back_has_used_no_attempt(world: World) -> None:
    desk = world.client()
    (job,) = desk.submits(1)
    node = world.worker("n", credit=1)
    node.gets(job)
    node.declines(job)
    record = world.leader.jobs[job]
    assert (record.state, record.attempts, record.history) == (QUEUED, 0, ())
    assert world.leader.lifecycle.counts.declined == 1
    assert any(isinstance(kept, KeepDeclined) for kept in world.kept)
    node.credit(1)
    node.gets(job)
    node.acks(job)
    desk.gets_result(job)


@pytest.mark.parametrize("where", [QUEUED, BACKOFF, RUNNING])
def test_a_job_is_cancelled_wherever_it_is(world: World, where: object) -> None:
    desk, lifecycle = world.client(), world.leader.lifecycle
    (job,) = desk.submits(1)
    worker = world.worker("w")
    if where is not QUEUED:
        worker.credit(1)
        worker.gets(job)
        if where is BACKOFF:
            worker.fails(job, "worker-error")
    record = world.leader.jobs[job]
    assert record.state is where
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    if where is RUNNING:
        worker.gets_cancel(job)
    assert (lifecycle.open_bytes, lifecycle.backing_off) == (0, 0)
    assert not lifecycle.cancel(record, world.now), "its result stays"
    world.wait(100.0)
    assert record.state is DONE


def test_a_payload_beyond_the_memory_is_only_in_the_journal() -> None:
    with a_world(payload_memory_bytes=len(REQUEST)) as world:
        desk, lifecycle = world.client(), world.leader.lifecycle
        first, second = desk.submits(2)
        assert [world.leader.jobs[job].payload for job in (first, second)] == [REQUEST, None]
        assert (lifecycle.open_bytes, lifecycle.memory_bytes) == (2 * len(REQUEST), len(REQUEST))


def test_the_first_result_is_the_accepted_one(world: World) -> None:
    desk = world.client()
    (job,) = desk.submits(1)
    worker = world.worker("w", credit=1)
    worker.gets(job)
    worker.acks(job, b"first")
    worker.acks(job, b"second")
    desk.gets_result(job, b"first")
    assert world.leader.jobs[job].result == b"first"
    assert world.leader.lifecycle.counts.finished_ok == 1
