"""Percent signs: what they stand for, and that encoding and decoding are each other's way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.errors import Refused
from wakugumi.wire.percent import percent_decoded, percent_encoded


@pytest.mark.parametrize(
    ("text", "meant"),
    [("a%20b", "a b"), ("%e6%9E%a0", "枠"), ("100%", "100%"), ("%zz%4", "%zz%4"), ("%2525", "%25"), ("枠%41", "枠A")],
)
def test_an_escape_is_a_byte_and_anything_else_itself(text: str, meant: str) -> None:
    assert percent_decoded(text) == meant


@pytest.mark.parametrize("text", ["%ff", "%C3", "\ud800%20"])
def test_what_is_no_text_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="UTF-8"):
        percent_decoded(text)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_encoded_is_decoded(text: str) -> None:
    encoded = percent_encoded(text)
    assert percent_decoded(encoded) == text
    assert encoded.isascii()
    assert not set(encoded) & set(' "\\\r\n;')
