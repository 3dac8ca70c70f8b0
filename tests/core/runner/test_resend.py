"""What a leader is told again, a few at a time."""

from __future__ import annotations

import pytest

from wakugumi.core.ids import JobId
from wakugumi.core.runner.finished import FOUND_MAX, FinishedJobs
from wakugumi.core.runner.resend import RESENT_AT_ONCE, Resending

NOW = 1_000.0


def job(number: int) -> JobId:
    return JobId(number.to_bytes(16, "little"))


def nothing_is(_: JobId) -> bool:
    return False


def owing(count: int) -> tuple[FinishedJobs, Resending]:
    kept = FinishedJobs()
    for number in range(count):
        kept.finish(job(number), "", b"result", NOW)
    again = Resending(kept)
    again.begin()
    return kept, again


def all_next(again: Resending) -> list[JobId]:
    jobs = []
    while (each := again.next(nothing_is)) is not None:
        again.search(each)
        jobs.append(each)
    again.check()
    return jobs


@pytest.mark.spec("W7")
def test_only_so_many_are_on_their_way_and_a_confirmation_makes_room() -> None:
    _, again = owing(RESENT_AT_ONCE + 2)
    assert all_next(again) == [job(number) for number in range(RESENT_AT_ONCE)]
    assert again.settle([job(0)])
    assert all_next(again) == [job(RESENT_AT_ONCE)]


@pytest.mark.spec("W7")
def test_what_was_confirmed_before_its_turn_is_not_told() -> None:
    kept, again = owing(2)
    kept.confirm(job(0))
    assert all_next(again) == [job(1)]


def test_without_anything_on_its_way_nothing_follows_a_confirmation() -> None:
    _, again = owing(0)
    assert not again.settle([job(1)])


@pytest.mark.spec("W4", "W7")
def test_what_is_fetched_is_told_once_and_not_if_it_is_answered_otherwise() -> None:
    kept, again = owing(1)
    assert list(again.fetch([job(0), job(7), job(7), job(8)])) == []
    assert again.is_promised
    assert again.next(nothing_is) == job(0)
    again.sent(job(0), confirms=True)
    assert again.next(lambda each: each == job(8)) == job(7), "0 is owed, and told as such"
    again.search(job(7))
    assert again.is_searched(job(7))
    assert not again.is_searched(job(0))
    assert again.next(lambda each: each == job(8)) is None
    again.sent(job(7), confirms=False)
    assert not again.is_promised
    assert kept.owes(job(0))


def test_no_more_is_fetched_at_once_than_was_offered() -> None:
    _, again = owing(0)
    jobs = [job(number) for number in range(FOUND_MAX + 1)]
    assert list(again.fetch(jobs)) == jobs[-1:]


@pytest.mark.spec("L4")
def test_when_the_leader_goes_all_is_forgotten_and_the_next_one_hears_what_is_owed() -> None:
    _, again = owing(2)
    again.fetch([job(7)])
    all_next(again)
    again.end()
    assert again.is_idle
    again.begin()
    assert all_next(again) == [job(0), job(1)]
