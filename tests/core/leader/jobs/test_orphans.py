"""Claims of jobs that nobody submitted: bounded by count, bytes and age, and never in the way of a newer one."""

from __future__ import annotations

import pytest
from tests.kit.leader_world import ClientEnd, WorkerEnd, World, a_world, job_id, worker_id

from wakugumi.core.ids import ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.events import Acked
from wakugumi.core.leader.jobs import orphans as claims_module
from wakugumi.core.leader.jobs.file_references import FileReferences
from wakugumi.core.leader.jobs.orphans import CLAIMANTS_MAX, Claimant, OrphanJobs
from wakugumi.core.leader.journal import leaves as leaves_module
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.core.subject import parse_pattern
from wakugumi.limits.leader import SWEEP_S, UNDELIVERED_TTL_S

DIGEST = b"d" * 16
A, B = worker_id("a"), worker_id("b")
ALL = (parse_pattern(">"),)


def ack(number: int, payload: bytes = b"output") -> Acked:
    return Acked(ConnId(1), job_id(number), True, "", payload)


@pytest.fixture
def orphans() -> OrphanJobs:
    return OrphanJobs(FileReferences(), StepBuilder())


@pytest.mark.spec("L4")
def test_a_claim_is_taken_once(orphans: OrphanJobs) -> None:
    orphans.hold(job_id(1), A, ALL, 5.0)
    claim = orphans.take(job_id(1))
    assert claim is not None
    assert (claim.claimants, claim.answers) == ((Claimant(A, 5.0, ALL),), ())
    assert orphans.take(job_id(1)) is None
    assert len(orphans.by_job) == 0


@pytest.mark.spec("L4")
def test_a_claimant_that_answers_is_one_no_more_and_the_others_stay(orphans: OrphanJobs) -> None:
    orphans.hold(job_id(1), A, ALL, 5.0)
    orphans.hold(job_id(1), B, ALL, 6.0)
    assert orphans.answer(ack(1, b"first"), B)
    assert not orphans.answer(ack(1, b"second"), B)
    orphans.hold(job_id(1), B, ALL, 7.0)
    orphans.hold(job_id(1), A, ALL, 8.0)
    orphans.check()
    claim = orphans.take(job_id(1))
    assert claim is not None
    assert [(answer.claimant, answer.ack) for answer in claim.answers] == [(Claimant(B, 6.0, ALL), ack(1, b"first"))]
    assert claim.claimants == (Claimant(A, 8.0, ALL),)
    orphans.check()


def test_a_job_has_a_few_claimants_each_of_them_once_and_only_they_answer(orphans: OrphanJobs) -> None:
    for at in range(2 * CLAIMANTS_MAX):
        orphans.hold(job_id(1), worker_id(f"w{at}"), ALL, float(at))
        orphans.hold(job_id(1), A, ALL, float(at))
    claim = orphans.by_job[job_id(1)]
    assert len(claim.claimants) == CLAIMANTS_MAX
    assert claim.claimants[-1] == Claimant(A, 2.0 * CLAIMANTS_MAX - 1, ALL)
    assert not orphans.answer(ack(1), B)
    assert orphans.answer(ack(1), A)


def test_an_answer_to_what_nobody_claimed_is_not_kept(orphans: OrphanJobs) -> None:
    assert not orphans.answer(ack(1), A)
    assert len(orphans.by_job) == 0


def test_of_too_many_claims_the_oldest_go(orphans: OrphanJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "CLAIMS_MAX", 3)
    for number in range(5):
        orphans.hold(job_id(number), A, ALL, 0.0)
        orphans.check()
    assert [number for number in range(5) if orphans.take(job_id(number))] == [2, 3, 4]


def test_of_too_many_bytes_the_oldest_go(orphans: OrphanJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "KEPT_BYTES_MAX", 100)
    for number in range(4):
        orphans.hold(job_id(number), A, ALL, 0.0)
        assert orphans.answer(ack(number, bytes(40)), A)
        orphans.check()
    assert [number for number in range(4) if orphans.take(job_id(number))] == [2, 3]
    orphans.check()


def test_what_was_claimed_by_workers_that_are_gone_is_swept_away_but_their_results_stay_for_a_day(
    orphans: OrphanJobs,
) -> None:
    for number in range(3):
        orphans.hold(job_id(number), B if number == 2 else A, ALL, 0.0)
    orphans.answer(ack(1), A)
    orphans.sweep({B}, 1.0)
    assert len(orphans.by_job) == 2
    orphans.sweep({B}, UNDELIVERED_TTL_S)
    assert len(orphans.by_job) == 0
    orphans.check()


def answered_unasked(world: World, *, ok: bool = True) -> JobId:
    """A job that nobody has submitted, and whose worker was told that its answer is taken."""
    worker, job = world.worker("w", holds=False), world.new_job()
    worker.holds(finished=[job])
    if ok:
        worker.acks(job, b"result", request=DIGEST)
    else:
        worker.fails(job, "exit", b"result")
    world.nothing_else()
    return job


@pytest.mark.spec("L4", "L7")
@pytest.mark.parametrize("restarts", [1, 3])
def test_an_answer_that_was_taken_outlives_its_leader(restarts: int) -> None:
    with a_world() as world:
        job = answered_unasked(world)
        for _ in range(restarts):
            world.restart()
            world.wait(3600.0)
        desk, _ = world.client(), world.worker("other", credit=1)
        desk.submit(job=job, request=DIGEST)
        desk.gets_receipt(job)
        desk.gets_result(job, b"result")
        world.nothing_else()


