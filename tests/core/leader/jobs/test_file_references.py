"""Which blobs are still needed: from a job's submit to the day when its result is forgotten."""

from __future__ import annotations

import msgspec
import pytest
from tests.kit.leader_world import World, a_world, job_id, subject

from wakugumi.core.ids import ClientId, JobId, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.journal.entries import KeepJob, KeepResult, KeepWhole
from wakugumi.core.leader.questions import AskCancel, AskDrop, AskRequeue
from wakugumi.core.requirements import Requirements
from wakugumi.limits.journal import JOURNAL_SLACK_BYTES
from wakugumi.limits.leader import KEPT_RESULT_TTL_S, SWEEP_S, UNDELIVERED_TTL_S

INPUT, ARCHIVE, OTHER = "a" * 64, "b" * 64, "c" * 64
NAMES = Requirements(files=(INPUT, "cache:data"))


def ended(world: World) -> None:
    """All results are as old as they get."""
    world.wait(KEPT_RESULT_TTL_S + 2 * SWEEP_S)


@pytest.mark.spec("C5")
def test_a_jobs_inputs_are_held_from_its_submit_to_its_result() -> None:
    with a_world() as world:
        desk = world.client()
        (job,) = desk.submits(1, requirements=NAMES)
        assert all(map(world.leader.holds, NAMES.files))
        worker = world.worker("w", credit=1, blobs=True)
        worker.gets(job)
        assert world.leader.holds(INPUT)
        worker.acks(job)
        desk.gets_result(job)
        assert not any(map(world.leader.holds, NAMES.files))
        assert not world.freed, "an input may be the next job's, and goes by its age"


def test_a_blob_that_two_jobs_name_is_held_until_both_are_done() -> None:
    with a_world() as world:
        desk = world.client()
        first, second = desk.submits(2, requirements=NAMES)
        desk.cancels(first)
        desk.gets_failure(first, "cancelled")
        assert world.leader.holds(INPUT)
        desk.cancels(second)
        desk.gets_failure(second, "cancelled")
        assert not world.leader.holds(INPUT)


@pytest.mark.spec("C5", "L9")
def test_a_results_blobs_are_held_until_it_is_forgotten_and_freed_then() -> None:
    with a_world() as world:
        desk = world.client()
        worker = world.worker("w", credit=1, blobs=True)
        (job,) = desk.submits(1)
        worker.gets(job)
        worker.acks(job, blobs=(ARCHIVE, OTHER))
        desk.gets_result(job)
        desk.confirms(job)
        world.wait(KEPT_RESULT_TTL_S / 2)
        assert world.leader.holds(ARCHIVE)
        ended(world)
        assert not world.leader.holds(ARCHIVE)
        assert world.freed == [ARCHIVE, OTHER]


def delivered(world: World, *blobs: str, output: bytes = b"output") -> JobId:
    desk, worker = world.client(), world.worker("w", credit=1, blobs=True)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.acks(job, output, blobs=blobs)
    desk.gets_result(job, output)
    desk.confirms(job)
    for end in (desk, worker):
        end.leaves()
    return job


@pytest.mark.spec("C5", "L9")
def test_a_delivered_results_blobs_stay_their_time_though_it_is_pushed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.leader.jobs.results.KEPT_BYTES_MAX", 448 + 300)
    with a_world() as world:
        first = delivered(world, ARCHIVE)
        world.wait(KEPT_RESULT_TTL_S / 2)
        delivered(world, OTHER, output=b"x" * 200)
        assert first not in world.leader.jobs
        world.wait(KEPT_RESULT_TTL_S / 2 - 1)
        assert world.leader.holds(ARCHIVE)
        assert not world.freed
        world.wait(2 * SWEEP_S)
        assert world.freed == [ARCHIVE]
        ended(world)
        assert world.freed == [ARCHIVE, OTHER]


