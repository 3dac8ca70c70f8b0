"""What must hold between the parts of the runner's state machine?"""

from __future__ import annotations

import pytest

from wakugumi.core.ids import JobId
from wakugumi.core.runner.events import LoadResult
from wakugumi.core.runner.jobs_here import PendingRun
from wakugumi.core.runner.slots_state import SlotsState

A, B = (JobId(number.to_bytes(16, "little")) for number in (1, 2))


def state() -> SlotsState:
    new = SlotsState(2, 0.75, 600.0)
    new.check()
    return new


def test_a_machine_without_jobs_is_free_and_done() -> None:
    new = state()
    assert (new.unused(), new.free(), new.is_done()) == (2, 2, True)
    assert not new.has(A)


def test_a_slot_that_is_due_is_not_free_though_nothing_runs_in_it() -> None:
    new = state()
    new.jobs.running[A] = 1
    assert (new.unused(), new.free(), new.is_done()) == (1, 1, False)
    new.jobs.due[B] = PendingRun(b"request", 2)
    assert (new.unused(), new.free()) == (1, 0)


def test_a_machine_that_leaves_is_free_for_nobody() -> None:
    new = state()
    new.line.leaving = True
    assert (new.unused(), new.free()) == (2, 0)


def test_a_job_that_the_disk_is_asked_for_is_here() -> None:
    new = state()
    new.callers.asked[A] = PendingRun(b"request", 1)
    assert new.has(A)
    assert not new.is_done()


def test_each_step_takes_what_is_to_be_done_once() -> None:
    new = state()
    new.do.append(LoadResult(A))
    assert new.take_steps() == [LoadResult(A)]
    assert new.take_steps() == []
    new.check()


def test_a_caller_that_waits_for_nothing_and_a_job_whose_old_result_is_owed_are_noticed() -> None:
    new = state()
    new.callers.waiting.add(A)
    with pytest.raises(AssertionError, match="waits for nothing"):
        new.check()
    new = state()
    new.jobs.running[A] = 1
    new.kept.finish(A, "", b"result", 0.0)
    with pytest.raises(AssertionError, match="a job that runs"):
        new.check()
