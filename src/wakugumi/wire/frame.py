"""Where does one frame end and the next begin? (SPEC F1–F4)

    len:4 | type:1 | msgId:16 | corrId:16 | subjectLen:2 | subject | payloadLen:4 | payload      little-endian

`len` counts every byte after itself and is at most 4 MiB, so the fourth byte of every frame is 0. The decoder holds at
most one unfinished frame, and any split of the same bytes gives the same frames. `messages` reads the payloads.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct as Packing
from typing import Final

import msgspec

from wakugumi.errors import PeerError
from wakugumi.limits.wire import FIRST_FRAME_BYTES_MAX, FRAME_BYTES_MAX

SUBMIT_JOB: Final = 1
ASSIGN_JOB: Final = 2
ACK_JOB: Final = 3
CREDIT: Final = 4
RESULT: Final = 5
CACHE_PUT: Final = 6
CACHE_ACK: Final = 7
HELLO_CLIENT: Final = 9
HELLO_WORKER: Final = 10

# Types of Wakugumi's own: sent only to peers that asked for them in their hello (F4).
WELCOME: Final = 16
RECEIPT: Final = 17
REFUSAL: Final = 18
CONFIRM: Final = 19
HEARTBEAT: Final = 20
HOLDING: Final = 21
CANCEL: Final = 22
LEAVING: Final = 23
ASK: Final = 24
CLAIM: Final = 25
FETCH: Final = 26
CAP: Final = 27
MISSING: Final = 28
STOCK: Final = 29
WANT: Final = 30
SOURCE: Final = 31
CACHE_DROP: Final = 32
RESTING: Final = 33
FIND: Final = 34
FOUND: Final = 35

NAMES: Final[dict[int, str]] = {
    SUBMIT_JOB: "SubmitJob",
    ASSIGN_JOB: "AssignJob",
    ACK_JOB: "AckJob",
    CREDIT: "Credit",
    RESULT: "Result",
    CACHE_PUT: "CachePut",
    CACHE_ACK: "CacheAck",
    HELLO_CLIENT: "HelloClient",
    HELLO_WORKER: "HelloWorker",
    WELCOME: "Welcome",
    RECEIPT: "Receipt",
    REFUSAL: "Refusal",
    CONFIRM: "Confirm",
    HEARTBEAT: "Heartbeat",
    HOLDING: "Holding",
    CANCEL: "Cancel",
    LEAVING: "Leaving",
    ASK: "Ask",
    CLAIM: "Claim",
    FETCH: "Fetch",
    CAP: "Cap",
    MISSING: "Missing",
    STOCK: "Stock",
    WANT: "Want",
    SOURCE: "Source",
    CACHE_DROP: "CacheDrop",
    RESTING: "Resting",
    FIND: "Find",
    FOUND: "Found",
}

NO_ID: Final = bytes(16)

_HEAD: Final = Packing("<IB16s16sH")
_LENGTH: Final = Packing("<I")
_HEAD_NO_SUBJECT: Final = Packing("<IB16s16sHI")
_AFTER_LENGTH: Final = 1 + 16 + 16 + 2 + 4
"""Bytes counted by `len` besides subject and payload."""
_LEAST: Final = 4 + _AFTER_LENGTH
"""Bytes of the smallest frame."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One message on the wire, its ids in .NET byte order (F2)."""

    type: int
    msg_id: bytes = NO_ID
    corr_id: bytes = NO_ID
    subject: str = ""
    payload: bytes = b""


def encode(kind: int, msg_id: bytes = NO_ID, corr_id: bytes = NO_ID, subject: str = "", payload: bytes = b"") -> bytes:
    """The bytes of one frame. Ids have 16 bytes. Positional arguments are faster. Raises ValueError if too large."""
    size = len(payload)
    if not subject:
        if size > FRAME_BYTES_MAX - _AFTER_LENGTH:
            raise ValueError(f"a payload of {size} bytes does not fit a frame")
        return _HEAD_NO_SUBJECT.pack(_AFTER_LENGTH + size, kind, msg_id, corr_id, 0, size) + payload
    text = subject.encode()
    length = _AFTER_LENGTH + len(text) + size
    if length > FRAME_BYTES_MAX or len(text) > 0xFFFF:
        raise ValueError(f"a subject of {len(text)} and a payload of {size} bytes do not fit a frame")
    return b"".join((_HEAD.pack(length, kind, msg_id, corr_id, len(text)), text, _LENGTH.pack(size), payload))