def test_blobs_of_results_that_were_pushed_out_are_bounded_and_the_oldest_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wakugumi.core.leader.jobs.results.KEPT_BYTES_MAX", 448 + 100)
    monkeypatch.setattr("wakugumi.core.leader.jobs.file_references.KEPT_RESULTS_MAX", 2)
    with a_world() as world:
        for blob in (ARCHIVE, OTHER, INPUT, ARCHIVE, ARCHIVE):
            delivered(world, blob)
        assert world.freed == [OTHER], "the first has come again since"
        delivered(world)
        delivered(world)
        assert world.freed == [OTHER, INPUT]


def test_blobs_of_results_that_were_pushed_out_go_when_the_disk_is_low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.leader.jobs.results.KEPT_BYTES_MAX", 448 + 100)
    with a_world() as world:
        delivered(world, ARCHIVE)
        delivered(world, OTHER)
        assert not world.freed
        world.hear(ev.DiskLow(True))
        assert sorted(world.freed) == [ARCHIVE, OTHER]


def test_a_result_that_a_user_wants_forgotten_gives_its_blobs_up_at_once() -> None:
    with a_world() as world:
        job = delivered(world, ARCHIVE)
        world.ask(AskCancel(jobs=[show_job_id(job)], forget=True))
        assert world.freed == [ARCHIVE]


def test_a_result_that_nobody_fetches_gives_its_blobs_up_after_a_day() -> None:
    with a_world() as world:
        desk = world.client()
        worker = world.worker("w", credit=1, blobs=True)
        (job,) = desk.submits(1)
        worker.gets(job)
        desk.leaves()
        worker.acks(job, blobs=(ARCHIVE,))
        world.wait(UNDELIVERED_TTL_S / 2)
        assert world.leader.holds(ARCHIVE)
        world.wait(UNDELIVERED_TTL_S)
        assert world.freed == [ARCHIVE]


def test_what_another_job_needs_is_not_freed_with_a_result() -> None:
    with a_world() as world:
        desk = world.client()
        worker = world.worker("w", credit=1, blobs=True)
        (job,) = desk.submits(1)
        worker.gets(job)
        worker.acks(job, blobs=(ARCHIVE,))
        desk.gets_result(job)
        (later,) = desk.submits(1, requirements=Requirements(files=(ARCHIVE,)))
        world.ask(AskCancel(jobs=[show_job_id(job)], forget=True))
        assert job not in world.leader.jobs
        assert world.leader.holds(ARCHIVE)
        assert not world.freed
        desk.cancels(later)
        desk.gets_failure(later, "cancelled")


def test_a_failed_job_that_is_submitted_again_gives_up_the_blobs_of_its_failure() -> None:
    with a_world() as world:
        desk = world.client()
        worker = world.worker("w", credit=1, blobs=True)
        (job,) = desk.submits(1, requirements=NAMES)
        worker.gets(job)
        worker.fails(job, blobs=(ARCHIVE,))
        desk.gets_result(job)
        assert world.leader.holds(ARCHIVE)
        desk.submit(job=job, requirements=NAMES)
        desk.gets_receipt(job)
        assert world.freed == [ARCHIVE]
        assert world.leader.holds(INPUT)


def dead_job(world: World) -> JobId:
    desk = world.client()
    worker = world.worker("w", credit=1, blobs=True)
    (job,) = desk.submits(1, requirements=NAMES)
    worker.gets(job)
    worker.fails(job, "worker-error")
    desk.gets_failure(job, "dead")
    desk.confirms(job)
    return job


def test_a_dead_letter_holds_its_inputs_until_it_is_dropped() -> None:
    with a_world(attempts_max=1) as world:
        dead_job(world)
        ended(world)
        assert world.leader.holds(INPUT)
        world.ask(AskDrop())
        assert not world.leader.holds(INPUT)


