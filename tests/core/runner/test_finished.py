"""What a runner remembers of finished jobs, and for how long."""

from __future__ import annotations

import pytest

from wakugumi.core.ids import JobId
from wakugumi.core.runner.finished import (
    CANCELLED,
    DONE_IDS_MAX,
    FOUND_MAX,
    OWED_BYTES_MAX,
    OWED_MAX,
    FinishedJobs,
    age_found_s,
)
from wakugumi.limits.runner import DONE_TTL_S


def job(number: int) -> JobId:
    return JobId(number.to_bytes(16, "little"))


A, B = job(1), job(2)
NOW = 1_000.0
RESULT = b"result"


@pytest.mark.spec("W4", "L6")
@pytest.mark.parametrize("reason", ["", "exit", CANCELLED])
def test_an_unconfirmed_result_is_at_hand(reason: str) -> None:
    kept = FinishedJobs()
    kept.finish(A, reason, RESULT, NOW)
    assert kept.owed_here(A) == (RESULT, b"")
    assert kept.failure_stands(A, old_leader=False)
    assert kept.was_cancelled(A) is (reason == CANCELLED)
    assert kept.owed_here(B) is None
    assert not kept.was_cancelled(B)


@pytest.mark.spec("W4", "L6")
@pytest.mark.parametrize(("reason", "may_be_on_disk"), [("", True), ("exit", False), (CANCELLED, False)])
def test_of_confirmed_results_only_those_that_are_ok_are_looked_for(reason: str, may_be_on_disk: bool) -> None:
    kept = FinishedJobs()
    kept.finish(A, reason, RESULT, NOW)
    assert kept.confirm(A) is not may_be_on_disk
    assert not kept.confirm(A)
    kept.check()
    assert kept.may_be_on_disk(A, NOW) is may_be_on_disk
    assert not kept.owes(A)
    assert not kept.was_cancelled(A)


@pytest.mark.spec("W4")
def test_a_failure_that_was_delivered_stands_for_old_leaders_alone() -> None:
    kept = FinishedJobs()
    kept.finish(A, "exit", RESULT, NOW)
    kept.deliver(A)
    kept.check()
    assert kept.may_be_on_disk(A, NOW)
    assert kept.failure_stands(A, old_leader=True)
    assert not kept.failure_stands(A, old_leader=False)


@pytest.mark.spec("W4")
def test_what_was_found_on_the_disk_may_be_on_disk_but_its_failures_do_not_stand() -> None:
    kept = FinishedJobs()
    kept.find([(A, 10.0), (B, 2 * DONE_TTL_S)], NOW)
    assert kept.may_be_on_disk(A, NOW)
    assert not kept.failure_stands(A, old_leader=False)
    assert kept.failure_stands(A, old_leader=True)


@pytest.mark.spec("W4", "W7")
def test_what_was_found_is_offered_the_newest_first_and_its_time_begins_anew() -> None:
    kept = FinishedJobs()
    kept.find([(A, 10.0), (B, 2 * DONE_TTL_S)], NOW)
    kept.check()
    assert list(kept.earlier) == [A, B]
    kept.expire(NOW + DONE_TTL_S - 1)
    assert list(kept.earlier) == [A, B]
    kept.expire(NOW + DONE_TTL_S)
    kept.check()
    assert list(kept.earlier) == []
    assert not kept.may_be_on_disk(A, NOW + DONE_TTL_S)


@pytest.mark.spec("W7")
@pytest.mark.parametrize("ok", [True, False])
def test_what_was_fetched_is_owed_and_no_longer_offered(ok: bool) -> None:
    kept = FinishedJobs()
    kept.find([(A, 10.0), (B, 5.0)], NOW)
    kept.fetched(A, ok=ok)
    kept.check()
    assert (list(kept.earlier), list(kept.owed)) == ([B], [A])
    assert kept.owed_here(A) is None
    assert kept.confirm(A) is not ok
    assert kept.may_be_on_disk(A, NOW) is ok


@pytest.mark.spec("W7")
def test_what_an_old_leader_was_told_is_offered_to_the_next_one_that_can_fetch() -> None:
    kept = FinishedJobs()
    kept.finish(A, "", RESULT, NOW)
    kept.deliver(A)
    kept.deliver(B)
    assert not kept.owes(A)
    assert list(kept.earlier) == [A]
    kept.check()
    kept.expire(NOW + DONE_TTL_S)
    assert list(kept.earlier) == []
    kept.check()


