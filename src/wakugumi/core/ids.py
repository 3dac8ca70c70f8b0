"""What is a job called, and what is told of one?

A job id is 16 bytes in .NET's order (`UUID.bytes_le`, SPEC F2): exactly what stands in a frame, so that the
busiest path never converts it. Text exists only at the edges: `parse_job_id` and `show_job_id`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal, NewType, TypeAlias
from uuid import UUID

import msgspec

from wakugumi.limits.wire import JOB_NAME_CHARS_MAX

JobId = NewType("JobId", bytes)
ClientId = NewType("ClientId", str)
WorkerId = NewType("WorkerId", bytes)
ConnId = NewType("ConnId", int)
"""One connection in the life of one process; a number is never used again."""
HTTP_CLIENT: Final = ClientId("http")
"""Client id of jobs that come by HTTP and name no client."""

MACHINE_FAULTS: Final = frozenset({"disk", "worker-error"})
"""Failures of a worker's machine: a job that did not start because of one goes to another worker (W9)."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """A FAILED result that no worker wrote: the leader's own decision about a job (dead, cancelled, refused)."""

    code: str
    text: str


Fate: TypeAlias = Literal["unknown", "failed", "known"]
"""A leader's answer about a job id before the submit: a submit would open the job, open it again, or run nothing."""


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """One ended assignment of a job to one worker: a line of its story."""

    number: int
    worker_id: WorkerId
    worker: str
    """The worker's name for people."""
    started_at: float
    ended_at: float
    outcome: str
    """A code of the error table, or `ok`."""
    output: str = ""
    """The end of the program's output, if the attempt's output is not the job's answer."""


class Tried(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Workers that could not start a job (`not_started`)."""

    sick: tuple[WorkerId, ...] = ()
    """Workers with a fault of their machine."""
    lack: tuple[WorkerId, ...] = ()
    """Workers without the job's program."""
    again: tuple[WorkerId, ...] = ()
    """Workers of `sick` that got the job once more, and failed by a fault of their machine again."""


_NAMESPACE: Final = UUID("6b0d7f1e-5c0b-5d0e-9a53-77616b750000")
_NAME_CHARS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def parse_job_id(text: str) -> JobId:
    """A UUID with or without hyphens, in any case. Raises ValueError for anything else."""
    if (job := _parsed(text)) is None:
        raise ValueError(f"{text[:80]!r} is not a UUID")
    return job


def job_id_from_name(text: str) -> JobId:
    """A UUID as it stands, or the UUIDv5 that stands for any other allowed name (SPEC section 1)."""
    if (job := _parsed(text)) is not None:
        return job
    if not 1 <= len(text) <= JOB_NAME_CHARS_MAX or not _NAME_CHARS.issuperset(text) or text in {".", ".."}:
        raise ValueError(
            f"{text[:80]!r} cannot name a job: it takes 1 to {JOB_NAME_CHARS_MAX} characters of A-Z a-z 0-9 . _ -"
        )
    digest = _new_hash()()  # By hand, because `uuid5` takes four times as long.
    digest.update(text.encode())
    named = bytearray(digest.digest()[:16])
    named[6], named[8] = named[6] & 0x0F | 0x50, named[8] & 0x3F | 0x80
    return _little_endian(bytes(named))


def show_job_id(job_id: JobId) -> str:
    """The hyphenated lower-case text of an id; by hand, because `UUID` takes three times as long."""
    h = job_id.hex()
    return f"{h[6:8]}{h[4:6]}{h[2:4]}{h[:2]}-{h[10:12]}{h[8:10]}-{h[14:16]}{h[12:14]}-{h[16:20]}-{h[20:]}"


def _parsed(text: str) -> JobId | None:
    if len(text) not in {32, 36}:
        return None
    digits = text.replace("-", "")
    try:
        big_endian = bytes.fromhex(digits) if len(digits) == 32 else b""
    except ValueError:
        return None
    return _little_endian(big_endian) if len(big_endian) == 16 else None  # `fromhex` skips blanks.


@cache
def _new_hash() -> Callable[[], Any]:
    """Makes a hash that has read the namespace of names. A client that names no job loads no hashes."""
    from hashlib import sha1

    return sha1(_NAMESPACE.bytes, usedforsecurity=False).copy


def _little_endian(uuid: bytes) -> JobId:
    """.NET's order of a UUID's bytes."""
    return JobId(uuid[3::-1] + uuid[5:3:-1] + uuid[7:5:-1] + uuid[8:])
