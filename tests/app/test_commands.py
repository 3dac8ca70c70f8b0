"""Every command says what it is for, and its examples are commands that exist."""

from __future__ import annotations

import re
import shlex

import pytest
from cyclopts import App

from wakugumi.app.cli import build, call
from wakugumi.app.commands import COMMANDS, FAMILIES, Command, help_page

ALL = [command for commands in COMMANDS.values() for command in commands]


@pytest.fixture(scope="module")
def app() -> App:
    return build()


def examples_of(command: Command) -> list[str]:
    return [line.strip() for line in help_page(command).examples.splitlines()[1:]]


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_help_shows_the_examples(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*command.name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: waku {command.name} ")
    assert command.summary[:60] in shown
    for example in examples_of(command):
        assert example.split("   ")[0] in shown
    plain = " ".join(word for word in shown.split() if word != "│")
    assert "nothing is said" not in plain, "hint: [default: …]"
    assert not re.search(r"\[(WAKU|WORKER|CLIENT)_", plain), "hint: [env: …]"


def test_a_page_is_the_summary_and_the_docstring_of_the_function() -> None:
    page = help_page(next(command for command in ALL if command.name == "jobs cancel"))
    assert page.usage == "Usage: waku jobs cancel [ID…] [--client ID] [--pattern PATTERN] [--forget] [OPTIONS]"
    summary, details = page.about.split("\n\n")
    assert summary == "Cancel jobs by id, by client, or by a pattern of their subject."
    assert "\n" not in details
    assert page.examples.splitlines()[:2] == ["Examples:", "  waku jobs cancel monday-run"]


@pytest.mark.parametrize("words", [["--help", "jobs", "wait"], ["jobs", "--help", "wait"], ["jobs", "wait", "x", "-h"]])
def test_help_is_asked_for_anywhere(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(words) == 0
    assert "waku jobs wait monday-run --out results" in capsys.readouterr().out


def test_a_command_that_is_only_called_reads_no_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.app.commands.help_page", lambda command: pytest.fail(command.name))
    build(["jobs", "list", "--state", "queued"]).parse_args(["jobs", "list"])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_familys_help_shows_its_commands_and_examples(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([family]) == 0
    shown = capsys.readouterr().out
    assert re.search(rf"^  waku {family} (list|check)", shown, re.MULTILINE)
    for command in ALL:
        if command.name.startswith(f"{family} "):
            assert re.search(rf"^│ {command.name.split()[1]} ", shown, re.MULTILINE)


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_examples_can_be_parsed(command: Command, app: App) -> None:
    examples = examples_of(command)
    assert examples
    for example in examples:
        assert f"waku {command.name}" in example
        for line in re.findall(r"waku [^|)]*", example):
            words = shlex.split(line.split("   ")[0].replace('"$(', "").rstrip('"'))[1:]
            words = words[: words.index("--")] if "--" in words else words
            if words[:2] == ["jobs", "wait"] and len(words) == 2:
                continue  # its id is what the command inside prints
            function, _, _ = app.parse_args(words)
            assert function is not app.help_print


def test_the_list_of_commands_has_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert call([]) == 0
    shown = capsys.readouterr().out
    for command in ALL:
        assert re.search(rf"^│ {command.name.split()[0]} ", shown, re.MULTILINE), command.name


@pytest.mark.parametrize(
    ("words", "complaint", "hint"),
    [
        (["rum"], 'unknown command "rum". Did you mean "run"?', "see `waku --help`"),
        (["run"], "requires an argument", "see `waku run --help`"),
        (["run", "x", "y"], "waku run does not take 'y'", "put words for the program after --"),
        (["run", "x", "--tmeout", "3"], "unknown option: --tmeout. Did you mean --timeout?", "see `waku run --help`"),
        (["run", "x", "--timeout", "soon"], "invalid value for --timeout", "see `waku run --help`"),
        (["status", "-o", "xml"], 'invalid value "xml" for -o', "see `waku status --help`"),
        (["status", "--", "x"], "this command runs no program and takes no words after --", "leave out --"),
        (["leader", "http"], "invalid value", "see `waku leader --help`"),
        (["leader", "70000"], "a port is 0 to 65535, not 70000", ""),
        (["jobs", "show", "a/b"], "'a/b' cannot name a job", ""),
        (["jobs", "cancel"], "no jobs to cancel are named", "name ids, --client or --pattern"),
        (["clientx", "me"], "no leader's address is given", "waku clientx CLIENT_ID HOST:PORT"),
        (["submit", "x", "--count", "2", "--id", "a"], "with --id only 1", ""),
    ],
)
def test_a_mistake_costs_a_sentence_a_hint_and_exit_code_2(
    words: list[str], complaint: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    first, _, rest = said.err.partition("\n")
    assert first.startswith("error: ")
    assert complaint in first
    assert hint in rest
    assert "Traceback" not in said.err
