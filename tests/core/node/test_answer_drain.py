"""Answers that a stopping node waits for."""

from __future__ import annotations

import pytest

from wakugumi.core.node.answer_drain import AnswerDrain
from wakugumi.limits.wire import DRAIN_DEADLINE_S


@pytest.fixture
def drain() -> AnswerDrain:
    drain = AnswerDrain()
    drain.begin()
    drain.begin()
    drain.end()
    return drain


def test_a_node_that_does_not_stop_waits_for_nothing(drain: AnswerDrain) -> None:
    drain.end()
    assert not drain.is_over(1e9)


def test_the_last_answer_ends_the_wait(drain: AnswerDrain) -> None:
    drain.stop(100.0)
    assert not drain.is_over(100.0)
    drain.end()
    assert drain.is_over(100.0)


def test_an_answer_has_its_time_and_no_more(drain: AnswerDrain) -> None:
    drain.stop(100.0)
    drain.stop(120.0)
    assert drain.due_at == 100.0 + DRAIN_DEADLINE_S
    assert not drain.is_over(drain.due_at - 0.1)
    assert drain.is_over(drain.due_at)


def test_in_a_hurry_no_answer_is_waited_for(drain: AnswerDrain) -> None:
    drain.hurry()
    assert not drain.is_over(100.0)
    drain.stop(100.0)
    assert drain.is_over(100.0)
    assert drain.answering == 1
