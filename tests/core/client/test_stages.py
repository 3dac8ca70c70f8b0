"""The stages of a job, and the steps between them."""

from __future__ import annotations

from wakugumi.core.client.events import ANY_LEADER, LeaderNo
from wakugumi.core.client.stages import SEARCHED, UNSENT, Sent, Stranded, UnfinishedJob

FIRST, SECOND = LeaderNo(1), LeaderNo(2)


def test_a_job_that_no_leader_has_is_with_none() -> None:
    assert UnfinishedJob(b"x").at is UNSENT
    assert UNSENT.leader == SEARCHED.leader == ANY_LEADER
    assert UNSENT is not SEARCHED


def test_a_job_is_unanswered_only_by_the_leader_that_it_was_sent_to_and_until_its_receipt() -> None:
    record = UnfinishedJob(b"x", Sent(FIRST))
    assert record.is_unanswered_by(FIRST)
    assert not record.is_unanswered_by(SECOND)
    record.accept()
    assert record.at == Sent(FIRST, accepted=True)
    assert not record.is_unanswered_by(FIRST)
    assert not UnfinishedJob(b"x", Stranded(FIRST)).is_unanswered_by(FIRST)
    assert not UnfinishedJob(b"x").is_unanswered_by(ANY_LEADER)


def test_a_receipt_neither_ends_a_cancel_nor_a_doubt() -> None:
    record = UnfinishedJob(b"x", Sent(FIRST, doubted=True))
    record.cancel()
    record.accept()
    assert record.at == Sent(FIRST, accepted=True, cancelled=True, doubted=True)
    assert record.is_cancelled
    assert not UnfinishedJob(b"x").is_cancelled


def test_one_job_moves_on_and_others_with_the_same_stage_do_not() -> None:
    shared = Sent(FIRST)
    one, other = UnfinishedJob(b"x", shared), UnfinishedJob(b"y", shared)
    one.cancel()
    assert other.at is shared
    assert not other.is_cancelled


def test_a_leader_that_may_have_a_job_is_named_once() -> None:
    record = UnfinishedJob(b"x")
    for leader in (FIRST, SECOND, FIRST):
        record.add_may_have(leader)
    assert record.may_have == (FIRST, SECOND)
    record.drop_may_have(FIRST)
    record.drop_may_have(FIRST)
    assert record.may_have == (SECOND,)
