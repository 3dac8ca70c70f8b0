"""Records as payloads: written in the contract's names, and read or the sender's fault."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.kit.hostile_payloads import complaint, payloads

from wakugumi.errors import PeerError
from wakugumi.wire.messages.job import Refusal
from wakugumi.wire.messages.payload import encode, read_payload


def test_a_record_is_written_and_read_again() -> None:
    assert encode(Refusal("full", "later")) == b'{"Code":"full","Message":"later"}'
    assert read_payload(Refusal, encode(Refusal("full", "later")), "Refusal") == Refusal("full", "later")


def test_the_frame_that_cannot_be_read_is_named() -> None:
    with pytest.raises(PeerError, match=r"the payload of Refusal cannot be read: .*`Code`"):
        read_payload(Refusal, b"{}", "Refusal")


@given(payload=payloads)
def test_whatever_is_written_ends_as_a_peer_error_with_a_text_that_is_cut(payload: bytes) -> None:
    assert len(complaint(lambda data: read_payload(Refusal, data, "Refusal"), payload)) < 500
