"""Which inputs may be received at once, and which sender loses its slot? (SPEC N3)

All protocols of a node share its slots. Small inputs have slots of their own: they take no time. If all slots are
taken, the slowest sender below the least rate loses its slot to the next one.

    take ──► came … ──► free
     └─────► the sender that loses its slot, or busy
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

from wakugumi.errors import Refused
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.node import RECEIVE_BYTES_PER_S_MIN, RECEIVE_GRACE_S, RECEIVE_SLOTS

K = TypeVar("K", bound=Hashable)


class ReceivedBytes(msgspec.Struct, eq=False):
    """The bytes of one input so far."""

    began_at: float
    came: int = 0


class ReceiveSlots(Generic[K]):
    """Senders of one node."""

    def __init__(self, count: int = RECEIVE_SLOTS, *, grace_s: float = RECEIVE_GRACE_S) -> None:
        """A sender counts as fast for `grace_s`."""
        self.count = count
        self.grace_s = grace_s
        self._large: dict[K, ReceivedBytes] = {}
        self._small: dict[K, ReceivedBytes] = {}
        self.refused = 0
        """Senders that were refused because too many inputs were being received."""

    def __len__(self) -> int:
        return len(self._large) + len(self._small)

    def has_room(self, size: int | None, now: float) -> bool:
        """Would an input of this size get a slot?"""
        senders = self._senders(size)
        if len(senders) < self.count:
            return True
        return self._rate(senders[self._slowest(senders, now)], now) < RECEIVE_BYTES_PER_S_MIN

    def take(self, sender: K, size: int | None, now: float) -> K | None:
        """A slot for an input of this size, if declared. Returns the sender that loses its slot for it, if one does.
        Raises Refused: busy."""
        senders = self._senders(size)
        loser = None
        if len(senders) >= self.count:
            loser = self._slowest(senders, now)
            if self._rate(senders[loser], now) >= RECEIVE_BYTES_PER_S_MIN:
                self.refused += 1
                raise Refused("busy", f"{len(senders)} inputs are on their way already")
            del senders[loser]
        senders[sender] = ReceivedBytes(now)
        return loser

    def came(self, sender: K, size: int) -> None:
        """So many bytes more. A sender without a slot is about to learn of it."""
        row = self._large.get(sender) or self._small.get(sender)
        if row is not None:
            row.came += size

    def free(self, sender: K) -> None:
        """The input is whole, or ended otherwise."""
        if self._large.pop(sender, None) is None:
            self._small.pop(sender, None)

    def check(self) -> None:
        assert len(self._large) <= self.count
        assert len(self._small) <= self.count
        assert not self._large.keys() & self._small.keys()

    def _senders(self, size: int | None) -> dict[K, ReceivedBytes]:
        return self._small if size is not None and size <= INLINE_FILE_BYTES_MAX else self._large

    def _slowest(self, senders: dict[K, ReceivedBytes], now: float) -> K:
        return min(senders, key=lambda one: self._rate(senders[one], now))

    def _rate(self, row: ReceivedBytes, now: float) -> float:
        """Bytes per second so far. A sender that has just begun counts as fast."""
        age_s = now - row.began_at
        return row.came / age_s if age_s > self.grace_s else math.inf
