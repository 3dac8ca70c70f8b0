"""What must a leader keep before it acts? All that a journal needs to bring the queue back.

All that one step keeps is one leaf of the journal. Leaves are numbered from 1 on without gaps, by the core and by the
journal alike.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from wakugumi.core.ids import Attempt, ClientId, JobId, Tried, Verdict, WorkerId
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Pattern, Subject


class KeepJob(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """A job was accepted. Under an id that is known it replaces what was there: the job was opened again."""

    job: JobId
    client: ClientId
    cap: int
    """The client's, so that its jobs go on while it is away."""
    subject: Subject
    program: str
    timeout_s: float
    retries: int
    payload: bytes
    wants: Requirements | None = None
    checksum: int = 0
    """If it is not that of the payload, because that is packed."""
    request: bytes = b""
    """Its digest."""


class KeepAttempt(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """A worker was given it, or was found to hold it."""

    job: JobId
    worker: WorkerId
    label: str


class KeepOutcome(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """The attempt ended, and the job has still to be done."""

    job: JobId
    outcome: str
    output: str


class KeepResult(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=4):
    job: JobId
    ok: bool
    outcome: str
    """How its running attempt ended, if there was one."""
    result: bytes | Verdict
    blobs: tuple[str, ...] = ()


class KeepDelivered(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=5):
    """Whoever waited for the result has it."""

    job: JobId


class ForgetJob(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=6):
    job: JobId


class KeepWhole(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=7):
    """All that is known of a job, so that the leaves in which it stood need not be kept. Times are told in seconds
    from this leaf's, so they are negative."""

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
    """The attempt that has not ended, with `ok` as the outcome it does not have yet."""
    checksum: int
    payload: bytes | int | None
    """Its request; or the leaf from which the journal takes it; or None if nobody needs it any more."""
    ok: bool
    result: bytes | Verdict | None
    delivered: bool
    requeued: bool = False
    wants: Requirements | None = None
    blobs: tuple[str, ...] = ()
    """The result's."""
    tried: Tried | None = None
    request: bytes = b""
    """Its digest."""


class DropLeaves(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=8):
    """Nothing in the leaves before this one is needed any more."""

    before: int


class KeepDeclined(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=10):
    """The attempt that was given out never began."""

    job: JobId
    worker: WorkerId = WorkerId(b"")
    """Who could not start it; empty if it could have."""
    lacks: bool = False
    """It does not have the program."""


class KeepDeadline(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=9):
    """A job is given up if it is not done within so many seconds."""

    job: JobId
    within_s: float


class KeepClaim(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=11):
    """The answer of a job that a worker held and nobody has submitted yet."""

    job: JobId
    worker: WorkerId
    ok: bool
    reason: str
    payload: bytes
    blobs: tuple[str, ...] = ()
    begun: bool = True
    request: bytes = b""
    patterns: tuple[Pattern, ...] = ()
    """What its worker heard."""


class ForgetClaim(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=12):
    """Someone submitted the job, or nobody did in time."""

    job: JobId
    worker: WorkerId = WorkerId(b"")
    """Only the answer of this one goes, if it is named."""


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
)