@pytest.mark.spec("L6")
def test_a_failure_that_was_told_once_does_not_come_back() -> None:
    with a_world() as world:
        job = answered_unasked(world, ok=False)
        world.restart()
        desk = world.client()
        desk.submit(job=job)
        desk.gets_receipt(job)
        desk.gets_result(job, b"result")
        desk.confirms(job)
        world.restart()
        desk, worker = world.client(), world.worker("w", credit=1)
        desk.submit(job=job)
        desk.gets_receipt(job)
        worker.gets(job)


@pytest.mark.spec("L7")
def test_an_answer_that_nobody_wants_is_forgotten_in_the_journal_too() -> None:
    with a_world() as world:
        job = answered_unasked(world)
        world.wait(UNDELIVERED_TTL_S + SWEEP_S)
        world.restart()
        assert job not in world.leader.orphans.by_job


@pytest.mark.spec("L7")
def test_an_answer_that_waits_keeps_no_journal_from_being_tidied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaves_module, "JOURNAL_SLACK_BYTES", 0)
    with a_world() as world:
        claimed = answered_unasked(world)
        desk, worker = world.client(), world.worker("v", credit=1)
        for _ in range(100):
            job = desk.submit()
            desk.gets_receipt(job)
            worker.gets(job)
            worker.acks(job)
            worker.credit(1)
            desk.takes(ev.SendResult)
            desk.confirms(job)
        world.wait(3600.0)
        assert len(world.journal) < 50
        world.restart()
        assert claimed in world.leader.orphans.by_job


@pytest.mark.spec("L4", "L7")
def test_an_answer_outside_the_patterns_of_its_worker_is_refused_by_the_next_leader_too() -> None:
    with a_world() as world:
        job = world.new_job()
        thief = world.worker("thief", "job.assign.public.>", holds=False)
        thief.holds(finished=[job])
        thief.acks(job, b"forged")
        world.restart()
        desk, other = world.client(), world.worker("other", "job.assign.secret", credit=1)
        desk.submit("secret", job=job)
        desk.gets_receipt(job)
        other.gets(job)


SECRET, PUBLIC = "job.assign.secret", "job.assign.public"


def thieves(world: World, job: JobId, count: int, *, answer: bool, alike: bool = True) -> None:
    """Workers of other patterns, which say that they run a job that nobody has submitted yet."""
    for number in range(count):
        thief = world.worker(f"thief{number}", PUBLIC if alike else f"{PUBLIC}.{number}", holds=False)
        thief.holds(running=[job])
        if answer:
            thief.acks(job, b"forged")


def submitted(world: World, job: JobId, refused: int) -> ClientEnd:
    """Another worker could run it, too. Returns its client."""
    other, desk = world.worker("other", SECRET, credit=1), world.client()
    desk.submit("secret", job=job)
    for _ in range(refused):
        world.complains("outside its patterns")
    desk.gets_receipt(job)
    other.gets_nothing()
    return desk


@pytest.mark.spec("L4")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("count", [1, CLAIMANTS_MAX])
def test_a_claim_of_other_patterns_displaces_no_honest_one(count: int, answer: bool, alike: bool, first: bool) -> None:
    if first and not alike:
        count = min(count, CLAIMANTS_MAX - 1)
    with a_world() as world:
        job = job_id(77)
        honest = world.worker("honest", SECRET, holds=False)
        if first:
            honest.holds(running=[job])
        thieves(world, job, count, answer=answer, alike=alike)
        if not first:
            honest.holds(running=[job])
        kept = len(world.leader.orphans.by_job[job].claimants) + len(world.leader.orphans.by_job[job].answers)
        desk = submitted(world, job, kept - 1)
        honest.acks(job, b"honest")
        desk.gets_result(job, b"honest")
        world.nothing_else()


@pytest.mark.spec("L4", "L7")
@pytest.mark.parametrize("restarts", [0, 1, 2])
@pytest.mark.parametrize("count", [1, CLAIMANTS_MAX, 2 * CLAIMANTS_MAX])
@pytest.mark.parametrize("first", [True, False])
def test_an_answer_of_other_patterns_displaces_no_honest_one(first: bool, count: int, restarts: int) -> None:
    with a_world() as world:
        job = job_id(77)

        def is_answered() -> None:
            honest = world.worker("honest", SECRET, holds=False)
            honest.holds(finished=[job])
            honest.acks(job, b"honest", blobs=("a" * 64,))

        if first:
            is_answered()
        thieves(world, job, count, answer=True)
        if not first:
            is_answered()
        for _ in range(restarts):
            world.restart()
        assert len(world.leader.orphans.by_job[job].answers) == min(count + 1, CLAIMANTS_MAX)
        refused = 0 if first or restarts else min(count, CLAIMANTS_MAX - 1)
        desk = submitted(world, job, refused)
        desk.gets_result(job, b"honest")
        assert job not in world.leader.orphans.by_job
        world.nothing_else()


@pytest.mark.spec("L4")
def test_an_answer_that_is_none_leaves_the_job_to_a_worker_that_still_runs_it() -> None:
    with a_world() as world:
        job = job_id(77)
        for name in ("a", "b"):
            world.worker(name, SECRET, holds=False).holds(running=[job])
        lost, runs = (end for end in world.ends.values() if isinstance(end, WorkerEnd))
        lost.fails(job, "worker-lost", b"")
        desk = submitted(world, job, 0)
        runs.acks(job, b"honest")
        desk.gets_result(job, b"honest")
        world.nothing_else()
