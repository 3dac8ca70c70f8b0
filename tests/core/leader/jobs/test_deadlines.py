"""A job that is not done in time is told once, and those that are done leave no timers behind."""

from __future__ import annotations

from wakugumi.core.ids import JobId
from wakugumi.core.leader.jobs.deadlines import Deadlines


def job(number: int) -> JobId:
    return JobId(number.to_bytes(16, "big"))


def passed(deadlines: Deadlines, now: float) -> list[JobId]:
    found = []
    for job_id in deadlines.passed(now):
        del deadlines.by_job[job_id]
        found.append(job_id)
    deadlines.check()
    return found


def test_the_earliest_comes_first_and_each_of_them_once() -> None:
    deadlines = Deadlines()
    assert deadlines.wake_at() is None
    deadlines.add(job(1), 5.0)
    deadlines.add(job(2), 3.0)
    assert deadlines.wake_at() == 3.0
    assert passed(deadlines, 2.9) == []
    assert passed(deadlines, 5.0) == [job(2), job(1)]
    assert passed(deadlines, 9.0) == []
    assert deadlines.wake_at() is None


def test_a_job_that_is_done_is_not_told_and_one_that_has_more_time_is_told_then() -> None:
    deadlines = Deadlines()
    deadlines.add(job(1), 3.0)
    deadlines.add(job(2), 3.0)
    del deadlines.by_job[job(1)]
    deadlines.add(job(2), 7.0)
    assert passed(deadlines, 4.0) == []
    assert passed(deadlines, 7.0) == [job(2)]


def test_timers_of_jobs_that_are_done_do_not_fill_the_memory() -> None:
    deadlines = Deadlines()
    for number in range(1_000):
        deadlines.add(job(number), 1e9 + number)
        del deadlines.by_job[job(number)]
    assert len(deadlines.timers) < 100
    deadlines.add(job(1_000), 1.0)
    assert passed(deadlines, 1.0) == [job(1_000)]
