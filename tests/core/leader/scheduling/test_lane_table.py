"""A subject has one lane, which knows the pools that serve it and is forgotten some time after its last job."""

from __future__ import annotations

import pytest

from wakugumi.core.backoff import parse_policies
from wakugumi.core.ids import ConnId, WorkerId
from wakugumi.core.leader.jobs.broadcast import own_subject
from wakugumi.core.leader.records import Lane, WorkerRecord
from wakugumi.core.leader.scheduling import lane_table
from wakugumi.core.leader.scheduling.lane_table import LaneTable
from wakugumi.core.leader.scheduling.parking import Parking
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.subject import Pattern, Subject, parse_pattern


class Tables:
    def __init__(self, policies: str = "") -> None:
        chosen = parse_policies(policies)
        self.roster = Roster(*chosen.rankings)
        self.table = LaneTable(self.roster, chosen, Parking(self.roster))

    def worker(self, name: str, *patterns: str) -> WorkerRecord:
        worker = self.roster.add(WorkerId(name.encode().ljust(16)))
        wanted = tuple(parse_pattern(pattern) for pattern in patterns)
        self.table.pools_added(self.roster.connect(worker, ConnId(worker.number), wanted))
        self.table.worker_connected(worker)
        return worker

    def lose(self, worker: WorkerRecord) -> None:
        self.table.pools_removed(self.roster.disconnect(worker))

    def open(self, subject: str) -> Lane:
        lane = self.table.open(Subject(Pattern(subject)))
        self.table.idle[lane] = None
        return lane


@pytest.fixture
def tables() -> Tables:
    return Tables()


def patterns_of(lane: Lane) -> list[str]:
    return [pool.pattern for pool in lane.all_pools]


def test_a_lane_knows_the_pools_that_came_before_and_after_it(tables: Tables) -> None:
    tables.worker("a", "job.assign.x")
    lane, other = tables.open("job.assign.x"), tables.open("job.assign.y")
    tables.worker("b", "job.assign.*")
    assert patterns_of(lane) == ["job.assign.x", "job.assign.*"]
    assert patterns_of(other) == ["job.assign.*"]
    tables.table.check()


def test_a_pool_that_went_serves_no_lane(tables: Tables) -> None:
    worker = tables.worker("a", "job.assign.x")
    lane = tables.open("job.assign.x")
    tables.lose(worker)
    assert patterns_of(lane) == []
    tables.table.check()


def test_what_is_meant_for_one_worker_is_served_by_it_when_it_comes(tables: Tables) -> None:
    lane = tables.open(own_subject(WorkerId(b"a".ljust(16))))
    tables.worker("b", ">")
    assert patterns_of(lane) == [], "it is for nobody else"
    tables.worker("a", "job.assign.x")
    assert lane.all_pools
    tables.table.check()


def test_the_oldest_idle_lanes_are_forgotten_and_busy_ones_are_not(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_table, "LANES_IDLE_MAX", 16)
    busy = tables.open("job.assign.busy")
    busy.queued = 1
    del tables.table.idle[busy]
    lanes = [tables.open(f"job.assign.s{number}") for number in range(17)]
    tables.table.forget_oldest()
    known = tables.table.by_subject
    assert [lane.subject in known for lane in lanes] == [False] * 2 + [True] * 15
    assert known[busy.subject] is busy
    tables.table.check()
    tables.worker("w", ">")  # Those that are forgotten are looked for no more.
    assert not lanes[0].pools


def test_a_lane_follows_the_policy_of_its_subject() -> None:
    tables = Tables("job.assign.x=sticky")
    assert tables.open("job.assign.x").sticky
    assert not tables.open("job.assign.y").sticky
