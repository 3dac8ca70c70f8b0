"""How are the answers of several leaders shown, and which id does a name stand for?"""

from __future__ import annotations

import json
from typing import Literal
from uuid import UUID

import pytest
from tests.kit.answering_leader import AnsweringLeader

from wakugumi.app.admin.ask import LeaderAnswer, answers, ask, ask_each, id_of, show_each
from wakugumi.app.client_settings import ClientSettings
from wakugumi.app.show.output import line_out
from wakugumi.core.leader.answer_records import ExplainAnswer
from wakugumi.core.leader.questions import AskExplain
from wakugumi.errors import ConfigError, Refused

QUEUED, RUNNING = ExplainAnswer("one", "queued", []), ExplainAnswer("one", "running", [])
FIRST = LeaderAnswer("a:1", QUEUED, "")
SECOND = LeaderAnswer("b:2", RUNNING, "")
GONE: LeaderAnswer[ExplainAnswer] = LeaderAnswer("c:3", None, "no connection")


def shown(
    capsys: pytest.CaptureFixture[str], how: Literal["table", "json", "quiet"], *told: LeaderAnswer[ExplainAnswer]
) -> str:
    beside = {"a:1": {"more": 7}}
    asking = ClientSettings(output=how)
    show_each(told, asking, lambda one: line_out(f"table {one.state}"), lambda one: [str(one.state)], beside)
    return capsys.readouterr().out


def test_one_leader_is_not_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "table", FIRST) == "table queued\n"
    assert json.loads(shown(capsys, "json", FIRST)) == {"job": "one", "state": "queued", "reasons": [], "more": 7}
    assert shown(capsys, "quiet", FIRST) == "queued\n"


def test_each_of_several_leaders_has_a_section_also_without_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    told = (FIRST, GONE, SECOND)
    table = "leader a:1\ntable queued\n\nleader c:3: no connection\n\nleader b:2\ntable running\n"
    assert shown(capsys, "table", *told) == table
    assert json.loads(shown(capsys, "json", *told)) == [
        {"leader": "a:1", "job": "one", "state": "queued", "reasons": [], "more": 7},
        {"leader": "c:3", "trouble": "no connection"},
        {"leader": "b:2", "job": "one", "state": "running", "reasons": []},
    ]
    assert shown(capsys, "quiet", *told) == "queued\nrunning\n"
    assert answers(told) == [FIRST.answer, SECOND.answer]


def test_an_id_stays_and_a_name_is_always_the_same_id() -> None:
    uuid = "0190a8c4-7e0e-7cc0-8000-000000000001"
    assert id_of(uuid) == uuid
    assert id_of("night-7") == id_of("night-7") == str(UUID(id_of("night-7")))
    assert id_of("night-8") != id_of("night-7")
    with pytest.raises(ConfigError):
        id_of("")


def test_a_question_is_answered_or_refused(leader: AnsweringLeader) -> None:
    question, asking = AskExplain(id_of("one")), ClientSettings(leader=leader.address)
    for put in (lambda: ask(question, ExplainAnswer, asking), lambda: ask_each(question, ExplainAnswer, asking)):
        leader.answer = None
        with pytest.raises(Refused) as refused:
            put()
        assert refused.value.code == "not-dead"
    leader.answer = QUEUED
    assert ask(question, ExplainAnswer, asking) == QUEUED
    assert ask_each(question, ExplainAnswer, asking) == [LeaderAnswer(leader.address, QUEUED, "")]
