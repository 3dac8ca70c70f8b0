"""`waku dead …`: what is asked of the leader, and how its answers are shown. The leader is scripted here."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.kit.answering_leader import AnsweringLeader

from wakugumi.app.cli import call
from wakugumi.core.ids import job_id_from_name, show_job_id
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.limits.leader import DEAD_BYTES_MAX, DEAD_MAX, LIST_ROWS_DEFAULT
from wakugumi.limits.units import MIB

Said = Callable[..., tuple[int, str, str]]


def id_of(name: str) -> str:
    return show_job_id(job_id_from_name(name))


def row(name: str, reason: str = "ack-late") -> an.DeadRow:
    return an.DeadRow(id_of(name), "desk-1", "calcA", "job.assign.calca", 5, reason, "rack1-7", 90.0)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs a command here."""

    def run(*words: str) -> tuple[int, str, str]:
        code = call(["dead", *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.mark.spec("L3")
def test_the_dead_are_listed_in_three_forms(leader: AnsweringLeader, said: Said) -> None:
    leader.answer = an.DeadAnswer([row("a"), row("b", "worker-lost")], 2)
    code, out, err = said("list")
    assert (code, err) == (0, "")
    title, first, second = out.splitlines()
    assert title.split() == ["job", "reason", "program", "client", "tries", "worker", "died"]
    assert first.split() == [id_of("a"), "ack-late", "calcA", "desk-1", "5", "rack1-7", "1", "min", "30", "s", "ago"]
    assert "worker-lost" in second
    assert said("list", "-o", "quiet") == (0, f"{id_of('a')}\n{id_of('b')}\n", "")
    code, out, err = said("list", "-o", "json")
    assert json.loads(out)["dead"][1]["reason"] == "worker-lost"
    assert leader.asked == [qu.AskDead(limit=LIST_ROWS_DEFAULT)] * 3


@pytest.mark.spec("L3")
def test_the_filters_of_a_list_reach_the_leader_and_more_than_is_shown_is_told(
    leader: AnsweringLeader, said: Said
) -> None:
    leader.answer = an.DeadAnswer([row("a")], 12)
    code, _, err = said("list", "--pattern", "job.assign.>", "--reason", "ack-late", "--limit", "1")
    assert code == 0
    assert "the newest 1 of 12 dead jobs: --limit shows more" in err
    assert leader.asked == [qu.AskDead([], "job.assign.>", "ack-late", 1)]


def test_an_id_that_is_not_among_the_listed_is_exit_code_3(leader: AnsweringLeader, said: Said) -> None:
    leader.answer = an.DeadAnswer([row("a")], 1)
    code, out, err = said("list", "a", "monday-run", "--limit", "1")
    assert code == 3
    assert id_of("a") in out
    assert err == "not among the dead letters: monday-run\n"
    assert leader.asked == [qu.AskDead([id_of("a"), id_of("monday-run")], limit=2)]


@pytest.mark.spec("L3")
def test_every_attempt_of_a_dead_job_is_shown(leader: AnsweringLeader, said: Said) -> None:
    attempts = [
        an.AttemptRow(1, "rack1-7", 300.0, 240.0, "worker-lost", ""),
        an.AttemptRow(2, "rack1-8", 200.0, 199.5, "disk", "one\n\x1b[2Jno room\n"),
    ]
    leader.answer = an.LetterAnswer(row("a", "disk"), attempts)
    code, out, err = said("show", "a")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == [f"job      {id_of('a')}", "program  calcA"]
    assert lines[4] == "died     1 min 30 s ago by disk, after 5 attempts"
    assert lines[6].split() == ["attempt", "worker", "began", "took", "outcome"]
    assert lines[7].split() == ["1", "rack1-7", "5", "min", "00", "s", "ago", "1", "min", "00", "s", "worker-lost"]
    assert lines[8].split() == ["2", "rack1-8", "3", "min", "20", "s", "ago", "0.50", "s", "disk"]
    assert lines[9:] == ["", "last output of attempt 2:", "    one", "    \\x1b[2Jno room"]
    assert said("show", "a", "-o", "quiet") == (0, "worker-lost\ndisk\n", "")
    assert json.loads(said("show", "a", "-o", "json")[1])["attempts"][1]["output"] == "one\n\x1b[2Jno room\n"
    assert leader.asked == [qu.AskLetter(id_of("a"))] * 3


def test_a_job_that_is_not_dead_is_exit_code_3(leader: AnsweringLeader, said: Said) -> None:
    code, out, err = said("show", "a")
    assert (code, out) == (3, "")
    assert "not among the dead letters" in err
    assert "hint: list the dead letters with `waku dead list`" in err


@pytest.mark.spec("L3")
@pytest.mark.parametrize(
    ("command", "kind", "done"), [("requeue", qu.AskRequeue, "requeued"), ("drop", qu.AskDrop, "dropped")]
)
def test_the_dead_are_requeued_or_dropped_by_id_pattern_or_reason_or_all(
    leader: AnsweringLeader, said: Said, command: str, kind: Callable[..., qu.Question], done: str
) -> None:
    leader.answer = an.DeadDoneAnswer(3, [])
    assert said(command, "a") == (0, f"3 jobs {done}\n", "")
    assert said(command, "--pattern", "job.assign.>", "-o", "quiet") == (0, "3\n", "")
    assert json.loads(said(command, "--reason", "ack-late", "-o", "json")[1]) == {"done": 3, "unknown": [], "left": 0}
    assert said(command, "--all") == (0, f"3 jobs {done}\n", "")
    assert leader.asked == [kind([id_of("a")]), kind(pattern="job.assign.>"), kind(reason="ack-late"), kind()]


@pytest.mark.parametrize(("command", "done"), [("requeue", "requeued"), ("drop", "dropped")])
def test_what_the_leader_did_not_do_at_once_is_asked_for_again(
    leader: AnsweringLeader, said: Said, command: str, done: str
) -> None:
    monday = id_of("monday-run")
    answers = [
        an.DeadDoneAnswer(2000, [monday], 1500),
        an.DeadDoneAnswer(1000, [monday, id_of("a")], 500),
        an.DeadDoneAnswer(500, [monday, id_of("a"), id_of("b")]),
    ]
    leader.answer = lambda _question: answers[len(leader.asked) - 1]
    code, out, err = said(command, "a", "b", "monday-run")
    assert (code, out) == (3, f"3,500 jobs {done}\n")
    assert err.splitlines() == [
        f"2,000 jobs {done}, 1,500 to go",
        f"3,000 jobs {done}, 500 to go",
        "not among the dead letters: monday-run",
    ]
    assert len(leader.asked) == 3
    assert len(set(map(repr, leader.asked))) == 1


def test_the_help_of_the_list_names_its_bounds(said: Said) -> None:
    _, out, _ = said("list", "--help")
    assert f"keeps {DEAD_MAX:,} dead jobs, or {DEAD_BYTES_MAX // MIB} MiB" in " ".join(out.split())


@pytest.mark.parametrize("command", ["requeue", "drop"])
def test_an_id_that_the_leader_does_not_have_is_named_as_it_was_typed(
    leader: AnsweringLeader, said: Said, command: str
) -> None:
    leader.answer = an.DeadDoneAnswer(1, [id_of("monday-run")])
    code, out, err = said(command, "a", "monday-run")
    assert code == 3
    assert out.startswith("1 job ")
    assert err == "not among the dead letters: monday-run\n"


@pytest.mark.parametrize("command", ["requeue", "drop"])
def test_nobody_means_all_by_saying_nothing(leader: AnsweringLeader, said: Said, command: str) -> None:
    code, out, err = said(command)
    assert (code, out) == (2, "")
    assert f"no dead jobs to {command} are named" in err
    assert "hint: name ids, --pattern or --reason; --all means every one" in err
    code, out, err = said(command, "a", "--all")
    assert (code, out) == (2, "")
    assert "hint: leave out --all or the rest" in err
    assert leader.asked == []
