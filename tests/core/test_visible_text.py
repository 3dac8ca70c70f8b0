"""Text from outside is shown, and commands nothing."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.hostile_text import HOSTILE, TEXTS

from wakugumi.core.visible_text import is_hostile, visible, visible_json

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
    "text", ["", "naïve", "価格 計算", "می\u200cخواهم", "👩\u200d🔬", "a b", "100 €", "\ue0b0", "ẽ"]
)
def test_every_script_is_left_alone(text: str) -> None:
    assert visible(text) == text
    assert not is_hostile(text)


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
