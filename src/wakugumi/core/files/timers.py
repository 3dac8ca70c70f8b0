"""Which alarms ring when?

An alarm's function checks whether there is still work to do. Alarms that are far ahead are taken back when they are not
needed any more (`take_back`): they stay in the heap until they are half of it, and then the heap is made anew.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from wakugumi.core.files.events import FilesStepBuilder

Alarm: TypeAlias = Callable[[float, FilesStepBuilder], None]

_TAKEN_BACK_KEPT: Final = 64
"""Alarms that were taken back and may stay in the heap, however few others there are."""


class Timers:
    """Alarms, the earliest first; alarms of the same time in the order in which they were set."""

    __slots__ = ("_count", "_heap", "_taken_back")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._count = 0
        self._taken_back: set[int] = set()
        """Numbers of the alarms that are taken back and still in the heap."""

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, at: float, alarm: Alarm) -> int:
        """Returns the alarm's number, for `take_back`."""
        self._count += 1
        heappush(self._heap, (at, self._count, alarm))
        return self._count

    def take_back(self, number: int) -> None:
        """The alarm has not rung, and is not needed any more."""
        self._taken_back.add(number)
        if 2 * len(self._taken_back) > len(self._heap) + _TAKEN_BACK_KEPT:
            self._heap = [row for row in self._heap if row[1] not in self._taken_back]
            heapify(self._heap)
            self._taken_back.clear()

    def ring(self, now: float, out: FilesStepBuilder) -> None:
        """Rings all alarms that are due. An alarm that they set must be later than now."""
        while self._heap and self._heap[0][0] <= now:
            _, number, alarm = heappop(self._heap)
            if number in self._taken_back:
                self._taken_back.remove(number)
            else:
                alarm(now, out)

    def next_at(self) -> float | None:
        return self._heap[0][0] if self._heap else None
