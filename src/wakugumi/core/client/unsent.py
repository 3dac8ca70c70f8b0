"""Which jobs of a client wait to be sent, and in which order?

One queue for those that any leader takes, and one for each need that only some leaders meet: others do not wait behind
these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from wakugumi.core.client.stages import UNSENT, UnfinishedJob
from wakugumi.core.ids import JobId

STALE_NAMES_MAX: Final = 64
"""Names of jobs that wait no more, beyond as many as there are jobs, before a queue is cleared of them."""


class UnsentQueues:
    """May also name jobs that are sent or gone by now: these are skipped when their turn comes."""

    def __init__(self, records: Mapping[JobId, UnfinishedJob]) -> None:
        self._records = records
        self.easy: deque[JobId] = deque()
        self.picky: dict[int, deque[JobId]] = {}
        """By what they need."""
        self.unfit: dict[int, tuple[str, str]] = {}
        """How the last leader that could not take one of them said so: code and text."""

    def add(self, job: JobId, record: UnfinishedJob) -> None:
        (self.picky.setdefault(record.needs, deque()) if record.needs else self.easy).append(job)
        self.drop_stale_names()

    def head(self, queue: deque[JobId], needs: int) -> UnfinishedJob | None:
        """The record of the first that still waits there, which is then the first by name, too."""
        while queue:
            record = self._records.get(queue[0])
            if record is not None and record.at is UNSENT and record.needs == needs:
                return record
            queue.popleft()
        return None

    def drop_stale_names(self) -> None:
        """Most of a queue that is longer than this is names of jobs that were sent since, or are gone."""
        if not (self.easy or self.picky):
            return
        length_max = 2 * len(self._records) + STALE_NAMES_MAX
        for needs, queue in ((0, self.easy), *self.picky.items()):
            if len(queue) > length_max:
                waiting = [job for job in dict.fromkeys(queue) if self._waits(job, needs)]
                queue.clear()
                queue.extend(waiting)

    def check(self) -> None:
        waiting = {needs: set(queue) for needs, queue in self.picky.items()} | {0: set(self.easy)}
        for job, record in self._records.items():
            assert record.at is not UNSENT or job in waiting[record.needs]
        assert max(map(len, (self.easy, *self.picky.values()))) <= 2 * len(self._records) + STALE_NAMES_MAX

    def _waits(self, job: JobId, needs: int) -> bool:
        record = self._records.get(job)
        return record is not None and record.at is UNSENT and record.needs == needs
