"""Which jobs of a client wait to be sent, and in which order?

One queue holds jobs that any leader takes. Each need that only some leaders meet has a queue of its own, so that other
jobs do not wait behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from wakugumi.core.client.stages import UNSENT, UnfinishedJob
from wakugumi.core.ids import JobId

STALE_NAMES_MAX: Final = 64
"""Stale ids in a queue, beyond the number of jobs, before they are removed."""


class UnsentQueues:
    """A queue may also hold ids of jobs that are sent or gone: these are skipped."""

    def __init__(self, records: Mapping[JobId, UnfinishedJob]) -> None:
        self._records = records
        self.without_need: deque[JobId] = deque()
        self.by_need: dict[int, deque[JobId]] = {}
        """Queues by need."""
        self.unfit: dict[int, tuple[str, str]] = {}
        """Code and text of the last refusal, by need."""

    def add(self, job: JobId, record: UnfinishedJob) -> None:
        (self.by_need.setdefault(record.needs, deque()) if record.needs else self.without_need).append(job)
        self.drop_stale_names()

    def head(self, queue: deque[JobId], needs: int) -> UnfinishedJob | None:
        """Record of the first job that still waits; afterwards its id is the first of the queue."""
        while queue:
            record = self._records.get(queue[0])
            if record is not None and record.at is UNSENT and record.needs == needs:
                return record
            queue.popleft()
        return None

    def drop_stale_names(self) -> None:
        """Shorten queues in which most ids are stale."""
        if not (self.without_need or self.by_need):
            return
        length_max = 2 * len(self._records) + STALE_NAMES_MAX
        for needs, queue in ((0, self.without_need), *self.by_need.items()):
            if len(queue) > length_max:
                waiting = [job for job in dict.fromkeys(queue) if self._waits(job, needs)]
                queue.clear()
                queue.extend(waiting)

    def check(self) -> None:
        waiting = {needs: set(queue) for needs, queue in self.by_need.items()} | {0: set(self.without_need)}
        for job, record in self._records.items():
            assert record.at is not UNSENT or job in waiting[record.needs]
        assert max(map(len, (self.without_need, *self.by_need.values()))) <= 2 * len(self._records) + STALE_NAMES_MAX

    def _waits(self, job: JobId, needs: int) -> bool:
        record = self._records.get(job)
        return record is not None and record.at is UNSENT and record.needs == needs
