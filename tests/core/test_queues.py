"""Which job is next: fair over subjects and over clients, and nobody who waits is overtaken for ever.

Jobs are told by short names: `a1` is client a's first job. One worker for everything hands out one credit at a time,
so that the order of assignments is the order of the queues.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakugumi.core.job import ClientId, ConnId, JobId, JobState, WorkerId
from wakugumi.core.queues import Client, Job, Lanes
from wakugumi.core.roster import Roster, Worker
from wakugumi.core.subject import parse_pattern, parse_subject
from wakugumi.limits import LANES_IDLE_MAX, UNDELIVERED_BYTES_PER_CLIENT_MAX


class Queues:
    """Lanes over a roster. `serve` gives credit and tells which jobs went out, in order."""

    def __init__(self) -> None:
        self.roster = Roster()
        self.lanes = Lanes(self.roster)
        self.clients: dict[str, Client] = {}
        self.jobs: dict[str, Job] = {}

    def worker(self, name: str, *patterns: str) -> Worker:
        worker = self.roster.add(WorkerId(name.encode().ljust(16)))
        worker.call(name)
        wanted = tuple(parse_pattern(pattern) for pattern in patterns or (">",))
        self.lanes.pools_came(self.roster.connect(worker, ConnId(worker.number), wanted))
        return worker

    def lose(self, worker: Worker) -> None:
        worker.away_until = 0.0
        worker.jobs.clear()
        self.lanes.pools_went(self.roster.disconnect(worker))
        self.roster.remove(worker)

    def client(self, name: str, cap: int = 1_000) -> Client:
        client = self.clients[name] = Client(ClientId(name))
        client.cap = cap
        return client

    def push(self, names: str, lane: str = "calc", *, first: bool = False) -> None:
        """Queue jobs. The letter says whose they are."""
        for name in names.split():
            client = self.clients.get(name[0]) or self.client(name[0])
            subject = parse_subject(f"job.assign.{lane}")
            job = Job(JobId(name.encode().ljust(16)), client, subject, lane, 1.0, 0.0, b"", ())
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

    def give(self, worker: Worker, credit: int) -> None:
        worker.credit += credit
        self.roster.changed(worker)

    def assigned(self) -> list[tuple[str, str]]:
        """Whatever can be handed out now: to whom, and what."""
        jobs = self.lanes.assign()
        pairs = [(job.worker.name, job.id.decode().strip()) for job in jobs if job.worker is not None]
        assert len(pairs) == len(jobs)
        self.roster.check()
        self.lanes.check()
        return pairs

    def serve(self, worker: Worker, credit: int = 1) -> str:
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
