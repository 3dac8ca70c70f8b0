"""What a leader says of a job, and what that changes."""

from __future__ import annotations

import pytest

from wakugumi.core.client import events as fo
from wakugumi.core.client.events import ClientDo, LeaderNo
from wakugumi.core.client.jobs import UnfinishedJobs
from wakugumi.core.client.leader_row import NEEDS_BLOBS, LeaderConnection
from wakugumi.core.client.leaders import Leaders
from wakugumi.core.client.replies import LeaderReplies
from wakugumi.core.client.stages import SEARCHED, UNSENT, Sent, Stranded, UnfinishedJob
from wakugumi.core.ids import ConnId, JobId
from wakugumi.limits.wire import GIVEN_BYTES_MAX

FIRST, SECOND = LeaderNo(1), LeaderNo(2)
A = JobId(b"a" * 16)
UNKNOWN = ("unknown-job", "no such job")


class Talk:
    """Two own leaders that serve, and one job."""

    def __init__(self) -> None:
        self.leaders = Leaders(
            lambda: 0.5, [FIRST, SECOND], cap=2, choice="least", grace_s=10.0, embedded=False, old_leader=True
        )
        self.jobs = UnfinishedJobs(self.leaders)
        self.replies = LeaderReplies(self.leaders, self.jobs)
        self.leaders.dial(0.0, [])
        self.first, self.second = self.serve(FIRST), self.serve(SECOND)
        self.do: list[ClientDo] = []
        self.record = self.jobs.records[A] = UnfinishedJob(b"frame")
        self.jobs.send(A, self.record, self.first)

    def serve(self, no: LeaderNo) -> LeaderConnection:
        self.leaders.connected(ConnId(no), 0.0, [])
        conn = self.leaders.conns[ConnId(no)]
        conn.own = conn.takes_finds = True
        self.leaders.ready(conn, 0.0, [])
        self.leaders.find_takers()
        return conn

    def refuse(self, conn: LeaderConnection, code: str, text: str = "") -> None:
        self.replies.refused(conn, A, code, text, 0.0, self.do)
        self.jobs.search.check()


@pytest.fixture
def talk() -> Talk:
    return Talk()


def test_a_receipt_counts_if_it_comes_from_the_leader_of_the_job(talk: Talk) -> None:
    talk.replies.accepted(talk.second, [A])
    assert talk.record.at == Sent(FIRST)
    talk.replies.accepted(talk.first, [A])
    assert talk.record.at == Sent(FIRST, accepted=True)


def test_a_receipt_for_a_cancelled_job_leaves_it_cancelled(talk: Talk) -> None:
    talk.jobs.cancel(A, talk.do)
    talk.replies.accepted(talk.first, [A])
    assert talk.record.at == Sent(FIRST, accepted=True, cancelled=True)


def test_a_leader_that_had_the_job_all_the_time_gets_it_back(talk: Talk) -> None:
    talk.record.at = Stranded(FIRST)
    talk.second.claimed.add(A)
    talk.replies.accepted(talk.second, [A])
    assert talk.record.at == Sent(SECOND, accepted=True)
    assert not talk.second.claimed


@pytest.mark.parametrize("code", ["full", "disk-full", "stopping"])
def test_a_refusal_that_says_nothing_of_the_job_offers_it_to_others(talk: Talk, code: str) -> None:
    talk.refuse(talk.first, code)
    assert talk.record.at is UNSENT
    assert talk.do == [fo.Waiting(FIRST, code, "")]


def test_a_refusal_of_the_job_itself_ends_it(talk: Talk) -> None:
    talk.refuse(talk.first, "bad-request", "no")
    assert talk.do == [fo.GiveUp(A, "bad-request", "no")]


def test_a_cancelled_job_that_is_refused_was_cancelled(talk: Talk) -> None:
    talk.jobs.cancel(A, talk.do)
    talk.refuse(talk.first, "full")
    assert talk.do == [fo.GiveUp(A, "cancelled", "it was cancelled before the leader took it")]


