"""Which leader knows a job already, and how long is an answer awaited?"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from wakugumi.core.client.events import ClientDo, LeaderNo
from wakugumi.core.client.job_search import JobSearch
from wakugumi.core.client.leader_row import LeaderConnection
from wakugumi.core.client.leaders import Leaders
from wakugumi.core.ids import ConnId, JobId
from wakugumi.limits.client import FIND_COMING_S, FIND_WITHIN_S

A, B = (JobId(bytes([number]) * 16) for number in (1, 2))


@dataclass
class World:
    """Two leaders that are dialled at 0, and the search among them."""

    leaders: Leaders = field(
        default_factory=lambda: Leaders(
            lambda: 0.5, [LeaderNo(1), LeaderNo(2)], cap=10, choice="least", grace_s=10.0, embedded=False
        )
    )
    do: list[ClientDo] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.search = JobSearch(self.leaders)
        self.leaders.dial(0.0, self.do)

    def connect(self, number: int, *, takes_finds: bool = True) -> LeaderConnection:
        dialling = self.leaders.rows[LeaderNo(number)].dialling
        assert dialling is not None
        self.leaders.connected(ConnId(dialling), 0.0, self.do)
        conn = self.leaders.conns[dialling]
        conn.ready = conn.own = True
        conn.takes_finds = takes_finds
        return conn


@pytest.fixture
def world() -> World:
    return World()


def test_every_leader_is_asked_once(world: World) -> None:
    one, two = world.connect(1), world.connect(2)
    assert world.search.begin(A, 10.0)
    world.search.ask(one, A, 11.0)
    assert (one.finds, two.finds) == ([A], [A])
    assert one.open_finds == {A: 10.0}
    assert list(world.search.jobs) == [A]
    world.search.check()


@pytest.mark.parametrize("why", ["old", "removed"])
def test_a_leader_that_cannot_be_asked_is_not_awaited(world: World, why: str) -> None:
    one, two = world.connect(1, takes_finds=why != "old"), world.connect(2, takes_finds=why != "old")
    one.leader.removed = two.leader.removed = why == "removed"
    assert not world.search.begin(A, 10.0)
    assert not world.search.jobs
    assert not one.finds


def test_a_job_is_settled_when_all_have_answered(world: World) -> None:
    one, two = world.connect(1), world.connect(2)
    world.search.begin(A, 10.0)
    world.search.begin(B, 10.0)
    assert world.search.settled(10.0) == []
    del one.open_finds[A]
    assert world.search.settled(10.0) == []
    del two.open_finds[A]
    assert world.search.settled(10.0) == [A]
    world.search.over(A)
    assert list(world.search.jobs) == [B]


def test_a_silent_leader_is_awaited_so_long_and_then_asked_no_more(world: World) -> None:
    one, two = world.connect(1), world.connect(2)
    world.search.begin(A, 10.0)
    del one.open_finds[A]
    over = 10.0 + FIND_WITHIN_S
    assert world.search.wake_at() == over
    assert world.search.settled(over - 0.01) == []
    assert world.search.settled(over) == [A]
    assert (one.late, two.late) == (False, True)
    assert world.search.wake_at() is None
    assert world.search.begin(B, over)
    assert (one.finds, two.finds) == ([A, B], [A])
    assert two.missed
    world.search.check()


def test_a_leader_that_has_caught_up_is_asked_for_what_it_missed(world: World) -> None:
    world.connect(1)
    two = world.connect(2)
    world.search.begin(A, 10.0)
    late = 10.0 + FIND_WITHIN_S
    world.search.settled(late)
    world.search.begin(B, late)
    assert world.search.caught_up(late) == []
    two.open_finds.clear()
    world.search.news = False
    world.search.update_late(two, late)
    assert world.search.news
    assert world.search.caught_up(late) == [two]
    assert world.search.caught_up(late) == [], "once"


def test_a_leader_that_is_about_to_serve_is_awaited(world: World) -> None:
    world.connect(1)
    assert world.search.expects_leader(FIND_COMING_S - 0.01)
    assert not world.search.expects_leader(FIND_COMING_S)
    world.search.begin(A, 0.5)
    world.leaders.rows[LeaderNo(1)].conn.open_finds.clear()  # type: ignore[union-attr]
    assert world.search.settled(1.0) == [], "the second leader may know it"
    assert world.search.wake_at() == FIND_COMING_S
    assert world.search.settled(FIND_COMING_S) == [A]


def test_a_leader_that_failed_or_was_removed_is_not_about_to_serve(world: World) -> None:
    world.connect(1)
    second = world.leaders.rows[LeaderNo(2)]
    second.failures = 1
    assert not world.search.expects_leader(1.0)
    second.failures, second.removed = 0, True
    assert not world.search.expects_leader(1.0)


def test_an_ended_search_leaves_no_open_question(world: World) -> None:
    one = world.connect(1)
    world.search.begin(A, 10.0)
    world.search.settled(10.0 + FIND_WITHIN_S)
    assert one.late
    world.search.over(A)
    world.search.over(A)
    assert (one.open_finds, world.search.jobs) == ({}, {})
    world.search.check()
    assert [one.late] == [False]
