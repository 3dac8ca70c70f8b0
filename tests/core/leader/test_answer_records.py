"""What does a leader answer to a question?"""

from __future__ import annotations

import pytest

from wakugumi.core.leader.answer_records import CancelAnswer, WorkerRow


def test_answers_of_two_leaders_add_up_and_a_job_is_unknown_only_if_neither_knows_it() -> None:
    one = CancelAnswer(1, 2, ["a", "b"], forgotten=3, left=4)
    other = CancelAnswer(10, 20, ["b", "c"], forgotten=30, left=40)
    assert one.beside(other) == CancelAnswer(11, 22, ["b"], forgotten=33, left=44)


@pytest.mark.parametrize(
    ("rests", "held_by", "why"),
    [("", 0.0, ""), ("", 0.25, "others use 25% of its CPU"), ("its disk is full", 0.25, "its disk is full")],
)
def test_a_worker_that_takes_fewer_jobs_has_a_reason(rests: str, held_by: float, why: str) -> None:
    row = WorkerRow("w", "", "ready", [], 1, 0, 0.0, 0.0, rests=rests, held_by=held_by)
    assert row.why == why
