"""Text from outside is shown, and commands nothing."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.hostile_text import HOSTILE, TEXTS

from wakugumi.core.visible_text import is_hostile, is_plain_name, visible, visible_json

pytestmark = pytest.mark.spec("O1")


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_hostile_is_left_and_the_rest_is_there(name: str) -> None:
    text = TEXTS[name]
    shown = visible(text)
    assert shown.isprintable()
    assert "evil" in shown
    assert visible(shown) == shown
    assert is_hostile(text)


def test_an_escape_tells_which_character_it_was() -> None:
    assert visible("a\x1b[31m\x9b\u202e\n\r\t\U000e0041") == r"a\x1b[31m\x9b\u202e\n\r\t\U000e0041"


def test_what_is_kept_stays() -> None:
    assert visible("a\tb\nc\x1b", "\n\t") == "a\tb\nc\\x1b"


@pytest.mark.parametrize(
    "text", ["", "naïve", "価格 計算", "می\u200cخواهم", "👩\u200d🔬", "a b", "100 €", "\ue0b0", "ẽ", "\u2800\u2801"]
)
def test_every_script_is_left_alone(text: str) -> None:
    assert visible(text) == text
    assert not is_hostile(text)


@pytest.mark.parametrize(
    "text", ["⚠\ufe0f", "❤\ufe0f\u200d🔥", "☎\ufe0e", "1\ufe0f\u20e3", "葛\U000e0100飾", "ᠠ\u180b"]
)
def test_a_selector_stays_behind_what_it_varies_and_no_name_has_one(text: str) -> None:
    assert visible(text) == text
    assert not is_hostile(text)
    assert visible(text[1:]) != text[1:]
    assert visible(f"a{text[1:]}") != f"a{text[1:]}"
    assert is_plain_name(text[0])
    assert not is_plain_name(text)


# Other_Default_Ignorable_Code_Point, Variation_Selector and Prepended_Concatenation_Mark of Unicode's PropList.txt.
OTHER_IGNORABLE = [
    *((0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x2065, 0x2065), (0x3164, 0x3164), (0xFFA0, 0xFFA0)),
    *((0xFFF0, 0xFFF8), (0xE0000, 0xE0000), (0xE0002, 0xE001F), (0xE0080, 0xE00FF), (0xE01F0, 0xE0FFF)),
]
SELECTORS = [(0x180B, 0x180D), (0x180F, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF)]
NOT_IGNORABLE = [
    *((0x600, 0x605), (0x6DD, 0x6DD), (0x70F, 0x70F), (0x890, 0x891), (0x8E2, 0x8E2), (0x110BD, 0x110BD)),
    *((0x110CD, 0x110CD), (0xFFF9, 0xFFFB), (0x13430, 0x1343F)),
]


def test_all_that_unicode_calls_ignorable_is_escaped_and_in_no_name() -> None:
    """Default_Ignorable_Code_Point, by the formula of DerivedCoreProperties.txt."""

    def within(code: int, ranges: list[tuple[int, int]]) -> bool:
        return any(first <= code <= last for first, last in ranges)

    ignorable = [
        code
        for code in range(sys.maxunicode + 1)
        if within(code, OTHER_IGNORABLE + SELECTORS)
        or (unicodedata.category(chr(code)) == "Cf" and not within(code, NOT_IGNORABLE))
    ]
    assert len(ignorable) == 4174  # As that file counts them.
    assert [hex(code) for code in ignorable if is_plain_name(chr(code))] == []
    assert [chr(code) for code in ignorable if not is_hostile(chr(code))] == ["\u200c", "\u200d"]


@pytest.mark.parametrize("char", ["\u2800", "\u00a0", "\u3000", "\u3164", "\u200c", "\ufe0f", "\x1b", "\n"])
def test_no_name_has_what_looks_like_nothing(char: str) -> None:
    assert not is_plain_name(f"a{char}b")


@pytest.mark.parametrize("name", ["", "calc", "a b", "naïve", "価格", "한국어", "👩"])
def test_a_name_of_any_script_is_plain(name: str) -> None:
    assert is_plain_name(name)


def test_no_control_and_no_format_character_is_forgotten() -> None:
    """Of all of Unicode: what is neither a letter nor a glyph is escaped, unless a script is spelled with it."""
    spelled_with = set("\u200c\u200d") | {chr(code) for code in (*range(0x600, 0x606), 0x6DD, 0x70F, 0x8E2)}
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        kind = unicodedata.category(char)
        if kind in {"Cc", "Zl", "Zp", "Cs"} or (code < 0x1_0000 and kind == "Cf" and unicodedata.bidirectional(char)):
            expected = char not in spelled_with and not 0x890 <= code <= 0x891
            assert is_hostile(char) is expected, hex(code)


@given(st.text() | st.text(alphabet=st.sampled_from(sorted({char for text in TEXTS.values() for char in text}))))
def test_json_means_the_same(text: str) -> None:
    written = visible_json(json.dumps({text: [text]}, ensure_ascii=False, indent=1))
    assert json.loads(written) == {text: [text]}
    assert not HOSTILE.search(written)


@given(st.text())
def test_what_is_shown_holds_nothing_hostile(text: str) -> None:
    assert not HOSTILE.search(visible(text))
    assert is_hostile(text) is (visible(text) != text)
