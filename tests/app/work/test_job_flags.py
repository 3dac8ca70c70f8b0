"""What may be said of a job on a command line? Every option that has a flag, on each command."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.app.cli import call
from wakugumi.app.work.job_flags import BROADCAST, JOB, SAMPLE, BroadcastFlags, JobFlags, variables
from wakugumi.errors import ConfigError
from wakugumi.limits.runner import JOB_TIMEOUT_S
from wakugumi.wire.job_options import OPTIONS, EachOptions


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WAKU_TIMEOUT", raising=False)


@pytest.mark.parametrize("command", ["run", "submit", "map", "broadcast"])
def test_help_has_every_flag_with_the_words_of_the_table(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    call([command, "--help"])
    shown = " ".join(word for word in capsys.readouterr().out.split() if word != "│")
    for name, option in OPTIONS.items():
        there = bool(option.flag) and (command != "broadcast" or name in EachOptions.__annotations__)
        assert (f"{option.flag} " in shown if option.flag else False) is there, name
        assert not there or option.help in shown, name
    assert "[default: 900] [env: WAKU_TIMEOUT]" in shown


def test_what_is_said_are_the_options_of_a_call(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1")
    flags = JobFlags(  # type: ignore[call-arg]
        file=("a.txt",), env=("A=1", "B=x=y"), timeout=5.0, retries=2, key="eu", priority=-7, job_slots=3, subject="s"
    )
    assert flags.options(("-v",)) == {
        "args": ("-v",),
        "files": {"a.txt": Path("a.txt")},
        "subject": "s",
        "env": {"A": "1", "B": "x=y"},
        "timeout_s": 5.0,
        "retries": 2,
        "key": "eu",
        "priority": -7,
        "slots": 3,
    }
    each = BroadcastFlags(retries=2)  # type: ignore[call-arg]
    assert each.options(()).get("retries") == 2
    assert "priority" not in each.options(())


def test_nothing_has_to_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (JOB.options(), BROADCAST.options(()), SAMPLE.options()):
        assert given.pop("timeout_s") == JOB_TIMEOUT_S
        assert not any(given.values())
    monkeypatch.setenv("WAKU_TIMEOUT", "7.5")
    assert JOB.options().get("timeout_s") == 7.5


@pytest.mark.parametrize("words", [("A",), ("A=1", "A=2"), ("1A=2",), ("WAKU_X=1",)])
def test_what_can_be_no_variable_is_told_with_a_hint(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="--env") as caught:
        variables(words)
    assert "NAME=VALUE" in caught.value.hint
