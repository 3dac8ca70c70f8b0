"""`waku client` and `waku clientx`: which leaders are asked, and for how many jobs?"""

from __future__ import annotations

import json

import pytest
from tests.kit.answering_leader import AnsweringLeader

from wakugumi.app.cli import call
from wakugumi.app.work.sample_clients import COUNT
from wakugumi.errors import EXIT_USAGE


def test_a_client_runs_its_sample_jobs(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    host, port = leader.address.split(":")
    assert call(["client", host, port, "desk-1"]) == 0
    titles, *rows = capsys.readouterr().out.splitlines()
    assert "leader" not in titles
    assert [row.split()[1] for row in rows] == ["ok"] * COUNT
    assert call(["client", host, port, "desk-1", "8", "--count", "5", "-o", "quiet"]) == 0
    assert len(capsys.readouterr().out.split()) == 5


def test_a_client_of_several_leaders_takes_a_total_behind_them(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([leader.address], [leader.address, "12"]):
        assert call(["clientx", "desk-1", *words, "--count", "2", "-o", "json"]) == 0
        records = json.loads(capsys.readouterr().out)
        assert [(record["status"], record["stdout"]) for record in records] == [("OK", "done\n")] * 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["clientx", "desk-1"], "no leader's address"),
        (["clientx", "desk-1", "12"], "no leader's address"),
        (["clientx", "desk-1", "127.0.0.1:1", "--count", "0"], "--count is 0"),
        (["client", "127.0.0.1", "1", "desk-1", "--count", "-1"], "--count is -1"),
        (["client", "127.0.0.1", "1", "desk-1", "0"], "must be"),
    ],
)
def test_a_mistake_is_told_before_a_leader_is_asked(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert call(words) == EXIT_USAGE
    assert told in capsys.readouterr().err
