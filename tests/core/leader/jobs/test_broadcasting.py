"""A job for every worker that matches, and for each of them alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import TIMEOUT_S, ClientEnd, World, a_world, subject, worker_id

from wakugumi.core.ids import JobId, Verdict
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.jobs import broadcasting
from wakugumi.core.leader.jobs.broadcast import PARTS, own_subject, owner_of, part_id, read_list
from wakugumi.core.leader.jobs.states import JobState
from wakugumi.core.leader.questions import AskDrain, AskRequeue
from wakugumi.core.leader.records import JobRecord
from wakugumi.core.requirements import Requirements
from wakugumi.limits.leader import BROADCAST_DEADLINE_S, REATTACH_GRACE_S, RECOVERY_GRACE_S

pytestmark = pytest.mark.spec("S5")

WITHIN_S = 100.0


@pytest.fixture(params=[True, False], ids=["journal", "memory"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with a_world(keeps=request.param) as world:
        yield world


def broadcast(desk: ClientEnd, word: str = "calc", *, again: JobId | None = None) -> tuple[JobId, dict[str, JobId]]:
    """Its id, and the part of each worker by its name."""
    job = again or desk.world.new_job()
    desk.world.hear(ev.Submitted(desk.conn, job, subject(word), word, TIMEOUT_S, b"request", broadcast_s=WITHIN_S))
    if not again:
        desk.gets_receipt(job)
    result = desk.takes(ev.SendResult)
    assert result.job == job
    assert isinstance(result.result, Verdict)
    assert result.result.code == PARTS
    parts = {part.worker: JobId(bytes.fromhex(part.job)) for part in read_list(result.result.text)}
    desk.confirms(job)
    return job, parts


def claimed(desk: ClientEnd, word: str = "calc") -> dict[str, JobId]:
    _, parts = broadcast(desk, word)
    for part in parts.values():
        desk.claims(part)
        desk.gets_receipt(part)
    return parts


def test_every_worker_that_matches_runs_it_once_and_each_result_comes_by_itself(world: World) -> None:
    desk = world.client()
    a, b = world.worker("a", "job.assign.calc", credit=2), world.worker("b", credit=2)
    other = world.worker("other", "job.assign.risk", credit=2)
    parts = claimed(desk)
    assert list(parts) == ["a", "b"]
    a.gets(parts["a"])
    b.gets(parts["b"])
    b.acks(parts["b"])
    desk.gets_result(parts["b"])
    a.fails(parts["a"], "exit", b"failed")
    desk.gets_result(parts["a"], b"failed")
    other.gets_nothing()
    desk.confirms(*parts.values())
    assert world.status().queued == 0


def test_a_part_that_is_done_leaves_no_result_behind_until_its_deadline(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    for _ in range(200):
        parts = claimed(desk)
        worker.gets(parts["w"])
        worker.acks(parts["w"])
        desk.gets_result(parts["w"])
        desk.confirms(parts["w"])
        worker.credit(1)
    timers = world.leader.lifecycle.deadlines.timers
    assert not any(isinstance(field, JobRecord) for timer in timers for field in timer)
    assert len(timers) < 100


def test_a_worker_that_joins_later_is_not_included_and_takes_nobody_elses_part(world: World) -> None:
    desk, a = world.client(), world.worker("a")
    parts = claimed(desk)
    late = world.worker("late", credit=5)
    late.gets_nothing()
    a.credit(1)
    a.gets(parts["a"])


def test_a_part_waits_for_a_slot_of_its_own_worker_and_holds_up_no_other_job(world: World) -> None:
    desk, a, b = world.client(), world.worker("a", credit=1), world.worker("b", credit=1)
    first, second = desk.submits(2)
    a.gets(first)
    b.gets(second)
    parts = claimed(desk)
    (third,) = desk.submits(1)
    b.acks(second)
    desk.gets_result(second)
    b.credit(2)
    assert sorted(b.gets_some()) == sorted([parts["b"], third]), "whatever waits for a"
    a.gets_nothing()
    a.acks(first)
    desk.gets_result(first)
    a.credit(1)
    a.gets(parts["a"])


def test_a_worker_that_is_leaving_or_drained_is_not_asked(world: World) -> None:
    desk, a = world.client(), world.worker("a", credit=1)
    world.worker("drained", credit=1)
    world.worker("leaves", credit=1).says_it_leaves()
    world.ask(AskDrain("drained"))
    parts = claimed(desk)
    assert list(parts) == ["a"]
    a.gets(parts["a"])


def test_with_nobody_to_hear_it_the_list_is_empty(world: World) -> None:
    _, parts = broadcast(world.client())
    assert parts == {}


def test_a_broadcast_that_is_submitted_again_has_the_same_parts_and_runs_none_of_them_again(world: World) -> None:
    desk, a = world.client(), world.worker("a", credit=2)
    job, parts = broadcast(desk)
    a.gets(parts["a"])
    world.worker("late", credit=2)
    assert broadcast(desk, again=job) == (job, parts)
    a.gets_nothing()


def test_after_the_deadline_who_has_not_answered_is_silent_and_need_not_go_on(world: World) -> None:
    desk = world.client()
    runs, busy = world.worker("runs", credit=1), world.worker("busy")
    parts = claimed(desk)
    runs.gets(parts["runs"])
    world.wait(WITHIN_S - 1)
    desk.gets_nothing()
    world.wait(1)
    results = {desk.takes(ev.SendResult).job for _ in parts}
    assert results == set(parts.values())
    runs.gets_cancel(parts["runs"])
    busy.credit(1)
    busy.gets_nothing()


def test_a_part_whose_worker_lost_it_is_given_to_that_worker_again_and_to_nobody_else(world: World) -> None:
    desk, a, b = world.client(), world.worker("a", credit=1), world.worker("b", credit=3)
    parts = claimed(desk)
    a.gets(parts["a"])
    b.gets(parts["b"])
    a.leaves()
    world.wait(REATTACH_GRACE_S + 1)
    b.gets_nothing()
    back = world.worker("a", credit=1)
    back.gets(parts["a"])
    back.leaves()
    again = world.worker("a", holds=False)
    again.holds()
    again.credit(1)
    again.gets(parts["a"])
    b.gets_nothing()


def test_who_is_named_hears_it_at_its_address_alone(world: World) -> None:
    desk = world.client()
    named, other = world.worker("rack-1", "job.assign.calc.rack-1", ">", credit=1), world.worker("b", credit=1)
    parts = claimed(desk, "calc.rack-1")
    assert list(parts) == ["rack-1"]
    named.gets(parts["rack-1"])
    other.gets_nothing()


def test_a_request_that_is_too_large_for_so_many_is_refused_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcasting, "BROADCAST_BYTES_MAX", 13)
    desk = world.client()
    world.worker("a", credit=1)
    world.worker("b", credit=1)
    job = world.new_job()
    world.hear(ev.Submitted(desk.conn, job, subject("calc"), "calc", TIMEOUT_S, b"request", broadcast_s=WITHIN_S))
    desk.gets_refusal(job, "too-big")
    assert not world.leader.jobs


@pytest.mark.spec("L3")
def test_a_dead_part_that_is_requeued_has_a_deadline_again_and_can_be_explained(world: World) -> None:
    desk, first = world.client(), world.worker("a")
    parts = claimed(desk)
    first.leaves()
    for _ in range(5):
        worker = world.worker("a", credit=1)
        worker.gets(parts["a"])
        worker.leaves()
        world.wait(REATTACH_GRACE_S + 1)
    desk.gets_failure(parts["a"], "dead")
    world.ask(AskRequeue())
    assert "for a worker that is away; it is given up in 60 s" in world.reasons(parts["a"])[0]
    world.wait(BROADCAST_DEADLINE_S + 1)
    assert world.leader.jobs[parts["a"]].state is JobState.DONE


def test_a_worker_with_too_few_slots_is_not_called_silent(world: World) -> None:
    desk = world.client()
    world.worker("small", credit=1)
    job = world.new_job()
    event = ev.Submitted(
        desk.conn, job, subject("calc"), "calc", TIMEOUT_S, b"request", 0, Requirements(slots=4), WITHIN_S
    )
    world.hear(event)
    desk.gets_receipt(job)
    verdict = desk.takes(ev.SendResult).result
    assert isinstance(verdict, Verdict)
    (part,) = read_list(verdict.text)
    key = JobId(bytes.fromhex(part.job))
    desk.claims(key)
    desk.gets_receipt(key)
    assert desk.gets_failure(key, "bad-request").startswith("it needs 4 slots, and this worker has ")


def test_an_old_client_cannot_broadcast(world: World) -> None:
    old = world.client(old=True)
    job = world.new_job()
    world.hear(ev.Submitted(old.conn, job, subject("calc"), "calc", TIMEOUT_S, b"request", broadcast_s=WITHIN_S))
    old.gets_failure(job, "not-supported")
    assert not world.leader.jobs


@pytest.mark.spec("L7", "L4")
@pytest.mark.parametrize("held", [True, False])
def test_parts_outlive_their_leader_with_their_deadline(held: bool) -> None:
    with a_world() as world:
        desk, a = world.client(), world.worker("a", credit=1)
        world.worker("b")
        job, parts = broadcast(desk)
        a.gets(parts["a"])
        world.restart()
        other = world.worker("other", credit=5)
        back = world.worker("a", holds=False)
        back.holds(running=[parts["a"]] if held else [])
        back.credit(1)
        if not held:
            back.gets(parts["a"])
        desk = world.client()
        assert broadcast(desk, again=job) == (job, parts)
        desk.claims(*parts.values())
        desk.gets_receipt(*parts.values())
        back.acks(parts["a"])
        desk.gets_result(parts["a"])
        world.wait(max(WITHIN_S, RECOVERY_GRACE_S))
        desk.gets_failure(parts["b"], "silent")
        other.gets_nothing()


def test_a_worker_has_a_subject_that_nobody_else_has() -> None:
    subjects = {own_subject(worker_id(name)) for name in ("a", "b")}
    assert {owner_of(subject) for subject in subjects} == {worker_id("a"), worker_id("b")}
    assert owner_of(subject("calc")) is None
    assert part_id(JobId(bytes(16)), worker_id("a")) != part_id(JobId(bytes(16)), worker_id("b"))
