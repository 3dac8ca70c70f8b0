"""How long is a result kept? (SPEC F9, L6, L9)

A finished job is *undelivered* until the client that submitted it has the result: an own client confirms it, to an old
client it was written. Undelivered results count against their client; delivered ones are kept for a while to answer a
repeated submit. Both are bounded, by count or bytes, and by age.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

import msgspec

from wakugumi.core.access.identity import Sight
from wakugumi.core.ids import ConnId, JobId, Verdict
from wakugumi.core.leader.records import ClientRecord, JobRecord
from wakugumi.limits.leader import KEPT_BYTES_MAX, KEPT_RESULT_TTL_S, KEPT_RESULTS_MAX, UNDELIVERED_TTL_S
from wakugumi.limits.wire import GIVEN_BYTES_MAX

AROUND_BYTES: Final = 64
"""Overhead of a result on the disk or in a frame."""
RECORD_BYTES: Final = 448
"""Memory of a finished job beside AROUND_BYTES: its record, its id and its entries in the tables. Together 512
bytes."""
_SMALL_BYTES: Final = AROUND_BYTES + RECORD_BYTES
"""Cost of an empty result."""


class ClientConnection(msgspec.Struct, gc=False, eq=False):
    """A client's connection as the leader knows it."""

    conn: ConnId
    client: ClientRecord
    receipts: bool
    heartbeats: bool
    seen_at: float
    as_waiters: tuple[ConnId]
    """`waiters` of a job that only this connection waits for, shared by a million jobs."""
    sight: Sight | None = None
    """Clients whose jobs the connection may see; None: all."""
    blocked: bool = False
    paused: bool = False
    closing: bool = False
    unwritten_bytes: int = 0
    """Bytes of results since the last ones were written. From GIVEN_BYTES_MAX on the connection gets no more."""
    pending: OrderedDict[JobId, None] = msgspec.field(default_factory=OrderedDict)
    """Results that wait until the earlier ones are sent."""

    def sees(self, job: JobRecord) -> bool:
        return self.sight is None or self.sight.sees(job.client.id)

    @property
    def is_congested(self) -> bool:
        """The connection does not take more now: earlier bytes must be written first."""
        return self.blocked or self.unwritten_bytes >= GIVEN_BYTES_MAX


class ResultStore:
    def __init__(self) -> None:
        self.undelivered: dict[JobId, JobRecord] = {}
        """Undelivered results in the order in which they finished."""
        self.undelivered_bytes = 0
        self._kept: deque[tuple[float, JobRecord]] = deque()
        self.kept_bytes = 0
        self.kept_bytes_max = KEPT_BYTES_MAX
        """Limit of `kept_bytes`; less where memory is limited."""

    @property
    def stored_bytes(self) -> int:
        """Bytes of all results on the disk, where a record is small."""
        return self.undelivered_bytes + self.kept_bytes - RECORD_BYTES * (len(self.undelivered) + len(self._kept))

    def finished(self, job: JobRecord) -> None:
        self.undelivered[job.id] = job
        result = job.result
        # `size_of` inlined, here and below: a call would cost a hundredth of the job's time.
        size = len(result) + _SMALL_BYTES if type(result) is bytes else size_of(result)
        job.client.undelivered_bytes += size
        self.undelivered_bytes += size

    def delivered(self, job: JobRecord, now: float) -> None:
        """The client has the result. From here on it only answers repeated requests."""
        assert not job.delivered
        del self.undelivered[job.id]
        result = job.result
        size = len(result) + _SMALL_BYTES if type(result) is bytes else size_of(result)
        job.client.undelivered_bytes -= size
        self.undelivered_bytes -= size
        job.delivered = True
        self._kept.append((now + KEPT_RESULT_TTL_S, job))
        self.kept_bytes += size

    def keep(self, job: JobRecord, now: float) -> None:
        """Keep a result that was delivered before this leader began."""
        self._kept.append((now + KEPT_RESULT_TTL_S, job))
        self.kept_bytes += size_of(job.result)

    def too_much(self) -> bool:
        """More delivered results are kept than allowed."""
        return len(self._kept) > KEPT_RESULTS_MAX or self.kept_bytes > self.kept_bytes_max

    def forget_kept(self) -> tuple[float, JobRecord]:
        """Remove the oldest delivered result. Returns when it would have expired, and its job."""
        until, job = self._kept.popleft()
        self.kept_bytes -= size_of(job.result)
        return until, job

    def forget_all_kept(self, *, but: Callable[[JobRecord], bool]) -> list[JobRecord]:
        """Remove all delivered results, except where `but` is true."""
        gone = [job for _, job in self._kept if not but(job)]
        self._kept = deque((until, job) for until, job in self._kept if but(job))
        self.kept_bytes -= sum(size_of(job.result) for job in gone)
        return gone

    def expired(self, now: float) -> list[JobRecord]:
        """Remove and return expired results."""
        gone = []
        while self._kept and self._kept[0][0] <= now:
            gone.append(self.forget_kept()[1])
        for job in self.undelivered.values():
            if job.since + UNDELIVERED_TTL_S > now:
                break
            gone.append(job)
        for job in gone:
            if not job.delivered:
                self.dropped(job)
        return gone

    def dropped(self, job: JobRecord) -> None:
        """Remove an undelivered result."""
        del self.undelivered[job.id]
        size = size_of(job.result)
        job.client.undelivered_bytes -= size
        self.undelivered_bytes -= size

    def check(self) -> None:
        held: dict[ClientRecord, int] = {}
        for job_id, job in self.undelivered.items():
            assert job.id == job_id
            assert not job.delivered
            held[job.client] = held.get(job.client, 0) + size_of(job.result)
        for client, count in held.items():
            assert client.undelivered_bytes == count
        assert self.undelivered_bytes == sum(held.values())
        assert self.kept_bytes == sum(size_of(job.result) for _, job in self._kept)
        assert not self.too_much()


def size_of(result: bytes | Verdict | None) -> int:
    """Memory of a result and the record of its job."""
    return 0 if result is None else bytes_of(result) + RECORD_BYTES


def bytes_of(result: bytes | Verdict | None) -> int:
    """Bytes of a result on the disk or in a frame, with AROUND_BYTES."""
    if type(result) is bytes:
        return len(result) + AROUND_BYTES
    return len(result.text) + AROUND_BYTES if isinstance(result, Verdict) else 0
