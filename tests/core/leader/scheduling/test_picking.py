"""Which job goes now where jobs ask for a home or for several slots, and to which worker? Scripts without a leader."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.lane_queues import Queues, keyed

from wakugumi.core.backoff import parse_policies
from wakugumi.core.ids import ConnId
from wakugumi.core.leader.jobs.states import JobState
from wakugumi.core.leader.records import WorkerRecord
from wakugumi.core.leader.scheduling.turn_jobs import slots_of
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Pattern
from wakugumi.limits.scheduling import (
    SLOTS_DOUBT_S,
    SLOTS_PATIENCE_S,
    SLOTS_STUCK_S,
    STICKY_PATIENCE_S,
)


@pytest.fixture
def queues() -> Queues:
    return Queues()


# Keys, where the policy is sticky.


@pytest.fixture
def sticky() -> Queues:
    return Queues(parse_policies("sticky"))


@pytest.mark.spec("L2")
def test_the_same_key_goes_to_the_same_worker_however_much_credit_others_have(sticky: Queues) -> None:
    one, other = sticky.worker("one"), sticky.worker("other")
    sticky.give(one, 3)
    sticky.give(other, 9)
    sticky.push("a1 a2 b1", requirements=keyed(sticky, one))
    assert sticky.assigned() == [("one", "a1"), ("one", "b1"), ("one", "a2")]
    sticky.push("a3")
    assert sticky.assigned() == [("other", "a3")], "without a key it goes where most credit is"


@pytest.mark.spec("L2")
def test_a_key_means_nothing_where_the_policy_is_not_sticky(queues: Queues) -> None:
    one, other = queues.worker("one"), queues.worker("other")
    queues.give(one, 1)
    queues.give(other, 2)
    queues.push("a1 a2 a3", requirements=Requirements(key="k"))
    assert queues.assigned() == [("other", "a1"), ("one", "a2"), ("other", "a3")]


@pytest.mark.spec("L2")
def test_a_job_waits_for_its_home_lets_others_pass_and_goes_elsewhere_in_the_end(sticky: Queues) -> None:
    one, other = sticky.worker("one"), sticky.worker("other")
    sticky.give(one, 1)
    sticky.push("a1 a2", requirements=(key := keyed(sticky, one)))
    assert sticky.assigned() == [("one", "a1")]
    sticky.give(other, 5)
    assert sticky.assigned() == [], "its home is busy"
    sticky.push("a3", requirements=keyed(sticky, other))
    sticky.push("a4 b1")
    assert {job for _, job in sticky.assigned()} == {"a3", "a4", "b1"}
    assert sticky.wait(STICKY_PATIENCE_S - 0.1) == []
    assert sticky.wait(0.2) == [("other", "a2")]
    sticky.give(one, 1)
    sticky.push("a5", requirements=key)
    assert sticky.assigned() == [("one", "a5")], "its home is what it was"


@pytest.mark.spec("L2")
def test_a_home_that_has_offered_nothing_for_long_holds_nobody_up(sticky: Queues) -> None:
    one, other = sticky.worker("one"), sticky.worker("other")
    sticky.give(one, 1)
    key = keyed(sticky, one)
    sticky.push("a0", requirements=key)
    assert sticky.assigned() == [("one", "a0")]
    sticky.roster.now += STICKY_PATIENCE_S
    sticky.push("a1 a2 a3", requirements=key)
    sticky.give(other, 9)
    assert [job for _, job in sticky.assigned()] == ["a1", "a2", "a3"], "it is busy since long before they came"


@pytest.mark.spec("L2")
def test_the_first_in_line_goes_after_its_patience_although_others_have_free_homes(sticky: Queues) -> None:
    one, other = sticky.worker("one"), sticky.worker("other")
    sticky.give(one, 1)
    sticky.push("a0 a1", requirements=keyed(sticky, one))
    sticky.push(" ".join(f"a{number}" for number in range(2, 60)), requirements=keyed(sticky, other))
    assert sticky.assigned() == [("one", "a0")]
    served: list[str] = []
    while "a1" not in served:
        assert len(served) < 50
        sticky.roster.now += 0.1
        served += sticky.serve(other).split()
    assert served[0] == "a2", "jobs further back go first"
    assert len(served) == pytest.approx(STICKY_PATIENCE_S / 0.1, abs=2)


@pytest.mark.spec("L2")
def test_a_worker_that_is_lost_moves_its_keys_and_one_that_is_drained_too(sticky: Queues) -> None:
    one, other = sticky.worker("one"), sticky.worker("other")
    key, others = keyed(sticky, one), keyed(sticky, other)
    sticky.lose(one)
    sticky.give(other, 2)
    sticky.push("a1", requirements=key)
    sticky.push("a2", requirements=others)
    assert sticky.assigned() == [("other", "a1"), ("other", "a2")]


@pytest.mark.spec("L2")
def test_a_home_that_is_away_for_a_moment_is_waited_for(sticky: Queues) -> None:
    one, other = sticky.worker("one"), sticky.worker("other")
    key = keyed(sticky, one)
    one.away_until = 10.0
    sticky.roster.now = 5.0
    sticky.lanes.table.pools_removed(sticky.roster.disconnect(one))
    sticky.give(other, 2)
    sticky.push("a1", requirements=key)
    assert sticky.assigned() == []
    one.away_until = None
    sticky.lanes.table.pools_added(sticky.roster.connect(one, ConnId(77), (Pattern(">"),)))
    sticky.give(one, 1)
    assert sticky.assigned() == [("one", "a1")]


@pytest.mark.spec("L1", "L2")
def test_a_lane_that_waits_for_homes_neither_starves_others_nor_is_starved(sticky: Queues) -> None:
    one, other = sticky.worker("one"), sticky.worker("other")
    sticky.push(" ".join(f"a{number}" for number in range(1, 9)), requirements=keyed(sticky, one))
    sticky.push(" ".join(f"b{number}" for number in range(1, 9)), "plain")
    assert sticky.assigned() == []
    served = [sticky.serve(one) for _ in range(8)]
    assert sorted(served) == ["a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4"]
    assert [name[0] for name in served] in (["a", "b"] * 4, ["b", "a"] * 4)
    assert sticky.serve(other, 2) == "b5 b6"


# Several slots at once.


@pytest.mark.spec("F7", "L2")
def test_a_job_of_several_slots_takes_as_many_of_a_worker_that_has_them(queues: Queues) -> None:
    small, large = queues.worker("small", slots=2), queues.worker("large", slots=8)
    old = queues.worker("old")
    queues.give(small, 2)
    queues.give(old, 9)
    queues.push("a1", requirements=Requirements(slots=3))
    assert queues.assigned() == []
    queues.give(large, 8)
    assert queues.assigned() == [("large", "a1")]
    assert (large.credit, small.credit, old.credit) == (5, 2, 9)


@pytest.mark.spec("L1")
def test_small_jobs_pass_a_large_one_for_a_while_and_then_a_worker_is_kept_free_for_it(queues: Queues) -> None:
    one, other = queues.worker("one", slots=2), queues.worker("other", slots=2)
    queues.push("a1", requirements=Requirements(slots=2))
    queues.push("a2 a3 a4 a5 a6 a7")
    assert queues.serve(one) == "a2"
    assert queues.serve(other) == "a3"
    assert queues.wait(SLOTS_PATIENCE_S) == []
    assert queues.serve(one) == "", "it is kept free"
    assert one.kept_for is not None
    assert queues.serve(other) == "a4", "the other one is not"
    assert queues.serve(one) == "a1", "it has two now"
    assert one.kept_for is None
    assert queues.serve(one) == "a5"


@pytest.mark.spec("L1")
def test_a_worker_that_idles_with_too_few_slots_is_kept_free_when_the_time_has_come(queues: Queues) -> None:
    one = queues.worker("one", slots=2)
    queues.push("a1", requirements=Requirements(slots=2))
    assert queues.serve(one) == ""
    assert queues.wait(SLOTS_PATIENCE_S + 0.1) == []
    assert one.kept_for is not None
    queues.push("b1 a2")
    assert queues.assigned() == [], "the only worker there is is kept free too"
    assert queues.serve(one) == "a1"
    assert queues.serve(one) == "b1"


@pytest.mark.spec("L10")
def test_nobody_is_kept_free_for_a_job_that_was_cancelled(queues: Queues) -> None:
    one = queues.worker("one", slots=2)
    queues.push("a1", requirements=Requirements(slots=2))
    queues.serve(one)
    queues.wait(2 * SLOTS_PATIENCE_S)
    queues.push("a2")
    assert queues.assigned() == []
    queues.cancel("a1")
    assert one.kept_for is None
    assert queues.assigned() == [("one", "a2")]


@pytest.mark.parametrize("how", ["lost", "drained"])
def test_if_the_worker_that_is_kept_free_goes_another_one_is(queues: Queues, how: str) -> None:
    one, other = queues.worker("one", slots=2), queues.worker("other", slots=2)
    queues.worker("third")
    queues.push("a1", requirements=Requirements(slots=2))
    queues.give(other, 1)
    queues.serve(one)
    queues.wait(2 * SLOTS_PATIENCE_S)
    (kept,) = (worker for worker in (one, other) if worker.kept_for is not None)
    (left,) = {one, other} - {kept}
    if how == "lost":
        queues.lose(kept)
    else:
        kept.draining = True
        queues.lanes.worker_leaves(kept)
        queues.roster.changed(kept)
    assert queues.assigned() == []
    assert left.kept_for is not None
    assert kept.kept_for is None


@pytest.mark.spec("L1")
def test_never_are_all_workers_kept_free(queues: Queues) -> None:
    workers = [queues.worker(f"w{number}", slots=2) for number in range(3)]
    for number in range(1, 6):
        queues.push(f"{'abcde'[number - 1]}1", requirements=Requirements(slots=2))
    for worker in workers:
        queues.give(worker, 1)
    assert queues.assigned() == []
    queues.wait(3 * SLOTS_PATIENCE_S)
    assert sum(worker.kept_for is not None for worker in workers) == 2
    queues.push("x1")
    assert len(queues.assigned()) == 1, "there is one for small jobs"


@pytest.mark.spec("L1")
def test_jobs_too_large_for_all_workers_hold_nobody_up(queues: Queues) -> None:
    one = queues.worker("one", slots=2)
    queues.push(" ".join(f"a{number}" for number in range(200)), requirements=Requirements(slots=9))
    queues.push("a999")
    assert queues.serve(one, 2) == "a999"
    queues.wait(10.0)
    assert one.kept_for is None
    assert queues.lanes.wake_at() is None, "nobody is woken for what cannot be"


@pytest.mark.spec("F7")
def test_a_worker_that_never_offers_what_it_said_is_believed_no_longer(queues: Queues) -> None:
    liar = queues.worker("liar", slots=9)
    queues.push("a1", requirements=Requirements(slots=4))
    queues.push("b1", "other")
    assert queues.serve(liar, 1) == "b1"
    liar.jobs.clear()
    assert queues.serve(liar, 1) == ""
    queues.wait(2 * SLOTS_PATIENCE_S)
    assert liar.kept_for is not None
    queues.push("b2", "other")
    assert queues.wait(SLOTS_DOUBT_S + 2 * SLOTS_PATIENCE_S) == [("liar", "b2")]
    assert (liar.kept_for, liar.slots) == (None, 1)


@pytest.mark.spec("L5")
def test_nobody_is_kept_free_for_a_client_at_its_cap(queues: Queues) -> None:
    one = queues.worker("one", slots=2)
    queues.client("a", cap=1)
    queues.push("a1")
    queues.push("a2", requirements=Requirements(slots=2))
    assert queues.serve(one) == "a1"
    assert queues.serve(one) == ""
    queues.wait(3 * SLOTS_PATIENCE_S)
    assert one.kept_for is None
    queues.push("b1")
    assert queues.assigned() == [("one", "b1")]


@pytest.mark.spec("L1", "L2", "L5", "L10", "F7")
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=120),
    st.sampled_from(["most-credit", "sticky", "score,x=sticky", "round-robin,y=sticky"]),
)
def test_whatever_is_asked_for_nobody_starves_and_nothing_is_kept_for_ever(
    script: list[tuple[int, int]], policies: str
) -> None:
    queues = Queues(parse_policies(policies))
    workers: list[WorkerRecord] = []
    names = 0
    running: dict[str, WorkerRecord] = {}

    def heed(pairs: list[tuple[str, str]]) -> None:
        by_name = {worker.name: worker for worker in workers}
        for worker, job in pairs:
            assert job not in running
            running[job] = by_name[worker]
            requirements = queues.jobs[job].requirements
            assert requirements is None or requirements.slots == 1 or by_name[worker].slots >= requirements.slots
        assert all(worker.credit >= 0 for worker in workers)

    def end(job: str) -> None:
        worker = running.pop(job)
        worker.jobs.pop(queues.jobs[job].id, None)
        queues.finish(job)
        if worker in workers:
            queues.give(worker, slots_of(queues.jobs[job]))
        heed(queues.assigned())

    for what, x in script:
        if what <= 3:
            names += 1
            requirements = Requirements(
                ("", "", "k1", "k2", "k3")[x % 5], (0, 0, 3, -2)[x % 4], (1, 1, 1, 2, 4)[x // 3 % 5]
            )
            if "abc"[x % 3] not in queues.clients:
                queues.client("abc"[x % 3], cap=1 + 2 * (x % 3))
            queues.push(
                f"{'abc'[x % 3]}{names}",
                "xyz"[x % 3],
                requirements=None if requirements == Requirements() else requirements,
            )
        elif what == 4 and len(workers) < 5:
            names += 1
            slots = (1, 2, 4, 4)[x % 4]
            workers.append(queues.worker(f"w{names}", (">", "job.assign.x", "*.*.y")[x % 3], slots=slots))
            queues.give(workers[-1], slots)
        elif what == 5 and workers:
            lost = workers.pop(x % len(workers))
            for job in [job for job, worker in running.items() if worker is lost]:
                del running[job]
                queues.finish(job)
            queues.lose(lost)
        elif what == 6 and running:
            end(list(running)[x % len(running)])
        elif what == 7:
            left = [name for name, job in queues.jobs.items() if job.state is JobState.QUEUED]
            if left:
                queues.cancel(left[x % len(left)])
        elif what == 8:
            heed(queues.wait(x / 20))
        heed(queues.assigned())
    names += 1
    workers.append(queues.worker("last", slots=4))
    queues.give(workers[-1], 4)
    heed(queues.assigned())
    for _ in range(500):
        if not queues.lanes.queued:
            break
        heed(queues.wait(1.0))
        for job in list(running):
            end(job)
    assert not queues.lanes.queued, "somebody starves"
    for job in list(running):
        end(job)
    assert all(worker.kept_for is None for worker in workers)
    assert all(worker.credit == worker.slots for worker in workers)


@pytest.mark.spec("L2")
def test_a_worker_that_comes_free_no_further_is_let_go_and_another_one_is_kept(queues: Queues) -> None:
    stuck, other = queues.worker("stuck", slots=4), queues.worker("other", slots=4)
    for worker, names in ((stuck, ["a1"]), (other, ["a2", "a3"])):
        for name in names:
            queues.push(name)
            assert queues.serve(worker, 1) == name
    queues.push("large", requirements=Requirements(slots=4))
    queues.serve(stuck, 3)
    queues.serve(other, 2)
    queues.wait(2 * SLOTS_PATIENCE_S)
    assert stuck.kept_for is not None
    queues.wait(SLOTS_STUCK_S + 2 * SLOTS_PATIENCE_S)
    assert (stuck.kept_for, other.kept_for is not None) == (None, True)
