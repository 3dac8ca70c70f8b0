"""Which finished jobs can a runner still answer for, and who must still hear of them? (SPEC W4, W7)

Results lie on the disk; here are their ids, and until the leader has confirmed them also the results themselves, for
those of jobs that could not even be started lie nowhere else. An assignment of a job that has finished here is answered
or run again, by this rule:

    OK                                       answered: the answer never changes
    FAILED, not yet confirmed by the leader  answered: the assignment and the answer crossed on the way
    FAILED, but the leader cancelled it      run again: it knows that it did, and now wants it after all
    FAILED and confirmed                     run again: it knows, so this is a retry or a new submit (L3, L6)
    FAILED, found on the disk after a start  run again: whether it was confirmed is not known, and a stale failure
                                             is worse than a second run
    FAILED, and the leader is an old one     answered: it never confirms, and W4 stands as it is written
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from wakugumi.core.job import JobId
from wakugumi.limits import DONE_TTL_S, MIB

DONE_IDS_MAX: Final = 100_000
"""Finished ids held in memory, some 200 bytes each. What was pushed out within its TTL is looked for on the disk."""
OWED_MAX: Final = 10_000
"""Unconfirmed results: a leader that never confirms must not fill our memory, nor what we hold a frame."""
OWED_BYTES_MAX: Final = 64 * MIB
"""Held in memory of them. Beyond it they are read from the disk again."""

CANCELLED: Final = "cancelled"
_PUSHED_OUT: Final = DONE_IDS_MAX // 10


class Owed(NamedTuple):
    """A result that the leader has not confirmed."""

    reason: str
    """Why it failed; empty if it is OK."""
    payload: bytes | None
    """None if only the disk has it."""


class Kept:
    """What is known of finished jobs, the oldest first."""

    def __init__(self) -> None:
        self._done: dict[JobId, float] = {}
        """When each finished. Not here: FAILED ones that the leader has confirmed."""
        self._owed: dict[JobId, Owed] = {}
        self._owed_bytes = 0
        self._forgot_until = float("-inf")

    @property
    def owed(self) -> Iterable[JobId]:
        """Results that the leader has not confirmed, the oldest first."""
        return self._owed.keys()

    @property
    def owed_count(self) -> int:
        return len(self._owed)

    def find(self, done: Iterable[tuple[JobId, float]], now: float) -> None:
        """What an earlier life left on the disk: ids, and their ages in seconds."""
        for job, age_s in sorted(done, key=lambda row: -row[1]):
            self._remember(job, now - age_s)

    def finish(self, job: JobId, reason: str, payload: bytes, now: float) -> None:
        """It has ended, OK if no reason is given."""
        assert job not in self._owed
        self._remember(job, now)
        fits = self._owed_bytes + len(payload) <= OWED_BYTES_MAX
        self._owed[job] = Owed(reason, payload if fits else None)
        self._owed_bytes += len(payload) if fits else 0
        if len(self._owed) > OWED_MAX:
            self._settle(next(iter(self._owed)))

    def owes(self, job: JobId) -> bool:
        return job in self._owed

    def owed_payload(self, job: JobId) -> bytes | None:
        """The result that answers an assignment or a new connection without a look at the disk."""
        owed = self._owed.get(job)
        return None if owed is None else owed.payload

    def was_cancelled(self, job: JobId) -> bool:
        owed = self._owed.get(job)
        return owed is not None and owed.reason == CANCELLED

    def deliver(self, job: JobId) -> None:
        """An old leader was told, and that is all that can be known (F9)."""
        self._settle(job)

    def confirm(self, job: JobId) -> None:
        owed = self._settle(job)
        if owed is not None and owed.reason:
            self._done.pop(job, None)

    def forget(self, job: JobId) -> None:
        self._done.pop(job, None)
        self._settle(job)

    def may_be_on_disk(self, job: JobId, now: float) -> bool:
        return job in self._done or job in self._owed or now < self._forgot_until

    def failure_stands(self, job: JobId, *, old_leader: bool) -> bool:
        """If the disk has a FAILED result: does it answer an assignment that comes now, or is the job run again?"""
        return old_leader or job in self._owed

    def expire(self, now: float) -> None:
        """Forget what finished longer ago than its TTL, unless the leader has still to hear of it."""
        old = now - DONE_TTL_S
        expired = []
        for job, finished_at in self._done.items():
            if finished_at > old:
                break
            expired.append(job)
        for job in expired:
            del self._done[job]

    def check(self) -> None:
        assert len(self._done) <= DONE_IDS_MAX
        assert len(self._owed) <= OWED_MAX
        assert self._owed_bytes == sum(len(owed.payload or b"") for owed in self._owed.values()) <= OWED_BYTES_MAX
        times = list(self._done.values())
        assert times == sorted(times), "the oldest come first"

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
                self._forgot_until = self._done.pop(oldest) + DONE_TTL_S
