"""How does a command line end: with which exit code, and with which words on standard error?"""

from __future__ import annotations

import pytest
from tests.kit.answering_leader import AnsweringLeader

from wakugumi import __version__
from wakugumi.app import EXIT_INTERRUPTED
from wakugumi.app.cli import build, call
from wakugumi.app.commands import COMMANDS
from wakugumi.app.work import early
from wakugumi.errors import EXIT_DENIED, EXIT_JOB_FAILED, EXIT_NO_LEADER, EXIT_USAGE, Lost


def test_every_command_is_there_and_its_help_has_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for commands in COMMANDS.values():
        for command in commands:
            assert call([*command.name.split(), "--help"]) == 0
            assert f"waku {command.name}" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__
    assert build().version == __version__


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["fly"], "fly", "waku --help"),
        (["status", "now"], "waku status does not take 'now'", "waku status --help"),
        (["status", "--no-such-flag"], "--no-such-flag", "waku status --help"),
        (["status", "--", "x"], "takes no words after --", "leave out --"),
        (["submit"], "", "waku submit --help"),
    ],
)
def test_a_mistake_of_the_user_is_a_sentence_and_a_hint(
    capsys: pytest.CaptureFixture[str], words: list[str], error: str, hint: str
) -> None:
    assert call(words) == EXIT_USAGE
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert error in told.partition("\n")[0]
    assert hint in told.partition("hint: ")[2]
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (Lost("gone"), EXIT_NO_LEADER, "error: gone\n"),
        (KeyboardInterrupt(), EXIT_INTERRUPTED, ""),
    ],
)
def test_what_a_command_raises_is_an_exit_code(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    raised: BaseException,
    code: int,
    told: str,
) -> None:
    def fails(_words: object) -> None:
        raise raised

    monkeypatch.setattr(early, "start", fails)
    assert call(["status"]) == code
    assert capsys.readouterr().err == told


def test_words_after_two_dashes_are_the_programs(leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "calcA", "--leader", leader.address, "--", "--help", "--", "x"]) == 0
    assert capsys.readouterr().out == "done\n"


def test_a_refused_job_has_the_exit_code_of_its_refusal(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    for code, exit_code in (("bad-name", EXIT_USAGE), ("not-supported", EXIT_JOB_FAILED)):
        leader.refusal = code, "because"
        assert call(["submit", "calcA"]) == exit_code
        assert "because" in capsys.readouterr().err


@pytest.mark.spec("O1")
def test_a_key_among_the_arguments_is_warned_of_once_and_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    key = f"desk-1:{'k' * 32}-{'x7' * 26}"
    assert call(["status", "--leader", f"waku://{key}@127.0.0.1:1"]) == EXIT_NO_LEADER
    told = capsys.readouterr().err
    assert told.count("could see the key among the arguments") == 1
    assert "WAKU_LEADER" in told
    assert "x7x7" not in told


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["keys", "list"],
        ["jobs", "list"],
        ["run", "calc", "--leader", "{leader}"],
        ["submit", "calc", "--id", "a"],
        ["map", "calc", "{file}", "--leader", "{leader}"],
    ],
    ids=" ".join,
)
def test_a_refused_hello_is_told_in_the_leaders_words(
    words: list[str], leader: AnsweringLeader, capsys: pytest.CaptureFixture[str]
) -> None:
    leader.denial = "user 65534 of this machine must show a key here; make a key with `waku keys make`"
    assert call([word.format(leader=leader.address, file=__file__) for word in words]) == EXIT_DENIED
    told = capsys.readouterr().err
    assert "user 65534 of this machine must show a key here" in told
    assert "make a key with `waku keys make`" in told
