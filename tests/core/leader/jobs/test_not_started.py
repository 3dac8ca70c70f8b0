"""Jobs that a worker could not even start: who gets them then, and what that costs them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world

from wakugumi.core.ids import Tried
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.journal.recovery import keep_whole
from wakugumi.core.requirements import Requirements
from wakugumi.limits.leader import ATTEMPTS_MAX, RECOVERY_GRACE_S, RESTING_PATIENCE_S
from wakugumi.limits.scheduling import LOOK_AHEAD_MAX

pytestmark = pytest.mark.spec("W9")


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


@pytest.mark.parametrize("reason", ["disk", "worker-error", "unknown-program"])
def test_a_job_that_could_not_be_started_goes_to_another_worker_without_an_attempt(world: World, reason: str) -> None:
    desk, sick = world.client(), world.worker("sick", credit=8)
    (job,) = desk.submits(1)
    sick.gets(job)
    healthy = world.worker("healthy", credit=1)
    sick.turns_down(job, reason)
    healthy.gets(job)
    assert world.leader.jobs[job].history == ()
    assert world.leader.jobs[job].attempts == 1
    healthy.acks(job)
    desk.gets_result(job)


@pytest.mark.parametrize("reason", ["disk", "unknown-program"])
def test_it_waits_for_another_one_that_is_busy_and_others_pass_it(world: World, reason: str) -> None:
    desk, other, sick = world.client(), world.client("other"), world.worker("sick", credit=1)
    (job,) = desk.submits(1)
    sick.gets(job)
    busy = world.worker("busy")
    sick.turns_down(job, reason)
    sick.credit(2)
    sick.gets_nothing()
    assert world.reasons(job)[0] == "it waits for another worker: sick could not start it: no room"
    (second,), (third,) = desk.submits(1), other.submits(1)
    sick.gets(second, third)
    world.wait(60.0)
    busy.credit(1)
    busy.gets(job)


def test_two_sick_workers_cost_it_no_attempt_and_the_first_one_that_heals_gets_it(world: World) -> None:
    desk, left, right = world.client(), world.worker("left", credit=1), world.worker("right")
    (job,) = desk.submits(1)
    left.gets(job)
    left.rests("no room")
    left.knows_that_we_know()
    left.turns_down(job)
    right.credit(1)
    right.gets(job)
    right.rests("no room")
    right.knows_that_we_know()
    right.turns_down(job)
    world.wait(100.0)
    assert "all resting" in world.reasons(job)[-1]
    left.credit(1)
    left.gets(job)
    left.acks(job)
    desk.gets_result(job)


def test_the_second_time_on_the_same_worker_it_uses_an_attempt_so_it_ends(world: World) -> None:
    desk, sick = world.client(), world.worker("sick", credit=1)
    (job,) = desk.submits(1)
    for _ in range(ATTEMPTS_MAX + 1):
        sick.gets(job)
        sick.credit(1)
        sick.turns_down(job)
        world.wait(100.0)
    assert "5 attempts" in desk.gets_failure(job, "dead")
    assert [attempt.outcome for attempt in world.leader.clients.dead.letters[job].history] == ["disk"] * ATTEMPTS_MAX


def test_a_program_that_began_and_broke_its_machine_uses_an_attempt(world: World) -> None:
    desk, sick, _other = world.client(), world.worker("sick", credit=1), world.worker("other")
    (job,) = desk.submits(1)
    sick.gets(job)
    sick.fails(job, "disk")
    assert [attempt.outcome for attempt in world.leader.jobs[job].history] == ["disk"]


@pytest.mark.parametrize("reason", ["exit", "bad-name", "not-executable"])
def test_what_is_the_job_s_own_fault_is_its_answer_whatever_the_worker_says_besides(world: World, reason: str) -> None:
    desk, one, _other = world.client(), world.worker("one", credit=1), world.worker("other")
    (job,) = desk.submits(1)
    one.gets(job)
    one.turns_down(job, reason)
    desk.gets_result(job)


@pytest.mark.spec("F11")
def test_a_program_that_no_connected_worker_has_is_unknown_at_once(world: World) -> None:
    desk, left, right = world.client(), world.worker("left", credit=1), world.worker("right")
    world.worker("elsewhere", "job.assign.other", credit=9)
    (job,) = desk.submits(1)
    left.gets(job)
    left.fails(job, "unknown-program")  # As a worker of an earlier version says it.
    right.credit(1)
    right.gets(job)
    right.turns_down(job, "unknown-program")
    desk.gets_result(job)


@pytest.mark.spec("F11", "U8")
@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_variable_that_one_worker_refuses_may_be_allowed_by_another(world: World, is_allowed: bool) -> None:
    desk, strict, other = world.client(), world.worker("strict", credit=2), world.worker("other")
    (job,) = desk.submits(1)
    strict.gets(job)
    strict.fails(job, "env-refused")
    other.credit(1)
    other.gets(job)
    if is_allowed:
        other.acks(job)
    else:
        other.fails(job, "env-refused")
    desk.gets_result(job)


@pytest.mark.spec("F11")
def test_while_the_only_one_that_may_have_the_program_rests_the_job_is_not_given_up(world: World) -> None:
    desk, lacks, rests = world.client(), world.worker("lacks", credit=1), world.worker("rests")
    rests.rests("no room")
    rests.knows_that_we_know()
    (job,) = desk.submits(1)
    lacks.gets(job)
    lacks.credit(1)
    lacks.turns_down(job, "unknown-program")
    world.wait(10 * RESTING_PATIENCE_S)
    lacks.gets_nothing()
    rests.credit(1)
    rests.gets(job)
    rests.acks(job)
    desk.gets_result(job)


@pytest.mark.spec("F11")
def test_a_sick_worker_that_has_the_program_is_waited_for_also_if_it_was_tried_before(world: World) -> None:
    desk, has = world.client(), world.worker("has", credit=1)
    (job,) = desk.submits(1)
    has.gets(job)
    has.rests("no room")
    has.knows_that_we_know()
    has.turns_down(job)
    lacks = world.worker("lacks", credit=1)
    lacks.gets(job)
    lacks.credit(1)
    lacks.turns_down(job, "unknown-program")
    lacks.gets_nothing()
    has.credit(1)
    has.gets(job)
    has.acks(job)
    desk.gets_result(job)


def test_one_that_rests_is_not_waited_for_without_end(world: World) -> None:
    desk, sick, rests = world.client(), world.worker("sick", credit=1), world.worker("rests")
    rests.rests("no room")
    rests.knows_that_we_know()
    (job,) = desk.submits(1)
    sick.gets(job)
    sick.turns_down(job)
    sick.credit(1)
    world.wait(RESTING_PATIENCE_S - 1.0)
    sick.gets_nothing()
    world.wait(2.0)
    sick.gets(job)


@pytest.mark.spec("F11")
def test_if_the_one_that_it_waits_for_leaves_the_program_is_unknown(world: World) -> None:
    desk, lacks, busy = world.client(), world.worker("lacks", credit=1), world.worker("busy", old=True)
    (job,) = desk.submits(1)
    lacks.gets(job)
    lacks.credit(1)
    lacks.turns_down(job, "unknown-program")
    lacks.gets_nothing()
    busy.leaves()
    world.wait(RESTING_PATIENCE_S - 1.0)
    lacks.gets_nothing()
    world.wait(1.0)
    lacks.gets(job)
    lacks.turns_down(job, "unknown-program")
    desk.gets_result(job)


@pytest.mark.spec("F11", "L4")
@pytest.mark.parametrize("says_so", [False, True])
def test_while_the_one_that_has_the_program_connects_anew_no_job_is_given_up(world: World, says_so: bool) -> None:
    desk, has, lacks = world.client(), world.worker("has"), world.worker("lacks", credit=3)
    jobs = desk.submits(3)
    lacks.gets(*jobs)
    lacks.turns_down(jobs[0], "unknown-program")
    if says_so:
        world.hear(ev.Leaving(has.conn))
        lacks.turns_down(jobs[1], "unknown-program")
    has.leaves()
    for job in jobs[1 + says_so :]:
        lacks.turns_down(job, "unknown-program")
    lacks.credit(3)
    world.wait(RESTING_PATIENCE_S - 1.0)
    lacks.gets_nothing()
    again = world.worker("has", credit=3)
    assert sorted(again.gets_some()) == jobs


@pytest.mark.spec("F11", "L7")
def test_a_leader_that_is_started_anew_waits_for_the_worker_that_has_the_program(world: World) -> None:
    desk = world.client()
    first, second = desk.submits(2)
    world.restart()
    lacks = world.worker("lacks", credit=2)
    lacks.gets(first, second)
    lacks.turns_down(first, "unknown-program")
    lacks.turns_down(second, "unknown-program")
    lacks.credit(1)
    world.wait(RECOVERY_GRACE_S - 2.0)
    lacks.gets_nothing()
    has = world.worker("has", credit=1)
    (job,) = has.gets_some()
    has.acks(job)
    has.leaves()
    world.wait(RESTING_PATIENCE_S)
    (other,) = {first, second} - {job}
    lacks.gets(other)
    lacks.turns_down(other, "unknown-program")
    desk = world.client()
    desk.claims(other)
    desk.gets_receipt(other)
    desk.gets_result(other)


def test_one_that_was_sick_gets_it_again_once_if_all_others_stay_busy(world: World) -> None:
    desk, sick = world.client(), world.worker("sick", credit=1)
    (job,) = desk.submits(1)
    sick.gets(job)
    busy = world.worker("busy")
    sick.turns_down(job)
    sick.credit(1)
    world.wait(RESTING_PATIENCE_S - 1.0)
    sick.gets_nothing()
    world.wait(2.0)
    sick.gets(job)
    sick.turns_down(job)
    sick.credit(1)
    world.wait(20 * RESTING_PATIENCE_S)
    sick.gets_nothing()
    assert [attempt.outcome for attempt in world.leader.jobs[job].history] == ["disk"]
    busy.credit(1)
    busy.gets(job)
    busy.acks(job)
    desk.gets_result(job)


def test_jobs_that_the_same_workers_have_tried_are_alike_whoever_was_the_first(world: World) -> None:
    desk, left, right = world.client(), world.worker("left", credit=1), world.worker("right", credit=1)
    world.worker("busy")
    first, second = desk.submits(2)
    left.gets(first)
    right.gets(second)
    left.turns_down(first, "unknown-program")
    right.turns_down(second, "unknown-program")
    left.credit(1)
    left.gets(second)
    right.credit(1)
    right.gets(first)
    left.turns_down(second, "unknown-program")
    right.turns_down(first, "unknown-program")
    assert world.leader.lifecycle.tried[first] == world.leader.lifecycle.tried[second]


@pytest.mark.parametrize("count", [3, 3 * LOOK_AHEAD_MAX])
def test_those_that_no_longer_shun_a_worker_stand_as_they_stood(world: World, count: int) -> None:
    desk, other, sick = world.client(cap=1_000), world.client("other"), world.worker("sick", credit=count + 1)
    jobs = desk.submits(count)
    (its,) = other.submits(1)
    assert sorted(sick.gets_some()) == sorted([*jobs, its])
    busy = world.worker("busy")
    for job in reversed([*jobs, its]):
        sick.turns_down(job)
    sick.credit(1)
    (plain,) = desk.submits(1)
    sick.gets(plain)
    busy.leaves()
    sick.credit(count + 1)
    got = sick.gets_some()
    assert its in got
    assert [job for job in got if job != its] == jobs


def test_a_late_word_of_a_worker_that_lost_the_job_changes_nothing(world: World) -> None:
    desk, first = world.client(), world.worker("first", credit=1)
    (job,) = desk.submits(1)
    first.gets(job)
    first.leaves()
    second = world.worker("second", credit=1)
    world.wait(3.0)
    second.gets(job)
    again = world.worker("first")
    again.holds(finished=[job])
    again.turns_down(job, "unknown-program")
    second.acks(job)
    desk.gets_result(job)


def test_a_job_that_needs_several_slots_does_not_block_others_of_its_size(world: World) -> None:
    desk, sick = world.client(), world.worker("sick", credit=2, slots=2)
    first, second = desk.submits(2, requirements=Requirements(slots=2))
    sick.gets(first)
    world.worker("busy", slots=2)
    sick.turns_down(first)
    sick.credit(2)
    sick.gets(second)


def test_many_that_shun_a_worker_do_not_keep_its_credit_from_others(world: World) -> None:
    desk, sick = world.client(cap=1_000), world.worker("sick", credit=200)
    jobs = desk.submits(200)
    sick.gets(*jobs)
    busy = world.worker("busy")
    for job in jobs:
        sick.turns_down(job)
    plain = desk.submits(3)
    sick.credit(9)
    sick.gets(*plain)
    busy.credit(3)
    assert len(busy.gets_some()) == 3


@pytest.mark.spec("L7")
@pytest.mark.parametrize("moved", [False, True])
def test_a_leader_that_is_started_anew_knows_who_could_not_start_it(moved: bool) -> None:
    with a_world() as world:
        desk, sick = world.client(), world.worker("sick", credit=1)
        (job,) = desk.submits(1)
        sick.gets(job)
        sick.turns_down(job)
        if moved:
            keep_whole(world.leader.jobs[job], world.leader._out, world.leader.lifecycle, world.now)
            world.wait(10.0)
        world.restart()
        assert world.leader.lifecycle.tried == {job: Tried((sick.id,))}
        world.wait(1.0)
        again, other = world.worker("sick"), world.worker("other")
        again.credit(1)
        again.gets_nothing()
        other.credit(1)
        other.gets(job)


def test_what_was_assigned_to_one_that_rests_and_not_yet_sent_goes_to_another() -> None:
    with a_world(payload_memory_bytes=0) as world:
        world.reads_journal = False
        desk, sick = world.client(), world.worker("sick", credit=1)
        (job,) = desk.submits(1)
        healthy = world.worker("healthy", credit=1)
        sick.rests("no room")
        sick.knows_that_we_know()
        while world.loads:
            load = world.loads.pop(0)
            world.hear(world.journal.load(load.leaf, load.jobs))
        healthy.gets(job)
        sick.gets_nothing()


def test_the_credit_of_one_that_rests_is_void_and_it_hears_so_after_what_it_was_assigned(world: World) -> None:
    desk, sick = world.client(), world.worker("sick", credit=4)
    jobs = desk.submits(2)
    sick.rests("no room")
    sick.gets(*jobs)
    sick.knows_that_we_know()
    (third,) = desk.submits(1)
    sick.gets_nothing()
    sick.rests("")
    sick.gets_nothing()
    sick.credit(1)
    sick.gets(third)
