"""What a job runs that names no program."""

from __future__ import annotations

import pytest

from wakugumi.adapters.programs.default_command import DefaultCommand, parse_command
from wakugumi.errors import ConfigError, Refused


@pytest.mark.spec("N1", "W1")
@pytest.mark.parametrize(
    ("text", "command", "arguments"),
    [
        ("pricer", DefaultCommand("pricer", ("{input}",)), ["own", "/j/in"]),
        ("pricer --fast", DefaultCommand("pricer", ("--fast", "{input}")), ["--fast", "own", "/j/in"]),
        ("pricer {input}", DefaultCommand("pricer", ("{input}",)), ["own", "/j/in"]),
        ("pricer -i {input} -v", DefaultCommand("pricer", ("-i", "{input}", "-v")), ["-i", "/j/in", "-v", "own"]),
        ("pricer '--in={input}'", DefaultCommand("pricer", ("--in={input}",)), ["--in=/j/in", "own"]),
        ("pricer 'two words'", DefaultCommand("pricer", ("two words", "{input}")), ["two words", "own", "/j/in"]),
        (
            "pricer $HOME ; ls",
            DefaultCommand("pricer", ("$HOME", ";", "ls", "{input}")),
            ["$HOME", ";", "ls", "own", "/j/in"],
        ),
    ],
)
def test_a_command_is_a_program_and_where_its_input_stands(
    text: str, command: DefaultCommand, arguments: list[str]
) -> None:
    assert parse_command(text) == command
    assert command.arguments(["own"], ["/j/in"]) == arguments


@pytest.mark.spec("N2", "W1")
@pytest.mark.parametrize(
    ("text", "arguments"),
    [("pricer", ["-i", "/j/in", "x"]), ("pricer {input} -v", ["/j/in", "-v", "-i", "/j/in", "x"])],
)
def test_a_job_s_own_arguments_may_say_where_the_input_goes(text: str, arguments: list[str]) -> None:
    assert parse_command(text).arguments(["-i", "{input}", "x"], ["/j/in"]) == arguments


@pytest.mark.spec("W1")
@pytest.mark.parametrize("text", ["", "  ", "../pricer", "/bin/sh {input}", "pricer 'open", "pricer a\0b"])
def test_what_is_no_command_of_the_exec_directory_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_command(text)


@pytest.mark.parametrize("inputs", [[], ["/j/a", "/j/b"]])
def test_a_job_that_names_no_program_has_one_input(inputs: list[str]) -> None:
    with pytest.raises(Refused) as refused:
        DefaultCommand("pricer").arguments([], inputs)
    assert refused.value.code == "bad-request"
