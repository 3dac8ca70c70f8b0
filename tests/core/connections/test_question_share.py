"""Questions take a share of the leader's time while jobs wait, and connections take turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.connections.question_share import QuestionShare
from wakugumi.core.ids import ConnId
from wakugumi.limits.leader import QUESTIONS_BYTES_MAX, QUESTIONS_PER_CONNECTION_MAX

pytestmark = pytest.mark.spec("O6")

A, B = ConnId(1), ConnId(2)


def test_while_no_job_waits_each_is_answered_at_once() -> None:
    questions: QuestionShare[str] = QuestionShare()
    questions.spent(1000.0)
    assert questions.ask(A, "a", 1)
    assert questions.next(0.0, jobs_wait=True) is None
    assert questions.next(0.0, jobs_wait=False) == "a"
    assert questions.due_at() is None


def test_a_costly_question_makes_the_next_one_wait_ten_times_as_long() -> None:
    questions: QuestionShare[str] = QuestionShare(share=0.1, burst_s=0.5)
    for name in ("first", "second", "third"):
        assert questions.ask(A, name, 1)
    assert questions.next(100.0, jobs_wait=True) == "first"
    questions.spent(2.5)
    assert questions.next(100.0, jobs_wait=True) is None
    assert questions.due_at() == pytest.approx(120.0)
    assert questions.next(119.0, jobs_wait=True) is None
    assert questions.next(120.1, jobs_wait=True) == "second"
    questions.spent(0.0)
    assert questions.next(120.1, jobs_wait=True) == "third"


def test_connections_take_turns_and_one_that_asks_much_holds_up_none() -> None:
    questions: QuestionShare[str] = QuestionShare()
    for at in range(5):
        assert questions.ask(A, f"a{at}", 1)
    assert questions.ask(B, "b0", 1)
    assert questions.ask(B, "b1", 1)
    got = [questions.next(0.0, jobs_wait=True) for _ in range(8)]
    assert got == ["a0", "b0", "a1", "b1", "a2", "a3", "a4", None]


def test_what_waits_is_bounded_and_goes_with_its_connection() -> None:
    questions: QuestionShare[int] = QuestionShare()
    taken = [questions.ask(A, at, 1) for at in range(QUESTIONS_PER_CONNECTION_MAX + 1)]
    assert (sum(taken), taken[-1]) == (QUESTIONS_PER_CONNECTION_MAX, False)
    assert questions.ask(B, 1, 1), "another connection has room"
    questions.went(A)
    questions.went(ConnId(9))
    assert len(questions) == 1
    assert questions.next(0.0, jobs_wait=True) == 1
    assert not questions.ask(A, 1, QUESTIONS_BYTES_MAX + 1)
    assert len(questions) == 0


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 1), st.integers(1, 3)), max_size=60))
def test_never_more_than_the_share_and_one_answer_beyond_it(steps: list[tuple[float, float, int]]) -> None:
    share, burst_s = 0.1, 0.25
    questions: QuestionShare[int] = QuestionShare(share, burst_s)
    now = spent = last = 0.0
    for passed, cost, conn in steps:
        now += passed
        questions.ask(ConnId(conn), 0, 1)
        if questions.next(now, jobs_wait=True) is not None:
            assert spent <= share * now + burst_s + 1e-6
            questions.spent(cost)
            spent, last = spent + cost, cost
        assert spent - last <= share * now + burst_s + 1e-6
