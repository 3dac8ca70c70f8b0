"""Lanes wait in one line at most, and the lowest place that can use the credit there is comes first."""

from __future__ import annotations

import pytest

from wakugumi.core.ids import ClientId, ConnId, WorkerId
from wakugumi.core.leader.records import ClientRecord, Lane, Turn, WorkerRecord
from wakugumi.core.leader.scheduling.lane_states import NOWHERE, PARKED, READY, REFUSED
from wakugumi.core.leader.scheduling.parking import Parking
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.subject import parse_pattern, parse_subject


@pytest.fixture
def roster() -> Roster:
    return Roster()


@pytest.fixture
def parking(roster: Roster) -> Parking:
    return Parking(roster)


def a_worker(roster: Roster, name: str, *patterns: str, credit: int = 0) -> WorkerRecord:
    worker = roster.add(WorkerId(name.encode().ljust(16)))
    roster.connect(worker, ConnId(worker.number), tuple(parse_pattern(pattern) for pattern in patterns))
    give(roster, worker, credit)
    return worker


def give(roster: Roster, worker: WorkerRecord, credit: int) -> None:
    worker.credit += credit
    roster.changed(worker)


def a_lane(roster: Roster, name: str) -> Lane:
    subject = parse_subject(f"job.assign.{name}")
    lane = Lane(subject, roster.pools_for(subject))
    lane.queued = 1
    return lane


def served(parking: Parking) -> list[str]:
    assert list(parking.collect_credit()) == []
    parking.begin_service()
    found = []
    while (lane := parking.next()) is not None:
        assert lane.waits_in is NOWHERE
        found.append(lane.subject.rpartition(".")[2])
    return found


def test_lanes_that_are_ready_are_served_in_the_order_of_their_places(roster: Roster, parking: Parking) -> None:
    one, two = a_lane(roster, "one"), a_lane(roster, "two")
    parking.wake(one)
    parking.wake(two)
    parking.check([one, two])
    assert (one.waits_in, one.place, two.place) == (READY, 1, 2)
    assert served(parking) == ["one", "two"]


def test_a_parked_lane_comes_when_its_pool_has_credit_before_those_that_came_later(
    roster: Roster, parking: Parking
) -> None:
    worker = a_worker(roster, "w", "job.assign.*")
    early, late = a_lane(roster, "early"), a_lane(roster, "late")
    parking.park(early)
    parking.wake(late)
    parking.check([early, late])
    assert early.waits_in is PARKED
    assert early.is_parked
    assert served(parking) == ["late"], "there is no credit"
    parking.wake(late)
    give(roster, worker, 1)
    assert served(parking) == ["early", "late"]


def test_a_refused_lane_is_parked_and_keeps_its_place(roster: Roster, parking: Parking) -> None:
    a_worker(roster, "w", ">")
    lane = a_lane(roster, "x")
    parking.wake(lane)
    place = lane.place
    assert parking.next() is lane
    parking.park(lane, REFUSED)
    assert (lane.waits_in, lane.is_parked, lane.place) == (REFUSED, True, place)
    parking.check([lane])
    parking.unpark(lane)
    assert lane.waits_in is NOWHERE
    assert not lane.pools[0].parked.at


@pytest.mark.parametrize("state", [NOWHERE, READY, PARKED])
def test_a_lane_with_nothing_to_wait_for_stands_in_no_line(roster: Roster, parking: Parking, state: object) -> None:
    a_worker(roster, "w", ">")
    lane = a_lane(roster, "x")
    if state is READY:
        parking.wake(lane)
    elif state is PARKED:
        parking.park(lane)
    parking.leave(lane)
    assert lane.waits_in is NOWHERE
    parking.check([lane])


def test_a_parked_lane_waits_with_a_pool_that_comes_and_not_with_one_that_went(
    roster: Roster, parking: Parking
) -> None:
    lane = a_lane(roster, "x")
    parking.park(lane)
    worker = a_worker(roster, "w", ">", credit=1)
    (pool,) = worker.pools
    lane.served_by([pool])
    parking.pool_added(lane, pool)
    parking.check([lane])
    assert pool.parked.first() == lane.place
    parking.pool_removed(pool)
    assert not pool.parked.at


def test_where_other_pools_serve_a_lane_all_credit_is_news(roster: Roster, parking: Parking) -> None:
    lane = a_lane(roster, "x")
    worker = a_worker(roster, "w", ">", credit=1)
    list(roster.rank_changed())
    parking.park(lane)
    parking.pools_changed(lane, worker.pools)
    lane.served_by(worker.pools)
    assert served(parking) == ["x"]


def test_the_turn_for_which_a_worker_is_kept_is_told_and_its_pools_are_not(roster: Roster, parking: Parking) -> None:
    worker = a_worker(roster, "w", ">")
    lane = a_lane(roster, "x")
    parking.park(lane)
    turn = Turn(lane, ClientRecord(ClientId("c")))
    worker.kept_for = turn
    give(roster, worker, 1)
    assert list(parking.collect_credit()) == [turn]
    parking.begin_service()
    assert parking.next() is None
    worker.kept_for = None
    give(roster, worker, 1)
    list(parking.collect_credit())
    parking.offer_rest_of(worker)
    assert parking.next() is lane, "the rest of its credit is for those that waited"
