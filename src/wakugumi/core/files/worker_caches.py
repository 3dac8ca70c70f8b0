"""Which caches does one worker have, and which is it asked for? Only `placement` writes these records."""

from __future__ import annotations

from wakugumi.core.files.catalogue import CacheRecord
from wakugumi.core.files.events import WorkerCame
from wakugumi.core.ids import JobId, show_job_id


class PendingPut:
    """A request to a worker for a cache with this many names, without an answer yet."""

    __slots__ = ("asks", "names", "put")

    def __init__(self, put: bytes, cache: CacheRecord, asks: int = 0) -> None:
        self.put = put
        self.names = cache.names
        self.asks = asks


class PutTarget:
    """A connected worker, and the state of each cache that it should have: one of `has`, `told`, `due`, `failed` or
    `evicted` holds the cache."""

    __slots__ = (
        "blobs",
        "conn",
        "due",
        "evicted",
        "failed",
        "has",
        "name",
        "patterns",
        "pins",
        "stocked",
        "told",
        "worker",
    )

    def __init__(self, event: WorkerCame) -> None:
        self.conn = event.conn
        self.worker = event.worker
        self.name = event.name or show_job_id(JobId(event.worker))
        self.patterns = event.patterns
        self.blobs = event.blobs
        self.stocked = not event.blobs
        """The worker has reported its stock: it is asked for caches only then."""
        self.has: dict[str, int] = {}
        """Names that the worker has of each cache, of our version."""
        self.told: dict[str, PendingPut] = {}
        self.due: dict[str, None] = {}
        """Caches to ask for, as soon as fewer others are under way."""
        self.failed: dict[str, tuple[int, str]] = {}
        """Failures in a row, and the last message."""
        self.pins: dict[str, bool] = {}
        """Was the cache pinned at the last request?"""
        self.evicted: set[str] = set()
        """Caches that the worker removed for room: not asked for again without a new put, or that would go on for
        ever."""

    def forget(self, cache_id: str) -> bool:
        """The cache was dropped. True if the worker had or was asked for a part of it."""
        known = cache_id in self.has or cache_id in self.told or cache_id in self.failed
        for book in (self.has, self.told, self.due, self.failed, self.pins):
            book.pop(cache_id, None)
        self.evicted.discard(cache_id)
        return known
