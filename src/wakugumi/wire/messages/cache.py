"""What do frames say of caches, and of where a worker fetches files?"""

from __future__ import annotations

from typing import Final

import msgspec

from wakugumi.errors import Refused
from wakugumi.limits.wire import CACHE_ID_CHARS_MAX
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.job import OK
from wakugumi.wire.messages.payload import read_payload
from wakugumi.wire.untrusted_json import Unreadable, read_json

SKIPPED: Final = "SKIPPED"
"""Of a CachePut: all of it was there already."""
PROGRESS: Final = "PROGRESS"
"""Of a CachePut that is under way."""


class CacheEntry(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """One file of a cache: in the frame, as old peers have it, or as a blob."""

    name: str
    content: bytes | None = None
    sha256: str | None = None
    size: int | None = None


class CachePutRequest(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """A set of files for workers to have beforehand: from a client to the leader, and on to each worker."""

    cache_id: str = ""
    entries: list[CacheEntry] = []
    target_pattern: str = ""
    within_s: float | None = None
    """How long the client waits for the workers."""
    share: float | None = None
    """With this share of the workers, 0 to 1, the client is content; 1 if it does not say."""
    pinned: bool = False
    progress: bool = False
    """Tell how far it is, now and then, by answers with the status PROGRESS."""
    version: str = ""
    """From a leader: which life of this cache id it is. What a worker has of another one is dropped first."""


class CacheAckHead(msgspec.Struct, frozen=True, rename="pascal"):
    """What a leader reads of a worker's CacheAck, old or new."""

    cache_id: str = ""
    status: str = ""
    message: str = ""


class FailedWorker(msgspec.Struct, frozen=True, rename="pascal"):
    worker: str
    message: str


class CachePutResult(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """A worker's answer to a CachePut, or the leader's summary of them."""

    cache_id: str
    status: str
    message: str
    sent: int = 0
    ok: int = 0
    skipped: int = 0
    failed: int = 0
    silent: int = 0
    waiting: int = 0
    """Workers that have not answered yet: only while it is under way."""
    failures: list[FailedWorker] = []
    code: str = ""
    """Why a leader failed it, if that was not for its workers: one of `errors.CODES`."""


class Stock(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """What a worker holds: all of it after its Welcome (`whole`), then what came and went."""

    whole: bool = False
    url: str = ""
    """Where other workers fetch from it; empty if they cannot."""
    key: str = ""
    """By which it checks the tokens that the leader makes for others to fetch from it."""
    blobs: list[str] = []
    gone: list[str] = []
    caches: dict[str, str] = {}
    """Caches by their ids, and the versions it has of them."""
    used_bytes: int = 0
    bytes_max: int = 0


class FetchFailure(msgspec.Struct, frozen=True, rename="pascal"):
    """Where a worker tried to fetch from, in vain, and how that ended: `dead`, `slow`, `lied` or `busy`; or
    `given-up`, whatever the source did."""

    url: str
    why: str


class Want(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """A worker needs a blob, or one file of a cache, and asks where it may fetch it."""

    sha256: str = ""
    size: int = 0
    cache_id: str = ""
    name: str = ""
    failed: FetchFailure | None = None
    """The source that it was given before, for the same want."""


class Source(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """Where a worker may fetch what it wants. With a code there is no such place, and will be none."""

    sha256: str = ""
    size: int = 0
    url: str = ""
    """A worker's or a place's; empty: the leader's own place."""
    token: str = ""
    code: str = ""
    message: str = ""


class CachePutHead(msgspec.Struct, frozen=True, rename="pascal"):
    cache_id: str = ""


def read_cache_put(payload: bytes) -> str:
    """The cache id of a CachePut, cut to what an answer can quote. Empty if it cannot be read."""
    try:
        return read_json(payload, CachePutHead).cache_id[:CACHE_ID_CHARS_MAX]
    except Unreadable:
        return ""


def read_cache_result(payload: bytes) -> CachePutResult:
    return read_payload(CachePutResult, payload, "CacheAck")


def read_put(payload: bytes) -> CachePutRequest:
    """A whole CachePut, as a worker needs it. Raises Refused."""
    try:
        return read_json(payload, CachePutRequest)
    except Unreadable as error:
        raise Refused("bad-request", f"the payload is no cache: {error}") from None


def read_source(payload: bytes) -> Source:
    return read_payload(Source, payload, "Source")


def read_cache_ack(frame: Frame) -> CacheAckHead:
    """A worker's answer; without an id it is about the cache of its subject. Raises PeerError."""
    head = read_payload(CacheAckHead, frame.payload, "CacheAck") if frame.payload else CacheAckHead(status=OK)
    if head.cache_id:
        return head
    return CacheAckHead(frame.subject.removeprefix("cache.ack."), head.status, head.message)


def read_stock(payload: bytes) -> Stock:
    return read_payload(Stock, payload, "Stock")


def read_want(payload: bytes) -> Want:
    return read_payload(Want, payload, "Want")
