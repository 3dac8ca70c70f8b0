"""What do clients of leaders with nodes want? A request is its own description, so that any node can run it."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from wakugumi.core.ids import JobId

_READ: Final = msgspec.msgpack.Decoder(tuple[int, str, float, bool, bool, bool, bool])


class NodeWant(NamedTuple):
    """A job, as its client thought of it."""

    number: int
    body: str
    takes_s: float
    fails: bool = False
    is_endless: bool = False
    """It runs until it is cancelled, and its client cancels it."""
    is_poison: bool = False
    """It ends its node."""
    is_bad: bool = False
    """Every node refuses it: a field has a value that is not allowed."""

    @property
    def job(self) -> JobId:
        return JobId(self.number.to_bytes(16, "big"))

    @property
    def payload(self) -> bytes:
        return msgspec.msgpack.encode(tuple(self))

    def __repr__(self) -> str:
        return f"job{self.number} {self.body}"


def want_in(payload: bytes) -> NodeWant:
    return NodeWant(*_READ.decode(payload))
