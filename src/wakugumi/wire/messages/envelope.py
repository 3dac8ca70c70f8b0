"""How do a job and its file, or a result and its archive, travel as they are? A head as JSON, then the bytes.

    0x00 "WK1" │ length of the head, 4 bytes, little-endian │ head │ contents, one after the other

The first byte begins neither JSON nor a packed payload: a payload itself shows its form. The head of a JobRequest has a
`Size` and no `Content` for each file whose content follows, in the order of the files; the head of a JobResult has
`ArchiveSize` and no `OutputArchive`. `wire/messages/job.py` reads and writes both records in both forms.

Over HTTP, blobs follow as well (`Sha256` and `Size`): the file of a job; the archive, stdout and stderr of a result, in
this order, behind an archive of the envelope itself.
"""

from __future__ import annotations

from typing import Final

from wakugumi.errors import Refused
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.wire.untrusted_json import Unreadable

JOB_TYPE: Final = "application/vnd.wakugumi.job"
RESULT_TYPE: Final = "application/vnd.wakugumi.result"
"""Media types of envelopes over HTTP."""
TAKES: Final = "Waku-Takes"
"""Header in which a node or a leader lists what older ones do not take: with its capacity, and with each refusal of an
envelope. A refusal without it is that of a peer that knows no envelopes."""
JOB: Final = "job"
"""Word of TAKES: this peer takes jobs, and gives results, in envelopes."""
MAGIC: Final = b"\0WK1"
START_BYTES: Final = len(MAGIC) + 4
"""Bytes before the head."""


def taken(header: str | None) -> frozenset[str]:
    """The words of a TAKES header."""
    return frozenset(word.strip() for word in (header or "").split(","))


def is_envelope(payload: bytes) -> bool:
    return payload.startswith(MAGIC)


def seal(head: bytes, *contents: bytes) -> bytes:
    """The envelope of a head and the contents that it tells the sizes of. Raises Refused."""
    if len(head) > PAYLOAD_BYTES_MAX:
        raise Refused("too-big", f"the head of an envelope has {len(head)} bytes, and {PAYLOAD_BYTES_MAX} are allowed")
    return b"".join((MAGIC, len(head).to_bytes(4, "little"), head, *contents))


def contents_at(start: bytes) -> int:
    """Offset of the contents, from the first START_BYTES of an envelope or more. Raises Unreadable."""
    if len(start) < START_BYTES or not start.startswith(MAGIC):
        raise Unreadable("it does not begin as an envelope does")
    size = int.from_bytes(start[len(MAGIC) : START_BYTES], "little")
    if size > PAYLOAD_BYTES_MAX:
        raise Unreadable(f"its head would have {size} bytes, and {PAYLOAD_BYTES_MAX} are allowed")
    return START_BYTES + size


def json_of(payload: bytes) -> bytes:
    """The JSON of a payload in either form: the payload itself, or the head of an envelope. Raises Unreadable."""
    return opened(payload)[0] if payload.startswith(MAGIC) else payload


def opened(payload: bytes) -> tuple[bytes, int]:
    """The head of an envelope, and the offset of its contents. Raises Unreadable if the head is cut."""
    at = contents_at(payload)
    if at > len(payload):
        raise Unreadable(f"its head is cut: {len(payload)} bytes of {at}")
    return payload[START_BYTES:at], at


def split(payload: bytes, at: int, sizes: list[int]) -> list[bytes]:
    """The contents that begin at this offset, of these sizes. Raises Unreadable if the envelope has fewer bytes, or
    more."""
    # A size is bounded before it is added or printed: a stranger's number may have thousands of digits.
    if any(not 0 <= size <= len(payload) for size in sizes) or at + sum(sizes) != len(payload):
        raise Unreadable(f"its contents have {len(payload) - at} bytes, and its head tells of others")
    contents = []
    for size in sizes:
        contents.append(payload[at : at + size])
        at += size
    return contents
