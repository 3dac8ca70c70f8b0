"""What happens next? Virtual time: a heap of things to do, in the order of their times, and of their making.

Quiet hours cost nothing, and two runs from one seed are the same to the last step.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

EVENTS_MAX: Final = 3_000_000
"""A world in which more happens than this does not come to rest; an ordinary one has some ten thousand."""


class Clock:
    """The time of one world, in seconds since it began."""

    __slots__ = ("_heap", "_made", "now")

    def __init__(self) -> None:
        self.now = 1_000.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0

    def at(self, time: float, call: Callable[[], None]) -> None:
        self._made += 1
        heappush(self._heap, (time, self._made, call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self.now + seconds, call)

    def run_until(self, time: float, done: Callable[[], bool] | None = None) -> None:
        """Do all that is due by then; `done` is asked now and then whether that is enough."""
        heap = self._heap
        asked = 0
        while heap and heap[0][0] <= time:
            at, _, call = heappop(heap)
            if at > self.now:
                self.now = at
            call()
            asked += 1
            assert self._made < EVENTS_MAX, "the world does not come to rest"
            if done is not None and asked % 64 == 0 and done():
                return
        self.now = max(self.now, time)
