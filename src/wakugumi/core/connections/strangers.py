"""Which connections are closed because they have not identified themselves? (SPEC O6)

All connections without a hello, a whole request head or a whole line share one budget: a number of connections, bytes
and time. Beyond it the oldest one is closed. A known peer that reconnects is a stranger as well, but sends its hello at
once, so it is younger than connections that only hold a place.

    came ──► brought … ──► gone          the hello came, or the connection ended
      └──────────┴───────► surplus       the oldest, and why
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from wakugumi.limits.wire import STRANGER_DEADLINE_S, STRANGER_SPARED_S, STRANGERS_BYTES_MAX, STRANGERS_MAX

K = TypeVar("K", bound=Hashable)

Why: TypeAlias = Literal["crowd", "bytes", "late"]
HARD: Final = 2
"""Multiple of `count_max` that is never exceeded, not even by connections that have just come."""


class Surplus(NamedTuple, Generic[K]):
    """A stranger to close."""

    stranger: K
    why: Why


class Strangers(Generic[K]):
    """Strangers of one process."""

    def __init__(
        self,
        count_max: int = STRANGERS_MAX,
        bytes_max: int = STRANGERS_BYTES_MAX,
        *,
        deadline_s: float = STRANGER_DEADLINE_S,
        spared_s: float = STRANGER_SPARED_S,
    ) -> None:
        self.count_max = max(1, count_max)
        self.bytes_max = bytes_max
        self.deadline_s = deadline_s
        self._spared_s = spared_s
        self._since: dict[K, float] = {}
        """Time of the connection, the oldest first."""
        self._held: dict[K, int] = {}
        """Bytes of strangers that have sent some, in the order of the first byte."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, stranger: K) -> bool:
        return stranger in self._since

    @property
    def bytes(self) -> int:
        return self._bytes

    def came(self, stranger: K, now: float) -> None:
        self._since.setdefault(stranger, now)

    def brought(self, stranger: K, held_bytes: int) -> None:
        """This many bytes of the hello are buffered."""
        assert stranger in self._since
        self._bytes += held_bytes - self._held.get(stranger, 0)
        self._held[stranger] = held_bytes

    def gone(self, stranger: K) -> bool:
        """The connection is no longer a stranger. False if it was none."""
        if self._since.pop(stranger, None) is None:
            return False
        self._bytes -= self._held.pop(stranger, 0)
        return True

    def oldest(self, but: K) -> K | None:
        """The stranger to close in favour of `but`."""
        return next((stranger for stranger in self._since if stranger != but), None)

    def surplus(self, now: float) -> list[Surplus[K]]:
        """Strangers to close now. They are forgotten."""
        out: list[Surplus[K]] = []
        while self._bytes > self.bytes_max:
            out.append(self._end(next(iter(self._held)), "bytes"))
        while self._since:
            stranger, since = next(iter(self._since.items()))
            if since + self.deadline_s <= now:
                out.append(self._end(stranger, "late"))
            elif len(self._since) > self.count_max and (
                since + self._spared_s <= now or len(self._since) > HARD * self.count_max
            ):
                out.append(self._end(stranger, "crowd"))
            else:
                break
        return out

    def wake_at(self) -> float | None:
        """When `surplus` must be called again."""
        if not self._since:
            return None
        since = next(iter(self._since.values()))
        return since + (self._spared_s if len(self._since) > self.count_max else self.deadline_s)

    def check(self) -> None:
        """Asserts the invariants after `surplus`."""
        assert len(self._since) <= HARD * self.count_max
        assert self._bytes == sum(self._held.values()) <= self.bytes_max
        assert self._held.keys() <= self._since.keys()

    def _end(self, stranger: K, why: Why) -> Surplus[K]:
        self.gone(stranger)
        return Surplus(stranger, why)
