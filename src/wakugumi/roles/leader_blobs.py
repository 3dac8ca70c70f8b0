"""Which blobs does a leader have, and which does it still need?

A job, a result or a cache that names blobs is taken only once all of them are in the leader's place: until then its
sender is told what is missing, puts it there, and sends the same again. What nothing names any more is removed when
the place gets too full, or after a day.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from wakugumi.adapters.blobs import BlobStore
from wakugumi.adapters.places import FolderPlace, Place
from wakugumi.adapters.tasks import Tasks
from wakugumi.adapters.web import Routes, blob_routes
from wakugumi.errors import WakugumiError
from wakugumi.limits import BLOB_ABANDONED_S, BLOB_STORE_BYTES, BLOB_SWEEP_S, BLOB_UNUSED_S
from wakugumi.wire.message import BlobRef

log = logging.getLogger("wakugumi.blobs")

_KNOWN_MAX: Final = 100_000
_KNOWN_S: Final = 300.0
"""What an object store was seen to have is not asked for again for so long, of so many blobs."""


class LeaderBlobs:
    """A leader's place for blobs. `url` is what its peers are told of it: empty if it is the leader itself."""

    def __init__(
        self, place: Place, *, url: str, bytes_max: int = BLOB_STORE_BYTES, sweeps: bool | None = None
    ) -> None:
        """A place that others may use too is not swept, unless that is said: only they know what they still need."""
        self.place = place
        self.url = url
        self.is_held: Callable[[str], bool] = lambda _: True
        """Is this blob still needed? The leader says; what nobody needs may be removed."""
        self._bytes_max = bytes_max
        self._sweeps = not url if sweeps is None else sweeps
        self._known: OrderedDict[BlobRef, float] = OrderedDict()
        self._tasks = Tasks()

    @property
    def store(self) -> BlobStore | None:
        """Its own folder, if it has one."""
        return self.place.store if isinstance(self.place, FolderPlace) else None

    @property
    def routes(self) -> Sequence[Routes]:
        """What a leader that has the blobs itself serves of them."""
        return () if self.store is None or self.url else (blob_routes(self.store, writable=True),)

    def freed(self, blobs: Sequence[str]) -> None:
        """Results that had these are forgotten: what nobody needs by now goes at once."""
        loose = [blob for blob in blobs if not self.is_held(blob)]
        if loose:
            for ref in [ref for ref in self._known if ref.sha256 in loose]:
                del self._known[ref]
            asyncio.get_running_loop().run_in_executor(None, _remove, self.place, loose)

    def missing(self, refs: Sequence[BlobRef], then: Callable[[list[str]], None]) -> None:
        """Tell which of these are not there: now, or later in the loop if that takes a look elsewhere."""
        if self.store is not None:
            then([ref.sha256 for ref in refs if not self.place.has(ref)])
            return
        now = time.monotonic()
        unknown = [ref for ref in refs if self._known.get(ref, 0.0) < now]
        if not unknown:
            then([])
        else:
            self._tasks.start(self._look(unknown, then), name="look for blobs")

    def begin(self) -> None:
        """Look after the place from now on, inside a running loop."""
        if self.store is not None and self._sweeps:
            self._tasks.start(self._sweep_for_ever(self.store), name="sweep blobs")

    async def close(self) -> None:
        await self._tasks.close()

    async def sweep(self, store: BlobStore) -> None:
        """Remove what nothing names, if it takes too much room or is old. Only the loop may ask what is held."""
        found = await asyncio.to_thread(lambda: [entry.sha256 for entry in store.entries()])
        held = {sha256 for sha256 in found if self.is_held(sha256)}
        now = time.time()
        removed = await asyncio.to_thread(store.evict, self._bytes_max, held.__contains__, now, BLOB_UNUSED_S)
        abandoned = await asyncio.to_thread(store.remove_abandoned, now, BLOB_ABANDONED_S)
        if removed or abandoned:
            total = sum(entry.size for entry in removed)
            log.info("removed %d blobs with %d bytes, and %d abandoned uploads", len(removed), total, abandoned)

    async def _sweep_for_ever(self, store: BlobStore) -> None:
        while True:
            await self.sweep(store)
            await asyncio.sleep(BLOB_SWEEP_S)

    async def _look(self, refs: list[BlobRef], then: Callable[[list[str]], None]) -> None:
        try:
            absent = await asyncio.to_thread(lambda: [ref.sha256 for ref in refs if not self.place.has(ref)])
        except WakugumiError as error:
            # Whoever is told to put them there finds out the same, and tells its user.
            log.warning("the place for blobs %s does not answer: %s", self.place.url, error)
            absent = [ref.sha256 for ref in refs]
        until = time.monotonic() + _KNOWN_S
        for ref in refs:
            if ref.sha256 not in absent:
                self._known[ref] = until
                self._known.move_to_end(ref)
        while len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        then(absent)


def _remove(place: Place, blobs: Sequence[str]) -> None:
    try:
        for blob in blobs:
            place.remove(blob)
    except WakugumiError as error:  # They stay until the sweep.
        log.warning("blobs that nobody needs any more cannot be removed: %s", error)
