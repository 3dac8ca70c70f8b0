"""A full leader takes nothing new, says so, and takes work again when there is room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world

from wakugumi.core.leader import events as ev


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


@pytest.mark.spec("L9")
def test_a_full_queue_refuses_own_clients_and_takes_work_again_when_there_is_room() -> None:
    with a_world(queue_jobs_max=10) as world:
        desk, worker = world.client(), world.worker("w")
        jobs = desk.submits(10)
        more = desk.submit()
        desk.gets_refusal(more, "full")
        assert world.status().full
        desk.submit(job=jobs[3])  # which is known, and no more work
        desk.gets_receipt(jobs[3])
        worker.credit(1)
        worker.gets(jobs[0])
        desk.submit(job=more)
        desk.gets_refusal(more, "full")  # a little room does not flip it, or old clients would never get any
        worker.credit(1)
        worker.gets(jobs[1])
        assert not world.status().full
        desk.submit(job=more)
        desk.gets_receipt(more)


@pytest.mark.spec("K8", "L9")
def test_a_full_queue_takes_a_job_that_a_worker_has_already() -> None:
    with a_world(queue_jobs_max=10) as world:
        desk, worker = world.client(), world.worker("w", holds=False)
        runs, done, held = (world.new_job() for _ in range(3))
        worker.holds(running=[runs, done, held])
        worker.acks(done)
        desk.submits(10)
        new = world.new_job()
        assert desk.asks_for(runs, done, new) == {"known": [runs, done], "unknown": [new]}
        why = world.leader.why_not(new)
        assert why is not None
        assert why.code == "full"
        assert world.leader.why_not(runs) is None
        desk.submit(job=new)
        desk.gets_refusal(new, "full")
        desk.submit(job=runs)
        desk.gets_receipt(runs)
        desk.submit(job=done)
        desk.gets_receipt(done)
        desk.gets_result(done)
        worker.acks(runs)
        desk.gets_result(runs)
        world.hear(ev.DiskLow(True))  # It would have to be written down.
        desk.submit(job=held)
        desk.gets_refusal(held, "disk-full")
        why = world.leader.why_not(held)
        assert why is not None
        assert why.code == "disk-full"


@pytest.mark.spec("L9")
def test_a_queue_is_full_of_bytes_too_and_running_jobs_count() -> None:
    with a_world(queue_bytes_max=1_000) as world:
        desk, worker = world.client(), world.worker("w", credit=1)
        one, two = desk.submit(payload=bytes(500)), desk.submit(payload=bytes(500))
        desk.gets_receipt(one)
        desk.gets_receipt(two)
        worker.gets(one)
        three = desk.submit()
        desk.gets_refusal(three, "full")
        worker.acks(one)
        desk.gets_result(one)
        desk.submit(job=three)
        desk.gets_receipt(three)


@pytest.mark.spec("L9", "F11")
def test_an_old_client_is_not_read_from_while_the_queue_is_full() -> None:
    with a_world(queue_jobs_max=10) as world:
        desk, old, worker = world.client(), world.client("old", old=True), world.worker("w")
        jobs = desk.submits(9)
        last = old.submit()
        old.takes(ev.PauseReading)
        on_its_way = old.submit()
        old.gets_nothing()
        late = world.client("late", old=True)
        late.takes(ev.PauseReading)
        worker.credit(3)
        worker.gets(jobs[0], last, jobs[1])
        old.takes(ev.ResumeReading)
        late.takes(ev.ResumeReading)
        worker.credit(1)
        worker.gets(on_its_way)