def test_a_requeued_job_holds_its_inputs_once() -> None:
    with a_world(attempts_max=1) as world:
        job = dead_job(world)
        world.ask(AskRequeue())
        assert world.leader.holds(INPUT)
        world.ask(AskCancel(jobs=[show_job_id(job)]))
        assert not world.leader.holds(INPUT)


def test_a_result_that_nobody_submitted_here_holds_its_blobs_until_someone_does() -> None:
    with a_world(keeps=False) as world:
        worker = world.worker("w", holds=False, blobs=True)
        job = world.new_job()
        worker.holds(finished=[job])
        worker.acks(job, blobs=(ARCHIVE,))
        assert world.leader.holds(ARCHIVE)
        desk = world.client()
        desk.submit(job=job)
        desk.gets_receipt(job)
        desk.gets_result(job)
        assert world.leader.holds(ARCHIVE)
        desk.confirms(job)
        ended(world)
        assert world.freed == [ARCHIVE]


@pytest.mark.spec("L9")
def test_jobs_that_name_very_many_files_fill_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.leader.admission.QUEUE_FILES_MAX", 20)
    many = Requirements(files=tuple(f"{number:064}" for number in range(14)))
    with a_world() as world:
        desk = world.client()
        first, _ = desk.submits(2, requirements=many)
        refused = desk.submit(requirements=many)
        desk.gets_refusal(refused, "full")
        desk.cancels(first)
        desk.gets_failure(first, "cancelled")
        desk.submits(1, requirements=NAMES)


@pytest.mark.spec("L7", "C5")
def test_holds_survive_the_leader() -> None:
    with a_world(attempts_max=1) as world:
        dead_job(world)
        desk = world.client("other")
        worker = world.worker("v", credit=1, blobs=True)
        (done,) = desk.submits(1)
        worker.gets(done)
        worker.acks(done, blobs=(ARCHIVE,))
        desk.gets_result(done)
        desk.submits(1, requirements=Requirements(files=(OTHER,)))
        world.restart()
        assert all(map(world.leader.holds, (INPUT, "cache:data", ARCHIVE, OTHER)))


def test_holds_survive_being_moved_in_the_journal() -> None:
    with a_world() as world:
        desk = world.client()
        worker = world.worker("w", credit=1, blobs=True)
        (job,) = desk.submits(1)
        worker.gets(job)
        worker.acks(job, blobs=(ARCHIVE,))
        desk.gets_result(job)
        first = world.leader.jobs[job].leaf
        while world.leader.jobs[job].leaf == first:
            worker.credit(1)
            large = desk.submit(payload=b"x" * (JOURNAL_SLACK_BYTES // 8))
            desk.gets_receipt(large)
            worker.gets(large)
            worker.acks(large)
            desk.gets_result(large)
            desk.confirms(large)
            world.ask(AskCancel(jobs=[show_job_id(large)], forget=True))
            world.wait(SWEEP_S)
        world.restart()
        assert world.leader.holds(ARCHIVE)


@pytest.mark.spec("L7")
def test_a_journal_from_before_there_were_blobs_is_read() -> None:
    client, job = ClientId("desk"), job_id(1)
    records = [
        (KeepJob(job, client, 1, subject("calc"), "calc", 1.0, 0, b"request", Requirements("k", 1, 2)), 1),
        (KeepResult(job, True, "ok", b"output"), 1),
        (
            KeepWhole(
                job, client, 1, subject("a"), "a", 1.0, 0, 0.0, (), None, 5, b"request", True, b"output", True, False
            ),
            1,
        ),
    ]
    for record, new_fields in records:
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(record))
        old = msgspec.msgpack.encode(fields[:-new_fields])
        assert msgspec.msgpack.decode(old, type=type(record)) == record
    requirements = msgspec.msgpack.decode(msgspec.msgpack.encode(Requirements("k", 1, 2)))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(requirements[:3]), type=Requirements) == Requirements(
        "k", 1, 2
    )
