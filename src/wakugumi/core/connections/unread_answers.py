"""What may answers cost that are not read? (SPEC O6)

A peer that sends requests and does not read is cut off at WRITE_BACKLOG_BYTES_MAX. The unread answers of all such peers
share one budget. Beyond it the peer with most unread bytes is cut off, first among peers that do not read, or next to
nothing. A peer that reads, however slowly its line allows, is cut off only if such peers alone exceed the budget.

    grew … ──► ended        the peer has read, or is gone
      └──────► surplus      the budget is exceeded: which peers are cut off?
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

import msgspec

from wakugumi.limits.wire import UNREAD_BYTES_MAX, UNREAD_BYTES_PER_S_MIN, UNREAD_GRACE_S

K = TypeVar("K", bound=Hashable)

_STEPS: Final = 16
"""When the budget is exceeded, a sixteenth of it is freed as well: else each further answer would look at all peers."""


class UnreadBytes(msgspec.Struct, eq=False):
    """Unread answers of one peer."""

    since: float
    sent: int
    """Bytes in the peer's buffer at that time, and all bytes added since."""
    queued: int = 0
    """Bytes added since the peer was known not to read."""
    unread: int = 0
    """Unread part of `queued`, as last measured."""


class UnreadAnswers(Generic[K]):
    """Unread answers of one process."""

    def __init__(self, bytes_max: int = UNREAD_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._owed: dict[K, UnreadBytes] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._owed)

    @property
    def bytes(self) -> int:
        """Upper bound of the unread bytes."""
        return self._bytes

    def grew(self, key: K, size: int, buffered: int, now: float) -> bool:
        """A peer that does not read is sent `size` more bytes, with `buffered` bytes in its buffer before. True if
        `surplus` is needed."""
        owed = self._owed.get(key)
        if owed is None:
            owed = self._owed[key] = UnreadBytes(now, buffered)
        owed.sent += size
        owed.queued += size
        owed.unread += size
        self._bytes += size
        return self._bytes > self.bytes_max

    def ended(self, key: K) -> None:
        """The peer has read, or is gone."""
        owed = self._owed.pop(key, None)
        if owed is not None:
            self._bytes -= owed.unread

    def surplus(self, now: float, buffered_of: Callable[[K], int]) -> list[K]:
        """Peers to cut off now. They are forgotten."""
        reading: dict[K, bool] = {}
        for key, owed in self._owed.items():
            buffered = buffered_of(key)
            unread = min(owed.queued, buffered)
            self._bytes += unread - owed.unread
            owed.unread = unread
            passed_s = now - owed.since
            reading[key] = passed_s < UNREAD_GRACE_S or owed.sent - buffered >= UNREAD_BYTES_PER_S_MIN * passed_s
        out: list[K] = []
        bytes_goal = self.bytes_max - self.bytes_max // _STEPS
        for key in sorted(reading, key=lambda key: (reading[key], -self._owed[key].unread)):
            if self._bytes <= bytes_goal:
                break
            self.ended(key)
            out.append(key)
        return out

    def check(self) -> None:
        """Asserts the invariants after `surplus`."""
        assert 0 <= self._bytes == sum(owed.unread for owed in self._owed.values()) <= self.bytes_max
