"""Which leaves does a leader with a journal keep, and which requests does it move?"""

from __future__ import annotations

import pytest
from tests.kit.leader_world import ClientEnd, WorkerEnd, a_world

from wakugumi.core.leader import events as ev
from wakugumi.core.leader.journal import leaves as module
from wakugumi.core.leader.journal import offload
from wakugumi.core.leader.journal.entries import KeepWhole

SHEAF = 16


@pytest.fixture
def no_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little garbage there is, it is worth the work."""
    monkeypatch.setattr(module, "JOURNAL_SLACK_BYTES", 0)


def test_a_leader_that_ran_for_long_keeps_no_more_leaves_than_it_needs() -> None:
    with a_world() as world:
        desk, worker = world.client(), world.worker("w", credit=1)
        for _ in range(100):
            _one_job(desk, worker)
        world.wait(700.0)
        assert len(world.journal) < 2 * SHEAF
        assert world.leader.leaves.written_bytes < 20_000


@pytest.mark.usefixtures("no_slack")
@pytest.mark.parametrize("budget", [0, 1_000_000])
@pytest.mark.spec("L7")
def test_one_job_that_waits_for_ever_does_not_keep_all_leaves_after_it(budget: int) -> None:
    with a_world(payload_memory_bytes=budget) as world:
        desk = world.client("desk")
        (waits,) = desk.submits(1, "nobody.serves.this")
        (runs,) = desk.submits(1, "slow")
        slow = world.worker("slow", "job.assign.slow", credit=1)
        slow.gets(runs)
        other, worker = world.client("other"), world.worker("w", "job.assign.calc", credit=1)
        for _ in range(200):
            _one_job(other, worker)
            world.wait(60.0)
        assert len(world.journal) < 12 * SHEAF
        assert any(isinstance(record, KeepWhole) for record in world.kept)
        world.restart()
        assert [line.split(",")[0] for line in world.story(waits)] == [
            "submitted by desk to job.assign.nobody.serves.this"
        ]
        assert world.story(runs)[-1] == "attempt 1 began on worker slow, still running"
        last = world.worker("last", ">", credit=1)
        last.gets(waits)


@pytest.mark.usefixtures("no_slack")
def test_what_is_moved_is_moved_a_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "JOURNAL_MOVED_BYTES_MAX", 1_000)
    with a_world() as world:
        desk = world.client("desk")
        jobs = desk.submits(10, "nobody.serves.this")
        other, worker = world.client("other"), world.worker("w", "job.assign.calc", credit=1)
        for _ in range(200):
            before = len(world.kept)
            _one_job(other, worker)
            world.wait(60.0)
            moved = sum(isinstance(record, KeepWhole) for record in world.kept[before:])
            assert moved <= 4 * 7, "four jobs at most, in each of the steps of a minute"
        assert sum(isinstance(record, KeepWhole) for record in world.kept) >= len(jobs)
        world.restart()
        world.worker("last", ">", credit=20).gets(*jobs)


@pytest.mark.usefixtures("no_slack")
def test_a_leader_whose_jobs_only_wait_writes_nothing() -> None:
    with a_world() as world:
        with world.at_once():
            desk = world.client()
            jobs = [desk.submit("nobody.serves.this") for _ in range(500)]
        desk.takes(ev.SendWelcome)
        desk.gets_receipt(*jobs)
        for _ in range(40):
            desk.submits(1, "nobody.serves.this")
        before = len(world.kept)
        world.wait(10_000.0)
        assert len(world.kept) == before


def _one_job(desk: ClientEnd, worker: WorkerEnd) -> None:
    """A job comes, runs and is taken."""
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.acks(job)
    worker.credit(1)
    desk.gets_result(job)
    desk.confirms(job)
