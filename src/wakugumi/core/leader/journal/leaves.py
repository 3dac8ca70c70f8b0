"""Which leaves of the journal may be dropped, and which jobs prevent that?

A leaf has the records of one step. The request of each job is in one leaf, later records about the job are in later
leaves. So the oldest leaves may be dropped as soon as all jobs whose requests are there are forgotten.

    │ sheaf 0: 16 leaves, all gone │ sheaf 1: one job still waits │ … │ sheaf n: being written │
      may be dropped                 moved to the end, whole, once garbage is more than half of the journal

Jobs are counted by sheaf, so that a million jobs that came one by one do not need a million counters.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wakugumi.core.ids import JobId
from wakugumi.limits.journal import JOURNAL_SLACK_BYTES

_SHIFT: Final = 4
"""16 leaves make a sheaf: at 256 events a leaf, some thousand jobs, which can be moved in one step."""
_RECORD_BYTES: Final = 256
"""Estimated bytes of all small records about one job."""


class _Sheaf(msgspec.Struct, gc=False, eq=False):
    jobs: list[JobId]
    """Jobs whose requests were written here; some are forgotten or were moved."""
    live: int = 0
    size: int = 0


class Leaves:
    """The leaves of one journal, as the core counts them."""

    def __init__(self, next_leaf: int = 1) -> None:
        self.number = next_leaf
        """Number of the leaf for the records of this step."""
        self.written_bytes = 0
        """Estimated bytes in all leaves that are not dropped."""
        self._sheaves: dict[int, _Sheaf] = {}
        self._open = self._sheaves[next_leaf >> _SHIFT] = _Sheaf([])
        self._is_completed = False

    def hold(self, job: JobId, size: int) -> int:
        """Count a job's request in this step's leaf. Returns the number of the leaf."""
        sheaf = self._open
        sheaf.jobs.append(job)
        sheaf.live += 1
        sheaf.size += size + _RECORD_BYTES
        self.written_bytes += size + _RECORD_BYTES
        return self.number

    def add(self, size: int) -> None:
        """Count another large record in this step's leaf."""
        self._open.size += size
        self.written_bytes += size

    def release(self, leaf: int) -> None:
        """A job whose request is in this leaf is forgotten, or was moved."""
        self._sheaves[leaf >> _SHIFT].live -= 1

    def next_leaf(self) -> None:
        """Begin the next leaf."""
        self.number += 1
        self._open_sheaf(self.number >> _SHIFT)

    def recovered(self, leaf: int) -> None:
        """The journal has this leaf; `hold` follows for its jobs. Leaves come in order."""
        self.number = leaf
        self._open_sheaf(leaf >> _SHIFT)

    def take_completed(self) -> bool:
        """Was a sheaf completed since the last call? Then the oldest may be droppable."""
        turned, self._is_completed = self._is_completed, False
        return turned

    def droppable(self) -> int | None:
        """Forget the oldest sheaves without jobs. Returns the first leaf that must stay; None if no earlier one may
        go."""
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
        """Jobs of the oldest sheaf to move to this step's leaf, if garbage is more than half of the journal. `jobs` and
        `live_bytes`: number and bytes of live jobs."""
        if self.written_bytes <= 2 * (live_bytes + jobs * _RECORD_BYTES) + JOURNAL_SLACK_BYTES:
            return []
        oldest = next(iter(self._sheaves.values()))
        return [] if oldest is self._open else oldest.jobs

    def is_in_oldest(self, leaf: int) -> bool:
        return leaf >> _SHIFT == next(iter(self._sheaves))

    def check(self, live: dict[int, int]) -> None:
        """`live`: number of jobs by leaf."""
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
            self._is_completed = True
