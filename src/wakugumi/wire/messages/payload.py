"""How is a record written as a payload, and read so that an error is the sender's?"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from wakugumi.errors import PeerError
from wakugumi.wire.untrusted_json import Unreadable, read_json

T = TypeVar("T")

TEXT_CHARS_MAX: Final = 1_000
"""Bound of a refusal's message, which may quote the request and must fit a frame and a log line."""
encode: Final = msgspec.json.Encoder().encode
"""Any record of a message, or an answer to a question, as JSON."""


def read_payload(record: type[T], payload: bytes, name: str) -> T:
    """The record in a frame of this name. Raises PeerError."""
    try:
        return read_json(payload, record)
    except Unreadable as error:
        raise PeerError(f"the payload of {name} cannot be read: {error}") from None
