"""`waku jobs cancel`: so many jobs that one question does not hold them. The leader is scripted here."""

from __future__ import annotations

import msgspec
import pytest
from tests.kit.answering_leader import AnsweringLeader

from wakugumi.app.admin.jobs import IDS_AT_ONCE
from wakugumi.app.cli import call
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.limits.leader import CANCELLED_AT_ONCE_MAX

pytestmark = pytest.mark.spec("L10")


def test_many_ids_are_cancelled_in_slices_and_the_answers_added_up(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(question: qu.Question) -> msgspec.Struct:
        assert isinstance(question, qu.AskCancel)
        return an.CancelAnswer(len(question.jobs) - 3, 2, question.jobs[:1], 1)

    leader.answer = answer
    names = [f"job-{number}" for number in range(2 * IDS_AT_ONCE + 5)]
    assert call(["jobs", "cancel", *names, "--forget"]) == 3
    said = capsys.readouterr()
    assert said.out == f"{2 * IDS_AT_ONCE - 4:,} jobs cancelled, 6 jobs had ended before, 3 results forgotten\n"
    assert said.err.splitlines() == [
        f"{IDS_AT_ONCE - 3:,} jobs cancelled, {IDS_AT_ONCE + 5:,} to go",
        f"{2 * IDS_AT_ONCE - 6:,} jobs cancelled, 5 to go",
        "unknown: job-0",
        f"unknown: job-{IDS_AT_ONCE}",
        f"unknown: job-{2 * IDS_AT_ONCE}",
    ]
    sent = [job for question in leader.asked if isinstance(question, qu.AskCancel) for job in question.jobs]
    assert len(sent) == len(set(sent)) == len(names)
    assert IDS_AT_ONCE <= CANCELLED_AT_ONCE_MAX, "the leader does a slice in one step"


def test_what_a_filter_matches_is_cancelled_to_the_last(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [an.CancelAnswer(50_000, 0, [], left=7), an.CancelAnswer(7, 0, [])]
    leader.answer = lambda _question: answers[len(leader.asked) - 1]
    assert call(["jobs", "cancel", "--client", "desk-1"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("50,007 jobs cancelled\n", "50,000 jobs cancelled, 7 to go\n")
    assert leader.asked == [qu.AskCancel(client="desk-1")] * 2