def test_a_refusal_from_a_leader_that_was_only_asked_is_no_refusal_of_the_job(talk: Talk) -> None:
    talk.record.add_may_have(SECOND)
    talk.second.claimed.add(A)
    talk.refuse(talk.second, *UNKNOWN)
    assert (talk.record.at, talk.record.may_have, talk.do) == (Sent(FIRST), (), [])


def test_a_leader_that_does_not_know_what_it_may_have_is_sent_it_again(talk: Talk) -> None:
    talk.first.frames.clear()
    talk.refuse(talk.first, *UNKNOWN)
    assert not talk.first.frames, "that is about an earlier claim: the submit has an answer of its own"
    talk.record.add_may_have(FIRST)
    talk.refuse(talk.first, *UNKNOWN)
    assert talk.first.frames == [b"frame"]
    assert (talk.record.at, talk.record.first, talk.record.may_have) == (Sent(FIRST), FIRST, ())


def test_a_job_that_does_not_fit_waits_for_a_leader_that_takes_it(talk: Talk) -> None:
    talk.replies.does_not_fit(talk.first, fo.Unfit(ConnId(1), A, "too-big", "large"), 0.0, talk.do)
    assert (talk.record.at, talk.record.needs) == (UNSENT, NEEDS_BLOBS)
    assert talk.jobs.unsent.unfit == {NEEDS_BLOBS: ("too-big", "large")}


def test_a_job_that_fits_after_all_is_sent_there_again(talk: Talk) -> None:
    talk.first.frames.clear()
    talk.first.takes_blobs = True
    talk.replies.does_not_fit(talk.first, fo.Unfit(ConnId(1), A, "too-big", "large"), 0.0, talk.do)
    assert talk.first.frames == [b"frame"]


def test_what_waited_for_room_is_sent_unless_it_is_with_another_leader_by_now(talk: Talk) -> None:
    talk.first.frames.clear()
    for at, sent in ((Sent(FIRST), [b"frame"]), (Sent(SECOND), [])):
        talk.record.at = at
        talk.first.unwritten_bytes, talk.first.awaits_written, talk.first.later = GIVEN_BYTES_MAX, True, {A: None}
        talk.replies.written(talk.first)
        assert talk.first.frames == sent
        talk.first.frames.clear()


def test_a_leader_that_is_back_is_asked_for_what_it_has_and_may_have(talk: Talk) -> None:
    talk.record.at, talk.record.may_have = Stranded(FIRST), (FIRST, SECOND)
    talk.replies.serves(talk.second, 0.0)
    assert (talk.second.claims, talk.second.claimed) == ([A], {A})
    talk.replies.serves(talk.first, 0.0)
    assert talk.first.claims == [A]
    assert talk.record.at == Sent(FIRST)


def test_a_job_that_is_known_goes_where_it_is_known_and_one_that_is_unknown_to_all_waits(talk: Talk) -> None:
    for fate, at in (("known", Sent(SECOND)), ("unknown", UNSENT)):
        talk.record.at, talk.record.given = SEARCHED, True
        assert talk.jobs.search.begin(A, 0.0)
        talk.replies.found(talk.first, "unknown", [A], 0.0)
        assert talk.record.at is SEARCHED
        talk.replies.found(talk.second, fate, [A], 0.0)  # type: ignore[arg-type]
        assert talk.record.at == at


def test_a_late_answer_that_a_leader_knows_the_job_makes_it_one_that_may_have_it(talk: Talk) -> None:
    talk.record.given = True
    talk.second.open_finds[A] = 0.0
    talk.replies.found(talk.second, "known", [A], 100.0)
    assert (talk.record.may_have, talk.second.claimed) == ((SECOND,), {A})


def test_a_leader_that_was_not_asked_is_asked_for_jobs_that_wait(talk: Talk) -> None:
    talk.record.at, talk.record.given, talk.second.missed = UNSENT, True, True
    talk.replies.settle(0.0)
    assert talk.record.at is SEARCHED
    assert talk.second.finds == [A]
    talk.second.open_finds.clear()
    talk.replies.settle(0.0)
    assert talk.record.at is UNSENT, "nobody else is waited for"
