"""Workers that are lost, come back, outlive their leader, are drained or leave, as scripts (SPEC L4, L10)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world

from wakugumi.core.leader import events as ev
from wakugumi.limits.leader import REATTACH_GRACE_S
from wakugumi.limits.wire import HEARTBEAT_S, HELLO_DEADLINE_S


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


# Lost workers.


@pytest.mark.spec("L4")
def test_a_lost_old_worker_gives_its_jobs_back_at_once(world: World) -> None:
    desk, worker, other = world.client(), world.worker("w", old=True, credit=2), world.worker("other")
    one, two, three = desk.submits(3)
    worker.gets(one, two)
    other.credit(2)
    other.gets(three)
    worker.leaves()
    other.gets(one)
    other.credit(1)
    other.gets(two)


@pytest.mark.spec("L4")
def test_a_lost_worker_that_may_reattach_has_two_seconds(world: World) -> None:
    desk, worker, other = world.client(), world.worker("w", credit=1), world.worker("other")
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.leaves()
    other.credit(1)
    world.wait(REATTACH_GRACE_S - 0.1)
    other.gets_nothing()
    world.wait(0.1)
    other.gets(job)
    assert world.status().redelivered == 1


@pytest.mark.spec("L4")
def test_a_worker_that_comes_back_in_time_keeps_what_it_still_runs(world: World) -> None:
    desk, worker, other = world.client(), world.worker("w", credit=3), world.worker("other")
    running, finished, lost = desk.submits(3)
    worker.gets(running, finished, lost)
    worker.leaves()
    other.credit(3)
    world.wait(1)
    again = world.worker("w", holds=False)
    other.gets_nothing()
    again.holds(running=[running], finished=[finished])
    other.gets(lost)
    again.acks(finished)
    desk.gets_result(finished)
    world.wait(60)
    again.acks(running)
    desk.gets_result(running)
    assert world.status().redelivered == 1


@pytest.mark.spec("L4")
def test_a_worker_that_comes_back_as_an_old_one_has_lost_what_it_ran(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.leaves()
    again = world.worker("w", old=True, credit=1)
    again.gets(job)


@pytest.mark.spec("L4")
def test_a_worker_that_comes_back_too_late_keeps_what_nobody_took(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.leaves()
    world.wait(60)
    assert world.status().queued == 1
    again = world.worker("w", holds=False)
    again.holds(running=[job])
    again.credit(1)
    again.gets_nothing()
    again.acks(job)
    desk.gets_result(job)


@pytest.mark.spec("L3", "L4")
@pytest.mark.parametrize("the_first_one_wins", [True, False])
def test_of_two_workers_that_run_a_job_the_slower_one_is_cancelled(world: World, the_first_one_wins: bool) -> None:
    desk, worker, other = world.client(), world.worker("w", credit=1), world.worker("other")
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.leaves()
    other.credit(1)
    world.wait(60)
    other.gets(job)
    again = world.worker("w", holds=False)
    again.holds(running=[job])
    faster, slower = (again, other) if the_first_one_wins else (other, again)
    faster.acks(job)
    desk.gets_result(job)
    slower.gets_cancel(job)
    slower.fails(job, "cancelled")
    assert world.status().finished_ok == 1


@pytest.mark.spec("L4")
def test_a_job_that_was_requeued_and_taken_back_can_be_lost_again(world: World) -> None:
    desk = world.client()
    (job,) = desk.submits(1)
    worker = world.worker("w", credit=1)
    worker.gets(job)
    for _ in range(2):
        worker.leaves()
        world.wait(60)
        worker = world.worker("w", holds=False)
        worker.holds(running=[job])
    worker.leaves()
    world.wait(60)
    assert world.status().queued == 1
    worker = world.worker("w", credit=2)
    worker.gets(job)
    worker.gets_nothing()


@pytest.mark.spec("L4")
def test_a_worker_that_runs_a_job_that_is_done_is_told_to_stop(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=2)
    one, two = desk.submits(2)
    worker.gets(one, two)
    worker.leaves()
    desk.cancels(one, two)
    desk.gets_failure(one, "cancelled")
    desk.gets_failure(two, "cancelled")
    again = world.worker("w", holds=False)
    again.holds(running=[one], finished=[two])
    again.gets_cancel(one)
    again.acks(two)
    again.fails(one, "cancelled")


@pytest.mark.spec("L4")
def test_a_second_connection_of_the_same_worker_replaces_the_first(world: World) -> None:
    desk, half_open = world.client(), world.worker("w", credit=3)
    one, two = desk.submits(2)
    half_open.gets(one, two)
    again = world.worker("w", holds=False)
    half_open.is_closed()
    half_open.falls_silent()
    again.holds(running=[one])
    again.credit(1)
    again.gets(two)
    half_open.leaves()  # what ends it late means nothing any more
    half_open.credit(4)
    again.acks(one)
    desk.gets_result(one)
    assert world.status().workers == 1


@pytest.mark.spec("L4")
def test_a_second_connection_of_an_old_worker_has_none_of_its_jobs(world: World) -> None:
    desk, half_open = world.client(), world.worker("w", old=True, credit=1)
    (job,) = desk.submits(1)
    half_open.gets(job)
    again = world.worker("w", old=True)
    half_open.is_closed()
    again.credit(1)
    again.gets(job)


@pytest.mark.spec("L4")
@pytest.mark.parametrize("heartbeats", [True, False])
def test_a_worker_that_does_not_say_what_it_holds_is_hung_up_on(world: World, heartbeats: bool) -> None:
    desk, worker, other = world.client(), world.worker("w", credit=1), world.worker("other")
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.leaves()
    other.credit(1)
    again = world.worker("w", holds=False, heartbeats=heartbeats)
    world.wait(HELLO_DEADLINE_S)
    other.gets_nothing()
    world.wait(HEARTBEAT_S)
    again.is_closed()
    again.leaves()
    other.gets(job)


@pytest.mark.spec("L4")
def test_a_worker_that_comes_and_goes_does_not_keep_its_jobs_for_ever(world: World) -> None:
    desk, worker, other = world.client(), world.worker("w", credit=1), world.worker("other")
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.leaves()
    other.credit(1)
    for _ in range(3):
        world.wait(REATTACH_GRACE_S / 2)
        world.worker("w", holds=False).leaves()
    other.gets(job)


@pytest.mark.spec("L4", "S4")
def test_a_worker_of_one_group_that_dies_touches_no_other_group(world: World) -> None:
    desk = world.client()
    a, b = world.worker("a", "job.assign.a.>", credit=1, old=True), world.worker("b", "job.assign.b.>", credit=1)
    (one,), (two,) = desk.submits(1, "a.x"), desk.submits(1, "b.x")
    a.gets(one)
    b.gets(two)
    a.leaves()
    b.credit(1)
    b.gets_nothing()
    b.acks(two)
    desk.gets_result(two)


# Patterns of all workers together.


@pytest.mark.spec("O6")
def test_workers_whose_patterns_no_longer_fit_are_turned_away_and_others_are_not(world: World) -> None:
    world.leader.roster.tokens_max = 50
    many = "job.assign." + ".".join("abcdefgh" * 5)
    world.worker("a", many, credit=1)
    refused = world.worker("b", many.replace("a.b", "b.a"), old=True)
    assert "hint: use fewer or wider patterns" in refused.takes(ev.Close).why
    same = world.worker("c", many, credit=1)
    small = world.worker("d", "job.assign.x", credit=1)
    desk = world.client()
    (job,) = desk.submits(1, "x")
    small.gets(job)
    same.leaves()
    small.acks(job)
    desk.gets_result(job)


@pytest.mark.spec("O6")
def test_a_worker_with_few_tokens_is_let_in_however_many_the_others_have(world: World) -> None:
    world.leader.roster.tokens_max = 50
    world.worker("greedy", "job.assign." + ".".join("abcdefgh" * 5), credit=1)
    few = [world.worker(f"w{n}", f"job.assign.g{n}.>", f"job.assign.h{n}.>", credit=1) for n in range(9)]
    desk = world.client()
    for n, worker in enumerate(few):
        (job,) = desk.submits(1, f"h{n}.x")
        worker.gets(job)


# A worker claims only what it may be given: a job id alone proves nothing.


@pytest.mark.spec("L4", "O6")
def test_a_claim_outside_the_patterns_of_a_worker_is_refused_and_the_job_runs_where_it_belongs(world: World) -> None:
    desk, other = world.client(), world.worker("other", "job.assign.secret", credit=1)
    (job,) = desk.submits(1, "secret")
    other.gets(job)
    thief = world.worker("thief", "job.assign.public.>", holds=False)
    thief.holds(running=[job])
    world.complains("1 job", "outside its patterns")
    thief.acks(job, b"forged")
    world.complains("never given")
    other.acks(job)
    desk.gets_result(job)


@pytest.mark.spec("L4")
@pytest.mark.parametrize("kind", ["running", "finished"])
def test_a_claim_of_a_queued_job_outside_the_patterns_does_not_take_it(world: World, kind: str) -> None:
    desk = world.client()
    (job,) = desk.submits(1, "secret")
    thief = world.worker("thief", "job.assign.public.>", holds=False)
    thief.holds(**{kind: [job]})
    world.complains("outside its patterns")
    other = world.worker("other", "job.assign.secret", credit=1)
    other.gets(job)
    thief.acks(job, b"forged")
    world.complains("never given")
    other.acks(job)
    desk.gets_result(job)


@pytest.mark.spec("L4")
def test_what_this_leader_gave_to_a_worker_stays_its_own_under_other_patterns(world: World) -> None:
    desk, worker = world.client(), world.worker("w", "job.assign.calc", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.leaves()
    again = world.worker("w", "job.assign.other", holds=False)
    again.holds(running=[job])
    again.acks(job)
    desk.gets_result(job)


# Workers that leave.


@pytest.mark.spec("L10")
def test_a_worker_that_leaves_finishes_what_it_has(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=3)
    (one,) = desk.submits(1)
    worker.gets(one)
    worker.says_it_leaves()
    (two,) = desk.submits(1)
    worker.gets_nothing()
    worker.acks(one)
    desk.gets_result(one)
    worker.leaves()
    again = world.worker("w", credit=1)
    again.gets(two)


def test_a_worker_that_does_not_read_gets_nothing_until_it_does(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    worker.blocks()
    (job,) = desk.submits(1)
    worker.gets_nothing()
    worker.unblocks()
    worker.gets(job)


@pytest.mark.spec("S4")
def test_a_named_worker_is_addressed_alone_while_it_is_there(world: World) -> None:
    desk = world.client()
    anyone, box = world.worker("anyone", credit=5), world.worker("box1", ">", "job.assign.rack.box1", credit=1)
    first, second = desk.submits(2, "rack.box1")
    box.gets(first)
    anyone.gets_nothing()
    box.leaves()
    anyone.gets(second)
    world.wait(REATTACH_GRACE_S)
    anyone.gets(first)


@pytest.mark.spec("S4")
def test_a_job_that_waits_goes_to_the_machine_it_means_when_that_comes(world: World) -> None:
    desk, anyone = world.client(), world.worker("anyone")
    (job,) = desk.submits(1, "rack.box1")
    box = world.worker("box1", ">", "job.assign.rack.box1")
    anyone.credit(1)
    anyone.gets_nothing()
    box.credit(1)
    box.gets(job)