def payload_max(subject: str) -> int:
    """Bytes of payload that fit a frame with this subject."""
    return FRAME_BYTES_MAX - _AFTER_LENGTH - len(subject.encode())


class Decoder:
    """Cuts a stream of bytes into frames. After a PeerError the decoder and its connection are unusable."""

    def __init__(self, limit: int = FIRST_FRAME_BYTES_MAX) -> None:
        self.limit = limit
        """Maximum of `len`; raised to FRAME_BYTES_MAX by `trust`."""
        self._parts: list[bytes] = []
        self._held = 0
        self._needed = 4
        self._broken = ""
        self.unfinished_no = 0
        """Changes with each new unfinished frame."""

    def trust(self) -> None:
        """The first frame was a valid hello: frames may now have their full size."""
        self.limit = FRAME_BYTES_MAX

    @property
    def held_bytes(self) -> int:
        """Received bytes of an unfinished frame."""
        return self._held

    @property
    def needed_bytes(self) -> int:
        """Size of the unfinished frame; 4 while unknown."""
        return self._needed

    def forget(self) -> None:
        """The connection has ended: drop the unfinished frame."""
        self._parts.clear()
        self._held = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield every frame that `data` completes, in order. Raises PeerError at the first invalid byte."""
        if self._broken:
            raise PeerError(self._broken)
        if self._held:
            self._parts.append(data)
            self._held += len(data)
            if self._held < self._needed:  # Joining once per frame, not once per read, keeps 4 MiB frames linear.
                return
            data = b"".join(self._parts)
            self._parts.clear()
        at, end = 0, len(data)
        unpack, limit = _HEAD_NO_SUBJECT.unpack_from, self.limit
        try:
            while end - at >= _LEAST:
                # Without a subject the head is complete; with one, the payload's length is read again from behind it.
                length, kind, msg_id, corr_id, subject_size, payload_size = unpack(data, at)
                if length > limit or length < _AFTER_LENGTH:
                    raise PeerError(_why_length(data[at : at + 4], length, limit))
                stop = at + 4 + length
                if stop > end:
                    break
                start = at + _LEAST
                subject = ""
                if subject_size:
                    start += subject_size
                    subject, payload_size = _subject(data, start, stop, subject_size)
                if start + payload_size != stop:
                    raise PeerError(f"inconsistent frame: len says {length} bytes, its parts add up to something else")
                at = stop
                yield Frame(kind, msg_id, corr_id, subject, data[start:stop])
                limit = self.limit
            if _LEAST > end - at >= 4:
                length = int.from_bytes(data[at : at + 4], "little")
                if length > limit or length < _AFTER_LENGTH:
                    raise PeerError(_why_length(data[at : at + 4], length, limit))
        except PeerError as error:
            self._broken = str(error)
            at = end  # Bytes after a broken frame mean nothing.
            raise
        finally:
            if at:
                self.unfinished_no += 1
            self._held = end - at
            if at < end:
                rest = data[at:]
                self._parts = [rest]
                self._needed = 4 if len(rest) < 4 else 4 + int.from_bytes(rest[:4], "little")


def _subject(data: bytes, payload_at: int, stop: int, size: int) -> tuple[str, int]:
    """A frame's subject, and the payload's length behind it."""
    if payload_at > stop:
        raise PeerError(f"inconsistent frame: a subject of {size} bytes does not fit its length")
    try:
        subject = data[payload_at - 4 - size : payload_at - 4].decode()
    except UnicodeDecodeError:
        raise PeerError("the subject is not UTF-8") from None
    return subject, _LENGTH.unpack_from(data, payload_at - 4)[0]


def _why_length(start: bytes, length: int, limit: int) -> str:
    if start == b"HTTP":
        return "not a frame: it speaks HTTP, so it is a web server and no leader"
    if start.isalpha() or start in {b"GET ", b"PUT ", b"JOB "}:
        return f"not a frame: it begins with {start!r}, which looks like another protocol"
    if start.startswith(b"\x16\x03"):
        return "not a frame: it begins like TLS, which this port does not speak"
    if length < _AFTER_LENGTH:
        return f"inconsistent frame: len says {length} bytes, the least is {_AFTER_LENGTH}"
    return f"a frame of {length} bytes is too large: at most {limit}"
