"""`--policy`, `--key`, `--priority`, `--job-slots`: what may be said, what may not, and what is shown of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.answering_leader import AnsweringLeader
from tests.kit.fresh_settings import forget_settings

from wakugumi.app.cli import call
from wakugumi.app.settings import load
from wakugumi.core.leader import answer_records as an
from wakugumi.core.subject import parse_subject
from wakugumi.errors import ConfigError
from wakugumi.roles.leader.settings import LeaderSettings

ROW = an.JobRow("one", "queued", "calcA", "desk", "job.assign.calca", 0, 1.0, "", "")
WORKER = an.WorkerRow("w", "rack", "ready", ["job.assign.>"], 3, 1, 0.5, 1.0)
CALC = parse_subject("job.assign.calca.fast")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    forget_settings()
    yield tmp_path / "waku.toml"
    forget_settings()


@pytest.mark.spec("L2")
def test_policies_come_from_flags_then_the_environment_then_the_file(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(LeaderSettings).policies.of(CALC).name == "most-credit"
    settings.write_text('policy = "score,calcA=sticky"')
    forget_settings()
    assert load(LeaderSettings).policies.of(CALC).name == "sticky"
    monkeypatch.setenv("WAKU_POLICY", "round-robin")
    assert load(LeaderSettings).policies.of(CALC).name == "round-robin"
    flags = ("round-robin", "job.assign.*.fast=score")
    assert load(LeaderSettings, {"policies": flags}).policies.of(CALC).name == "score"


@pytest.mark.usefixtures("settings")
def test_a_policy_that_is_none_is_said_before_anything_is_started() -> None:
    with pytest.raises(ConfigError, match="there is no policy 'fastest'"):
        load(LeaderSettings, {"policies": ("fastest",)})


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["submit", "calcA", "--priority", "101"], "priority"),
        (["submit", "calcA", "--priority=-101"], "priority"),
        (["submit", "calcA", "--job-slots", "0"], "slots"),
        (["submit", "calcA", "--job-slots", "5000"], "slots"),
        (["run", "calcA", "--key", ""], "a key is 1 to 128"),
        (["submit", "calcA", "--key", "x" * 129], "a key is 1 to 128"),
        (["map", "calcA", "--job-slots", "two", "x"], "slots"),
    ],
)
def test_what_cannot_be_asked_for_is_exit_code_2_and_nothing_is_sent(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert call(words) == 2
    assert why in capsys.readouterr().err.lower()
    assert leader.asked == []


def test_a_map_right_here_says_that_a_job_has_no_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "input").touch()
    assert call(["map", "/bin/true", str(tmp_path / "input"), "--slots", "2", "--job-slots", "3"]) == 2
    assert "a job needs 3 slots, and this map has 2" in capsys.readouterr().err


def test_what_jobs_ask_for_is_shown_if_one_of_them_does(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    leader.answer = an.JobsAnswer([ROW], 1)
    assert call(["jobs", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[-2:] == ["worker", "reason"]
    more = an.JobRow("two", "queued", "calcA", "desk", "job.assign.calca", 0, 1.0, "", "", "k", -7, 4)
    leader.answer = an.JobsAnswer([ROW, more], 2)
    assert call(["jobs", "list"]) == 0
    titles, one, two = (line.split()[-3:] for line in capsys.readouterr().out.splitlines())
    assert (titles, one, two) == (["slots", "priority", "key"], ["1", "0", "-"], ["4", "-7", "k"])


def test_workers_show_their_slots_and_that_one_is_kept_free(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = an.WorkerRow("v", "lane", "ready", ["job.assign.>"], 3, 1, 0.5, 1.0, 4, "some-job")
    leader.answer = an.WorkersAnswer([WORKER, kept])
    assert call(["workers", "list"]) == 0
    _, old, own = capsys.readouterr().out.splitlines()
    assert old.split()[2:6] == ["ready", "1", "3", "-"]
    assert "kept free" in own
    assert own.split()[4:7] == ["1", "3", "4"]
