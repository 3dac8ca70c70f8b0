"""Which messages are about caches, and about the sources of a worker's files?"""

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
"""Status of a CachePut: all files were present."""
PROGRESS: Final = "PROGRESS"
"""Status of an unfinished CachePut."""


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
    """Share of the workers, 0 to 1, that is enough for the client. [default: 1]"""
    pinned: bool = False
    progress: bool = False
    """Report progress by answers with the status PROGRESS."""
    version: str = ""
    """Life of this cache id, from a leader. A worker drops its files of another version first."""


class CacheAckHead(msgspec.Struct, frozen=True, rename="pascal"):
    """Fields of a worker's CacheAck, old or new, that a leader reads."""

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
    """Workers that have not answered yet; only with PROGRESS."""
    failures: list[FailedWorker] = []
    code: str = ""
    """Why a leader failed the put, if not because of its workers: one of `errors.CODES`."""


class Stock(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """Files and caches of a worker: all of them after its Welcome (`whole`), then changes."""

    whole: bool = False
    url: str = ""
    """URL from which other workers fetch; empty if they cannot."""
    key: str = ""
    """Key by which the worker checks tokens that the leader makes for other workers."""
    blobs: list[str] = []
    gone: list[str] = []
    caches: dict[str, str] = {}
    """Versions of the worker's caches, by cache id."""
    used_bytes: int = 0
    bytes_max: int = 0


class FetchFailure(msgspec.Struct, frozen=True, rename="pascal"):
    """A source from which a worker failed to fetch, and why: `dead`, `slow`, `lied` or `busy`; `given-up` is not the
    source's fault."""

    url: str
    why: str


class Want(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """A worker needs a blob, or one file of a cache, and asks for a source."""

    sha256: str = ""
    size: int = 0
    cache_id: str = ""
    name: str = ""
    failed: FetchFailure | None = None
    """The last source for the same want."""


class Source(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """Where a worker may fetch the wanted file. With a code there is no source, and will be none."""

    sha256: str = ""
    size: int = 0
    url: str = ""
    """URL of a worker or a place; empty: the leader's own place."""
    token: str = ""
    code: str = ""
    message: str = ""


class CachePutHead(msgspec.Struct, frozen=True, rename="pascal"):
    cache_id: str = ""


def read_cache_put(payload: bytes) -> str:
    """Cache id of a CachePut, cut to a length that an answer can quote. Empty if unreadable."""
    try:
        return read_json(payload, CachePutHead).cache_id[:CACHE_ID_CHARS_MAX]
    except Unreadable:
        return ""


def read_cache_result(payload: bytes) -> CachePutResult:
    return read_payload(CachePutResult, payload, "CacheAck")


def read_put(payload: bytes) -> CachePutRequest:
    """A complete CachePut, for a worker. Raises Refused."""
    try:
        return read_json(payload, CachePutRequest)
    except Unreadable as error:
        raise Refused("bad-request", f"the payload is no cache: {error}") from None


def read_source(payload: bytes) -> Source:
    return read_payload(Source, payload, "Source")


def read_cache_ack(frame: Frame) -> CacheAckHead:
    """A worker's answer; without an id, about the cache of its subject. Raises PeerError."""
    head = read_payload(CacheAckHead, frame.payload, "CacheAck") if frame.payload else CacheAckHead(status=OK)
    if head.cache_id:
        return head
    return CacheAckHead(frame.subject.removeprefix("cache.ack."), head.status, head.message)


def read_stock(payload: bytes) -> Stock:
    return read_payload(Stock, payload, "Stock")


def read_want(payload: bytes) -> Want:
    return read_payload(Want, payload, "Want")
