"""`waku keys …`: the right question is asked, stdout is the line alone, and no other command shows a secret."""

from __future__ import annotations

import json

import pytest
from tests.kit.answering_leader import AnsweringLeader

from wakugumi.app.cli import call
from wakugumi.core.access.identity import Role, Rules
from wakugumi.core.access.key_questions import (
    AskKey,
    AskKeys,
    AskMakeKey,
    AskRevokeKey,
    KeyRow,
    KeysAnswer,
    MadeKey,
)
from wakugumi.core.leader import questions as qu
from wakugumi.errors import EXIT_DENIED, EXIT_USAGE

pytestmark = pytest.mark.spec("O1")

KEY = f"desk-1:{'d' * 32}-{'s' * 52}"
RULES = Rules((), ("calc*",), ("job.assign.risk.>",), (), "own", 64)
ROW = KeyRow("desk-1", Role.CLIENT, RULES, "valid", 2, 7200.0, 86_400.0, None, 60.0)
MADE = MadeKey(ROW, KEY, ["127.0.0.1", "grid.example", "10.0.0.5"])


def made(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    leader.answer = MADE
    assert call(["keys", "make", "desk-1", *words]) == 0
    said = capsys.readouterr()
    return said.out, said.err


def test_the_line_alone_is_on_stdout(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = made(leader, capsys, "--role", "client")
    port = leader.address.rpartition(":")[2]
    assert out == f"waku join waku://{KEY}@grid.example:{port}\n"
    assert leader.asked == [AskMakeKey("desk-1", Role.CLIENT)]
    assert "run jobs of the programs calc* on job.assign.risk.> as desk-1, desk-1.*" in err
    assert "expires in 1 d 0 h" in err
    assert "shown this once" in err
    assert "sss" not in err


def test_rules_are_sent(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    rules = ["--clients", "desk-1,night.*", "--clients", "!night.x", "--programs", "calc*", "--subjects", "risk"]
    rules += ["--caches", "risk-*", "--sees", "all", "--cap", "64", "--expires", "30d"]
    made(leader, capsys, "--role", "worker", *rules)
    wanted = Rules(("desk-1", "night.*", "!night.x"), ("calc*",), ("risk",), ("risk-*",), "all", 64)
    assert leader.asked == [AskMakeKey("desk-1", Role.WORKER, wanted, 30 * 86_400)]


def test_addresses_of_the_line_are_those_that_are_named(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = made(leader, capsys, "--role", "client", "--address", "a.example:1", "--address", "b.example")
    assert out == f"waku join waku://{KEY}@a.example:1,b.example:5000\n"


def test_a_leader_without_a_name_for_others_is_told(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    leader.answer = MadeKey(ROW, KEY, ["localhost", "::1"])
    assert call(["keys", "make", "desk-1", "--role", "client"]) == 0
    said = capsys.readouterr()
    assert said.out == f"waku join waku://{KEY}@{leader.address}\n"
    assert "is this machine alone" in said.err


def test_json_has_the_line_and_the_row(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = made(leader, capsys, "--role", "client", "-o", "json")
    told = json.loads(out)
    assert told["line"].startswith(f"waku join waku://{KEY}@")
    assert told["row"]["name"] == "desk-1"
    assert "key" not in told


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["Desk", "--role", "client"], "cannot name a key"),
        (["desk-1", "--role", "boss"], "role"),
        (["desk-1"], "role"),
        (["desk-1", "--role", "client", "--expires", "soon"], "--expires is 'soon', which is no duration"),
        (["desk-1", "--role", "client", "--expires", "0d"], "--expires is '0d', and must be more"),
        (["desk-1", "--role", "client", "--expires", "600w"], "at most ten years"),
        (["desk-1", "--role", "client", "--subjects", "a..b"], "subjects: "),
        (["desk-1", "--role", "client", "--leader", "a:1,b:2"], "each leader has keys of its own"),
        (["desk-1", "--role", "client", "--address", "http://x"], "is not a leader's address"),
    ],
)
def test_a_wrong_wish_is_told_before_the_leader_is_asked(
    words: list[str], complaint: str, leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["keys", "make", *words]) == EXIT_USAGE
    assert complaint in capsys.readouterr().err
    assert leader.asked == []


def test_a_denial_has_its_words_and_its_exit_code(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    leader.no = ("denied", "desk-1 has the role client and may not ask for 'keys'")
    assert call(["keys", "list"]) == EXIT_DENIED
    assert "desk-1 has the role client and may not ask for 'keys'" in capsys.readouterr().err


@pytest.mark.parametrize("code", ["not-supported", "no-authority"])
def test_a_leader_without_keys_is_told(code: str, leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    leader.no = (code, "this leader keeps no keys")
    assert call(["keys", "make", "desk-1", "--role", "client"]) == 1
    assert "--state DIR" in capsys.readouterr().err


def test_keys_are_listed(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    gone = KeyRow("old", Role.WORKER, Rules(), "expired", 0, 100.0, -5.0)
    leader.answer = KeysAnswer([gone, ROW], 3)
    assert call(["keys", "list", "--limit", "2"]) == 0
    said = capsys.readouterr()
    assert leader.asked == [AskKeys(2)]
    first, second = said.out.splitlines()[1:]
    assert first.split()[:5] == ["old", "worker", "expired", "0", "never"]
    assert "5.0 s ago" in first
    assert second.split()[:4] == ["desk-1", "client", "valid", "2"]
    assert "the newest 2 of 3 keys" in said.err
    assert call(["keys", "list", "-o", "quiet"]) == 0
    assert capsys.readouterr().out == "old\ndesk-1\n"


@pytest.mark.parametrize(
    ("words", "question", "quiet"),
    [
        (["show", "desk-1"], AskKey("desk-1"), "valid"),
        (["revoke", "desk-1"], AskRevokeKey("desk-1"), "desk-1"),
    ],
)
def test_one_key_is_shown_or_revoked(
    words: list[str],
    question: qu.Question,
    quiet: str,
    leader: AnsweringLeader,
    capsys: pytest.CaptureFixture[str],
) -> None:
    leader.answer = ROW
    assert call(["keys", *words]) == 0
    assert "desk-1" in capsys.readouterr().out
    assert call(["keys", *words, "-o", "quiet"]) == 0
    assert capsys.readouterr().out == f"{quiet}\n"
    assert leader.asked == [question, question]


def test_a_shown_key_has_its_rules(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    leader.answer = KeyRow("desk-1", Role.CLIENT, RULES, "revoked", 0, 7200.0, None, 30.0)
    assert call(["keys", "show", "desk-1"]) == 0
    told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert told["state"] == "revoked 30.0 s ago"
    assert (told["programs"], told["subjects"], told["sees"], told["cap"]) == (
        "calc*",
        "job.assign.risk.>",
        "own",
        "64",
    )
    assert (told["used"], told["expires"]) == ("never", "never")
