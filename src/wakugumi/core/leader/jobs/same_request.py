"""Do two requests ask for the same answer? (SPEC L6)

Their digests decide or, where one of the two has none, their bytes.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from wakugumi.core.access.identity import Sight
from wakugumi.core.leader.events import Submitted
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.records import CRC_BITS, CRC_MASK, DIGEST_BITS, DIGEST_MASK, JobRecord
from wakugumi.limits.wire import PACK_FROM_BYTES, PACK_SHARE_MAX

CONFLICT: Final = ("conflict", "this job id was used for another request")
"""Code and text of the refusal."""
TAKEN: Final = ("denied", "the job id belongs to another client")
"""Code and text of the refusal of a job that the sight hides."""


def digest_of(size: int, request: bytes, checksum: int = 0, payload: bytes = b"") -> int:
    """Size and digest of a request in one integer (`wire/request_digest`). Jobs of older journals have no digest: a
    CRC-32 of the bytes takes its place, which detects accidents, not attacks. `checksum` is size and CRC-32 of a
    request that is packed, or was read from a journal."""
    if request:
        return size << DIGEST_BITS | int.from_bytes(request, "little")
    if checksum:
        return checksum >> CRC_BITS << DIGEST_BITS | checksum & CRC_MASK
    return size << DIGEST_BITS | crc32(payload)


def is_of_another(job: JobRecord, request: bytes) -> bool:
    """Is this the digest of another request than the job's? False if either has none."""
    known = job.digest & DIGEST_MASK
    return bool(request) and known > CRC_MASK and known != int.from_bytes(request, "little")


def is_same_request(job: JobRecord, request: bytes, payload: bytes, checksum: int) -> bool:
    """Do job and request ask for the same answer (SPEC L6)? `checksum` is that of a packed request, else 0."""
    known = job.digest & DIGEST_MASK
    if request and known > CRC_MASK:
        return known == int.from_bytes(request, "little")
    if job.payload is not None and job.payload == payload:
        return True
    if known > CRC_MASK:
        return False
    crc = checksum & CRC_MASK if checksum else crc32(payload)
    size = checksum >> CRC_BITS if checksum else len(payload)
    if known != crc:
        return False
    if job.size == size and not checksum:
        return job.payload is None
    # Both CRC-32s are of the unpacked request, and one of the two was packed.
    return bool(checksum) or (size >= PACK_FROM_BYTES and job.size < PACK_SHARE_MAX * size)


def is_proven(job: JobRecord, request: bytes) -> bool:
    """Is this the digest of the job's request? False if either has none."""
    return bool(request) and job.digest & DIGEST_MASK == int.from_bytes(request, "little")


def may_repeat(sight: Sight, job: JobRecord) -> bool:
    """May a client with this sight submit the job's id again? It reads the result of a known job, and replaces a job
    that has failed."""
    return sight.sees(job.client.id) if job.state is not DONE or job.ok else sight.owns(job.client.id)


def is_repeated(job: JobRecord, event: Submitted) -> bool:
    """Does the submit ask for the same answer (SPEC L6)? The subject matters for a broadcast only: there it decides
    which workers answer."""
    if event.broadcast_s and job.subject != event.subject:
        return False
    return is_same_request(job, event.request, event.payload, event.checksum)
