"""Which job is with which leader: how it gets there, moves on, and ends."""

from __future__ import annotations

import pytest

from wakugumi.core.client import events as fo
from wakugumi.core.client.events import ClientDo, LeaderNo
from wakugumi.core.client.jobs import UnfinishedJobs
from wakugumi.core.client.leader_row import LeaderConnection
from wakugumi.core.client.leaders import Leaders
from wakugumi.core.client.stages import SEARCHED, UNSENT, Sent, Stranded, UnfinishedJob
from wakugumi.core.ids import ConnId, JobId

FIRST, SECOND = LeaderNo(1), LeaderNo(2)
A = JobId(b"a" * 16)
GRACE_S = 10.0


class Held:
    """Two own leaders that serve, and the jobs of one client."""

    def __init__(self) -> None:
        self.leaders = Leaders(
            lambda: 0.5, [FIRST, SECOND], cap=2, choice="least", grace_s=GRACE_S, embedded=False, old_leader=True
        )
        self.jobs = UnfinishedJobs(self.leaders)
        self.leaders.dial(0.0, [])
        self.first, self.second = self.serve(FIRST), self.serve(SECOND)
        self.do: list[ClientDo] = []

    def serve(self, no: LeaderNo) -> LeaderConnection:
        self.leaders.connected(ConnId(no), 0.0, [])
        conn = self.leaders.conns[ConnId(no)]
        conn.own = True
        self.leaders.ready(conn, 0.0, [])
        self.leaders.find_takers()
        return conn

    def add(self, conn: LeaderConnection | None = None, *, given: bool = False) -> UnfinishedJob:
        record = self.jobs.records[A] = UnfinishedJob(b"frame", given=given)
        if conn is None:
            self.jobs.unsent.add(A, record)
        else:
            self.jobs.send(A, record, conn)
        return record

    def lose(self, conn: LeaderConnection, now: float = 0.0) -> None:
        self.leaders.lost(conn.id, "gone", now, [])
        self.jobs.strand(conn, now, self.do)
        self.leaders.find_takers()


@pytest.fixture
def held() -> Held:
    return Held()


def test_a_job_that_waits_is_sent_to_a_leader_that_takes_it(held: Held) -> None:
    record = held.add()
    held.jobs.send_unsent(held.do)
    assert record.at == Sent(FIRST)
    assert held.first.frames == [b"frame"]
    held.jobs.check()


def test_what_a_lost_connection_carried_waits_for_its_leader_and_is_then_adopted(held: Held) -> None:
    record = held.add(held.first)
    held.lose(held.first)
    assert (record.at, record.may_have) == (Stranded(FIRST), (FIRST,))
    held.jobs.check()
    held.jobs.grace_over(held.leaders.rows[FIRST], GRACE_S)
    assert record.at is UNSENT
    held.jobs.send_unsent(held.do)
    assert record.at == Sent(SECOND)
    assert [row.adopted for row in held.leaders.rows.values()] == [0, 1]
    held.jobs.check()


def test_a_job_that_another_leader_was_asked_for_is_with_that_one(held: Held) -> None:
    record = held.add(held.first)
    record.add_may_have(SECOND)
    held.second.claimed.add(A)
    held.lose(held.first)
    assert record.at == Sent(SECOND)
    assert not held.second.claimed
    held.jobs.check()


def test_a_job_whose_search_goes_on_is_searched_and_not_sent(held: Held) -> None:
    record = held.add(held.first, given=True)
    held.second.takes_finds = True
    held.jobs.search.ask(held.second, A, 0.0)
    held.jobs.find_place(A, record, 0.0)
    assert record.at is SEARCHED
    held.jobs.check()


def test_a_job_for_one_leader_is_given_up_when_that_one_is_left(held: Held) -> None:
    held.jobs.submit_to(A, b"frame", FIRST, held.do)
    leader = held.leaders.rows[FIRST]
    held.leaders.drop(leader)
    held.jobs.part_from(leader, 0.0)
    held.jobs.give_up_unplaced(held.do)
    assert held.do == [fo.GiveUp(A, "no-leader", "the leader that it was meant for does not take it")]
    held.jobs.submit_to(A, b"frame", FIRST, held.do)
    assert held.do[1:] == [fo.GiveUp(A, "no-leader", "the leader that it was meant for does not serve")]


def test_a_cancel_is_told_to_the_leader_and_kept_if_its_connection_is_lost(held: Held) -> None:
    record = held.add(held.first)
    held.jobs.cancel(A, held.do)
    held.jobs.cancel(A, held.do)
    assert record.at == Sent(FIRST, cancelled=True)
    assert held.first.cancels == [A]
    held.lose(held.first)
    assert held.do == [fo.GiveUp(A, "cancelled", "it was cancelled, and its connection was lost")]
    assert A in held.leaders.rows[FIRST].cancels


def test_a_job_that_was_never_sent_is_cancelled_at_once_and_everywhere(held: Held) -> None:
    held.add()
    held.jobs.cancel(A, held.do)
    assert held.do == [fo.GiveUp(A, "cancelled", "it was cancelled before it was sent")]
    assert held.first.cancels == held.second.cancels == [A]


def test_a_result_of_an_earlier_run_is_no_answer_and_the_leader_is_asked_again(held: Held) -> None:
    held.leaders.rows[FIRST].remember_cancel(A)
    record = held.add(held.first)
    assert record.at == Sent(FIRST, doubted=True)
    assert not held.jobs.is_answer(A, record, held.first)
    assert held.first.claims == [A]
    assert held.jobs.is_answer(A, record, held.first)
    assert not held.jobs.is_answer(A, record, held.second), "that one has nothing to do with it"


def test_leaders_that_did_not_bring_the_first_result_are_told_to_let_the_job_go(held: Held) -> None:
    record = held.add(held.first)
    record.add_may_have(SECOND)
    held.jobs.ended(A, record, FIRST)
    assert (held.second.cancels, held.second.confirms) == ([A], [A])
    assert not held.first.cancels
    held.jobs.check()


def test_a_job_that_no_leader_can_take_is_given_up_as_the_last_one_said(held: Held) -> None:
    record = held.jobs.records[A] = UnfinishedJob(b"frame", needs=1)
    held.jobs.unsent.unfit[1] = "too-big", "its files do not fit"
    held.jobs.unsent.add(A, record)
    held.jobs.judge_needs(0.0, held.do)
    assert held.do == [fo.GiveUp(A, "too-big", "its files do not fit")]
    assert not held.jobs.unsent.by_need


def test_a_job_is_wanted_from_leaders_that_have_it_may_have_it_or_may_get_it(held: Held) -> None:
    rows = held.leaders.rows
    assert not held.jobs.is_wanted_from(rows[FIRST], A)
    record = held.add(held.first)
    assert [held.jobs.is_wanted_from(row, A) for row in rows.values()] == [True, False]
    record.add_may_have(SECOND)
    assert held.jobs.is_wanted_from(rows[SECOND], A)
