"""Which job is next: fair over subjects and over clients, and nobody who waits is overtaken for ever.

Jobs are told by short names: `a1` is client a's first job. One worker for everything hands out one credit at a time,
so that the order of assignments is the order of the queues.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sim.turns import Turns

from wakugumi.core.backoff import EVERYWHERE, Policies, parse_policies
from wakugumi.core.ids import ClientId, ConnId, JobId, WorkerId
from wakugumi.core.leader.jobs.states import JobState
from wakugumi.core.leader.records import ClientRecord, JobRecord, WorkerRecord
from wakugumi.core.leader.scheduling.lanes import Lanes
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.leader.scheduling.turn_jobs import size, slots_of
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Pattern, Subject, parse_pattern, parse_subject, worker_patterns
from wakugumi.limits.leader import LANES_IDLE_MAX, UNDELIVERED_BYTES_PER_CLIENT_MAX
from wakugumi.limits.scheduling import (
    PRIORITY_AGE_S,
    PRIORITY_MAX,
    SLOTS_DOUBT_S,
    SLOTS_PATIENCE_S,
    SLOTS_STUCK_S,
    STICKY_PATIENCE_S,
)

CALC = parse_subject("job.assign.calc")


class Queues:
    """Lanes over a roster. `serve` gives credit and tells which jobs went out, in order."""

    def __init__(self, policies: Policies = EVERYWHERE) -> None:
        self.roster = Roster(*policies.rankings)
        self.lanes = Lanes(self.roster, policies)
        self.clients: dict[str, ClientRecord] = {}
        self.jobs: dict[str, JobRecord] = {}

    def worker(self, name: str, *patterns: str, slots: int = 0) -> WorkerRecord:
        worker = self.roster.add(WorkerId(name.encode().ljust(16)))
        worker.slots = slots
        worker.call(name)
        wanted = tuple(parse_pattern(pattern) for pattern in patterns or (">",))
        self.lanes.table.pools_came(self.roster.connect(worker, ConnId(worker.number), wanted))
        return worker

    def lose(self, worker: WorkerRecord) -> None:
        self.lanes.leaves(worker)
        worker.away_until = 0.0
        worker.jobs.clear()
        self.lanes.table.pools_went(self.roster.disconnect(worker))
        self.roster.remove(worker)

    def client(self, name: str, cap: int = 1_000) -> ClientRecord:
        client = self.clients[name] = ClientRecord(ClientId(name))
        client.cap = cap
        return client

    def push(self, names: str, lane: str = "calc", *, first: bool = False, wants: Requirements | None = None) -> None:
        """Queue jobs. The letter says whose they are."""
        for name in names.split():
            client = self.clients.get(name[0]) or self.client(name[0])
            subject = parse_subject(f"job.assign.{lane}")
            now = self.roster.now
            job = JobRecord(
                JobId(name.encode().ljust(16)), client, subject, lane, 1.0, now, b"", (), since=now, wants=wants
            )
            self.jobs[name] = job
            self.lanes.push(job, first=first)

    def cancel(self, *names: str) -> None:
        for name in names:
            self.jobs[name].state = JobState.DONE
            self.lanes.dropped(self.jobs[name])

    def finish(self, *names: str) -> None:
        for name in names:
            client = self.jobs[name].client
            client.in_flight -= 1
            self.lanes.room_came(client)

    def give(self, worker: WorkerRecord, credit: int) -> None:
        worker.credit += credit
        self.roster.changed(worker)

    def wait(self, seconds: float) -> list[tuple[str, str]]:
        """Time passes, and what it brings about is handed out."""
        until = self.roster.now + seconds
        pairs = []
        while (at := self.lanes.wake_at()) is not None and at <= until:
            assert at > self.roster.now or not pairs
            self.roster.now = at
            self.lanes.tick(at)
            pairs += self.assigned()
        self.roster.now = until
        return pairs

    def assigned(self) -> list[tuple[str, str]]:
        """Whatever can be handed out now: to whom, and what."""
        jobs = self.lanes.assign()
        pairs = [(job.worker.name, job.id.decode().strip()) for job in jobs if job.worker is not None]
        assert len(pairs) == len(jobs)
        self.roster.check()
        self.lanes.check()
        return pairs

    def serve(self, worker: WorkerRecord, credit: int = 1) -> str:
        self.give(worker, credit)
        return " ".join(job for _, job in self.assigned())


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
    sticky.push("a1 a2 a3 a4", "x", wants=keyed(sticky, w, subject=parse_subject("job.assign.x")))
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
    queues.lanes.room_came(client)
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
    queues.push("a3 a4", wants=Requirements(priority=5))
    queues.push("a5", wants=Requirements(priority=-5))
    queues.push("a6", wants=Requirements(priority=100))
    queues.push("a7")
    assert queues.serve(queues.worker("w"), 9) == "a6 a3 a4 a1 a2 a7 a5"


@pytest.mark.spec("L1")
def test_priorities_change_nothing_between_clients_and_subjects(queues: Queues) -> None:
    queues.push("a1 a2 a3", wants=Requirements(priority=100))
    queues.push("b1 b2 b3")
    queues.push("c1", "other", wants=Requirements(priority=-100))
    assert queues.serve(queues.worker("w"), 9) == "a1 c1 b1 a2 b2 a3 b3"


@pytest.mark.spec("L1")
def test_age_lifts_one_step_per_so_many_seconds(queues: Queues) -> None:
    queues.push("a1")
    queues.roster.now += 3 * PRIORITY_AGE_S
    queues.push("a2", wants=Requirements(priority=2))
    queues.push("a3", wants=Requirements(priority=4))
    assert queues.serve(queues.worker("w"), 9) == "a3 a1 a2"


@pytest.mark.spec("L1")
def test_nobody_starves_behind_a_stream_of_the_highest_priority(queues: Queues) -> None:
    worker = queues.worker("w")
    queues.push("a0", wants=Requirements(priority=-PRIORITY_MAX))
    served: list[str] = []
    while "a0" not in served:
        assert queues.roster.now <= (2 * PRIORITY_MAX + 1) * PRIORITY_AGE_S
        queues.roster.now += PRIORITY_AGE_S
        queues.push(f"a{len(served) + 1}", wants=Requirements(priority=PRIORITY_MAX))
        served += queues.serve(worker).split()
    assert len(served) > 2 * PRIORITY_MAX - 2


@pytest.mark.spec("L4")
def test_a_job_that_comes_back_goes_before_those_of_its_priority(queues: Queues) -> None:
    queues.push("a1 a2", wants=Requirements(priority=1))
    queues.push("a3", wants=Requirements(priority=7))
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
    queues.push("a0", wants=Requirements(priority=1))
    for number in range(1, 2_000):
        queues.push(f"a{number}", wants=Requirements(priority=number % 50))
        queues.cancel(f"a{number}")
        assert queues.assigned() == []
    lane = queues.lanes.lane(parse_subject("job.assign.calc"))
    assert lane is not None
    assert size(lane.by_client[ClientId("a")]) < 200
    assert queues.serve(queues.worker("w"), 9) == "a0"


def test_a_turn_in_which_nobody_asks_for_anything_any_more_is_plain_again(queues: Queues) -> None:
    queues.push("a1 a2 a3 b1")
    queues.push("a4", wants=Requirements(priority=1))
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
            queues.push(f"a{number}", wants=Requirements(priority=priority) if priority or number % 2 else None)
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


def keyed(queues: Queues, wanted: WorkerRecord, but_not: str = "", subject: Subject = CALC) -> Requirements:
    """A key whose home is this worker."""
    lane = queues.lanes.lane(subject) or queues.lanes.table.open(subject)
    for number in range(1_000):
        wants = Requirements(key=f"key {number}")
        probe = JobRecord(JobId(b"probe"), ClientRecord(ClientId("p")), CALC, "calc", 1.0, 0.0, b"", (), wants=wants)
        if wants.key != but_not and queues.lanes.picker.home_of(lane, probe) is wanted:
            return wants
    raise AssertionError("no such key")


@pytest.mark.spec("L2")
def test_the_same_key_goes_to_the_same_worker_however_much_credit_others_have(sticky: Queues) -> None:
    one, other = sticky.worker("one"), sticky.worker("other")
    sticky.give(one, 3)
    sticky.give(other, 9)
    sticky.push("a1 a2 b1", wants=keyed(sticky, one))
    assert sticky.assigned() == [("one", "a1"), ("one", "b1"), ("one", "a2")]
    sticky.push("a3")
    assert sticky.assigned() == [("other", "a3")], "without a key it goes where most credit is"


@pytest.mark.spec("L2")
def test_a_key_means_nothing_where_the_policy_is_not_sticky(queues: Queues) -> None:
    one, other = queues.worker("one"), queues.worker("other")
    queues.give(one, 1)
    queues.give(other, 2)
    queues.push("a1 a2 a3", wants=Requirements(key="k"))
    assert queues.assigned() == [("other", "a1"), ("one", "a2"), ("other", "a3")]


@pytest.mark.spec("L2")
def test_a_job_waits_for_its_home_lets_others_pass_and_goes_elsewhere_in_the_end(sticky: Queues) -> None:
    one, other = sticky.worker("one"), sticky.worker("other")
    sticky.give(one, 1)
    sticky.push("a1 a2", wants=(key := keyed(sticky, one)))
    assert sticky.assigned() == [("one", "a1")]
    sticky.give(other, 5)
    assert sticky.assigned() == [], "its home is busy"
    sticky.push("a3", wants=keyed(sticky, other))
    sticky.push("a4 b1")
    assert {job for _, job in sticky.assigned()} == {"a3", "a4", "b1"}
    assert sticky.wait(STICKY_PATIENCE_S - 0.1) == []
    assert sticky.wait(0.2) == [("other", "a2")]
    sticky.give(one, 1)
    sticky.push("a5", wants=key)
    assert sticky.assigned() == [("one", "a5")], "its home is what it was"


@pytest.mark.spec("L2")
def test_a_home_that_has_offered_nothing_for_long_holds_nobody_up(sticky: Queues) -> None:
    one, other = sticky.worker("one"), sticky.worker("other")
    sticky.give(one, 1)
    key = keyed(sticky, one)
    sticky.push("a0", wants=key)
    assert sticky.assigned() == [("one", "a0")]
    sticky.roster.now += STICKY_PATIENCE_S
    sticky.push("a1 a2 a3", wants=key)
    sticky.give(other, 9)
    assert [job for _, job in sticky.assigned()] == ["a1", "a2", "a3"], "it is busy since long before they came"


@pytest.mark.spec("L2")
def test_the_first_in_line_goes_after_its_patience_although_others_have_free_homes(sticky: Queues) -> None:
    one, other = sticky.worker("one"), sticky.worker("other")
    sticky.give(one, 1)
    sticky.push("a0 a1", wants=keyed(sticky, one))
    sticky.push(" ".join(f"a{number}" for number in range(2, 60)), wants=keyed(sticky, other))
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
    sticky.push("a1", wants=key)
    sticky.push("a2", wants=others)
    assert sticky.assigned() == [("other", "a1"), ("other", "a2")]


@pytest.mark.spec("L2")
def test_a_home_that_is_away_for_a_moment_is_waited_for(sticky: Queues) -> None:
    one, other = sticky.worker("one"), sticky.worker("other")
    key = keyed(sticky, one)
    one.away_until = 10.0
    sticky.roster.now = 5.0
    sticky.lanes.table.pools_went(sticky.roster.disconnect(one))
    sticky.give(other, 2)
    sticky.push("a1", wants=key)
    assert sticky.assigned() == []
    one.away_until = None
    sticky.lanes.table.pools_came(sticky.roster.connect(one, ConnId(77), (Pattern(">"),)))
    sticky.give(one, 1)
    assert sticky.assigned() == [("one", "a1")]


@pytest.mark.spec("L1", "L2")
def test_a_lane_that_waits_for_homes_neither_starves_others_nor_is_starved(sticky: Queues) -> None:
    one, other = sticky.worker("one"), sticky.worker("other")
    sticky.push(" ".join(f"a{number}" for number in range(1, 9)), wants=keyed(sticky, one))
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
    queues.push("a1", wants=Requirements(slots=3))
    assert queues.assigned() == []
    queues.give(large, 8)
    assert queues.assigned() == [("large", "a1")]
    assert (large.credit, small.credit, old.credit) == (5, 2, 9)


@pytest.mark.spec("L1")
def test_small_jobs_pass_a_large_one_for_a_while_and_then_a_worker_is_kept_free_for_it(queues: Queues) -> None:
    one, other = queues.worker("one", slots=2), queues.worker("other", slots=2)
    queues.push("a1", wants=Requirements(slots=2))
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
    queues.push("a1", wants=Requirements(slots=2))
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
    queues.push("a1", wants=Requirements(slots=2))
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
    queues.push("a1", wants=Requirements(slots=2))
    queues.give(other, 1)
    queues.serve(one)
    queues.wait(2 * SLOTS_PATIENCE_S)
    (kept,) = (worker for worker in (one, other) if worker.kept_for is not None)
    (left,) = {one, other} - {kept}
    if how == "lost":
        queues.lose(kept)
    else:
        kept.draining = True
        queues.lanes.leaves(kept)
        queues.roster.changed(kept)
    assert queues.assigned() == []
    assert left.kept_for is not None
    assert kept.kept_for is None


@pytest.mark.spec("L1")
def test_never_are_all_workers_kept_free(queues: Queues) -> None:
    workers = [queues.worker(f"w{number}", slots=2) for number in range(3)]
    for number in range(1, 6):
        queues.push(f"{'abcde'[number - 1]}1", wants=Requirements(slots=2))
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
    queues.push(" ".join(f"a{number}" for number in range(200)), wants=Requirements(slots=9))
    queues.push("a999")
    assert queues.serve(one, 2) == "a999"
    queues.wait(10.0)
    assert one.kept_for is None
    assert queues.lanes.wake_at() is None, "nobody is woken for what cannot be"


@pytest.mark.spec("F7")
def test_a_worker_that_never_offers_what_it_said_is_believed_no_longer(queues: Queues) -> None:
    liar = queues.worker("liar", slots=9)
    queues.push("a1", wants=Requirements(slots=4))
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
    queues.push("a2", wants=Requirements(slots=2))
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
            wants = queues.jobs[job].wants
            assert wants is None or wants.slots == 1 or by_name[worker].slots >= wants.slots
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
            wants = Requirements(("", "", "k1", "k2", "k3")[x % 5], (0, 0, 3, -2)[x % 4], (1, 1, 1, 2, 4)[x // 3 % 5])
            if "abc"[x % 3] not in queues.clients:
                queues.client("abc"[x % 3], cap=1 + 2 * (x % 3))
            queues.push(f"{'abc'[x % 3]}{names}", "xyz"[x % 3], wants=None if wants == Requirements() else wants)
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
    queues.push("large", wants=Requirements(slots=4))
    queues.serve(stuck, 3)
    queues.serve(other, 2)
    queues.wait(2 * SLOTS_PATIENCE_S)
    assert stuck.kept_for is not None
    queues.wait(SLOTS_STUCK_S + 2 * SLOTS_PATIENCE_S)
    assert (stuck.kept_for, other.kept_for is not None) == (None, True)
