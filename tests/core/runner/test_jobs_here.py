"""Where is each job that was assigned to this machine?"""

from __future__ import annotations

import pytest

from wakugumi.core.ids import JobId
from wakugumi.core.runner.jobs_here import JobsHere, Lookup, PendingRun

A, B, C, D = (JobId(number.to_bytes(16, "little")) for number in range(1, 5))


def some() -> JobsHere:
    """One job in each place, of four slots."""
    jobs = JobsHere()
    jobs.running[A] = 2
    jobs.looking[B] = Lookup(b"b", False, 1)
    jobs.due[C] = PendingRun(b"c", 2)
    jobs.waiting[D] = b"d"
    jobs.check(4)
    return jobs


def test_slots_are_taken_by_what_runs_and_what_is_looked_for() -> None:
    jobs = some()
    assert all(jobs.has(job) for job in (A, B, C, D))
    assert (jobs.busy(), jobs.taken(), jobs.due_slots()) == (2, 3, 2)


def test_what_has_not_begun_begins_with_what_was_assigned_last() -> None:
    jobs = some()
    for job in (A, B, C, D):
        jobs.repeat(job, b"new")
    assert jobs.repeated == {A: b"new"}
    assert jobs.looking[B] == Lookup(b"new", False, 1)
    assert jobs.due[C] == PendingRun(b"new", 2)
    assert jobs.waiting[D] == b"new"
    jobs.cancelling[A] = None
    jobs.repeat(A, b"newer")
    assert (jobs.cancelling, jobs.repeated) == ({A: b"newer"}, {A: b"new"})


@pytest.mark.parametrize(("job", "freed"), [(A, None), (B, 1), (C, 2), (D, 0)])
def test_a_job_that_does_not_run_can_be_taken_away(job: JobId, freed: int | None) -> None:
    jobs = some()
    assert jobs.take_unstarted(job) == freed
    assert jobs.has(job) is (job == A)


def test_jobs_that_have_no_slots_yet_can_be_taken_together() -> None:
    jobs = some()
    assert jobs.take_queued() == ([D], [(C, 2)])
    assert [job for job in (A, B, C, D) if jobs.has(job)] == [A, B]


def test_without_a_leader_only_what_runs_is_left() -> None:
    jobs = some()
    jobs.repeated[A] = b"new"
    jobs.cancelling[A] = b"newer"
    assert jobs.leave_unstarted() == [B, D, C]
    assert (jobs.running, jobs.cancelling, jobs.repeated) == ({A: 2}, {A: None}, {})
    jobs.check(4)


def test_a_job_in_two_places_or_one_that_waits_beside_a_free_slot_is_noticed() -> None:
    jobs = some()
    jobs.waiting[A] = b"a"
    with pytest.raises(AssertionError, match="two places"):
        jobs.check(4)
    jobs = JobsHere()
    jobs.waiting[A] = b"a"
    with pytest.raises(AssertionError, match="a slot is free"):
        jobs.check(1)
    jobs = JobsHere()
    jobs.due[A] = PendingRun(b"a", 1)
    with pytest.raises(AssertionError, match="has room"):
        jobs.check(1)
