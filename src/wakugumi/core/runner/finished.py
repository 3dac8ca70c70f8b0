"""Which finished jobs can a runner still answer for, and who must still hear of them? (SPEC W4, W7)

Results lie on the disk; here are their ids, and until the leader has confirmed them also the results themselves, for
those of jobs that could not even be started lie nowhere else. An assignment of a job that has finished here is answered
or run again, by this rule:

    of another request than the assigned     run again: the leader has forgotten the job that had this id (L6)
    OK                                       answered: the answer never changes
    FAILED, not yet confirmed by the leader  answered: the assignment and the answer crossed on the way
    FAILED, but the leader cancelled it      run again: it knows that it did, and now wants it after all
    FAILED and confirmed                     run again: it knows, so this is a retry or a new submit (L3, L6)
    FAILED, found on the disk after a start  run again: a leader that wanted it would have fetched it, and a stale
                                             failure is worse than a second run
    FAILED, and the leader is an old one     answered: it never confirms, and W4 stands as it is written

What an earlier life of this worker left is offered to the leader by its id, until its time is over: what was confirmed
then is not known any more, and only the leader knows what it still waits for. What it fetches is owed from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from wakugumi.core.ids import JobId
from wakugumi.limits.runner import DONE_TTL_S
from wakugumi.limits.units import MIB

DONE_IDS_MAX: Final = 100_000
"""Finished ids held in memory, some 200 bytes each. What was pushed out within its TTL is looked for on the disk."""
OWED_MAX: Final = 10_000
"""Unconfirmed results: a leader that never confirms must not fill our memory, nor what we hold a frame."""
OWED_BYTES_MAX: Final = 64 * MIB
"""Held in memory of them. Beyond it they are read from the disk again."""

FOUND_MAX: Final = 50_000
"""Results of an earlier life that are offered, the newest of them: with 27 bytes each, a third of a frame."""

CANCELLED: Final = "cancelled"
_PUSHED_OUT: Final = DONE_IDS_MAX // 10


class Owed(NamedTuple):
    """A result that the leader has not confirmed."""

    reason: str
    """Why it failed; empty if it is OK."""
    payload: bytes | None
    """None if only the disk has it."""
    request: bytes = b""
    """The digest of the request that was run; empty if it is not known."""


class FinishedJobs:
    """What is known of finished jobs, the oldest first."""

    def __init__(self, done_ttl_s: float = DONE_TTL_S) -> None:
        self._done_ttl_s = done_ttl_s
        self._done: dict[JobId, float] = {}
        """When each finished. Not here: FAILED ones that the leader has confirmed."""
        self._earlier: dict[JobId, None] = {}
        """Those of them that an earlier life left, or an old leader was told, and nobody has fetched."""
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
        """What an earlier life left on the disk: ids, and their ages in seconds.

        They have DONE_TTL_S left at least, for the leader must be able to fetch them however long this worker was away.
        Those beyond what can be offered have not: a worker that is started again and again must not fill its disk.
        """
        oldest_first = sorted(done, key=lambda row: -row[1])
        for job, age_s in oldest_first[:-FOUND_MAX]:
            self._remember(job, now - age_s)
        for job, age_s in oldest_first[-FOUND_MAX:]:
            self._earlier[job] = None
            self._remember(job, now - age_found_s(age_s, self._done_ttl_s))

    def finish(self, job: JobId, reason: str, payload: bytes, now: float, request: bytes = b"") -> None:
        """It has ended, OK if no reason is given."""
        assert job not in self._owed
        self._earlier.pop(job, None)
        self._remember(job, now)
        fits = self._owed_bytes + len(payload) <= OWED_BYTES_MAX
        self._owed_bytes += len(payload) if fits else 0
        self._owe(job, Owed(reason, payload if fits else None, request))

    def remember(self, job: JobId, now: float) -> None:
        """It has ended, and is on the disk for whoever asks. The leader did not."""
        self._earlier.pop(job, None)
        self._remember(job, now)

    def fetched(self, job: JobId, *, ok: bool) -> None:
        """The leader asked for it and is being told: now it is owed, and only the disk has it."""
        assert job not in self._owed
        self._earlier.pop(job, None)
        self._owe(job, Owed("" if ok else "failed", None))

    def owes(self, job: JobId) -> bool:
        return job in self._owed

    def owed_here(self, job: JobId) -> tuple[bytes, bytes] | None:
        """The result that answers an assignment or a new connection without a look at the disk, and the digest of its
        request."""
        owed = self._owed.get(job)
        return None if owed is None or owed.payload is None else (owed.payload, owed.request)

    def was_cancelled(self, job: JobId) -> bool:
        owed = self._owed.get(job)
        return owed is not None and owed.reason == CANCELLED

    def deliver(self, job: JobId) -> None:
        """An old leader was told, and that is all that can be known (F9). It may have been one of ours that died before
        it said welcome: so the next one may fetch it, like what an earlier life left."""
        if self._settle(job) is not None and job in self._done and len(self._earlier) < FOUND_MAX:
            self._earlier[job] = None

    def confirm(self, job: JobId) -> bool:
        """True if it is a failure: then it answers for nothing any more."""
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
        """If the disk has a FAILED result: does it answer an assignment that comes now, or is the job run again?"""
        return old_leader or job in self._owed

    def expire(self, now: float) -> None:
        """Forget what finished longer ago than its TTL, unless the leader has still to hear of it."""
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
            # Many at once: a dict finds its first key by stepping over all that were deleted before it.
            for oldest in list(islice(self._done, _PUSHED_OUT)):
                self._forgot_until = self._done.pop(oldest) + self._done_ttl_s
                self._earlier.pop(oldest, None)


def age_found_s(age_s: float, done_ttl_s: float) -> float:
    """How old what an earlier life left counts as: it has DONE_TTL_S left, or more."""
    return max(0.0, min(age_s, done_ttl_s - DONE_TTL_S))
