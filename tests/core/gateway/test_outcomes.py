"""Does a row tell the same outcome as the flight that ended it?"""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.kit.gateway_jobs import JOB, NAME

from wakugumi.core.gateway.outcomes import GONE, ForwardAnswer, NoGroup, Problem, failed_row, outcome_of, outcome_word
from wakugumi.core.gateway.rows import DONE, FAILED, Content, GatewayJob

ROW = GatewayJob(job=JOB, name=NAME, owner="me", body=Content(1, b"x"))


def test_a_problem_is_kept_in_its_row() -> None:
    problem = Problem(504, "timeout", "too long", "give it more time")
    row = failed_row(ROW, problem)
    assert (row.state, row.body) == (FAILED, None)
    assert outcome_of(row) == problem


def test_an_answer_is_kept_in_its_row() -> None:
    row = replace(ROW, state=DONE, status=200, head={"Waku-Status": "OK"}, answer=Content(2, b"PK"))
    assert outcome_of(row) == ForwardAnswer(200, {"Waku-Status": "OK"}, 2, Content(2, b"PK"))
    assert outcome_of(ROW) == GONE


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (ForwardAnswer(200, {"Waku-Status": "OK"}, 0, 1), "ok"),
        (ForwardAnswer(200, {"Waku-Status": "FAILED"}, 0, 1), "failed"),
        (Problem(504, "timeout", ""), "timeout"),
        (NoGroup("all are gone"), "no-group"),
        (GONE, "gone"),
    ],
)
def test_each_outcome_is_a_word_of_the_metric(outcome: ForwardAnswer | Problem | NoGroup, word: str) -> None:
    assert outcome_word(outcome) == word
