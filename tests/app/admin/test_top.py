"""`waku top` and the tables of `waku status`: how an answer is shown, at any size. The leader is scripted here."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from tests.kit.answering_leader import AnsweringLeader
from tests.kit.top_answer import an_answer, shown

from wakugumi.app.cli import call
from wakugumi.app.show.top_view import view
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu

pytestmark = pytest.mark.spec("L8", "S4")


def test_top_is_shown_once_where_no_terminal_is_and_as_json(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    leader.answer = an_answer()
    assert call(["top"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == shown(view(an_answer(), leader.address, 160))
    assert said.err == ""
    assert call(["top", "--once", "-o", "json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=an.TopAnswer) == an_answer()
    assert call(["top", "-o", "quiet"]) == 0
    assert capsys.readouterr().out == "ok\n"
    assert leader.asked == [qu.AskTop()] * 3


@pytest.mark.parametrize("every", ["0", "-1", "nan", "1e9"])
def test_an_interval_that_is_none_is_refused(every: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["top", "--every", every]) == 2
    assert "every" in capsys.readouterr().err


def test_the_status_shows_subjects_and_groups(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    leader.answer = an_answer().status
    assert call(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("subject"))
    assert re.split(r"  +", lines[at]) == [
        *("subject", "queued", "running", "workers", "ok", "failed", "redelivered", "dead"),
        *("delay p50/p95/p99", "run time p50/p95/p99"),
    ]
    numbers = ["1,993", "7", "28", "7", "12 ms / 43 ms / 1.3 s", "310 ms / 2.2 s / 75 s"]
    assert re.split(r"  +", lines[at + 1]) == ["job.assign.calca.s0", "1,000", "5", "3", *numbers]
    at = next(at for at, line in enumerate(lines) if line.startswith("group"))
    assert re.split(r"  +", lines[at + 1])[:5] == ["calca", "2,000", "56", "3", "8,000"]


# Leaders and commands of different versions.


class OldSubjectRow(msgspec.Struct):
    subject: str
    queued: int
    workers: int


class OldStatusAnswer(msgspec.Struct):
    """As it was before there were statistics."""

    up_s: float
    workers: int
    slots_free: int
    clients: int
    queued: int
    queued_bytes: int
    backing_off: int
    running: int
    undelivered: int
    submitted: int
    finished_ok: int
    finished_failed: int
    redelivered: int
    dead: int
    letters: int
    durable: bool
    disk_low: bool
    full: bool
    subjects: list[OldSubjectRow]
    busiest: list[an.ClientRow] = []


def test_an_older_command_reads_a_newer_leaders_status() -> None:
    old = msgspec.json.decode(msgspec.json.encode(an_answer().status), type=OldStatusAnswer)
    assert (old.queued, old.subjects[0]) == (123_456, OldSubjectRow("job.assign.calca.s0", 1_000, 3))


def test_a_newer_command_shows_an_older_leaders_status(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    leader.answer = msgspec.json.decode(msgspec.json.encode(an_answer().status), type=OldStatusAnswer)
    assert call(["status"]) == 0
    assert "job.assign.calca.s0" in capsys.readouterr().out
    assert call(["status", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["queued"], told["groups"], told["subjects"][0]["figures"]["dispatched"]) == (123_456, [], 0)


def test_a_leader_that_does_not_know_top_says_so(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["top"]) != 0
    assert "error: " in capsys.readouterr().err
