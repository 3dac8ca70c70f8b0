"""Which member of a line is first?

A place is a number that grows, taken when the wait begins. The lowest place is first, also if its owner left the line
and returned to it. Most members arrive in the order of their places, which is the fast path.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_LEFT_KEPT: Final = 64
"""Left places that may stay in the heap, however short the line is."""


class WaitingLine(Generic[T]):
    """Members of one line, by place."""

    __slots__ = ("_last", "_late", "at")

    def __init__(self) -> None:
        self.at: OrderedDict[int, T] = OrderedDict()
        """Members by place, above 0. Ordered, because a plain dict finds its first key by stepping over all deleted
        ones."""
        self._last = 0
        """The highest place that was added in order."""
        self._late: list[int] = []
        """Heap of the places that were added after higher ones; some were left since."""

    def add(self, place: int, member: T) -> None:
        at = self.at
        if place > self._last or not at:
            self._last = place
        else:
            self._add_late(place)
        at[place] = member

    def first(self) -> int:
        """The lowest place; 0 if the line is empty."""
        for place in self.at:
            return self._first_with_late(place) if self._late else place
        return 0

    def take_first(self) -> T:
        """Remove the member with the lowest place. The line must not be empty."""
        return self.at.pop(self.first()) if self._late else self.at.popitem(last=False)[1]

    def check(self) -> None:
        late, in_order = set(self._late), [place for place in self.at if place not in set(self._late)]
        assert in_order == sorted(in_order), "a waiting member is not found when it is first"
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
