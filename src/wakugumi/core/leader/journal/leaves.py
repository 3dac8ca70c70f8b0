"""Which leaves of the journal are still needed, and which jobs stand in their way?

A leaf is what one step keeps, and they are numbered. The request of each job stands in one of them; whatever is said
of the job later stands in later ones. So the oldest leaves may go as soon as no job that stands in them is known any
more: nothing left in them can be about a job that lives.

    │ sheaf 0: 16 leaves, all gone │ sheaf 1: one job still waits │ … │ sheaf n: being written │
      may be dropped                 moved to the end, whole, once there is more garbage than life in the journal

Leaves are counted by sheaves, so that a million jobs that came one by one do not need a million counters.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wakugumi.core.ids import JobId
from wakugumi.limits.journal import JOURNAL_SLACK_BYTES

_SHIFT: Final = 4
"""16 leaves make a sheaf: at 256 events a leaf, some thousand jobs, which can be moved in one step."""
_RECORD_BYTES: Final = 256
"""What the small records about one job take, all in all."""


class _Sheaf(msgspec.Struct, gc=False, eq=False):
    jobs: list[JobId]
    """Whose requests were kept here; some are gone or were moved."""
    live: int = 0
    size: int = 0


class Leaves:
    """The leaves of one journal, as far as the core must know them."""

    def __init__(self, next_leaf: int = 1) -> None:
        self.number = next_leaf
        """The leaf to which this step's records go."""
        self.written_bytes = 0
        """In all leaves that have not been dropped, about."""
        self._sheaves: dict[int, _Sheaf] = {}
        self._open = self._sheaves[next_leaf >> _SHIFT] = _Sheaf([])
        self._turned = False

    def hold(self, job: JobId, size: int) -> int:
        """A job's request goes into this step's leaf. Returns its number."""
        sheaf = self._open
        sheaf.jobs.append(job)
        sheaf.live += 1
        sheaf.size += size + _RECORD_BYTES
        self.written_bytes += size + _RECORD_BYTES
        return self.number

    def add(self, size: int) -> None:
        """Something else that is large goes into this step's leaf."""
        self._open.size += size
        self.written_bytes += size

    def release(self, leaf: int) -> None:
        """A job whose request stood there is forgotten, or was moved."""
        self._sheaves[leaf >> _SHIFT].live -= 1

    def turn(self) -> None:
        """This leaf is written: the next one."""
        self.number += 1
        self._open_sheaf(self.number >> _SHIFT)

    def recovered(self, leaf: int) -> None:
        """The journal has this leaf; what stood in it will be held by `hold`. In the order of their numbers."""
        self.number = leaf
        self._open_sheaf(leaf >> _SHIFT)

    def take_turned(self) -> bool:
        """Has a sheaf been completed since this was asked last? Then it is time to look at the oldest."""
        turned, self._turned = self._turned, False
        return turned

    def droppable(self) -> int | None:
        """The first leaf that must stay, if any before it may go."""
        before = None
        for number in list(self._sheaves):
            sheaf = self._sheaves[number]
            if sheaf.live or sheaf is self._open:
                break
            del self._sheaves[number]
            self.written_bytes -= sheaf.size
            before = number
        return None if before is None else before + 1 << _SHIFT

    def stragglers(self, jobs: int, live_bytes: int) -> list[JobId]:
        """Jobs of the oldest sheaf, to be moved to this step's leaf: if the journal has more garbage than life, of
        which there are so many jobs, with so many bytes in all."""
        if self.written_bytes <= 2 * (live_bytes + jobs * _RECORD_BYTES) + JOURNAL_SLACK_BYTES:
            return []
        oldest = next(iter(self._sheaves.values()))
        return [] if oldest is self._open else oldest.jobs

    def is_in_oldest(self, leaf: int) -> bool:
        return leaf >> _SHIFT == next(iter(self._sheaves))

    def check(self, live: dict[int, int]) -> None:
        """`live` says how many jobs stand in each leaf."""
        counts: dict[int, int] = {}
        for leaf, count in live.items():
            assert leaf <= self.number
            counts[leaf >> _SHIFT] = counts.get(leaf >> _SHIFT, 0) + count
        assert counts == {number: sheaf.live for number, sheaf in self._sheaves.items() if sheaf.live}
        assert self.written_bytes == sum(sheaf.size for sheaf in self._sheaves.values())
        assert list(self._sheaves) == sorted(self._sheaves)

    def _open_sheaf(self, number: int) -> None:
        if number not in self._sheaves:
            self._open = self._sheaves[number] = _Sheaf([])
            self._turned = True
