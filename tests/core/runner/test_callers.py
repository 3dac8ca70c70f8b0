"""What do callers of this machine want, and what are they told?"""

from __future__ import annotations

from wakugumi.core.ids import JobId
from wakugumi.core.runner.callers import Callers
from wakugumi.core.runner.events import AnswerCaller, CallerWants, LoadResult, RefuseCaller, SlotsDo

A = JobId(bytes(16))


def wanted(*, here: bool = False, leaving: bool = False, slots: int = 1) -> tuple[Callers, list[SlotsDo]]:
    do: list[SlotsDo] = []
    callers = Callers(do)
    callers.want(CallerWants(A, b"request", slots), here=here, leaving=leaving, slots=2)
    return callers, do


def test_the_disk_is_asked_first_for_a_job_that_is_not_here() -> None:
    callers, do = wanted()
    assert do == [LoadResult(A)]
    assert A in callers.asked
    assert A in callers.waiting


def test_a_job_that_is_here_is_waited_for() -> None:
    callers, do = wanted(here=True, leaving=True)
    assert do == []
    assert A in callers.waiting
    assert not callers.asked


def test_a_machine_that_leaves_or_is_too_small_says_no() -> None:
    for (callers, do), code in ((wanted(leaving=True), "stopping"), (wanted(slots=3), "bad-request")):
        [refused] = do
        assert isinstance(refused, RefuseCaller)
        assert refused.code == code
        assert not callers.waiting


def test_a_result_is_told_once_and_only_to_those_who_wait() -> None:
    callers, do = wanted()
    do.clear()
    callers.answer(A, b"result", b"digest", kept=True)
    callers.answer(A, b"result", b"digest")
    assert do == [AnswerCaller(A, b"result", b"digest", True)]
    assert not callers.asked


def test_a_caller_that_the_disk_is_asked_for_does_not_hear_of_the_leaders_assignment() -> None:
    callers, do = wanted()
    do.clear()
    callers.refuse_assigned(A, "busy", "gone")
    assert do == []
    callers.asked.clear()
    callers.refuse_assigned(A, "busy", "gone")
    callers.refuse_assigned(A, "busy", "gone")
    assert do == [RefuseCaller(A, "busy", "gone")]
