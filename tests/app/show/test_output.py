"""How things are shown: without a terminal, plain; and always readable."""

from __future__ import annotations

import io
import json

import msgspec
import pytest
from tests.kit.hostile_text import ALL, MARK, TEXTS, reached

from wakugumi.app.show.output import (
    brief,
    colour,
    console,
    draw_over,
    duration,
    json_out,
    line_out,
    lines_out,
    one,
    say,
    say_error,
    say_lines,
    size,
    spread,
    table_out,
)
from wakugumi.core.leader.answer_records import Spread


def test_a_table_is_aligned_text_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    table_out(("name", "#count", "last"), [("a", "1", "x"), ("longer", "1000", "")])
    assert capsys.readouterr().out == "name    count  last\na           1  x\nlonger   1000\n"


def test_json_is_the_record_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    class Row(msgspec.Struct):
        job: str
        age_s: float

    json_out([Row("a", 1.5)])
    assert json.loads(capsys.readouterr().out) == [{"job": "a", "age_s": 1.5}]


def test_an_error_is_a_sentence_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    say_error("it cannot be", "try something else")
    assert capsys.readouterr().err == "error: it cannot be\n\nhint: try something else\n"
    say_error("it cannot be")
    assert capsys.readouterr().err == "error: it cannot be\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0001, "0.1 ms"),
        (0.00994, "9.9 ms"),
        (0.00999, "10 ms"),
        (0.9994, "999 ms"),
        (1.0, "1.0 s"),
        (45.2, "45 s"),
        (100.0, "1.7 min"),
        (5_999.0, "100 min"),
        (6_000.0, "1.7 h"),
        (7 * 86_400.0, "7 d"),
    ],
)
def test_a_brief_duration_has_two_digits_and_a_unit(seconds: float, text: str) -> None:
    assert brief(seconds) == text


def test_a_spread_is_three_durations_or_nothing() -> None:
    assert spread(Spread(9, 0.012, 0.04, 1.2)) == "12 ms / 40 ms / 1.2 s"
    assert spread(Spread()) == "-"


def test_nothing_is_coloured_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    say(colour("word", "red"), "and more")
    assert capsys.readouterr().err == "word and more\n"


@pytest.mark.spec("O1")
@pytest.mark.parametrize("name", TEXTS)
def test_whatever_is_shown_is_one_line_and_visible(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = TEXTS[name]
    for shown in (
        lambda: say(text),
        lambda: say(colour(text, "red"), text),
        lambda: say_lines([text]),
        lambda: line_out(text, colour(text, "bold")),
        lambda: lines_out([text]),
        lambda: draw_over(text),
    ):
        shown()
        told = capsys.readouterr()
        assert reached((told.out + told.err).removeprefix("\r\x1b[K")) == []
        assert (told.out + told.err).count("\n") <= 1


@pytest.mark.spec("O1")
def test_an_error_of_several_lines_forges_no_hint(capsys: pytest.CaptureFixture[str]) -> None:
    say_error("it cannot be\nhint: run this", "what we say\nof it")
    assert capsys.readouterr().err == "error: it cannot be\n       hint: run this\n\nhint: what we say\\nof it\n"


@pytest.mark.spec("O1")
def test_a_cell_of_a_table_has_one_line_and_no_tab(capsys: pytest.CaptureFixture[str]) -> None:
    table_out(("name", "#n"), [("a\tb\nc\x1b", "1")])
    assert capsys.readouterr().out == "name         n\na\\tb\\nc\\x1b  1\n"


@pytest.mark.spec("O1")
def test_a_console_shows_visibly_what_a_renderable_forgot() -> None:
    from rich.text import Text

    drawn = console()
    drawn.file = io.StringIO()
    drawn.print(Text(ALL.replace("\n", " ")), soft_wrap=True)
    assert reached(drawn.file.getvalue()) == []
    assert MARK in drawn.file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.034, "0.03 s"),
        (5.25, "5.2 s"),
        (59.96, "60.0 s"),
        (61, "1 min 01 s"),
        (3599.9, "1 h 00 min"),
        (7261, "2 h 01 min"),
        (200_000, "2 d 7 h"),
    ],
)
def test_durations_are_as_exact_as_a_person_needs_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_sizes_and_numbers_are_words() -> None:
    assert [size(count) for count in (1, 900, 2048, 5 * 1024**2, 3 * 1024**4)] == [
        "1 byte",
        "900 bytes",
        "2.0 KiB",
        "5.0 MiB",
        "3.0 TiB",
    ]
    assert [one(count, "job") for count in (0, 1, 12_000)] == ["0 jobs", "1 job", "12,000 jobs"]
