"""What clients may do and what holds them back, as scripts: caps, and a cancel that comes late."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world

from wakugumi.core.leader import events as ev
from wakugumi.limits.leader import KEPT_RESULT_TTL_S, REATTACH_GRACE_S, SWEEP_S
from wakugumi.limits.wire import HEARTBEAT_S, SILENCE_MAX_S


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


# Clients and their caps.


@pytest.mark.spec("L5")
def test_a_client_above_its_cap_waits_and_blocks_nobody(world: World) -> None:
    desk, other, worker = world.client("desk", cap=2), world.client("other"), world.worker("w", credit=9)
    jobs = desk.submits(4)
    worker.gets(*jobs[:2])
    (job,) = other.submits(1)
    worker.gets(job)
    worker.acks(jobs[0])
    desk.gets_result(jobs[0])
    worker.gets(jobs[2])


@pytest.mark.spec("L5")
@pytest.mark.parametrize("how", ["cancel", "lost", "failed"])
def test_a_place_under_the_cap_comes_free_however_an_attempt_ends(world: World, how: str) -> None:
    desk, worker = world.client(cap=1), world.worker("w", credit=9)
    one, two = desk.submits(2)
    worker.gets(one)
    if how == "cancel":
        desk.cancels(one)
        desk.gets_failure(one, "cancelled")
        worker.gets_cancel(one)
        worker.gets(two)
    elif how == "failed":
        worker.fails(one, "worker-error")
        worker.gets(two)
    else:
        worker.leaves()
        world.wait(REATTACH_GRACE_S)
        world.worker("v", credit=9).gets(one)  # it comes back at the head of the queue


@pytest.mark.spec("L5", "K2")
def test_a_client_may_declare_another_cap_and_what_waits_under_it_goes_on(world: World) -> None:
    desk, worker = world.client(cap=1), world.worker("w", credit=9)
    a, b, c = desk.submits(3)
    worker.gets(a)
    world.hear(ev.CapChanged(desk.conn, 2))
    worker.gets(b)
    world.hear(ev.CapChanged(desk.conn, 1))
    worker.acks(a)
    desk.gets_result(a)
    worker.gets_nothing()
    worker.acks(b)
    desk.gets_result(b)
    worker.gets(c)


def test_the_largest_cap_of_a_clients_connections_holds_also_when_one_changes(world: World) -> None:
    worker = world.worker("w", credit=9)
    one, _other = world.client(cap=1), world.client(cap=2)
    a, b, _c = one.submits(3)
    worker.gets(a, b)
    world.hear(ev.CapChanged(one.conn, 1))
    assert world.leader.clients.by_id[one.id].cap == 2


@pytest.mark.spec("F5", "L5")
def test_several_connections_share_the_cap_of_their_client(world: World) -> None:
    worker = world.worker("w", credit=9)
    one, other = world.client(cap=1), world.client(cap=2)
    a, b = one.submits(2)
    (c,) = other.submits(1)
    worker.gets(a, b)
    other.leaves()  # and with it the larger cap
    worker.acks(a)
    one.gets_result(a)
    worker.gets_nothing()
    third = world.client(cap=3)
    worker.gets(c)
    worker.acks(b)
    one.gets_result(b)
    worker.acks(c)
    third.gets_nothing()


@pytest.mark.spec("L5")
def test_the_jobs_of_a_client_that_is_away_go_on(world: World) -> None:
    desk, worker = world.client(cap=1), world.worker("w", credit=9)
    one, two = desk.submits(2)
    worker.gets(one)
    desk.leaves()
    worker.acks(one)
    worker.gets(two)


def test_a_client_without_jobs_is_forgotten_when_it_leaves(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=9)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.acks(job)
    desk.gets_result(job)
    desk.confirms(job)
    desk.leaves()
    assert not world.leader.clients.by_id


def test_a_silent_client_that_wanted_heartbeats_is_hung_up_on_once(world: World) -> None:
    desk, quiet = world.client(heartbeats=True), world.client("quiet")
    world.wait(3 * SILENCE_MAX_S)
    desk.falls_silent()
    world.wait(SILENCE_MAX_S + HEARTBEAT_S)
    desk.is_closed()
    world.wait(SILENCE_MAX_S)
    quiet.gets_nothing()


def test_there_are_not_more_clients_than_can_be_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.leader.clients.CLIENTS_MAX", 2)
    one, _ = world.client("one"), world.client("two")
    three = world.client("three", old=True)
    three.is_closed()
    three.submit()
    world.complains("only clients")
    world.client("one").leaves()
    one.leaves()
    world.client("three")


# Cancel.


@pytest.mark.spec("L10")
def test_an_old_worker_that_never_answers_for_a_cancelled_job_is_not_held_to_it_for_ever(world: World) -> None:
    desk, worker = world.client(), world.worker("w", old=True, credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    desk.confirms(job)
    (known,) = world.leader.roster
    assert list(known.jobs) == [job]
    world.wait(KEPT_RESULT_TTL_S + SWEEP_S + HEARTBEAT_S)
    assert not known.jobs


@pytest.mark.spec("L6", "L10")
@pytest.mark.parametrize("where", ["queued", "elsewhere", "there again"])
def test_the_echo_of_a_cancel_does_not_end_the_job_that_was_opened_again(world: World, where: str) -> None:
    desk, worker, other = world.client(), world.worker("w", credit=1), world.worker("other")
    (job,) = desk.submits(1)
    worker.gets(job)
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    worker.gets_cancel(job)
    desk.confirms(job)
    if where != "queued":
        (other if where == "elsewhere" else worker).credit(1)
    desk.submit(job=job)
    desk.gets_receipt(job)
    if where != "queued":
        (other if where == "elsewhere" else worker).gets(job)
    worker.fails(job, "cancelled")
    if where != "elsewhere":
        other.credit(1)
        other.gets(job)
    other.acks(job)
    desk.gets_result(job)
    if where == "there again":
        assert world.status().redelivered == 1


@pytest.mark.spec("L6", "F9")
def test_a_repeated_request_gets_a_receipt_for_a_result_that_waits_to_be_sent(world: World) -> None:
    """The result is sent once for both requests: only the receipt says that it answers the second one, too."""
    worker, one, other = world.worker("w", credit=1), world.client(), world.client()
    (job,) = one.submits(1)
    other.claims(job)
    other.gets_receipt(job)
    worker.gets(job)
    one.blocks()
    worker.acks(job)
    other.gets_result(job)
    other.confirms(job)
    one.claims(job)
    one.gets_receipt(job)
    one.unblocks()
    one.gets_result(job)
    one.claims(job)
    one.gets_result(job)  # A delivered result is not promised.
