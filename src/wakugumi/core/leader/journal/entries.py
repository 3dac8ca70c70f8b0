"""What must a leader keep before it acts? All records from which a journal can restore the queue.

The records of one step are one leaf of the journal. Core and journal both number leaves from 1 on, without gaps.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from wakugumi.core.ids import Attempt, ClientId, JobId, Tried, Verdict, WorkerId
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Pattern, Subject


class KeepJob(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """A job was accepted. A known id replaces the earlier job: it was submitted again."""

    job: JobId
    client: ClientId
    cap: int
    """Cap of the client, so that its jobs go on while it is away."""
    subject: Subject
    program: str
    timeout_s: float
    retries: int
    payload: bytes
    requirements: Requirements | None = None
    checksum: int = 0
    """Size and CRC-32 of the unpacked payload, if the payload is packed; else 0."""
    request: bytes = b""
    """Digest of the request."""


class KeepAttempt(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """A worker got the job, or was found to hold it."""

    job: JobId
    worker: WorkerId
    label: str


class KeepOutcome(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """The attempt ended, and the job is not done."""

    job: JobId
    outcome: str
    output: str


class KeepResult(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=4):
    job: JobId
    ok: bool
    outcome: str
    """Outcome of the running attempt, if there was one."""
    result: bytes | Verdict
    blobs: tuple[str, ...] = ()


class KeepDelivered(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=5):
    """The client has the result."""

    job: JobId


class ForgetJob(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=6):
    job: JobId


class KeepWhole(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=7):
    """All that is known of a job, so that older leaves about it may be dropped. Times are seconds relative to this
    leaf, so they are negative."""

    job: JobId
    client: ClientId
    cap: int
    subject: Subject
    program: str
    timeout_s: float
    retries: int
    submitted_at: float
    history: tuple[Attempt, ...]
    running: Attempt | None
    """The attempt that has not ended; its outcome `ok` is a placeholder."""
    checksum: int
    payload: bytes | int | None
    """The request; or the leaf from which the journal copies it; or None if it is not needed any more."""
    ok: bool
    result: bytes | Verdict | None
    delivered: bool
    requeued: bool = False
    requirements: Requirements | None = None
    blobs: tuple[str, ...] = ()
    """Blobs of the result."""
    tried: Tried | None = None
    request: bytes = b""
    """Digest of the request."""


class DropLeaves(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=8):
    """Leaves before this number are not needed any more."""

    before: int


class KeepDeclined(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=10):
    """The assigned attempt never began."""

    job: JobId
    worker: WorkerId = WorkerId(b"")
    """Worker that could not start the job; empty if it could have."""
    lacks: bool = False
    """The worker does not have the program."""


class KeepDeadline(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=9):
    """A job fails if it is not done within this time."""

    job: JobId
    within_s: float


class KeepClaim(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=11):
    """Answer to a job that a worker held and no client has submitted yet."""

    job: JobId
    worker: WorkerId
    ok: bool
    reason: str
    payload: bytes
    blobs: tuple[str, ...] = ()
    begun: bool = True
    request: bytes = b""
    patterns: tuple[Pattern, ...] = ()
    """Patterns of the worker."""


class ForgetClaim(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=12):
    """A client submitted the claimed job, or none did in time."""

    job: JobId
    worker: WorkerId = WorkerId(b"")
    """Worker whose answer is forgotten; empty: all answers."""


class KeepWorkerKey(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=13):
    """The worker id belongs to this key."""

    key: str
    worker: WorkerId


class ForgetWorkerKey(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=14):
    """The worker id is free."""

    key: str
    worker: WorkerId = WorkerId(b"")
    """Empty: all ids of the key."""


LeaderKeep: TypeAlias = (
    KeepJob
    | KeepAttempt
    | KeepOutcome
    | KeepResult
    | KeepDelivered
    | ForgetJob
    | KeepWhole
    | DropLeaves
    | KeepDeadline
    | KeepDeclined
    | KeepClaim
    | ForgetClaim
    | KeepWorkerKey
    | ForgetWorkerKey
)
