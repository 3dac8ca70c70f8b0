"""`waku submit`: are the ids of accepted jobs printed, and those of others not?"""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from tests.kit.answering_leader import AnsweringLeader

from wakugumi.app.cli import call
from wakugumi.errors import EXIT_USAGE


def test_each_accepted_job_is_a_line(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["submit", "calcA", "--count", "3"]) == 0
    ids = capsys.readouterr().out.split()
    assert len({UUID(one) for one in ids}) == 3


def test_json_is_one_record(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["submit", "calcA", "--id", "night-7", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"jobs": ["night-7"]}


@pytest.mark.parametrize("words", [["--count", "0"], ["--count", "2", "--id", "one"]])
def test_a_count_that_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert call(["submit", "calcA", *words]) == EXIT_USAGE
    told = capsys.readouterr()
    assert "--count is" in told.err
    assert told.out == ""


def test_a_refused_job_prints_no_id(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    leader.refusal = "bad-subject", "no such subject"
    assert call(["submit", "calcA"]) == EXIT_USAGE
    told = capsys.readouterr()
    assert told.out == ""
    assert "no such subject" in told.err
