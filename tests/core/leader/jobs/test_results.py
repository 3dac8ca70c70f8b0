"""Results: who gets them, who gets them again, and how long they are kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import OUTPUT, ClientEnd, WorkerEnd, World, a_world, job_id

from wakugumi.core.ids import JobId, Verdict
from wakugumi.core.leader import records
from wakugumi.core.leader.jobs import results as delivery_module
from wakugumi.core.leader.journal.entries import ForgetJob
from wakugumi.core.leader.scheduling import lanes
from wakugumi.limits.leader import KEPT_RESULT_TTL_S, SWEEP_S, UNDELIVERED_BYTES_MAX, UNDELIVERED_TTL_S


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


def run(desk: ClientEnd, worker: WorkerEnd, *, ok: bool = True, output: bytes = OUTPUT) -> JobId:
    """One job from its submit to its ack; its result is still to be taken."""
    (job,) = desk.submits(1)
    worker.credit(1)
    worker.gets(job)
    worker.acks(job, output) if ok else worker.fails(job, output=output)
    return job


def forgotten(world: World) -> list[JobId]:
    return [record.job for record in world.kept if isinstance(record, ForgetJob)]


# To whom.


@pytest.mark.spec("F9")
def test_a_result_goes_to_the_connection_that_submitted(world: World) -> None:
    worker = world.worker("w")
    one, other = world.client(), world.client()
    job = run(one, worker)
    one.gets_result(job)
    other.gets_nothing()


@pytest.mark.spec("F9", "L6")
def test_a_result_goes_to_every_connection_that_waits_for_it(world: World) -> None:
    worker = world.worker("w")
    own, old, stranger = world.client(), world.client(old=True), world.client("stranger")
    (job,) = own.submits(1)
    old.submit(job=job)
    stranger.claims(job)
    stranger.gets_receipt(job)
    worker.credit(1)
    worker.gets(job)
    worker.acks(job)
    for end in (own, old, stranger):
        end.gets_result(job)


@pytest.mark.spec("F9")
def test_an_old_client_gets_its_results_when_it_says_hello_again(world: World) -> None:
    worker, desk = world.worker("w"), world.client(old=True)
    done, running = desk.submits(2)
    worker.credit(2)
    worker.gets(done, running)
    desk.leaves()
    worker.acks(done)
    again = world.client(old=True)
    again.gets_result(done)
    worker.acks(running)
    again.gets_result(running)
    again.leaves()
    world.client(old=True).gets_nothing()  # written is delivered


@pytest.mark.spec("F9")
def test_a_hello_does_not_take_a_result_from_the_connection_that_waits_for_it(world: World) -> None:
    worker, desk = world.worker("w"), world.client()
    job = run(desk, worker)
    desk.gets_result(job)
    world.client(old=True).gets_nothing()
    desk.leaves()
    world.client(old=True).gets_result(job)


@pytest.mark.spec("F9")
def test_an_own_client_gets_its_results_when_it_submits_again_until_it_confirms(world: World) -> None:
    worker, desk = world.worker("w"), world.client()
    job = run(desk, worker)
    desk.gets_result(job)
    for _ in range(2):
        desk.leaves()
        desk = world.client()
        desk.gets_nothing()
        desk.submit(job=job)
        desk.gets_receipt(job)
        desk.gets_result(job)
    desk.confirms(job)
    assert len(world.leader.clients.results.undelivered) == 0


@pytest.mark.spec("F9")
def test_an_own_client_that_reconnects_attaches_to_what_still_runs(world: World) -> None:
    worker, desk = world.worker("w", credit=1), world.client()
    (job,) = desk.submits(1)
    worker.gets(job)
    desk.leaves()
    again = world.client()
    again.submit(job=job)
    again.gets_receipt(job)
    worker.acks(job)
    again.gets_result(job)


@pytest.mark.spec("F9")
def test_a_claim_attaches_gets_a_result_or_is_refused(world: World) -> None:
    worker, desk, other = world.worker("w"), world.client(), world.client("other")
    done = run(desk, worker)
    desk.gets_result(done)
    (queued,) = desk.submits(1)
    other.claims(done, queued, job_id(77))
    other.gets_receipt(done, queued)
    other.gets_result(done)
    other.gets_refusal(job_id(77), "unknown-job")
    worker.credit(1)
    worker.gets(queued)
    worker.acks(queued)
    desk.gets_result(queued)
    other.gets_result(queued)


@pytest.mark.spec("F9", "L6")
def test_results_wait_for_a_client_that_is_away(world: World) -> None:
    worker, desk = world.worker("w", credit=1), world.client()
    (job,) = desk.submits(1)
    worker.gets(job)
    desk.leaves()
    worker.acks(job)
    world.wait(UNDELIVERED_TTL_S - 60)
    again = world.client()
    again.submit(job=job)
    again.gets_receipt(job)
    again.gets_result(job)


def test_confirming_twice_or_too_early_or_what_is_unknown_does_no_harm(world: World) -> None:
    worker, desk = world.worker("w", credit=1), world.client()
    (job,) = desk.submits(1)
    worker.gets(job)
    desk.confirms(job, job_id(77))
    worker.acks(job)
    desk.gets_result(job)
    desk.confirms(job, job)
    desk.confirms(job)


# What a repeated submit gets.


@pytest.mark.spec("L6")
def test_a_job_that_finished_ok_is_answered_from_what_is_kept(world: World) -> None:
    worker, desk = world.worker("w"), world.client()
    job = run(desk, worker)
    desk.gets_result(job)
    desk.confirms(job)
    for end in (desk, world.client("other")):
        end.submit(job=job)
        end.gets_result(job)  # and no receipt: it is not kept for them
    old = world.client("old", old=True)
    old.submit(job=job)
    old.gets_result(job)
    worker.credit(1)
    worker.gets_nothing()


@pytest.mark.spec("L6")
def test_a_job_that_failed_runs_again_when_it_is_submitted_again(world: World) -> None:
    worker, desk = world.worker("w"), world.client()
    job = run(desk, worker, ok=False)
    desk.gets_result(job)
    desk.confirms(job)
    desk.submit(job=job)
    desk.gets_receipt(job)
    worker.credit(1)
    worker.gets(job)
    worker.acks(job, b"better")
    desk.gets_result(job, b"better")
    assert [line for line in world.story(job) if "began" in line] == ["attempt 1 began on worker w"]


@pytest.mark.spec("L6", "F9")
def test_a_failure_that_was_not_delivered_goes_to_whoever_asks_for_it(world: World) -> None:
    worker, desk = world.worker("w"), world.client()
    job = run(desk, worker, ok=False)
    desk.gets_result(job)
    desk.leaves()
    again = world.client()
    again.claims(job)
    again.gets_receipt(job)
    again.gets_result(job)
    worker.credit(1)
    worker.gets_nothing()


@pytest.mark.spec("L6")
def test_a_failure_that_was_not_delivered_runs_again_when_it_is_submitted_again(world: World) -> None:
    worker, desk = world.worker("w"), world.client()
    job = run(desk, worker, ok=False)
    desk.gets_result(job)
    desk.leaves()
    again = world.client()
    again.submit(job=job)
    again.gets_receipt(job)
    worker.credit(1)
    worker.gets(job)
    worker.acks(job)
    again.gets_result(job)
    again.confirms(job)
    assert not world.leader.clients.results.undelivered


@pytest.mark.spec("F9")
def test_a_result_is_not_delivered_by_the_word_of_someone_who_did_not_wait_for_it(world: World) -> None:
    worker, desk, stranger = world.worker("w"), world.client(), world.client("stranger")
    job = run(desk, worker)
    desk.gets_result(job)
    stranger.confirms(job)
    assert job in world.leader.clients.results.undelivered
    desk.confirms(job)
    assert job not in world.leader.clients.results.undelivered


@pytest.mark.spec("L6")
def test_the_old_record_of_a_job_that_was_opened_again_takes_nothing_with_it(world: World) -> None:
    worker, desk = world.worker("w"), world.client()
    job = run(desk, worker, ok=False)
    desk.gets_result(job)
    desk.confirms(job)
    world.wait(KEPT_RESULT_TTL_S / 2)
    desk.submit(job=job)
    desk.gets_receipt(job)
    world.wait(KEPT_RESULT_TTL_S)
    assert forgotten(world) == []
    worker.credit(1)
    worker.gets(job)
    worker.acks(job)
    desk.gets_result(job)


# How long.


@pytest.mark.spec("L6")
def test_a_delivered_result_is_kept_for_its_time(world: World) -> None:
    worker, desk = world.worker("w"), world.client()
    job = run(desk, worker)
    desk.gets_result(job)
    desk.confirms(job)
    world.wait(KEPT_RESULT_TTL_S - 1)
    desk.submit(job=job)
    desk.gets_result(job)
    world.wait(1 + SWEEP_S)
    assert forgotten(world) == [job]
    desk.submit(job=job)
    desk.gets_receipt(job)
    worker.credit(1)
    worker.gets(job)


@pytest.mark.spec("L6")
def test_a_result_that_nobody_fetched_for_a_day_is_dropped(world: World) -> None:
    worker, desk = world.worker("w"), world.client()
    job = run(desk, worker)
    desk.gets_result(job)
    desk.leaves()
    world.wait(UNDELIVERED_TTL_S - SWEEP_S)
    assert forgotten(world) == []
    world.wait(3 * SWEEP_S)
    assert forgotten(world) == [job]
    assert not world.leader.clients.by_id
    assert not world.leader.jobs


@pytest.mark.spec("L6")
def test_not_more_results_are_kept_than_may_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "KEPT_RESULTS_MAX", 3)
    worker, desk = world.worker("w"), world.client()
    jobs = []
    for _ in range(5):
        jobs.append(run(desk, worker))
        desk.gets_result(jobs[-1])
        desk.confirms(jobs[-1])
    assert forgotten(world) == jobs[:2]
    assert list(world.leader.jobs) == jobs[2:]


@pytest.mark.spec("L6")
def test_not_more_bytes_of_results_are_kept_than_may_be(world: World) -> None:
    world.leader.clients.results.kept_bytes_max = 2 * 448 + 1_000
    worker, desk = world.worker("w"), world.client()
    small = run(desk, worker, output=bytes(300))
    desk.gets_result(small, bytes(300))
    desk.confirms(small)
    large = run(desk, worker, output=bytes(700))
    desk.gets_result(large, bytes(700))
    assert forgotten(world) == []  # not delivered, so it is not one of those that are only kept
    desk.confirms(large)
    assert forgotten(world) == [small]


@pytest.mark.spec("L9")
def test_a_client_that_does_not_take_its_results_waits_with_the_rest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (records, lanes):
        monkeypatch.setattr(module, "UNDELIVERED_BYTES_PER_CLIENT_MAX", 1_000)
    worker, desk, other = world.worker("w"), world.client(), world.client("other")
    job = run(desk, worker, output=bytes(1_000))
    desk.gets_result(job, bytes(1_000))
    (waits,) = desk.submits(1)
    (passes,) = other.submits(1)
    worker.credit(9)
    worker.gets(passes)
    desk.confirms(job)
    worker.gets(waits)


# Clients that do not read.


@pytest.mark.spec("F9")
@pytest.mark.parametrize("old", [False, True])
def test_results_wait_while_a_client_does_not_read(world: World, old: bool) -> None:
    worker, desk = world.worker("w"), world.client(old=old)
    desk.blocks()
    one, two = run(desk, worker), run(desk, worker, ok=False)
    desk.gets_nothing()
    desk.unblocks()
    desk.gets_result(one)
    desk.gets_result(two)
    desk.unblocks()


@pytest.mark.spec("F9")
def test_an_old_client_that_never_read_again_gets_its_results_at_its_next_hello(world: World) -> None:
    worker, desk = world.worker("w"), world.client(old=True)
    desk.blocks()
    job = run(desk, worker)
    desk.leaves()
    world.client(old=True).gets_result(job)


@pytest.mark.spec("F9")
def test_a_client_that_did_not_read_while_the_job_was_opened_again_gets_the_new_result(world: World) -> None:
    worker, desk, other = world.worker("w"), world.client(), world.client()
    (job,) = desk.submits(1)
    other.submit(job=job)
    other.gets_receipt(job)
    desk.blocks()
    worker.credit(2)
    worker.gets(job)
    worker.fails(job)
    other.gets_result(job)
    other.confirms(job)
    other.submit(job=job)
    other.gets_receipt(job)
    worker.gets(job)
    desk.unblocks()
    desk.gets_nothing()
    worker.acks(job, b"better")
    other.gets_result(job, b"better")
    desk.gets_result(job, b"better")


@pytest.mark.spec("F9", "F11")
@pytest.mark.parametrize("old", [False, True])
def test_a_client_that_did_not_read_until_its_result_was_forgotten_is_told(world: World, old: bool) -> None:
    worker, desk, other = world.worker("w"), world.client(old=old), world.client()
    (job,) = desk.submits(1)
    other.submit(job=job)
    other.gets_receipt(job)
    desk.blocks()
    worker.credit(1)
    worker.gets(job)
    worker.acks(job)
    other.gets_result(job)
    other.confirms(job)
    world.wait(KEPT_RESULT_TTL_S + SWEEP_S)
    desk.unblocks()
    desk.gets_failure(job, "expired") if old else desk.gets_refusal(job, "expired")


def test_a_verdict_costs_its_text_and_a_result_its_bytes() -> None:
    assert delivery_module.size_of(None) == 0
    assert delivery_module.size_of(b"") > 0
    assert delivery_module.size_of(bytes(1_000)) - delivery_module.size_of(b"") == 1_000
    assert delivery_module.size_of(Verdict("dead", "x" * 100)) - delivery_module.size_of(Verdict("dead", "")) == 100


@pytest.mark.spec("L9")
def test_results_that_nobody_fetches_hold_everyone_back_in_the_end(world: World) -> None:
    worker, desk, other = world.worker("w"), world.client(), world.client("other")
    job = run(desk, worker)
    desk.gets_result(job)
    world.leader.clients.undelivered_bytes_max = 1
    late = other.submit()
    other.gets_refusal(late, "full")
    desk.confirms(job)
    waiting = other.submit()
    other.gets_receipt(waiting)
    world.leader.clients.undelivered_bytes_max = 0
    worker.credit(1)
    worker.gets_nothing()
    assert "nothing is assigned while 0 results of 0 bytes wait to be fetched by their clients" in world.reasons(
        waiting
    )
    world.leader.clients.undelivered_bytes_max = UNDELIVERED_BYTES_MAX
    world.wait(SWEEP_S)
    worker.gets(waiting)


def test_no_records_are_made_where_nobody_keeps_them() -> None:
    with a_world(keeps=False) as world:
        worker, desk = world.worker("w"), world.client()
        job = run(desk, worker)
        desk.gets_result(job)
        desk.confirms(job)
        world.wait(KEPT_RESULT_TTL_S + SWEEP_S)
        assert list(world.kept) == []


def test_that_a_job_was_cancelled_is_told_once_and_is_no_answer_to_who_asks_later(world: World) -> None:
    """It may have been submitted again since, over a connection that was lost: then the submit has to follow."""
    desk = world.client()
    (job,) = desk.submits(1)
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    desk.claims(job)
    desk.gets_receipt(job)
    desk.gets_failure(job, "cancelled")
    desk.confirms(job)
    desk.claims(job)
    desk.gets_refusal(job, "unknown-job")
    desk.submit(job=job)
    desk.gets_receipt(job)
    world.worker("w", credit=1).gets(job)
