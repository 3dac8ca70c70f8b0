"""The glossary has every word of the contract and of the wire, each of them once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wakugumi.wire.frame import NAMES

DOCS = Path(__file__).parents[2] / "docs"


def rows_of(page: str) -> list[tuple[str, str]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^\| (?!word |frame |---)([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)


def words_of(rows: list[tuple[str, str]]) -> list[str]:
    return [word for row in rows for word in re.sub(r" \(.*\)", "", row[0]).split(", ")]


FOR_USERS = rows_of("use/words.md")
ROWS = FOR_USERS + rows_of("internals/words.md")
WORDS = words_of(ROWS)

CONTRACT = (
    *("job", "attempt", "credit", "subject", "pattern", "leader", "worker", "node", "group", "gateway", "client"),
    *("cache", "cache id", "blob", "dead letter", "lease", "epoch"),
)


@pytest.mark.parametrize("word", CONTRACT)
def test_a_word_of_the_contract_is_in_the_glossary(word: str) -> None:
    assert word in WORDS


@pytest.mark.parametrize("name", NAMES.values())
def test_a_frame_is_in_the_glossary(name: str) -> None:
    assert name in WORDS


def test_users_need_about_forty_words() -> None:
    assert 35 <= len(FOR_USERS) <= 50


def test_a_word_means_one_thing() -> None:
    assert [word for word in WORDS if WORDS.count(word) > 1] == []


@pytest.mark.parametrize(("word", "meaning"), ROWS)
def test_a_word_has_a_meaning_of_its_own(word: str, meaning: str) -> None:
    assert len(meaning) > 5
    assert meaning.lower() != word.lower()


@pytest.mark.parametrize(("word", "meaning"), ROWS)
def test_what_is_not_built_is_marked_so(word: str, meaning: str) -> None:
    planned = {"epoch"}
    assert ("*not in this version*" in meaning) == (word in planned)
