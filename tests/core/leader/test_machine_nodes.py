"""Workers that stand for nodes known by address: what they take, give back, and are asked for again (SPEC G1, G4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world

from wakugumi.core.backoff import POLICIES, Policies
from wakugumi.core.leader import events as ev
from wakugumi.core.requirements import Requirements
from wakugumi.limits.leader import SWEEP_S
from wakugumi.limits.scheduling import LOOK_AHEAD_MAX

SIMPLE = Requirements(simple=True)
UNNAMED = Requirements(simple=True, unnamed=True)


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


# What they take.


@pytest.mark.spec("G1")
def test_a_node_gets_simple_jobs_and_the_others_wait_for_a_worker(world: World) -> None:
    desk, node = world.client(), world.worker("node", credit=9, is_node=True)
    first, simple, last = desk.submits(1)[0], desk.submits(1, requirements=SIMPLE)[0], desk.submits(1)[0]
    node.gets(simple)
    assert "known by address cannot be told it" in world.reasons(first)[0]
    worker = world.worker("worker", credit=9)
    worker.gets(first, last)


@pytest.mark.spec("G1", "L2")
def test_workers_and_nodes_are_one_roster(world: World) -> None:
    desk = world.client()
    node, worker = world.worker("node", credit=2, is_node=True), world.worker("worker", credit=3)
    jobs = desk.submits(5, requirements=SIMPLE)
    assert [len(worker.gets_some()), len(node.gets_some())] == [3, 2]
    assert len(jobs) == 5


def test_a_simple_job_that_comes_later_passes_those_that_no_node_can_be_told(world: World) -> None:
    desk, other = world.client(), world.client("other")
    waiting = desk.submits(3)
    node = world.worker("node", credit=1, is_node=True)
    (simple,) = other.submits(1, requirements=SIMPLE)
    node.gets(simple)
    (own,) = desk.submits(1, requirements=SIMPLE)
    node.credit(1)
    node.gets(own)
    world.worker("worker", credit=3).gets(*waiting)


@pytest.mark.spec("G1")
@pytest.mark.parametrize("many", [Requirements(), Requirements(priority=1), None])
def test_any_number_of_jobs_that_no_node_can_be_told_lets_a_simple_one_pass(
    world: World, many: Requirements | None
) -> None:
    desk = world.client(cap=1000)
    waiting = desk.submits(3 * LOOK_AHEAD_MAX, requirements=many)
    node = world.worker("node", credit=2, is_node=True)
    simple = desk.submits(2, requirements=SIMPLE)
    node.gets(*simple)
    node.credit(1)
    others = desk.submits(2, requirements=many)
    (unnamed,) = desk.submits(1, requirements=UNNAMED)
    node.gets(unnamed)
    able = world.worker("worker", credit=1000)
    able.gets(*waiting, *others)


@pytest.mark.spec("G1")
def test_a_job_without_a_program_goes_only_where_there_is_one_for_it(world: World) -> None:
    desk, plain = world.client(), world.worker("plain", credit=9)
    (job,) = desk.submits(1, requirements=Requirements(unnamed=True))
    assert "names no program" in world.reasons(job)[0]
    (named,) = desk.submits(1)
    plain.gets(named)
    able = world.worker("able", credit=1, runs_unnamed=True)
    able.gets(job)
    (again,) = desk.submits(1, requirements=UNNAMED)
    assert "without free credit" in world.reasons(again)[0]
    world.worker("node", credit=1, is_node=True).gets(again)


@pytest.mark.spec("U8", "F4")
@pytest.mark.parametrize(
    "requirements", [Requirements(env=True), Requirements("k", 3, env=True), Requirements(simple=True, env=True)]
)
def test_a_job_that_sets_variables_waits_for_a_worker_that_knows_of_them(
    world: World, requirements: Requirements
) -> None:
    desk = world.client()
    world.worker("old", old=True, credit=9)
    world.worker("earlier", credit=9)
    world.worker("node", credit=9, is_node=True)
    (job,) = desk.submits(1, requirements=requirements)
    assert "none knows of them" in world.reasons(job)[0]
    world.worker("able", credit=1, env=True).gets(job)


@pytest.mark.spec("U8", "F4")
def test_only_workers_that_do_not_know_variables_are_said_not_to(world: World) -> None:
    desk, node = world.client(), world.worker("node", credit=9, is_node=True)
    world.hear(ev.Described(node.conn, True, True))
    for number in range(2):
        world.worker(f"earlier{number}", credit=9)
    (job,) = desk.submits(1, requirements=Requirements(env=True))
    (reason,) = world.reasons(job)
    assert "1 matching node known by address cannot be told it" in reason
    assert reason.endswith("it sets variables (--env), which 2 matching workers cannot do")


@pytest.mark.spec("U8")
def test_a_node_that_takes_variables_is_known_by_what_was_found_out(world: World) -> None:
    desk, node = world.client(), world.worker("node", is_node=True, credit=1)
    (job,) = desk.submits(1, requirements=Requirements(simple=True, env=True))
    world.hear(ev.Described(node.conn, True, True))
    node.gets(job)


@pytest.mark.spec("U8")
def test_jobs_that_set_variables_do_not_hold_up_any_number_of_others(world: World) -> None:
    desk, plain = world.client(cap=1000), world.worker("plain")
    waiting = desk.submits(3 * LOOK_AHEAD_MAX, requirements=Requirements(env=True))
    others = desk.submits(2)
    plain.credit(2)
    plain.gets(*others)
    world.worker("able", credit=1000, env=True).gets(*waiting)


def test_large_jobs_and_broadcasts_are_not_for_nodes(world: World) -> None:
    desk, node = world.client(), world.worker("node", credit=9, is_node=True)
    (large,) = desk.submits(1, requirements=Requirements(slots=2))
    assert "known by address cannot be told it" in world.reasons(large)[0]
    assert world.leader.roster.audience(world.leader.jobs[large].subject) == []
    node.gets_nothing()
    desk.cancels(large)
    desk.gets_failure(large, "cancelled")


@pytest.mark.spec("G4", "L2")
def test_where_workers_take_turns_each_has_as_many_as_its_weight_and_they_are_mixed() -> None:
    with a_world(policies=Policies(POLICIES["round-robin"])) as world:
        desk = world.client()
        ends = {name: world.worker(name, credit=100, is_node=name != "w", weight=weight)
                for name, weight in {"a": 3, "b": 2, "w": 1}.items()}  # fmt: skip
        order = ""
        for _ in range(60):
            (job,) = desk.submits(1, requirements=SIMPLE)
            worker = world.leader.jobs[job].worker
            assert worker is not None
            order += worker.label
            ends[worker.label].gets(job)
        assert Counter(order) == {"a": 30, "b": 20, "w": 10}
        assert all(abs(order[at : at + 6].count("a") - 3) <= 1 for at in range(54)), "nobody has them all at once"


@pytest.mark.spec("G4", "L2")
@pytest.mark.parametrize("also", ["light", "other", "third"])
def test_weights_hold_beside_the_traffic_of_other_subjects(also: str) -> None:
    """`also` has further jobs: one of the two, one that shares nothing with them, or one that could take theirs."""
    with a_world(policies=Policies(POLICIES["round-robin"])) as world:
        desk = world.client(cap=10_000)
        patterns = {"heavy": ["calc"], "light": ["calc"]}
        patterns[also] = ["draw"] if also == "other" else ["calc", "draw"]
        for name, words in patterns.items():
            mine = [f"job.assign.{word}" for word in words]
            world.worker(name, *mine, credit=1000, weight=3 if name == "heavy" else 1)
        ran: Counter[str] = Counter()
        for number in range(200):
            jobs = desk.submits(1)
            if also != "light" or not number % 8:
                jobs += desk.submits(1 if also == "light" else 5, "draw")
            ran.update(world.leader.jobs[job].worker.label for job in jobs)  # type: ignore[union-attr]
        assert abs(ran["heavy"] - 3 * ran["light"]) <= 8, ran
        _take_all(world)


@pytest.mark.spec("G4", "L2")
def test_a_worker_that_had_no_credit_for_a_while_does_not_make_up_for_its_turns() -> None:
    with a_world(policies=Policies(POLICIES["round-robin"])) as world:
        desk = world.client(cap=10_000)
        world.worker("a", credit=100)
        late = world.worker("b")
        desk.submits(50)
        late.credit(50)
        order = [world.leader.jobs[job].worker.label for job in desk.submits(10)]  # type: ignore[union-attr]
        assert abs(order.count("a") - 5) <= 1, order
        _take_all(world)


@pytest.mark.spec("L2")
def test_a_worker_that_did_much_elsewhere_takes_its_turns_again_soon() -> None:
    with a_world(policies=Policies(POLICIES["round-robin"])) as world:
        desk = world.client(cap=10_000)
        world.worker("a", "job.assign.calc", credit=500, heartbeats=False)
        world.worker("b", "job.assign.calc", "job.assign.draw", credit=500, heartbeats=False)
        desk.submits(300, "draw")
        world.wait(SWEEP_S)
        order = [world.leader.jobs[job].worker.label for job in desk.submits(10)]  # type: ignore[union-attr]
        assert abs(order.count("a") - 5) <= 1, order
        _take_all(world)


def _take_all(world: World) -> None:
    for end in world.ends.values():
        end.inbox.clear()


# What they give back.


@pytest.mark.spec("G1")
def test_a_declined_job_is_no_attempt_keeps_its_place_and_its_credit_is_spent(world: World) -> None:
    desk, node = world.client(), world.worker("node", credit=1, is_node=True)
    first, second = desk.submits(2, requirements=SIMPLE)
    node.gets(first)
    node.declines(first)
    node.gets_nothing()
    assert world.leader.jobs[first].attempts == 0
    other = world.worker("other", credit=1, is_node=True)
    other.gets(first)
    node.credit(1)
    node.gets(second)
    assert world.leader.lifecycle.counts.redelivered == 0
    assert world.story(first)[1:] == ["attempt 1 began on worker other, still running"]


def test_what_it_never_had_or_nobody_wants_any_more_cannot_be_declined(world: World) -> None:
    desk, node, other = world.client(), world.worker("node", credit=1, is_node=True), world.worker("other", credit=1)
    first, second = desk.submits(2, requirements=SIMPLE)
    (theirs,) = other.gets_some()
    (mine,) = node.gets_some()
    assert {mine, theirs} == {first, second}
    node.declines(theirs)
    desk.cancels(mine)
    desk.gets_failure(mine, "cancelled")
    node.gets_cancel(mine)
    node.declines(mine)
    other.acks(theirs)
    desk.gets_result(theirs)


@pytest.mark.spec("G4")
def test_one_that_rests_gets_nothing_until_it_offers_credit_and_says_why(world: World) -> None:
    desk, node = world.client(), world.worker("node", credit=9, is_node=True)
    node.rests()
    (job,) = desk.submits(1, requirements=SIMPLE)
    assert world.reasons(job) == ["1 matching worker, all resting: node because it is on fire"]
    assert world.leader.roster.find("node").state == "resting"  # type: ignore[union-attr]
    node.rests("")
    assert "without free credit" in world.reasons(job)[0]
    node.credit(1)
    node.gets(job)


@pytest.mark.spec("L4")
def test_a_job_that_is_lost_with_its_node_goes_to_the_next_one_at_once(world: World) -> None:
    desk, node = world.client(), world.worker("node", credit=1, is_node=True)
    (job,) = desk.submits(1, requirements=SIMPLE)
    node.gets(job)
    other = world.worker("other", credit=1, is_node=True)
    node.fails(job, "worker-lost")
    other.gets(job)
    assert [attempt.outcome for attempt in world.leader.jobs[job].history] == ["worker-lost"]


# What they are asked for again.


@pytest.mark.spec("L4", "L7")
@pytest.mark.parametrize("in_memory", [True, False])
def test_what_a_node_had_when_the_leader_died_is_sent_to_it_again_and_to_nobody_else(in_memory: bool) -> None:
    with a_world(payload_memory_bytes=10**6 if in_memory else 0) as world:
        desk, node = world.client(), world.worker("node", credit=1, is_node=True)
        (job,) = desk.submits(1, requirements=SIMPLE)
        node.gets(job)
        world.restart()
        other = world.worker("other", credit=9, is_node=True)
        again = world.worker("node", holds=False, is_node=True)
        again.holds([job])
        again.gets(job)
        other.gets_nothing()
        assert world.leader.jobs[job].attempts == 1
        assert world.leader.roster.find("node").credit == 0  # type: ignore[union-attr]


def test_a_job_that_is_cancelled_while_it_is_read_again_gives_no_credit() -> None:
    with a_world(payload_memory_bytes=0) as world:
        desk, node = world.client(), world.worker("node", credit=1, is_node=True)
        (job,) = desk.submits(1, requirements=SIMPLE)
        node.gets(job)
        world.restart()
        world.reads_journal = False
        again = world.worker("node", holds=False, is_node=True)
        again.holds([job])
        desk = world.client()
        desk.cancels(job)
        again.gets_cancel(job)
        assert world.leader.roster.find("node").credit == 0  # type: ignore[union-attr]
        world.leader.check()


@pytest.mark.spec("L7")
def test_a_declined_job_is_no_attempt_for_the_next_leader_either(world: World) -> None:
    desk, node = world.client(), world.worker("node", credit=1, is_node=True)
    (job,) = desk.submits(1, requirements=SIMPLE)
    node.gets(job)
    node.declines(job)
    world.restart()
    assert world.leader.jobs[job].attempts == 0
    world.worker("node", credit=1, is_node=True).gets(job)
    assert world.leader.jobs[job].attempts == 1


def test_a_declined_job_has_its_place_among_priorities_too(world: World) -> None:
    desk, node = world.client(), world.worker("node", credit=1, is_node=True)
    (first,) = desk.submits(1, requirements=SIMPLE)
    node.gets(first)
    world.wait(15.0)
    (higher,) = desk.submits(1, requirements=Requirements(priority=1, simple=True))
    world.wait(15.0)
    node.declines(first)
    node.credit(1)
    node.gets(first)
    node.credit(1)
    node.gets(higher)


def test_credit_alone_ends_a_rest(world: World) -> None:
    desk, node = world.client(), world.worker("node", is_node=True)
    node.rests()
    (job,) = desk.submits(1, requirements=SIMPLE)
    node.credit(1)
    node.gets(job)
    assert world.leader.roster.find("node").state == "busy"  # type: ignore[union-attr]


def test_whoever_waits_for_one_that_is_able_is_looked_at_when_that_has_room(world: World) -> None:
    desk, plain, able = world.client(), world.worker("plain", credit=1), world.worker("able", runs_unnamed=True)
    (job,) = desk.submits(1, requirements=Requirements(unnamed=True))
    plain.gets_nothing()
    able.credit(1)
    able.gets(job)
