"""One id, another request: a leader refuses it while it knows the job, and never tells the wrong result (SPEC L6)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.kit.leader_world import TIMEOUT_S, ClientEnd, WorkerEnd, World, a_world, subject

from wakugumi.core.ids import JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.jobs.broadcast import own_subject, part_id
from wakugumi.core.leader.journal.entries import KeepJob
from wakugumi.core.leader.questions import AskCancel
from wakugumi.limits.leader import BACKOFF_MAX_S

pytestmark = pytest.mark.spec("L6")

MONDAY, TUESDAY = b"m" * 16, b"t" * 16
STATES = ("queued", "running", "waits", "ok", "failed", "dead", "cancelled")


@pytest.fixture(params=[True, False], ids=["journal", "memory"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with a_world(attempts_max=2, keeps=request.param) as world:
        yield world


def brought_to(state: str, world: World) -> tuple[ClientEnd, WorkerEnd, JobId]:
    """A job that is in this state, and whose client has taken all that it was told."""
    desk, worker = world.client(), world.worker("w", credit=0 if state == "queued" else 1)
    job = desk.submit(payload=b"monday", retries=int(state == "waits"), request=MONDAY)
    desk.gets_receipt(job)
    if state != "queued":
        worker.gets(job)
    if state == "ok":
        worker.acks(job, b"result", request=MONDAY)
    elif state in {"failed", "waits"}:
        worker.fails(job, "timeout", b"result")
    elif state == "dead":
        worker.fails(job, "disk")
        world.wait(BACKOFF_MAX_S)
        worker.credit(1)
        worker.gets(job)
        worker.fails(job, "disk")
        desk.gets_failure(job, "dead")
    elif state == "cancelled":
        desk.cancels(job)
        worker.gets_cancel(job)
        desk.gets_failure(job, "cancelled")
    if state in {"ok", "failed"}:
        desk.gets_result(job, b"result")
    return desk, worker, job


@pytest.mark.parametrize("state", STATES)
def test_another_request_is_a_conflict_whatever_became_of_the_first(state: str, world: World) -> None:
    desk, _, job = brought_to(state, world)
    for payload in (b"tuesday", b"monday"):  # By what it is, and not by its bytes.
        desk.submit(job=job, payload=payload, request=TUESDAY)
        desk.gets_refusal(job, "conflict")
    world.nothing_else()


@pytest.mark.parametrize("state", STATES)
def test_it_is_one_after_the_leader_was_killed_too(state: str) -> None:
    with a_world(attempts_max=2) as world:
        _, _, job = brought_to(state, world)
        for _ in range(2):
            world.restart()
            desk = world.client()
            desk.submit(job=job, payload=b"tuesday", request=TUESDAY)
            desk.gets_refusal(job, "conflict")
            world.wait(3600.0)  # Meanwhile all that is still known is moved in the journal.
            if job not in world.leader.jobs:
                break


@pytest.mark.parametrize("state", ["queued", "running", "waits"])
def test_the_same_request_with_more_time_attaches(state: str, world: World) -> None:
    desk, worker, job = brought_to(state, world)
    desk.submit(job=job, payload=b"monday, with more time", request=MONDAY)
    desk.gets_receipt(job)
    if state != "running":
        worker.credit(1)
        world.wait(BACKOFF_MAX_S)
        assert worker.takes(ev.SendAssign).payload == b"monday"
    worker.acks(job, b"result", request=MONDAY)
    desk.gets_result(job, b"result")


def test_the_same_request_with_more_time_gets_the_kept_result(world: World) -> None:
    desk, _, job = brought_to("ok", world)
    desk.submit(job=job, payload=b"monday, with more time", request=MONDAY)
    desk.gets_receipt(job)
    desk.gets_result(job, b"result")


@pytest.mark.parametrize("state", ["failed", "dead", "cancelled"])
def test_what_failed_runs_again_with_more_time(state: str, world: World) -> None:
    desk, worker, job = brought_to(state, world)
    worker.credit(1)
    desk.submit(job=job, payload=b"monday, with more time", request=MONDAY)
    desk.gets_receipt(job)
    assert worker.takes(ev.SendAssign).payload == b"monday, with more time"


@pytest.mark.parametrize("state", ["queued", "running", "waits", "ok"])
def test_another_subject_is_the_same_request(state: str, world: World) -> None:
    desk, worker, job = brought_to(state, world)
    desk.submit("other", job=job, payload=b"monday", request=MONDAY)
    desk.gets_receipt(job)
    if state != "ok":
        if state != "running":
            worker.credit(1)
            world.wait(BACKOFF_MAX_S)
            worker.gets(job)
        worker.acks(job, b"result", request=MONDAY)
    desk.gets_result(job, b"result")


@pytest.mark.parametrize("state", ["failed", "dead", "cancelled"])
def test_what_failed_runs_again_where_it_was_sent_last(state: str, world: World) -> None:
    desk, _, job = brought_to(state, world)
    other = world.worker("other", "job.assign.other", credit=1)
    desk.submit("other", job=job, payload=b"monday", request=MONDAY)
    desk.gets_receipt(job)
    other.gets(job)
    world.nothing_else()


def test_a_job_of_an_older_journal_is_told_by_its_bytes() -> None:
    """Its records have no digest, as the version before this one wrote them."""
    with a_world() as world:
        job = world.new_job()
        new = KeepJob(job, world.client().id, 4, subject("calc"), "calc", TIMEOUT_S, 0, b"monday")
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(new))
        assert fields[-2:] == [0, b""]
        old = msgspec.msgpack.decode(msgspec.msgpack.encode(fields[:-1]), type=KeepJob)
        world.journal.write([old], world.now)
        world.restart()
        for _ in range(2):
            desk = world.client()
            desk.submit(job=job, payload=b"tuesday", request=TUESDAY)
            desk.gets_refusal(job, "conflict")
            desk.submit(job=job, payload=b"monday", request=MONDAY)
            desk.gets_receipt(job)
            world.wait(3600.0)
            world.restart()


def forgotten(world: World) -> tuple[ClientEnd, JobId]:
    """A job that its leader has forgotten, although its worker has the result: under its id another one is queued."""
    desk, worker, job = brought_to("ok", world)
    desk.confirms(job)
    world.ask(AskCancel(jobs=[str(job.hex())], forget=True))
    if job in world.leader.jobs:
        world.wait(3600.0)
    assert job not in world.leader.jobs
    worker.leaves()
    desk.submit(job=job, payload=b"tuesday", request=TUESDAY)
    desk.gets_receipt(job)
    return desk, job


@pytest.mark.parametrize("how", ["running", "finished"])
def test_a_worker_that_brings_the_result_of_another_request_is_not_believed(how: str, world: World) -> None:
    desk, job = forgotten(world)
    worker = world.worker("w", holds=False)
    worker.holds(**{how: [job]})
    worker.credit(1)
    worker.gets_nothing()
    worker.acks(job, b"monday's", request=MONDAY)
    worker.gets(job)
    worker.acks(job, b"tuesday's", request=TUESDAY)
    desk.gets_result(job, b"tuesday's")


def test_a_worker_that_does_not_say_of_which_request_its_result_is_is_believed(world: World) -> None:
    desk, job = forgotten(world)
    worker = world.worker("w", credit=1, old=True)
    worker.gets(job)
    worker.acks(job, b"result")
    desk.gets_result(job, b"result")


@pytest.mark.parametrize(("request_", "is_answer"), [(MONDAY, True), (TUESDAY, False), (b"", True)])
def test_what_a_worker_holds_answers_a_new_submit_only_if_it_is_of_that_request(
    world: World, request_: bytes, is_answer: bool
) -> None:
    job = world.new_job()
    worker = world.worker("w", holds=False)
    worker.holds(finished=[job])
    worker.acks(job, b"result", request=request_)
    worker.credit(1)
    desk = world.client()
    desk.submit(job=job, payload=b"monday", request=MONDAY)
    desk.gets_receipt(job)
    if is_answer:
        desk.gets_result(job, b"result")
    else:
        worker.gets(job)


def test_a_part_of_an_earlier_broadcast_is_not_the_answer_to_another_one(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    job = world.new_job()
    part = part_id(job, worker.id)
    known = ev.Submitted(desk.conn, part, own_subject(worker.id), "calc", TIMEOUT_S, b"monday", request=MONDAY)
    world.hear(known)
    desk.gets_receipt(part)
    worker.gets(part)
    again = (desk.conn, job, subject("calc"), "calc", TIMEOUT_S, b"tuesday")
    world.hear(ev.Submitted(*again, broadcast_s=60.0, request=TUESDAY))
    desk.gets_refusal(job, "conflict")


def test_a_broadcast_to_another_subject_is_another_one(world: World) -> None:
    """Its subject says who answers."""
    desk, job = world.client(), world.new_job()
    for word, is_same in (("calc", True), ("calc", True), ("other", False)):
        asked = (desk.conn, job, subject(word), "calc", TIMEOUT_S, b"monday")
        world.hear(ev.Submitted(*asked, broadcast_s=60.0, request=MONDAY))
        if is_same:
            desk.gets_receipt(job)
            desk.takes(ev.SendResult)
        else:
            desk.gets_refusal(job, "conflict")
