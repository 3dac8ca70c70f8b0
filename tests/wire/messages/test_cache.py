"""Caches: whose answer it is, and what is no cache."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.hostile_payloads import DEEP, complaint, payloads

from wakugumi.errors import Refused
from wakugumi.limits.wire import CACHE_ID_CHARS_MAX
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.cache import (
    CacheAckHead,
    CachePutResult,
    read_cache_ack,
    read_cache_put,
    read_cache_result,
    read_put,
    read_source,
    read_stock,
    read_want,
)
from wakugumi.wire.messages.payload import encode


@given(payload=payloads, subject=st.text(max_size=10), msg_id=st.binary(min_size=16, max_size=16))
def test_whatever_is_written_ends_as_a_peer_error_or_a_refusal(payload: bytes, subject: str, msg_id: bytes) -> None:
    assert len(complaint(read_cache_ack, Frame(7, msg_id, subject=subject, payload=payload))) < 500
    for read in (read_cache_result, read_put, read_source, read_stock, read_want):
        assert len(complaint(read, payload)) < 500
    read_cache_put(payload)


def test_the_cache_id_of_a_put_is_found_if_it_can_be() -> None:
    assert read_cache_put(b'{"CacheId":"data-v1","Entries":[{"Name":"a","Content":"eA=="}]}') == "data-v1"
    assert read_cache_put(b"no json") == read_cache_put(DEEP) == ""
    assert len(read_cache_put(b'{"CacheId":"%s"}' % (b"x" * 1_000_000))) == CACHE_ID_CHARS_MAX


@pytest.mark.spec("F6")
def test_a_caches_answer_has_the_names_of_the_contract() -> None:
    put = json.loads(encode(CachePutResult("data-v1", "FAILED", "no")))
    assert put == {"CacheId": "data-v1", "Status": "FAILED", "Message": "no"}


def test_an_answer_without_an_id_is_about_the_cache_of_its_subject() -> None:
    assert read_cache_ack(Frame(7, subject="cache.ack.data-v1")) == CacheAckHead("data-v1", "OK")
    payload = b'{"CacheId":"data-v2","Status":"FAILED","Message":"no room"}'
    assert read_cache_ack(Frame(7, subject="cache.ack.data-v1", payload=payload)).cache_id == "data-v2"


@pytest.mark.parametrize("payload", [b"", b"no json", b"[]", b'{"Entries":7}', DEEP])
def test_a_put_that_is_no_cache_is_refused(payload: bytes) -> None:
    with pytest.raises(Refused, match="no cache") as refused:
        read_put(payload)
    assert refused.value.code == "bad-request"
