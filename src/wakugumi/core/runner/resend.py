"""Which results must the leader still get, and which of them are in flight? (SPEC W7)

Two queues: results that were owed when the leader connected or could not be sent at once, and results of an earlier
life that the leader fetches. A result is in flight from its search on the disk, if any, until the leader confirms it.
Beyond GIVEN_BYTES_MAX unwritten bytes all results wait until the connection has written them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from wakugumi.core.ids import JobId
from wakugumi.core.runner.finished import FOUND_MAX, FinishedJobs
from wakugumi.limits.wire import GIVEN_BYTES_MAX

RESENT_AT_ONCE: Final = 16
"""Results sent again or fetched that may be in flight: they are read from the disk ahead of time."""


class Resending:
    """Results sent again over one connection."""

    def __init__(self, kept: FinishedJobs) -> None:
        self._kept = kept
        self._owed: deque[JobId] = deque()
        """Owed results to send."""
        self._fetched: deque[JobId] = deque()
        """Results of an earlier life that the leader has fetched, to send."""
        self._under_way: dict[JobId, bool] = {}
        """Results in flight. True while the disk is searched for one."""
        self._unwritten_bytes = 0
        """Bytes of results sent since the last `written`."""

    @property
    def is_full(self) -> bool:
        """No more results are sent before the earlier ones are written."""
        return self._unwritten_bytes >= GIVEN_BYTES_MAX

    def count_unwritten(self, size: int) -> bool:
        """A result of `size` bytes was sent. True if no more may be sent now."""
        self._unwritten_bytes += size
        return self._unwritten_bytes >= GIVEN_BYTES_MAX

    def written(self) -> None:
        self._unwritten_bytes = 0

    @property
    def is_idle(self) -> bool:
        return not (self._owed or self._fetched or self._under_way)

    @property
    def is_promised(self) -> bool:
        """Does the leader wait for a result that it has fetched?"""
        return bool(self._fetched) or any(self._under_way.values())

    def begin(self) -> None:
        """A leader has connected, and gets all owed results."""
        self._owed.extend(self._kept.owed)

    def end(self) -> None:
        """The leader is gone. The next one begins anew."""
        self._owed.clear()
        self._fetched.clear()
        self._under_way.clear()
        self._unwritten_bytes = 0

    def wait(self, job: JobId) -> None:
        """The result cannot be sent now, but once the connection has written the earlier ones."""
        self._under_way.pop(job, None)
        (self._owed if self._kept.owes(job) else self._fetched).append(job)

    def fetch(self, jobs: Sequence[JobId]) -> Sequence[JobId]:
        """The leader waits for these results. Returns those that are too many."""
        room = FOUND_MAX - len(self._fetched)
        self._fetched.extend(jobs[:room])
        return jobs[room:]

    def next(self, is_theirs: Callable[[JobId], bool]) -> JobId | None:
        """The next result to send, if one more may be in flight. A job that `is_theirs` is answered when it ends."""
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

    def search(self, job: JobId) -> None:
        """The disk is searched for the result."""
        self._under_way[job] = True

    def is_searched(self, job: JobId) -> bool:
        return self._under_way.get(job, False)

    def sent(self, job: JobId, *, confirms: bool) -> None:
        """The result was sent to a leader that confirms results, or that never does."""
        if confirms:
            self._under_way[job] = False
        else:
            self.drop(job)

    def drop(self, job: JobId) -> None:
        """The result is no longer in flight."""
        self._under_way.pop(job, None)

    def settle(self, jobs: Sequence[JobId]) -> bool:
        """The leader has confirmed these. False if no result can follow: a result waits only while others are in flight
        or the connection is full."""
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
