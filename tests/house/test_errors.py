"""One table of codes: whatever the code says is in it, whatever is in it is said and described."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from wakugumi import errors
from wakugumi.errors import (
    CODES,
    CODES_BY_SENDER,
    Code,
    ConfigError,
    JobFailed,
    JournalError,
    Lost,
    PeerError,
    Refused,
    WakugumiError,
    hint_for,
)

ROOT = Path(__file__).parents[2]
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))
}

CODE_STANDS_AT = {
    "Refused": 0,
    "Verdict": 0,
    "hint_for": 0,
    "SendFailure": 1,
    "KillProgram": 1,
    "GiveUp": 1,
    "NoAnswer": 1,
    "_give_up": 1,
    "_attempt_lost": 1,
    "SendRefusal": 2,
    "SendNo": 2,
    "SubmitRefused": 2,
    "_refuse": 2,
}
"""Which argument of these is a code. The state machines' own words are in it: what they say ends in a frame."""
NOT_IN_THIS_VERSION: set[str] = set()


def codes_said(source: str) -> Iterator[tuple[int, str]]:
    """Every literal that stands where a code belongs, and its line."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        at = CODE_STANDS_AT.get(called)
        said = [node.args[at]] if at is not None and len(node.args) > at else []
        said += [keyword.value for keyword in node.keywords if keyword.arg in {"code", "reason"}]
        for value in said:
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
                yield node.lineno, value.value


@pytest.mark.parametrize("file", SOURCES)
def test_every_code_that_is_said_is_in_the_table(file: str) -> None:
    assert [(line, code) for line, code in codes_said(SOURCES[file]) if code not in CODES] == []


def test_a_code_that_is_not_in_the_table_would_be_found() -> None:
    planted = 'Refused("no-such", "x")\nev.SendFailure(job, "nor-this", "x")\nf(reason="nor-that")\nVerdict(code, text)'
    assert [code for _, code in codes_said(planted)] == ["no-such", "nor-this", "nor-that"]


def test_enough_of_them_are_seen() -> None:
    assert len({code for source in SOURCES.values() for _, code in codes_said(source)}) > len(CODES) / 2


@pytest.mark.parametrize("code", CODES)
def test_every_code_of_the_table_is_said_somewhere(code: str) -> None:
    said = any(f'"{code}"' in source for file, source in SOURCES.items() if not file.endswith("/errors.py"))
    assert said != (code in NOT_IN_THIS_VERSION)


def test_a_code_has_one_sender() -> None:
    assert sum(map(len, CODES_BY_SENDER.values())) == len(CODES)


@pytest.mark.parametrize(("code", "row"), CODES.items())
def test_every_row_can_be_acted_on(code: str, row: Code) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
    assert 200 <= row.http_status < 600
    assert 1 <= row.exit_code <= 6
    assert len(row.meaning) > 10
    assert row.meaning[0].islower()
    assert not row.meaning.endswith(".")
    assert row.hint
    assert row.hint != row.meaning
    assert row.hint[0].islower() or row.hint[0] in "`'"
    assert not row.hint.endswith(".")


def test_a_refusal_knows_what_follows_from_its_code() -> None:
    full, strange = Refused("full", "1 000 000 jobs are queued"), Refused("of-a-newer-version", "who knows")
    assert (str(full), full.code, full.retry, full.exit_code) == ("1 000 000 jobs are queued", "full", True, 1)
    assert full.hint == hint_for("full") == CODES["full"].hint
    assert (strange.retry, strange.exit_code, strange.hint) == (False, 1, "")
    assert Refused("full", "x", hint="add workers").hint == "add workers"


def test_every_error_is_one_of_ours_and_has_an_exit_code() -> None:
    kinds = [
        PeerError("x"),
        Refused("dead", "x"),
        Lost("x"),
        ConfigError("x", "do y"),
        JobFailed("x"),
        JournalError("x"),
    ]
    assert all(isinstance(error, WakugumiError) for error in kinds)
    assert [error.exit_code for error in kinds] == [1, 1, 5, 2, 1, 1]
    assert kinds[3].hint == "do y"


def test_what_is_exported_exists() -> None:
    assert all(hasattr(errors, name) for name in errors.__all__)


def test_a_bad_request_has_no_hint_but_one_of_its_own() -> None:
    assert (errors.bad_request("no name").code, errors.bad_request("no name").hint) == ("bad-request", "")
    assert errors.bad_request("no name", "give one").hint == "give one"
