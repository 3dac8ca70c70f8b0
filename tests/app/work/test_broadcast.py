"""`waku broadcast`: how are the answers of the workers shown, and when does the command fail?"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module

import pytest

from wakugumi.app.cli import call
from wakugumi.errors import EXIT_JOB_FAILED, EXIT_USAGE
from wakugumi.roles.client.broadcast import Summary
from wakugumi.roles.client.result import Result
from wakugumi.wire.messages.job import FAILED, JobResult

FINE = Result(JobResult("1", stdout="up\n2 days\n", exit_code=0, run_s=1.0), "one", "w1")
BAD = Result(JobResult("2", status=FAILED, stderr="no\n", reason="exit", exit_code=7), "two", "w2")


class Answers:
    """A grid on which every broadcast has these answers."""

    def __init__(self, results: Sequence[Result], summary: Summary) -> None:
        self._results = results
        self.summary = summary

    def broadcast(self, *_: object, **__: object) -> Answers:
        return self

    async def __aiter__(self) -> AsyncIterator[Result]:
        for result in self._results:
            yield result


def run(monkeypatch: pytest.MonkeyPatch, answers: Answers, *words: str) -> int:
    @asynccontextmanager
    async def given(*_: object) -> AsyncIterator[Answers]:
        yield answers

    module = import_module("wakugumi.app.work.broadcast")
    monkeypatch.setattr(module, "connected", given)
    monkeypatch.setattr(module, "shown_transfers", given)
    return call(["broadcast", "uptime", *words])


def test_each_answer_is_a_line_with_its_output_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, Answers([FINE, BAD], Summary(3, ok=1, failed=1, silent=1))) == EXIT_JOB_FAILED
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[0].startswith("w1: ok in ")
    assert lines[1:3] == ["    up", "    2 days"]
    assert lines[3:] == ["w2: exit (exit code 7)", "    no"]
    assert told.err == "3 workers: 1 ok, 1 failed, 1 silent\n"


def test_other_forms_are_for_programs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answers = Answers([FINE], Summary(1, ok=1))
    assert run(monkeypatch, answers, "-o", "quiet") == 0
    assert capsys.readouterr() == ("w1\n", "")
    assert run(monkeypatch, answers, "-o", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["summary"]["ok"] == 1
    assert [(row["worker"], row["stdout"]) for row in report["results"]] == [("w1", "up\n2 days\n")]


@pytest.mark.parametrize(
    ("summary", "told"),
    [
        (Summary(0), "error: no worker matches"),
        (Summary(1, ok=1, unasked=["b:2"]), "not asked: the workers of b:2"),
        (Summary(1, silent=1), "1 worker: 0 ok, 0 failed, 1 silent"),
    ],
)
def test_a_broadcast_that_did_not_reach_all_has_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], summary: Summary, told: str
) -> None:
    assert run(monkeypatch, Answers([], summary)) == EXIT_JOB_FAILED
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("within", ["0", "-1", "soon"])
def test_a_time_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], within: str
) -> None:
    assert run(monkeypatch, Answers([], Summary(0)), f"--within={within}") == EXIT_USAGE
    assert "--within" in capsys.readouterr().err
