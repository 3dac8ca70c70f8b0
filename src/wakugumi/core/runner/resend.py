"""Which results does the leader have to be told, now or again, and which of them are on their way? (SPEC W7)

Two queues are emptied a few at a time: what is owed when a leader comes, or could not be told at once, and what it
fetches of an earlier life. A result is on its way from the look at the disk, if it takes one, until the leader has
confirmed it. All results that are told count: beyond GIVEN_BYTES_MAX they wait until the line is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from wakugumi.core.ids import JobId
from wakugumi.core.runner.finished import FOUND_MAX, FinishedJobs
from wakugumi.limits.wire import GIVEN_BYTES_MAX

RESENT_AT_ONCE: Final = 16
"""Results sent again or fetched that may be on their way at once: they are read from the disk before their time."""


class Resending:
    """What is told again over one connection."""

    def __init__(self, kept: FinishedJobs) -> None:
        self._kept = kept
        self._owed: deque[JobId] = deque()
        """Owed when the leader came, or since, and not told to it yet."""
        self._fetched: deque[JobId] = deque()
        """Of an earlier life, asked for by the leader, and not told to it yet."""
        self._under_way: dict[JobId, bool] = {}
        """Those of both that are on their way. True while the disk is asked for it."""
        self._unwritten_bytes = 0
        """Results that the leader was told since the last ones were written."""

    @property
    def is_full(self) -> bool:
        """The leader is told no more results before those of before are written."""
        return self._unwritten_bytes >= GIVEN_BYTES_MAX

    def gave(self, size: int) -> bool:
        """It was told a result of so many bytes. True if it is told no more now."""
        self._unwritten_bytes += size
        return self._unwritten_bytes >= GIVEN_BYTES_MAX

    def written(self) -> None:
        self._unwritten_bytes = 0

    @property
    def is_idle(self) -> bool:
        return not (self._owed or self._fetched or self._under_way)

    @property
    def is_promised(self) -> bool:
        """Has the leader fetched what it was not told yet?"""
        return bool(self._fetched) or any(self._under_way.values())

    def begin(self) -> None:
        """A leader came, and hears all that it is owed."""
        self._owed.extend(self._kept.owed)

    def end(self) -> None:
        """It is gone. The next one begins anew."""
        self._owed.clear()
        self._fetched.clear()
        self._under_way.clear()
        self._unwritten_bytes = 0

    def wait(self, job: JobId) -> None:
        """It cannot be told now: it is when the line is written."""
        self._under_way.pop(job, None)
        (self._owed if self._kept.owes(job) else self._fetched).append(job)

    def fetch(self, jobs: Sequence[JobId]) -> Sequence[JobId]:
        """The leader waits for these. Returns those that are too many."""
        room = FOUND_MAX - len(self._fetched)
        self._fetched.extend(jobs[:room])
        return jobs[room:]

    def next(self, is_theirs: Callable[[JobId], bool]) -> JobId | None:
        """The next one to tell, if one more may be on its way. What `is_theirs` is answered when it is done."""
        if self.is_full or len(self._under_way) >= RESENT_AT_ONCE:
            return None
        while self._owed:
            job = self._owed.popleft()
            if self._kept.owes(job):
                return job
        while self._fetched:
            job = self._fetched.popleft()
            if not (is_theirs(job) or self._kept.owes(job) or job in self._under_way):
                return job
        return None

    def look(self, job: JobId) -> None:
        """The disk is asked for it."""
        self._under_way[job] = True

    def is_looked_for(self, job: JobId) -> bool:
        return self._under_way.get(job, False)

    def told(self, job: JobId, *, confirms: bool) -> None:
        """It was sent to a leader that confirms it, or that never does."""
        if confirms:
            self._under_way[job] = False
        else:
            self.drop(job)

    def drop(self, job: JobId) -> None:
        """It is not on its way any more."""
        self._under_way.pop(job, None)

    def settle(self, jobs: Sequence[JobId]) -> bool:
        """These are confirmed. False if nothing can follow: while anything waits, something is on its way, or the line
        is full."""
        if not self._under_way:
            return False
        for job in jobs:
            self._under_way.pop(job, None)
        return True

    def check(self) -> None:
        assert len(self._under_way) <= RESENT_AT_ONCE
        waits = self._owed or self._fetched
        assert not waits or self.is_full or len(self._under_way) == RESENT_AT_ONCE, "a result waits for nothing"
        assert len(self._fetched) <= FOUND_MAX
