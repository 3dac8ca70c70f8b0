"""Which finished jobs can a runner still answer for, and which results must the leader still get? (SPEC W4, W7)

Results are on the disk. This file holds their ids, and unconfirmed results themselves: the result of a job that could
not be started is nowhere else. An assignment of a job that has finished here is answered or run again, by this rule:

    of another request than the assigned     run again: the leader has forgotten the job that had this id (L6)
    OK                                       answered: the answer never changes
    FAILED, not yet confirmed by the leader  answered: the assignment and the answer crossed on the way
    FAILED, but the leader cancelled it      run again: the leader wants the job after all
    FAILED and confirmed                     run again: the leader knows, so this is a retry or a new submit (L3, L6)
    FAILED, found on the disk after a start  run again: the leader would have fetched a result that it wants, and a
    stale
                                             failure is worse than a second run
    FAILED, and the leader is an old one     answered: an old leader never confirms, and W4 applies literally

Results of an earlier life are offered to the leader by id until their TTL is over: only the leader knows which of them
it still waits for. A fetched result is owed from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from wakugumi.core.ids import JobId
from wakugumi.limits.runner import DONE_TTL_S
from wakugumi.limits.units import MIB

DONE_IDS_MAX: Final = 100_000
"""Finished ids in memory, some 200 bytes each. A job pushed out within its TTL is looked up on the disk."""
OWED_MAX: Final = 10_000
"""Unconfirmed results: a leader that never confirms must fill neither our memory nor a frame."""
OWED_BYTES_MAX: Final = 64 * MIB
"""Bytes of unconfirmed results in memory. Results beyond it are read from the disk again."""

FOUND_MAX: Final = 50_000
"""Results of an earlier life to offer, the newest ones: with 27 bytes each, a third of a frame."""

CANCELLED: Final = "cancelled"
_PUSHED_OUT: Final = DONE_IDS_MAX // 10


class Owed(NamedTuple):
    """A result that the leader has not confirmed."""

    reason: str
    """Code of the failure; empty if OK."""
    payload: bytes | None
    """None if only the disk has the result."""
    request: bytes = b""
    """Digest of the request that was run; empty if unknown."""


class FinishedJobs:
    """Finished jobs, the oldest first."""

    def __init__(self, done_ttl_s: float = DONE_TTL_S) -> None:
        self._done_ttl_s = done_ttl_s
        self._done: dict[JobId, float] = {}
        """End of each job, without FAILED ones that the leader has confirmed."""
        self._earlier: dict[JobId, None] = {}
        """Jobs of `_done` that an earlier life left or an old leader got, and that no leader has fetched."""
        self._owed: dict[JobId, Owed] = {}
        self._owed_bytes = 0
        self._forgot_until = float("-inf")

    @property
    def owed(self) -> Iterable[JobId]:
        """Results that the leader has not confirmed, the oldest first."""
        return self._owed.keys()

    @property
    def earlier(self) -> Iterable[JobId]:
        """Results of an earlier life that the leader may fetch, the newest first."""
        return reversed(self._earlier)

    @property
    def owed_count(self) -> int:
        return len(self._owed)

    def find(self, done: Iterable[tuple[JobId, float]], now: float) -> None:
        """Ids that an earlier life left on the disk, and their ages in seconds.

        The newest have at least DONE_TTL_S left, so that the leader can fetch them however long this worker was away.
        The others keep their age: a worker that restarts again and again must not fill its disk.
        """
        oldest_first = sorted(done, key=lambda row: -row[1])
        for job, age_s in oldest_first[:-FOUND_MAX]:
            self._remember(job, now - age_s)
        for job, age_s in oldest_first[-FOUND_MAX:]:
            self._earlier[job] = None
            self._remember(job, now - age_found_s(age_s, self._done_ttl_s))

    def finish(self, job: JobId, reason: str, payload: bytes, now: float, request: bytes = b"") -> None:
        """The job has ended, OK if `reason` is empty."""
        assert job not in self._owed
        self._earlier.pop(job, None)
        self._remember(job, now)
        fits = self._owed_bytes + len(payload) <= OWED_BYTES_MAX
        self._owed_bytes += len(payload) if fits else 0
        self._owe(job, Owed(reason, payload if fits else None, request))

    def remember(self, job: JobId, now: float) -> None:
        """The job has ended and its result is on the disk. The leader did not ask for it."""
        self._earlier.pop(job, None)
        self._remember(job, now)

    def fetched(self, job: JobId, *, ok: bool) -> None:
        """The leader fetched the result, which is owed from now on; only the disk has it."""
        assert job not in self._owed
        self._earlier.pop(job, None)
        self._owe(job, Owed("" if ok else "failed", None))

    def owes(self, job: JobId) -> bool:
        return job in self._owed

    def owed_here(self, job: JobId) -> tuple[bytes, bytes] | None:
        """Result that can be sent without reading the disk, and the digest of its request."""
        owed = self._owed.get(job)
        return None if owed is None or owed.payload is None else (owed.payload, owed.request)

    def was_cancelled(self, job: JobId) -> bool:
        owed = self._owed.get(job)
        return owed is not None and owed.reason == CANCELLED

    def deliver(self, job: JobId) -> None:
        """An old leader got the result, and never confirms (F9). The peer may have been a leader of our own that died
        before its Welcome, so the next leader may fetch the result."""
        if self._settle(job) is not None and job in self._done and len(self._earlier) < FOUND_MAX:
            self._earlier[job] = None

    def confirm(self, job: JobId) -> bool:
        """True if the result is a failure, which answers no later assignment."""
        owed = self._settle(job)
        if owed is None or not owed.reason:
            return False
        self._done.pop(job, None)
        return True

    def forget(self, job: JobId) -> None:
        self._done.pop(job, None)
        self._earlier.pop(job, None)
        self._settle(job)

    def may_be_on_disk(self, job: JobId, now: float) -> bool:
        return job in self._done or job in self._owed or now < self._forgot_until

    def failure_stands(self, job: JobId, *, old_leader: bool) -> bool:
        """Does a FAILED result on the disk answer an assignment now, or is the job run again?"""
        return old_leader or job in self._owed

    def expire(self, now: float) -> None:
        """Forget jobs whose TTL is over. An unconfirmed result stays owed."""
        old = now - self._done_ttl_s
        expired = []
        for job, finished_at in self._done.items():
            if finished_at > old:
                break
            expired.append(job)
        for job in expired:
            del self._done[job]
            self._earlier.pop(job, None)

    def check(self) -> None:
        assert len(self._done) <= DONE_IDS_MAX
        assert len(self._owed) <= OWED_MAX
        assert self._owed_bytes == sum(len(owed.payload or b"") for owed in self._owed.values()) <= OWED_BYTES_MAX
        times = list(self._done.values())
        assert times == sorted(times), "the oldest come first"
        assert len(self._earlier) <= FOUND_MAX
        assert self._earlier.keys() <= self._done.keys()
        assert not self._earlier.keys() & self._owed.keys(), "what is owed is told as such"

    def _owe(self, job: JobId, owed: Owed) -> None:
        self._owed[job] = owed
        if len(self._owed) > OWED_MAX:
            self._settle(next(iter(self._owed)))

    def _settle(self, job: JobId) -> Owed | None:
        owed = self._owed.pop(job, None)
        if owed is not None and owed.payload is not None:
            self._owed_bytes -= len(owed.payload)
        return owed

    def _remember(self, job: JobId, finished_at: float) -> None:
        self._done[job] = finished_at
        if len(self._done) > DONE_IDS_MAX:
            # Many at once: a dict finds its first key by stepping over all deleted ones before it.
            for oldest in list(islice(self._done, _PUSHED_OUT)):
                self._forgot_until = self._done.pop(oldest) + self._done_ttl_s
                self._earlier.pop(oldest, None)


def age_found_s(age_s: float, done_ttl_s: float) -> float:
    """Age that a result of an earlier life counts as: at least DONE_TTL_S is left."""
    return max(0.0, min(age_s, done_ttl_s - DONE_TTL_S))
