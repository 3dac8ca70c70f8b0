"""Which job is next: fair over subjects and over clients, and nobody who waits is overtaken for ever.

Jobs are told by short names: `a1` is client a's first job. One worker for everything hands out one credit at a time,
so that the order of assignments is the order of the queues.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.lane_queues import Queues, keyed
from tests.sim.turns import Turns

from wakugumi.core.backoff import parse_policies
from wakugumi.core.ids import ClientId
from wakugumi.core.leader.jobs.states import JobState
from wakugumi.core.leader.scheduling.turn_jobs import size
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import parse_subject, worker_patterns
from wakugumi.limits.leader import LANES_IDLE_MAX, UNDELIVERED_BYTES_PER_CLIENT_MAX
from wakugumi.limits.scheduling import (
    PRIORITY_AGE_S,
    PRIORITY_MAX,
)


@pytest.fixture
def queues() -> Queues:
    return Queues()


@pytest.mark.spec("L1")
def test_jobs_of_one_client_and_subject_go_first_in_first_out(queues: Queues) -> None:
    queues.push("a1 a2 a3")
    assert queues.assigned() == []
    assert queues.serve(queues.worker("w"), 9) == "a1 a2 a3"


@pytest.mark.spec("L1")
def test_subjects_take_turns_however_much_each_has(queues: Queues) -> None:
    queues.push("a1 a2 a3 a4 a5", "x")
    queues.push("a6", "y")
    queues.push("a7 a8", "z")
    worker = queues.worker("w")
    assert queues.serve(worker, 9) == "a1 a6 a7 a2 a8 a3 a4 a5"


@pytest.mark.spec("L1")
def test_subjects_take_turns_also_when_credit_comes_piece_by_piece(queues: Queues) -> None:
    queues.push("a1 a2 a3", "x")
    queues.push("a4 a5 a6", "y")
    queues.push("a7 a8 a9", "z")
    worker = queues.worker("w")
    assert [queues.serve(worker, credit) for credit in (1, 1, 2, 1, 3, 1)] == [
        "a1", "a4", "a7 a2", "a5", "a8 a3 a6", "a9"
    ]  # fmt: skip


@pytest.mark.spec("L1")
def test_clients_take_turns_inside_a_subject(queues: Queues) -> None:
    queues.push("a1 a2 a3 a4")
    queues.push("b1 b2")
    queues.push("c1")
    worker = queues.worker("w")
    assert [queues.serve(worker, credit) for credit in (2, 1, 9)] == ["a1 b1", "c1", "a2 b2 a3 a4"]


@pytest.mark.spec("L1")
def test_who_comes_later_waits_one_round_and_no_longer(queues: Queues) -> None:
    queues.push("a1 a2 a3 a4 b1 b2 b3 b4")
    worker = queues.worker("w")
    assert queues.serve(worker, 3) == "a1 b1 a2"
    queues.push("c1 c2")
    assert queues.serve(worker, 9) == "b2 a3 c1 b3 a4 c2 b4"


@pytest.mark.spec("L1")
def test_a_subject_that_gets_one_fresh_job_each_turn_does_not_starve_one_that_waits(queues: Queues) -> None:
    worker = queues.worker("w")
    queues.push("w1 w2 w3 w4", "waits")
    assert queues.assigned() == []
    served = []
    for turn in range(1, 5):
        queues.push(f"f{turn}", "fresh")
        served.append(queues.serve(worker))
    assert served == ["w1", "f1", "w2", "f2"]


@pytest.mark.spec("L1")
def test_a_client_that_gets_room_does_not_cost_its_subject_the_place_in_which_it_waits(queues: Queues) -> None:
    worker = queues.worker("w")
    queues.client("c", cap=1)
    queues.push("c1 c2 c3", "x")
    assert queues.serve(worker) == "c1"
    queues.push("a1 a2", "x")
    queues.push("b1 b2 b3 b4", "y")
    assert queues.assigned() == []  # x waits before y
    queues.finish("c1")
    assert queues.serve(worker) == "a1"
    assert queues.serve(worker, 4) == "b1 a2 b2 c2"


@pytest.mark.spec("L1")
def test_a_new_pattern_does_not_cost_a_subject_the_place_in_which_it_waits(queues: Queues) -> None:
    worker = queues.worker("w")
    queues.push("a1", "x")
    queues.push("b1", "y")
    assert queues.assigned() == []
    queues.worker("v", "job.assign.x")
    assert queues.serve(worker) == "a1"


@pytest.mark.spec("L1")
@pytest.mark.parametrize(
    "patterns", [("job.assign.x", "job.assign.y"), ("job.assign.y", "job.assign.x"), (">", "job.>")]
)
def test_subjects_take_turns_over_all_patterns_of_a_worker(queues: Queues, patterns: tuple[str, ...]) -> None:
    worker = queues.worker("w", *patterns)
    queues.push("a1 a2 a3 a4", "x")
    assert queues.serve(worker) == "a1"
    queues.push("b1 b2", "y")
    assert [queues.serve(worker) for _ in range(5)] == ["a2", "b1", "a3", "b2", "a4"]


@pytest.mark.spec("L1", "F5")
def test_what_stands_below_a_bare_word_takes_turns_with_the_word_itself(queues: Queues) -> None:
    worker = queues.worker("w", *worker_patterns("g"))
    queues.push("a1 a2 a3", "g")
    queues.push("b1 b2", "g.x")
    assert [queues.serve(worker) for _ in range(5)] == ["a1", "b1", "a2", "b2", "a3"]


@pytest.mark.spec("L1", "S4")
def test_an_address_that_comes_and_goes_does_not_cost_a_subject_its_place(queues: Queues) -> None:
    """While it is there, it alone serves its subject; then all others do again."""
    worker = queues.worker("w")
    queues.push("a1", "g.v")
    queues.push("b1", "y")
    assert queues.assigned() == []
    queues.lose(queues.worker("v", "job.assign.g.v"))
    assert [queues.serve(worker) for _ in range(2)] == ["a1", "b1"]


@pytest.mark.spec("L1", "L2")
def test_a_subject_that_also_waits_for_a_home_goes_behind_those_that_wait_when_it_was_served(sticky: Queues) -> None:
    """x has credit at v that it cannot use, because all its jobs are at home at w; y is served by w alone."""
    w, v = sticky.worker("w", "job.assign.x", "job.assign.y"), sticky.worker("v", "job.assign.x")
    sticky.push("a1 a2 a3 a4", "x", requirements=keyed(sticky, w, subject=parse_subject("job.assign.x")))
    sticky.push("b1 b2 b3", "y")
    sticky.give(v, 1)
    assert sticky.assigned() == []
    assert [sticky.serve(w) for _ in range(6)] == ["a1", "b1", "a2", "b2", "a3", "b3"]


PATTERNS = ["job.assign.x", "job.assign.y", "job.assign.z", "job.assign.*", "job.assign.x.>", "job.>", "*.*.x.y", ">"]


LANES = ["x", "y", "z", "x.y", "x.z", "z.z"]


@pytest.mark.spec("L1", "S4")
@settings(max_examples=300)
@given(
    heard=st.lists(st.sets(st.sampled_from(PATTERNS), min_size=1, max_size=4), min_size=1, max_size=4),
    script=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99)), min_size=5, max_size=80),
)
def test_no_subject_is_served_twice_by_a_worker_for_which_another_one_waits(
    heard: list[set[str]], script: list[tuple[int, int]]
) -> None:
    queues = Queues()
    Turns(queues.lanes, lambda _, what: pytest.fail(what))
    workers = [queues.worker(f"w{at}", *sorted(patterns)) for at, patterns in enumerate(heard)]
    for number, (what, x) in enumerate(script):
        if what <= 1:
            queues.push(" ".join(f"{'ab'[x % 2]}{number}.{copy}" for copy in range(1 + x % 7)), LANES[x % len(LANES)])
        elif what <= 4:
            queues.give(workers[x % len(workers)], 1 + x % 3 // 2)
        else:
            queues.lose(workers[at := x % len(workers)])
            address = f"job.assign.{'xz'[x % 2]}.z"  # of the one that is called so: it alone serves that subject
            named = [it for it in workers if it.name == "z" and it.conn is not None]
            workers[at] = queues.worker(f"v{number}" if named else "z", address, *sorted(heard[at])[x % 2 :])
        queues.assigned()


@pytest.mark.spec("L1", "L5")
def test_a_client_at_its_cap_takes_turns_among_its_own_subjects_whichever_is_fresh(queues: Queues) -> None:
    queues.client("c", cap=1)
    queues.give(queues.worker("w"), 100)
    queues.push("c1 c2 c3", "waits")
    assert queues.assigned() == [("w", "c1")]
    # Each time room comes together with a fresh job, and the fresh one must not take it.
    for done, fresh, following in [("c1", "c7", "c2"), ("c2", "", "c7"), ("c7", "c8", "c3"), ("c3", "", "c8")]:
        queues.finish(done)
        queues.push(fresh, "fresh")
        assert queues.assigned() == [("w", following)]


@pytest.mark.spec("L1", "L2")
def test_a_subject_waits_for_credit_only_where_nobody_has_any(queues: Queues) -> None:
    """Another subject waits with one of its workers; that must not hold it back from the other one."""
    poor, rich = queues.worker("poor", "job.assign.*"), queues.worker("rich", "job.assign.x")
    queues.push("b1", "y")
    assert queues.assigned() == []
    queues.give(rich, 1)
    queues.push("a1", "x")
    assert queues.assigned() == [("rich", "a1")]
    assert queues.serve(poor) == "b1"


@pytest.mark.spec("L5")
def test_a_client_at_its_cap_blocks_neither_its_subject_nor_others(queues: Queues) -> None:
    queues.client("c", cap=2)
    queues.push("c1 c2 c3 c4 d1", "x")
    queues.push("c5 d2", "y")
    worker = queues.worker("w")
    assert queues.serve(worker, 100) == "c1 c5 d1 d2"
    queues.finish("c1", "c5")
    assert [job for _, job in queues.assigned()] == ["c2", "c3"]
    queues.finish("c3")
    assert [job for _, job in queues.assigned()] == ["c4"]


@pytest.mark.spec("L5")
def test_room_for_one_lets_one_in(queues: Queues) -> None:
    queues.client("c", cap=1)
    for number in range(1, 6):
        queues.push(f"c{number}", f"lane{number}")
    worker = queues.worker("w")
    assert queues.serve(worker, 100) == "c1"
    for number in range(1, 5):
        queues.finish(f"c{number}")
        assert [job for _, job in queues.assigned()] == [f"c{number + 1}"]


@pytest.mark.spec("L5")
def test_clients_that_get_room_together_share_what_credit_there_is(queues: Queues) -> None:
    queues.client("a", cap=3)
    queues.client("b", cap=3)
    worker = queues.worker("w")
    queues.push(" ".join(f"a{n} b{n}" for n in range(1, 7)))
    assert queues.serve(worker, 9) == "a1 b1 a2 b2 a3 b3"
    worker.credit = 0
    queues.finish("a1", "a2", "a3", "b1", "b2", "b3")
    assert queues.serve(worker, 4) == "a4 b4 a5 b5"


@pytest.mark.spec("L9")
def test_a_client_with_a_heap_of_untaken_results_waits(queues: Queues) -> None:
    client = queues.client("c")
    client.undelivered_bytes = UNDELIVERED_BYTES_PER_CLIENT_MAX
    queues.push("c1 d1")
    worker = queues.worker("w")
    assert queues.serve(worker, 9) == "d1"
    client.undelivered_bytes -= 1
    queues.lanes.room_freed(client)
    assert queues.assigned() == [("w", "c1")]


@pytest.mark.spec("L3", "L4")
def test_a_job_that_comes_back_goes_first(queues: Queues) -> None:
    queues.push("a1 a2")
    queues.push("a0", first=True)
    assert queues.serve(queues.worker("w"), 9) == "a0 a1 a2"


@pytest.mark.spec("L10")
def test_cancelled_jobs_are_skipped(queues: Queues) -> None:
    queues.push("a1 a2 b1 a3 b2")
    queues.push("c1", "other")
    queues.cancel("a1", "a3", "b1", "c1")
    assert queues.lanes.queued == 2
    assert queues.serve(queues.worker("w"), 9) == "a2 b2"
    assert queues.lanes.queued == 0


@pytest.mark.spec("L10")
def test_a_client_whose_jobs_are_all_cancelled_leaves_its_place_wherever_it_waits(queues: Queues) -> None:
    queues.client("c", cap=1)
    worker = queues.worker("w")
    queues.push("c1 c2 c3")
    assert queues.serve(worker, 2) == "c1"
    worker.credit = 0
    queues.roster.changed(worker)
    queues.push("a1 b1 a2")
    assert queues.assigned() == []
    queues.cancel("c2", "c3", "b1")  # one is at its cap, the other waits for its turn
    queues.finish("c1")
    assert queues.serve(worker, 9) == "a1 a2"


def test_a_job_that_turns_out_to_run_leaves_nothing_behind(queues: Queues) -> None:
    queues.push("a1 a2")
    job = queues.jobs["a1"]
    queues.lanes.taken(job)
    job.state = JobState.RUNNING
    assert queues.assigned() == []
    job.state = JobState.QUEUED
    queues.lanes.push(job, first=True)
    assert queues.serve(queues.worker("w"), 9) == "a1 a2"


@pytest.mark.spec("L10")
def test_who_submits_and_cancels_in_a_circle_fills_no_memory(queues: Queues) -> None:
    queues.push("a1")  # it waits, so that its lane and its turn stay
    for number in range(2, 2_000):
        queues.push(f"a{number}")
        queues.cancel(f"a{number}")
        assert queues.assigned() == []
    lane = queues.lanes.lane(parse_subject("job.assign.calc"))
    assert lane is not None
    assert len(lane.by_client[ClientId("a")].jobs) < 200
    assert queues.serve(queues.worker("w"), 9) == "a1"


def test_a_subject_without_jobs_is_remembered_for_a_while_only(queues: Queues) -> None:
    worker = queues.worker("w")
    queues.client("a", cap=4 * LANES_IDLE_MAX)
    queues.give(worker, 4 * LANES_IDLE_MAX)
    for number in range(3 * LANES_IDLE_MAX):
        queues.push("a1", f"lane{number}")
        queues.lanes.assign()
    queues.lanes.check()
    assert queues.lanes.lane(parse_subject("job.assign.lane0")) is None
    assert queues.lanes.lane(parse_subject(f"job.assign.lane{3 * LANES_IDLE_MAX - 1}")) is not None
    assert queues.lanes.busy_lanes() == []


def test_forgotten_subjects_work_again(queues: Queues) -> None:
    for number in range(2 * LANES_IDLE_MAX):
        queues.push("a1", f"lane{number}")
        queues.cancel("a1")
    queues.push("a2", "lane0")
    queues.push("a3", f"lane{2 * LANES_IDLE_MAX - 1}")
    assert set(queues.serve(queues.worker("w"), 9).split()) == {"a2", "a3"}


@pytest.mark.spec("L2")
def test_pools_come_and_go_while_subjects_wait(queues: Queues) -> None:
    queues.push("a1 a2 a3")
    one = queues.worker("one", "job.assign.calc")
    other = queues.worker("other", "job.>")
    assert queues.assigned() == []
    queues.lose(one)
    assert queues.assigned() == []
    assert queues.serve(other) == "a1"
    queues.lose(other)
    assert queues.assigned() == []
    assert queues.serve(queues.worker("third", "*.*.calc"), 9) == "a2 a3"


@pytest.mark.spec("L1")
@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.integers(1, 4), st.lists(st.integers(1, 7), min_size=1, max_size=15))
def test_clients_with_enough_jobs_are_never_two_apart(clients: int, subjects: int, portions: list[int]) -> None:
    queues = Queues()
    worker = queues.worker("w")
    names = "abcdef"[:clients]
    for number in range(sum(portions) + 1):
        for lane in range(subjects):
            queues.push(" ".join(f"{name}{number}.{lane}" for name in names), f"lane{lane}")
    by_client = {lane: Counter(dict.fromkeys(names, 0)) for lane in range(subjects)}
    by_lane = Counter(dict.fromkeys(range(subjects), 0))
    for portion in portions:
        queues.give(worker, portion)
        for _, job in queues.assigned():
            lane = int(job.partition(".")[2])
            by_lane[lane] += 1
            by_client[lane][job[0]] += 1
            assert max(by_lane.values()) - min(by_lane.values()) <= 1
            assert all(max(counts.values()) - min(counts.values()) <= 1 for counts in by_client.values())
    assert sum(by_lane.values()) == sum(portions)


# Priorities.


@pytest.mark.spec("L1")
def test_a_higher_priority_goes_first_and_equals_go_first_in_first_out(queues: Queues) -> None:
    queues.push("a1 a2")
    queues.push("a3 a4", requirements=Requirements(priority=5))
    queues.push("a5", requirements=Requirements(priority=-5))
    queues.push("a6", requirements=Requirements(priority=100))
    queues.push("a7")
    assert queues.serve(queues.worker("w"), 9) == "a6 a3 a4 a1 a2 a7 a5"


@pytest.mark.spec("L1")
def test_priorities_change_nothing_between_clients_and_subjects(queues: Queues) -> None:
    queues.push("a1 a2 a3", requirements=Requirements(priority=100))
    queues.push("b1 b2 b3")
    queues.push("c1", "other", requirements=Requirements(priority=-100))
    assert queues.serve(queues.worker("w"), 9) == "a1 c1 b1 a2 b2 a3 b3"


@pytest.mark.spec("L1")
def test_age_lifts_one_step_per_so_many_seconds(queues: Queues) -> None:
    queues.push("a1")
    queues.roster.now += 3 * PRIORITY_AGE_S
    queues.push("a2", requirements=Requirements(priority=2))
    queues.push("a3", requirements=Requirements(priority=4))
    assert queues.serve(queues.worker("w"), 9) == "a3 a1 a2"


@pytest.mark.spec("L1")
def test_nobody_starves_behind_a_stream_of_the_highest_priority(queues: Queues) -> None:
    worker = queues.worker("w")
    queues.push("a0", requirements=Requirements(priority=-PRIORITY_MAX))
    served: list[str] = []
    while "a0" not in served:
        assert queues.roster.now <= (2 * PRIORITY_MAX + 1) * PRIORITY_AGE_S
        queues.roster.now += PRIORITY_AGE_S
        queues.push(f"a{len(served) + 1}", requirements=Requirements(priority=PRIORITY_MAX))
        served += queues.serve(worker).split()
    assert len(served) > 2 * PRIORITY_MAX - 2


@pytest.mark.spec("L4")
def test_a_job_that_comes_back_goes_before_those_of_its_priority(queues: Queues) -> None:
    queues.push("a1 a2", requirements=Requirements(priority=1))
    queues.push("a3", requirements=Requirements(priority=7))
    worker = queues.worker("w")
    assert queues.serve(worker, 2) == "a3 a1"
    queues.roster.now += 1.0
    job = queues.jobs["a1"]
    job.state, job.worker, job.attempts, job.since = JobState.QUEUED, None, 1, queues.roster.now
    worker.jobs.clear()
    queues.lanes.push(job, first=True)
    assert queues.serve(worker, 9) == "a1 a2"


@pytest.mark.spec("L10")
def test_who_submits_and_cancels_jobs_with_priorities_in_a_circle_fills_no_memory(queues: Queues) -> None:
    queues.push("a0", requirements=Requirements(priority=1))
    for number in range(1, 2_000):
        queues.push(f"a{number}", requirements=Requirements(priority=number % 50))
        queues.cancel(f"a{number}")
        assert queues.assigned() == []
    lane = queues.lanes.lane(parse_subject("job.assign.calc"))
    assert lane is not None
    assert size(lane.by_client[ClientId("a")]) < 200
    assert queues.serve(queues.worker("w"), 9) == "a0"


def test_a_turn_in_which_nobody_asks_for_anything_any_more_is_plain_again(queues: Queues) -> None:
    queues.push("a1 a2 a3 b1")
    queues.push("a4", requirements=Requirements(priority=1))
    lane = queues.lanes.lane(parse_subject("job.assign.calc"))
    assert lane is not None
    turn = lane.by_client[ClientId("a")]
    assert turn.needs is not None
    assert queues.serve(queues.worker("w")) == "a4"
    assert turn.needs is None
    assert lane.by_client[ClientId("b")].needs is None


@pytest.mark.spec("L1")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["push", "push", "cancel", "serve", "wait"]), st.integers(0, 9)), max_size=60)
)
def test_the_next_one_is_always_the_one_a_look_at_all_jobs_would_choose(script: list[tuple[str, int]]) -> None:
    queues = Queues()
    worker = queues.worker("w")
    waiting: list[tuple[float, int, str]] = []
    for number, (what, x) in enumerate(script):
        if what == "push":
            priority = (0, 0, 0, 1, 2, 5, -3, 100, -100, 7)[x]
            queues.push(f"a{number}", requirements=Requirements(priority=priority) if priority or number % 2 else None)
            waiting.append((queues.roster.now - priority * PRIORITY_AGE_S, number, f"a{number}"))
        elif what == "cancel" and waiting:
            queues.cancel(waiting.pop(x % len(waiting))[2])
        elif what == "wait":
            queues.roster.now += 7.31 * x  # never a multiple of a priority's worth: in a tie either may be first
        elif waiting:
            assert queues.serve(worker) == waiting.pop(waiting.index(min(waiting)))[2]
        queues.lanes.check()


# Keys, where the policy is sticky.


@pytest.fixture
def sticky() -> Queues:
    return Queues(parse_policies("sticky"))
