"""How is it with one worker and the caches that it should have? The books of `puts`, which alone writes in them."""

from __future__ import annotations

from wakugumi.core.files.catalogue import CacheRecord
from wakugumi.core.files.events import WorkerCame
from wakugumi.core.ids import JobId, show_job_id


class PendingPut:
    """A worker was asked to have a cache, with so many names, and has not answered."""

    __slots__ = ("asks", "names", "put")

    def __init__(self, put: bytes, cache: CacheRecord, asks: int = 0) -> None:
        self.put = put
        self.names = cache.names
        self.asks = asks


class PutTarget:
    """A connected worker, and how it is with each cache that it should have: exactly one of these holds it."""

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
        """It has said what it holds: only then is it asked for anything."""
        self.has: dict[str, int] = {}
        """How many names it has of a cache, of the version that we have."""
        self.told: dict[str, PendingPut] = {}
        self.due: dict[str, None] = {}
        """It will be asked for these, as soon as it is asked for few enough others."""
        self.failed: dict[str, tuple[int, str]] = {}
        """How often in a row, and what it said last."""
        self.pins: dict[str, bool] = {}
        """Whether the cache was pinned when it was asked last."""
        self.evicted: set[str] = set()
        """It had them and needed the room: not asked again by ourselves, or that would go on for ever."""

    def forget(self, cache_id: str) -> bool:
        """The cache is no more. Did it have something of it?"""
        known = cache_id in self.has or cache_id in self.told or cache_id in self.failed
        for book in (self.has, self.told, self.due, self.failed, self.pins):
            book.pop(cache_id, None)
        self.evicted.discard(cache_id)
        return known
