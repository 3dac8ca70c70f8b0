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
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from wakugumi.adapters.blobs.place import FolderPlace, Place
from wakugumi.adapters.blobs.routes import blob_routes
from wakugumi.adapters.blobs.store import BlobStore
from wakugumi.adapters.http.routes import Routes
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.errors import WakugumiError
from wakugumi.limits.files import BLOB_ABANDONED_S, BLOB_STORE_BYTES, BLOB_SWEEP_S, BLOB_UNUSED_S
from wakugumi.roles.leader.files.expected_blobs import ExpectedBlobs
from wakugumi.wire.messages.references import BlobRef

log = logging.getLogger("wakugumi.blobs")

_KNOWN_MAX: Final = 100_000
_KNOWN_S: Final = 300.0
"""What an object store was seen to have is not asked for again for so long, of so many blobs."""


class LeaderBlobs:
    """A leader's place for blobs. `url` is what its peers are told of it: empty if it is the leader itself."""

    def __init__(
        self,
        place: Place,
        *,
        url: str,
        bytes_max: int = BLOB_STORE_BYTES,
        sweeps: bool | None = None,
        workers_at: Collection[str] = (),
    ) -> None:
        """A place that others may use too is not swept, unless that is said: only they know what they still need.
        `workers_at`: hosts at which workers may say that others fetch from them, besides the address of their own
        connection."""
        self.place = place
        self.url = url
        self.workers_at = workers_at
        self.expected = ExpectedBlobs()
        self.is_held: Callable[[str], bool] = lambda _: True
        """Is this blob still needed? Until `begin` says more, all are."""
        self._bytes_max = bytes_max
        self._sweeps = not url if sweeps is None else sweeps
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """What a look elsewhere found: how large it is, and until when that counts."""
        self._going: dict[str, asyncio.Future[None]] = {}
        """What is just being removed, each with the end of it."""
        self._tasks = Tasks()

    @property
    def store(self) -> BlobStore | None:
        """Its own folder, if it has one."""
        return self.place.store if isinstance(self.place, FolderPlace) else None

    @property
    def routes(self) -> Sequence[Routes]:
        """What a leader that has the blobs itself serves of them."""
        return () if self.store is None or self.url else (blob_routes(self.store, writable=True),)

    def free(self, blobs: Sequence[str]) -> None:
        """Results that had these are forgotten: what nobody needs by now goes at once. A place that others may use too
        is not touched."""
        loose = [blob for blob in blobs if self._sweeps and not self.is_held(blob)]
        if loose:
            for blob in loose:
                self._known.pop(blob, None)
            try:
                gone = asyncio.get_running_loop().run_in_executor(None, _remove, self.place, loose)
            except RuntimeError as error:  # No thread to spare. They stay until the sweep.
                log.warning("blobs that nobody needs any more are not removed yet: %s", error)
                return
            self._going.update(dict.fromkeys(loose, gone))
            gone.add_done_callback(lambda gone: self._removed(loose, gone))

    def missing(
        self,
        refs: Sequence[BlobRef],
        then: Callable[[list[str]], None],
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Tell which of these have to be put there: now, or later in the loop if that takes a look elsewhere.

        If the place does not answer, all have: whoever is asked to finds what is there already, and goes on trying
        while it cannot reach it. So a job waits for a short outage, and its user hears of a long one. What else goes
        wrong, and nobody foresaw, is told to `failed`, if that is given.
        """
        self.look_for(refs, lambda absent, unknown: then([*absent, *unknown]), failed)

    def look_for(
        self,
        refs: Sequence[BlobRef],
        then: Callable[[list[str], list[str]], None],
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Tell which of these are not there, and of which nobody can say: now, or later in the loop. One of both is
        called, whatever happens."""
        answer = _Answer(refs, then, failed)
        now = time.monotonic()
        going = [gone for ref in refs if (gone := self._going.get(ref.sha256))] if self._going else []
        if going:
            self._tasks.start(answer.surely(partial(self._look_after, going, refs, answer)), name="look for blobs")
        elif self.store is not None:
            try:
                absent = [ref.sha256 for ref in refs if not self.place.has(ref)]
            except Exception as error:
                answer.fail(error)
            else:
                then(absent, [])
        elif asked := [ref for ref in refs if not self._is_known(ref, now)]:
            self._tasks.start(answer.surely(partial(self._look, asked, then)), name="look for blobs")
        else:
            then([], [])

    def begin(self, is_held: Callable[[str], bool]) -> None:
        """Look after the place from now on, inside a running loop. `is_held`: is this blob still needed? A blob that
        nobody needs may be removed."""
        self.is_held = is_held
        if self.store is not None and self._sweeps:
            self._tasks.start_loop(partial(self._sweep_for_ever, self.store), name="sweep blobs")

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

    async def _look(self, refs: list[BlobRef], then: Callable[[list[str], list[str]], None]) -> None:
        there, absent, error = await asyncio.to_thread(_ask, self.place, refs)
        if error is not None:
            log.warning("the place for blobs %s does not answer: %s", self.place.url, error)
        until = time.monotonic() + _KNOWN_S
        for ref in there:
            self._known[ref.sha256] = ref.size, until
            self._known.move_to_end(ref.sha256)
        while len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        then(absent, [ref.sha256 for ref in refs[len(there) + len(absent) :]])

    async def _look_after(
        self,
        going: Sequence[asyncio.Future[None]],
        refs: Sequence[BlobRef],
        answer: _Answer,
    ) -> None:
        """Whoever names what is just being removed is told once it is gone: it might be believed to be there."""
        await asyncio.wait(set(going))
        self.look_for(refs, answer.then, answer.failed)

    def _removed(self, blobs: Sequence[str], gone: asyncio.Future[None]) -> None:
        for blob in blobs:
            if self._going.get(blob) is gone:
                del self._going[blob]

    def _is_known(self, ref: BlobRef, now: float) -> bool:
        size, until = self._known.get(ref.sha256, (-1, 0.0))
        return size == ref.size and until >= now


class _Answer:
    """To one who asked which blobs are there. It is given, whatever fails."""

    def __init__(
        self,
        refs: Sequence[BlobRef],
        then: Callable[[list[str], list[str]], None],
        failed: Callable[[Exception], None] | None,
    ) -> None:
        self._refs = refs
        self.then = then
        self.failed = failed

    async def surely(self, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await look()
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Nobody can say."""
        log.error("it cannot be seen which blobs are there", exc_info=error)
        if self.failed is not None:
            self.failed(error)
        else:
            self.then([], [ref.sha256 for ref in self._refs])


def _ask(place: Place, refs: Sequence[BlobRef]) -> tuple[list[BlobRef], list[str], WakugumiError | None]:
    """Which are there and which are not, as far as the place answers."""
    there: list[BlobRef] = []
    absent: list[str] = []
    try:
        for ref in refs:
            if place.has(ref):
                there.append(ref)
            else:
                absent.append(ref.sha256)
    except WakugumiError as error:
        return there, absent, error
    return there, absent, None


def _remove(place: Place, blobs: Sequence[str]) -> None:
    try:
        for blob in blobs:
            place.remove(blob)
    except WakugumiError as error:  # They stay until the sweep.
        log.warning("blobs that nobody needs any more cannot be removed: %s", error)