def test_what_ran_again_or_is_gone_is_no_longer_offered() -> None:
    kept = FinishedJobs()
    kept.find([(A, 10.0), (B, 5.0)], NOW)
    kept.forget(A)
    assert list(kept.earlier) == [B]
    kept.forget(B)
    kept.finish(B, "", RESULT, NOW)
    kept.check()
    assert list(kept.earlier) == []


def test_more_than_can_be_offered_keeps_its_age() -> None:
    kept = FinishedJobs()
    found = [(job(number), 100.0 - number / FOUND_MAX) for number in range(FOUND_MAX + 2)]
    kept.find(found, NOW)
    kept.check()
    assert len(list(kept.earlier)) == FOUND_MAX
    kept.expire(NOW + DONE_TTL_S - 100.0)
    assert not kept.may_be_on_disk(job(0), NOW)
    assert kept.may_be_on_disk(job(1), NOW)
    assert kept.may_be_on_disk(job(2), NOW)


@pytest.mark.spec("W7")
def test_what_is_owed_outlives_its_time() -> None:
    kept = FinishedJobs()
    kept.finish(A, "", RESULT, NOW)
    kept.expire(NOW + DONE_TTL_S)
    assert list(kept.owed) == [A]
    assert kept.owed_here(A) == (RESULT, b"")
    assert kept.may_be_on_disk(A, NOW + DONE_TTL_S)


def test_a_leader_that_never_confirms_cannot_fill_the_memory() -> None:
    kept = FinishedJobs()
    for number in range(OWED_MAX + 1):
        kept.finish(job(number), "", RESULT, NOW)
    kept.check()
    assert kept.owed_count == OWED_MAX
    assert not kept.owes(job(0))
    assert kept.owes(job(OWED_MAX))


def test_results_that_would_fill_the_memory_are_left_to_the_disk() -> None:
    kept = FinishedJobs()
    half = bytes(OWED_BYTES_MAX // 2)
    for number in range(3):
        kept.finish(job(number), "", half, NOW)
    kept.check()
    assert [kept.owed_here(job(number)) for number in range(3)] == [(half, b""), (half, b""), None]
    assert kept.owes(job(2))
    assert kept.may_be_on_disk(job(2), NOW)
    kept.confirm(job(0))
    kept.finish(job(3), "", half, NOW)
    kept.check()
    assert kept.owed_here(job(3)) == (half, b"")


@pytest.mark.spec("W4")
def test_what_memory_had_to_let_go_is_looked_for_on_the_disk_until_its_time_is_over() -> None:
    kept = FinishedJobs()
    kept.find([(job(number), 100.0) for number in range(DONE_IDS_MAX)], NOW)
    assert not kept.may_be_on_disk(job(DONE_IDS_MAX), NOW)
    kept.finish(job(DONE_IDS_MAX), "", RESULT, NOW)
    kept.check()
    assert kept.may_be_on_disk(job(DONE_IDS_MAX + 1), NOW + DONE_TTL_S - 101.0)
    assert not kept.may_be_on_disk(job(DONE_IDS_MAX + 1), NOW + DONE_TTL_S - 100.0)


def test_a_job_that_finishes_again_is_remembered_from_its_last_end() -> None:
    kept = FinishedJobs()
    kept.finish(A, "", RESULT, NOW)
    kept.finish(B, "", RESULT, NOW + 1)
    kept.forget(A)
    assert not kept.may_be_on_disk(A, NOW + 1)
    kept.finish(A, "", RESULT, NOW + 2)
    kept.check()
    kept.confirm(A)
    kept.expire(NOW + 1 + DONE_TTL_S)
    assert kept.may_be_on_disk(A, NOW + 1 + DONE_TTL_S)


@pytest.mark.spec("N4")
def test_what_callers_had_made_is_known_for_its_time_and_owed_to_nobody() -> None:
    kept = FinishedJobs(3 * DONE_TTL_S)
    kept.find([(A, 1.0)], NOW)
    kept.forget(A)
    kept.remember(A, NOW)
    kept.expire(NOW + 2 * DONE_TTL_S)
    assert kept.may_be_on_disk(A, NOW)
    assert not kept.owes(A)
    assert list(kept.earlier) == []
    kept.expire(NOW + 3 * DONE_TTL_S)
    assert not kept.may_be_on_disk(A, NOW)
    kept.check()


@pytest.mark.spec("N4", "W7")
def test_what_an_earlier_life_left_keeps_its_age_but_has_a_while_left() -> None:
    assert age_found_s(5.0, DONE_TTL_S) == 0.0
    assert age_found_s(5.0, 10 * DONE_TTL_S) == 5.0
    assert age_found_s(50 * DONE_TTL_S, 10 * DONE_TTL_S) == 9 * DONE_TTL_S
    assert age_found_s(5.0, 0.0) == 0.0
