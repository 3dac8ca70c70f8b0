"""`waku workers …`: the right question is asked, and what keeps a worker from jobs is told. The leader is scripted."""

from __future__ import annotations

import pytest
from tests.kit.answering_leader import AnsweringLeader

from wakugumi.app.cli import call
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu

ROW = an.WorkerRow("rack1-7", "seven", "resting", ["job.assign.>"], 0, 2, 0.5, 1.0, rests="disk full", as_root=True)


@pytest.mark.parametrize(("verb", "question"), [("drain", qu.AskDrain("rack1-7")), ("resume", qu.AskResume("rack1-7"))])
def test_one_worker_is_drained_or_resumed(
    verb: str, question: qu.Question, leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    leader.answer = ROW
    assert call(["workers", verb, "rack1-7", "-o", "quiet"]) == 0
    assert capsys.readouterr().out == "rack1-7\n"
    assert leader.asked == [question]


def test_why_a_worker_rests_and_whose_rights_programs_have_is_told(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    leader.answer = an.WorkersAnswer([ROW])
    assert call(["workers", "list"]) == 0
    said = capsys.readouterr()
    assert "resting" in said.out
    assert "seven rests: disk full" in said.err
    assert "seven: programs run as root" in said.err
