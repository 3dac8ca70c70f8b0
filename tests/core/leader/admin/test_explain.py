"""Why a job is not running, or not done: each reason in its sentence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world

from wakugumi.core.backoff import parse_policies
from wakugumi.core.ids import show_job_id
from wakugumi.core.leader import records
from wakugumi.core.leader.answer_records import (
    ExplainAnswer,
    JobRow,
    WorkersAnswer,
)
from wakugumi.core.leader.questions import AskDrain, AskExplain, AskJob, AskWorkers
from wakugumi.core.leader.scheduling import lanes
from wakugumi.core.requirements import Requirements
from wakugumi.limits.scheduling import SLOTS_PATIENCE_S, STICKY_PATIENCE_S


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


def test_no_worker_at_all(world: World) -> None:
    (job,) = world.client().submits(1)
    assert world.reasons(job) == ["no worker matches job.assign.calc; connected: no worker at all"]


@pytest.mark.parametrize(("others", "count"), [(1, "1 worker"), (2, "2 workers")])
def test_no_worker_matches(world: World, others: int, count: str) -> None:
    for number in range(others):
        world.worker(f"w{number}", "job.assign.draw", credit=1)
    (job,) = world.client().submits(1)
    assert world.reasons(job) == [f"no worker matches job.assign.calc; connected: {count} with other patterns"]


def test_matching_workers_have_no_credit(world: World) -> None:
    desk = world.client()
    a, _ = world.worker("a", credit=1), world.worker("b", ">", "job.assign.*")
    one, two, three = desk.submits(3)
    a.gets(one)
    assert world.reasons(two) == ["2 matching workers without free credit, busy with 1 job"]
    assert world.reasons(three) == [
        "2 matching workers without free credit, busy with 1 job",
        "it stands behind 1 job of the same client and subject",
    ]


def test_it_stands_behind_jobs_of_higher_priority(world: World) -> None:
    desk = world.client()
    world.worker("a")
    (first,) = desk.submits(1)
    desk.submits(2, requirements=Requirements(priority=5))
    assert world.reasons(first)[1:] == [
        "it stands behind 2 jobs of the same client and subject, 2 of them of higher priority"
    ]


def test_it_needs_more_slots_than_any_worker_has(world: World) -> None:
    desk = world.client()
    world.worker("a", credit=2, slots=2)
    world.worker("old", old=True, credit=9)
    world.worker("elsewhere", "job.assign.draw", credit=16, slots=16)
    (job,) = desk.submits(1, requirements=Requirements(slots=4))
    world.wait(60.0)
    assert world.reasons(job) == [
        "it needs 4 slots at once, and no worker that serves job.assign.calc has so many: the largest has 2"
    ]
    row = world.ask(AskJob(show_job_id(job)))
    assert isinstance(row, JobRow)
    assert (row.slots, row.priority, row.key) == (4, 0, "")
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")


def test_no_worker_says_how_many_slots_it_has(world: World) -> None:
    desk = world.client()
    world.worker("old", old=True, credit=9)
    (job,) = desk.submits(1, requirements=Requirements(slots=2))
    (reason,) = world.reasons(job)
    assert reason.endswith("no worker that serves job.assign.calc has so many: none of them says how many it has")


def test_a_worker_is_kept_free_for_it(world: World) -> None:
    desk, other = world.client(), world.client("other")
    a = world.worker("a", credit=1, slots=2)
    (job,) = desk.submits(1, requirements=Requirements(slots=2))
    assert world.reasons(job) == ["it needs 2 slots at once, and no worker has so many free: at most 1"]
    world.wait(SLOTS_PATIENCE_S + 0.1)
    assert world.reasons(job) == ["it needs 2 slots at once: worker a is being kept free for it, 1 of them are free"]
    (small,) = other.submits(1)
    assert world.reasons(small) == ["1 matching worker with free slots, kept free for jobs that need several"]
    answer = world.ask(AskWorkers())
    assert isinstance(answer, WorkersAnswer)
    assert [(row.slots, row.kept_for) for row in answer.workers] == [(2, show_job_id(job))]
    a.credit(1)
    a.gets(job)
    a.acks(job)
    desk.gets_result(job)
    a.credit(2)
    a.gets(small)


def test_it_waits_for_the_home_of_its_key() -> None:
    with a_world(policies=parse_policies("sticky")) as world:
        desk = world.client()
        a = world.worker("a", credit=1)
        first, second = desk.submits(2, requirements=Requirements("k"))
        a.gets(first)
        b = world.worker("b", credit=5)
        assert world.reasons(second) == ["it waits for the home of its key, worker a, which is busy"]
        a.leaves()
        assert world.reasons(second) == ["it waits for the home of its key, worker a, which is away"]
        world.wait(STICKY_PATIENCE_S + 0.1)
        assert set(b.gets_some()) == {first, second}


def test_matching_workers_are_drained(world: World) -> None:
    a, b = world.worker("a", credit=1), world.worker("b", credit=1)
    world.ask(AskDrain("a"))
    b.says_it_leaves()
    (job,) = world.client().submits(1)
    assert world.reasons(job) == ["2 matching workers, all draining or leaving"]
    world.worker("c")
    assert world.reasons(job) == [
        "3 matching workers without free credit, 2 of them draining or leaving, busy with 0 jobs"
    ]
    a.gets_nothing()


def test_its_client_is_at_its_cap(world: World) -> None:
    desk, worker = world.client(cap=2), world.worker("w", credit=9)
    jobs = desk.submits(4)
    worker.gets(*jobs[:2])
    assert world.reasons(jobs[2]) == ["client desk is at its cap: 2 of 2 jobs in flight"]
    assert world.reasons(jobs[3]) == [
        "client desk is at its cap: 2 of 2 jobs in flight",
        "it stands behind 1 job of the same client and subject",
    ]


def test_its_client_has_not_taken_its_results(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (records, lanes):
        monkeypatch.setattr(module, "UNDELIVERED_BYTES_PER_CLIENT_MAX", 1_000)
    desk, worker = world.client(), world.worker("w", credit=9)
    (done,) = desk.submits(1)
    worker.gets(done)
    worker.acks(done, bytes(1_000))
    desk.gets_result(done, bytes(1_000))
    (job,) = desk.submits(1)
    (reason,) = world.reasons(job)
    assert reason.startswith("client desk has not taken 1512 bytes of results")


def test_it_stands_behind_others(world: World) -> None:
    desk = world.client()
    jobs = desk.submits(5)
    desk.cancels(jobs[1])
    desk.gets_failure(jobs[1], "cancelled")
    assert world.reasons(jobs[4])[-1] == "it stands behind 3 jobs of the same client and subject"
    assert len(world.reasons(jobs[0])) == 1


def test_the_leader_is_shutting_down(world: World) -> None:
    desk = world.client()
    worker = world.worker("w")
    (job,) = desk.submits(1)
    world.stop()
    worker.credit(1)
    assert world.reasons(job) == ["the leader is shutting down and assigns nothing more"]


def test_it_is_backing_off(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=9)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.fails(job, "worker-error")
    world.wait(0.4)
    assert world.reasons(job) == [
        "backing off for another 0.6 s before attempt 2: the last one ended by worker-error on worker w"
    ]


def test_it_is_running(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=9)
    (job,) = desk.submits(1)
    worker.gets(job)
    world.wait(12.5)
    assert world.reasons(job) == ["runs on worker w for 12.5 s (attempt 1)"]
    worker.leaves()
    assert world.reasons(job) == [
        "runs on worker w for 12.5 s (attempt 1); its connection is lost, and it may still come back within 2.0 s"
    ]


def test_it_is_finished(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=9)
    ok, cancelled = desk.submits(2)
    worker.gets(ok, cancelled)
    worker.acks(ok)
    desk.gets_result(ok)
    world.wait(2)
    assert world.reasons(ok) == ["finished OK 2.0 s ago; its result is waiting to be fetched by desk"]
    desk.confirms(ok)
    assert world.reasons(ok) == ["finished OK 2.0 s ago; its result is delivered"]
    desk.cancels(cancelled)
    desk.gets_failure(cancelled, "cancelled")
    worker.gets_cancel(cancelled)
    (reason,) = world.reasons(cancelled)
    assert reason.startswith("finished FAILED 0.0 s ago: the job was cancelled;")


def test_an_explanation_says_which_job_and_in_which_state(world: World) -> None:
    (job,) = world.client().submits(1)
    answer = world.ask(AskExplain(show_job_id(job)))
    assert isinstance(answer, ExplainAnswer)
    assert (answer.job, answer.state) == (show_job_id(job), "queued")
