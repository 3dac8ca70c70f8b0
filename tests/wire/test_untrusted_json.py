"""Whatever a stranger sends as JSON, it is read, or is Unreadable."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.hostile_answers import BODIES

from wakugumi.errors import PeerError
from wakugumi.wire.messages.job import JobRequest, JobResult, read_parts
from wakugumi.wire.untrusted_json import JsonReader, Unreadable, read_json


class Said(msgspec.Struct):
    code: str = ""
    running: int = 0
    more: dict[str, Any] = {}
    raw: msgspec.Raw = msgspec.Raw()


KINDS: list[Any] = [Said, int, str, list[int], dict[str, Any], msgspec.Raw, Any, JobRequest, JobResult]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_read_or_unreadable(name: str, kind: Any) -> None:
    with contextlib.suppress(Unreadable):
        read_json(BODIES[name], kind)


@given(
    st.one_of(st.binary(), st.text().map(str.encode), st.integers(1, 200_000).map(lambda deep: b'{"a":' + b"[" * deep))
)
def test_any_bytes_are_read_or_unreadable(data: bytes) -> None:
    for kind in KINDS:
        with contextlib.suppress(Unreadable):
            JsonReader(kind).read(data)


def test_what_is_right_is_read() -> None:
    assert read_json(b'{"code":"busy"}', Said).code == "busy"
    assert read_json('"x"', str) == "x"


@pytest.mark.parametrize("data", [b"", b"{", b'{"code":1}', b'{"code":"\xff"}', b'{"more":' + b'{"a":' * 100_000])
def test_what_is_wrong_is_one_error_and_short(data: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        read_json(data, Said)
    assert isinstance(caught.value, PeerError)
    assert isinstance(caught.value, ValueError)
    assert 0 < len(str(caught.value)) <= 201


@pytest.mark.parametrize("text", ["", "[", "{}", "[[1]]", '[["00"]]', "[" * 100_000])
def test_a_list_of_parts_that_is_none_is_the_peers_fault(text: str) -> None:
    with pytest.raises(PeerError, match="parts"):
        read_parts(text)
