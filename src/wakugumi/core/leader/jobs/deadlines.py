"""Which jobs must be done by when?

Only parts of broadcasts have deadlines. A done job has none; its timer stays until it is due, or until more timers
belong to done jobs than to open ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from wakugumi.core.ids import JobId

_TIMERS_KEPT: Final = 64
"""Number of timers of done jobs that may stay in the heap, however few others there are."""


class Deadlines:
    def __init__(self) -> None:
        self.by_job: dict[JobId, float] = {}
        self.timers: list[tuple[float, JobId]] = []
        """Heap of deadlines, including some of done jobs. Ids in place of records, so that no job outlives its end
        here."""

    def add(self, job_id: JobId, due: float) -> None:
        self.by_job[job_id] = due
        if len(self.timers) > 2 * len(self.by_job) + _TIMERS_KEPT:
            self.timers = [(due, job_id) for job_id, due in self.by_job.items()]
            heapify(self.timers)
        else:
            heappush(self.timers, (due, job_id))

    def wake_at(self) -> float | None:
        return self.timers[0][0] if self.timers else None

    def passed(self, now: float) -> Iterator[JobId]:
        """Jobs that missed their deadline. The caller must finish each."""
        while self.timers and self.timers[0][0] <= now:
            due, job_id = heappop(self.timers)
            if self.by_job.get(job_id) == due:
                yield job_id

    def check(self) -> None:
        assert all((due, job_id) in self.timers for job_id, due in self.by_job.items())
