"""`waku status`: how a leader is, in one picture. The leader is scripted here."""

from __future__ import annotations

import json

import pytest
from tests.kit.answering_leader import AnsweringLeader

from wakugumi.app.cli import call
from wakugumi.core.access.known_as import AskMe, KnownAs
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu

FIGURES = {"durable": True, "disk_low": False, "full": False, "subjects": []}


def answer(**fields: object) -> an.StatusAnswer:
    return an.StatusAnswer(60.0, 2, 3, 1, 4, 1000, 0, 5, 0, 9, 7, 1, 0, 1, 1, **(FIGURES | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "with a journal"),
        ({"durable": False}, "in memory only"),
        ({"stalled": "disk error"}, "nothing is committed: disk error"),
        ({"disk_low": True}, "its disk is nearly full"),
    ],
)
def test_what_happens_to_accepted_jobs_is_told(
    fields: dict[str, object], words: str, leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    leader.answer = lambda question: (
        answer(**fields) if isinstance(question, qu.AskStatus) else an.CachesAnswer([], 0, 0)
    )
    assert call(["status"]) == 0
    shown = capsys.readouterr().out
    assert words in shown
    assert "dead letters  1: see `waku dead list`" in shown


@pytest.mark.parametrize(("full", "word"), [(True, "full\n"), (False, "ok\n")])
def test_quietly_it_is_one_word(
    full: bool, word: str, leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    leader.answer = answer(full=full)
    assert call(["status", "-o", "quiet"]) == 0
    assert capsys.readouterr().out == word


@pytest.mark.spec("O1")
def test_as_whom_one_is_known_and_what_one_may_is_told(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    me = KnownAs("desk-1", "client", "key", "keys over TLS", ["see own jobs", "run jobs as desk-1"])
    leader.answer = lambda question: me if isinstance(question, AskMe) else answer()
    assert call(["status"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "access: keys over TLS; you are desk-1, by a key, with the role client",
        "you may see own jobs; run jobs as desk-1",
    ]
    assert call(["status", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["me"]
    assert (told["name"], told["proof"], told["degree"]) == ("desk-1", "key", "keys over TLS")
