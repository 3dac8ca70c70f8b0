"""Answers of a node that stall, and those that only take long."""

from __future__ import annotations

from wakugumi.core.connections.answer_pace import AnswerPace
from wakugumi.limits.http import BODY_RECEIVED_MIN_BYTES


def test_an_answer_is_late_if_too_little_came_between_two_looks() -> None:
    pace: AnswerPace[str] = AnswerPace()
    assert not pace.too_slow({"stalls": 7, "moves": 7}), "they may have begun just now"
    assert pace.too_slow({"stalls": 6 + BODY_RECEIVED_MIN_BYTES, "moves": 7 + BODY_RECEIVED_MIN_BYTES}) == ["stalls"]
    assert not pace.too_slow({"moves": 7 + 2 * BODY_RECEIVED_MIN_BYTES, "new": 0})


def test_an_answer_that_waited_for_us_at_the_last_look_is_not_late() -> None:
    pace: AnswerPace[str] = AnswerPace()
    pace.too_slow({"one": 7})
    pace.too_slow({})
    assert not pace.too_slow({"one": 7})


def test_the_next_answer_of_the_same_exchange_begins_anew() -> None:
    pace: AnswerPace[str] = AnswerPace()
    pace.too_slow({"one": 10**6})
    pace.ended("one")
    assert not pace.too_slow({"one": 7})
