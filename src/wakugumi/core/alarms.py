"""What has to be looked at again, and when?

An alarm is never taken back: whoever is woken looks whether there is still something to do. That is cheaper than to
find an alarm that is not needed any more.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

from wakugumi.core.spread_events import Outbox

Alarm: TypeAlias = Callable[[float, Outbox], None]


class Alarms:
    """The earliest first; those of the same time in the order in which they were set."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._count = 0

    def set(self, at: float, alarm: Alarm) -> None:
        self._count += 1
        heappush(self._heap, (at, self._count, alarm))

    def ring(self, now: float, out: Outbox) -> None:
        """All whose time has come. What they set anew must be later than now."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            heappop(heap)[2](now, out)

    def next_at(self) -> float | None:
        return self._heap[0][0] if self._heap else None
