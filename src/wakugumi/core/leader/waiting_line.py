"""Who waits, and who is first?

A place is a number that grows, taken when the wait begins. The lowest place stands first, also if its owner left the
line for a while and came back to it. Nearly all come in the order of their places: that is the fast way.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_LEFT_KEPT: Final = 64
"""Places that were left and may stay in a heap, however short it is."""


class WaitingLine(Generic[T]):
    """Those that wait in one line."""

    __slots__ = ("_last", "_late", "at")

    def __init__(self) -> None:
        self.at: OrderedDict[int, T] = OrderedDict()
        """By their places, which are above 0. A plain dict finds its first key by stepping over all that were deleted
        before it."""
        self._last = 0
        """The highest place that came in order."""
        self._late: list[int] = []
        """A heap of the places that came behind higher ones, and of some that were left since."""

    def add(self, place: int, who: T) -> None:
        at = self.at
        if place > self._last or not at:
            self._last = place
        else:
            self._add_late(place)
        at[place] = who

    def first(self) -> int:
        """The lowest place; 0 if nobody waits."""
        for place in self.at:
            return self._first_with_late(place) if self._late else place
        return 0

    def take_first(self) -> T:
        """Whoever has the lowest place leaves the line. There must be somebody."""
        return self.at.pop(self.first()) if self._late else self.at.popitem(last=False)[1]

    def check(self) -> None:
        late, in_order = set(self._late), [place for place in self.at if place not in set(self._late)]
        assert in_order == sorted(in_order), "somebody waits and is not found when it is first"
        assert all(place > 0 for place in self.at)
        assert self.first() == min(self.at, default=0)
        assert len(late) <= 2 * len(self.at) + _LEFT_KEPT + 1

    def _add_late(self, place: int) -> None:
        if len(self._late) > 2 * len(self.at) + _LEFT_KEPT:
            self._late = list(self.at)
            heapify(self._late)
        heappush(self._late, place)

    def _first_with_late(self, first: int) -> int:
        late = self._late
        while late:
            if late[0] in self.at:
                return min(first, late[0])
            heappop(late)
        return first
