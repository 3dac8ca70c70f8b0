"""Claims of jobs that others submitted: whom they are asked of, and when they are given up."""

from __future__ import annotations

import pytest

from wakugumi.core.client import events as fo
from wakugumi.core.client.claims import OpenClaims
from wakugumi.core.client.events import ANY_LEADER, ClientDo, LeaderNo
from wakugumi.core.client.leader_row import LeaderConnection
from wakugumi.core.client.leaders import Leaders
from wakugumi.core.ids import ConnId, JobId

FIRST, SECOND = LeaderNo(1), LeaderNo(2)
A = JobId(b"a" * 16)
GRACE_S = 10.0
UNKNOWN = ("unknown-job", "no such job")


class Claiming:
    """Two leaders, which have been dialled."""

    def __init__(self) -> None:
        self.leaders = Leaders(
            lambda: 0.5, [FIRST, SECOND], cap=2, choice="least", grace_s=GRACE_S, embedded=False, old_leader=True
        )
        self.claims = OpenClaims(self.leaders)
        self.leaders.dial(0.0, [])

    def serve(self, no: LeaderNo, *, own: bool = True) -> LeaderConnection:
        self.leaders.connected(ConnId(no), 0.0, [])
        conn = self.leaders.conns[ConnId(no)]
        conn.own = own
        self.leaders.ready(conn, 0.0, [])
        if own:
            self.claims.ask(conn)
        return conn

    def deny(self, conn: LeaderConnection) -> list[ClientDo]:
        self.claims.refused(conn, A, *UNKNOWN)
        return self.judge()

    def judge(self, now: float = 0.0) -> list[ClientDo]:
        do: list[ClientDo] = []
        self.claims.judge(now, do)
        self.claims.check()
        return do


@pytest.fixture
def claiming() -> Claiming:
    return Claiming()


def test_a_claim_is_asked_of_each_leader_once_and_ends_with_a_result(claiming: Claiming) -> None:
    first = claiming.serve(FIRST)
    claiming.claims.add(A, ANY_LEADER)
    second = claiming.serve(SECOND)
    claiming.claims.ask(second)
    assert first.claims == second.claims == [A]
    assert claiming.judge() == []
    assert claiming.claims.answered(A, first)
    assert not claiming.claims.answered(A, second), "a second result is nobody's"
    assert not second.claimed


def test_a_claim_is_given_up_when_all_have_denied_it_and_not_before(claiming: Claiming) -> None:
    first, second = claiming.serve(FIRST), claiming.serve(SECOND)
    claiming.claims.add(A, ANY_LEADER)
    assert claiming.claims.news
    assert claiming.deny(first) == []
    assert not claiming.claims.answered(A, first), "that one does not know it"
    assert claiming.deny(second) == [fo.GiveUp(A, *UNKNOWN)]
    assert not claiming.claims.open


def test_a_leader_that_is_away_has_its_grace(claiming: Claiming) -> None:
    first = claiming.serve(FIRST)
    claiming.serve(SECOND)
    claiming.claims.add(A, ANY_LEADER)
    claiming.leaders.lost(ConnId(SECOND), "gone", 1.0, [])
    claiming.claims.refused(first, A, *UNKNOWN)
    assert claiming.judge(GRACE_S) == []
    assert claiming.judge(GRACE_S + 1.0) == [fo.GiveUp(A, *UNKNOWN)]


def test_a_claim_of_one_leader_waits_for_it_and_asks_no_other(claiming: Claiming) -> None:
    first = claiming.serve(FIRST)
    claiming.claims.add(A, SECOND)
    assert not first.claims
    assert claiming.judge(1e6) == []
    claiming.leaders.drop(claiming.leaders.rows[SECOND])
    assert claiming.judge() == [fo.GiveUp(A, "no-leader", "the leader that has it was removed")]


def test_old_leaders_cannot_be_asked(claiming: Claiming) -> None:
    claiming.serve(FIRST, own=False)
    claiming.claims.add(A, ANY_LEADER)
    assert claiming.judge() == []
    claiming.serve(SECOND, own=False)
    no = "an old leader cannot be asked for a job of someone else"
    assert claiming.judge() == [fo.GiveUp(A, "not-supported", no)]


def test_a_cancel_is_told_to_all_and_ends_when_nobody_knows_the_job(claiming: Claiming) -> None:
    first = claiming.serve(FIRST)
    claiming.claims.add(A, ANY_LEADER)
    do: list[ClientDo] = []
    claiming.claims.cancel(A, do)
    claiming.claims.cancel(A, do)
    assert do == []
    assert first.cancels == [A]
    second = claiming.serve(SECOND)
    assert (second.claims, second.cancels) == ([A], [A]), "it is claimed, and cancelled, where it may be"
    assert claiming.deny(first) == []
    no = "it was cancelled before a leader was found that knows it"
    assert claiming.deny(second) == [fo.GiveUp(A, "cancelled", no)]


def test_a_claim_that_nobody_was_asked_is_cancelled_at_once(claiming: Claiming) -> None:
    claiming.claims.add(A, ANY_LEADER)
    do: list[ClientDo] = []
    claiming.claims.cancel(A, do)
    assert do == [fo.GiveUp(A, "cancelled", "it was cancelled before it was sent")]
    assert all(A in row.cancels for row in claiming.leaders.rows.values())
