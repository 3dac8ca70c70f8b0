"""Which blobs does a leader have, and which does it still need?

A job, a result or a cache that names blobs is accepted only when all of them are in the leader's place. Until then its
sender gets a list of the missing ones, puts them there, and sends the same frame again. Blobs that nothing needs are
removed when the place gets too full, or after a day.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Final

from wakugumi.adapters.blobs.place import FolderPlace, Place
from wakugumi.adapters.blobs.routes import blob_routes
from wakugumi.adapters.blobs.store import BlobStore, ref_of_bytes, ref_of_file
from wakugumi.adapters.blobs.temporary import open_blob
from wakugumi.adapters.blobs.tokens import EVERYONE, BlobReaders
from wakugumi.adapters.http.page import Pages
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.spool import Spool, Spools
from wakugumi.core.access.identity import Identity
from wakugumi.errors import Lost, Refused, WakugumiError
from wakugumi.limits.files import BLOB_ABANDONED_S, BLOB_STORE_BYTES, BLOB_SWEEP_S, BLOB_UNUSED_S
from wakugumi.roles.leader.files.expected_blobs import ExpectedBlobs
from wakugumi.wire.messages.references import BlobRef

log = logging.getLogger("wakugumi.blobs")

_KNOWN_MAX: Final = 100_000
_KNOWN_S: Final = 300.0
"""How many blobs, and for how long, count as present after a look into the place."""


class LeaderBlobs:
    """A leader's place for blobs. `url` is sent to its peers: empty if they fetch from the leader itself."""

    def __init__(
        self,
        place: Place,
        *,
        url: str,
        bytes_max: int = BLOB_STORE_BYTES,
        sweeps: bool | None = None,
        workers_at: Collection[str] = (),
    ) -> None:
        """`sweeps`: remove unneeded blobs. By default only of a place without `url`, as others may use any other place.
        `workers_at`: hosts that workers may name to be fetched from, besides the address of their own connection."""
        self.place = place
        self.url = url
        self.workers_at = workers_at
        self.expected = ExpectedBlobs()
        self.readers: BlobReaders = EVERYONE
        self.is_held: Callable[[str], bool] = lambda _: True
        """Whether a blob is still needed; all are until `begin`."""
        self._bytes_max = bytes_max
        self._sweeps = not url if sweeps is None else sweeps
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """Size of each blob found in the place, and until when the finding counts."""
        self._removing: dict[str, asyncio.Future[None]] = {}
        """Blobs that are being removed, each with the end of its removal."""
        self._tasks = Tasks()
        folder = Path(tempfile.gettempdir()) if self.store is None else self.store.incoming
        self.spools = Spools(folder)
        """For content on its way into the place."""

    @property
    def store(self) -> BlobStore | None:
        """The leader's own folder, if the place is one."""
        return self.place.store if isinstance(self.place, FolderPlace) else None

    @property
    def routes(self) -> Sequence[Pages]:
        """Routes that serve the blobs, if the leader itself does."""
        return () if self.store is None or self.url else (blob_routes(self.store, writable=True, readers=self.readers),)

    def free(self, blobs: Sequence[str]) -> None:
        """Remove blobs of forgotten results that are no longer needed; not from a place that others may use."""
        loose = [blob for blob in blobs if self._sweeps and not self.is_held(blob)]
        if loose:
            for blob in loose:
                self._known.pop(blob, None)
            try:
                removal = asyncio.get_running_loop().run_in_executor(None, _remove, self.place, loose)
            except RuntimeError as error:  # No free thread. The sweep will remove them.
                log.warning("unneeded blobs not removed yet count=%d: %s", len(loose), error)
                return
            self._removing.update(dict.fromkeys(loose, removal))
            removal.add_done_callback(lambda removal: self._removed(loose, removal))

    def open(self, ref: BlobRef) -> FileIO:
        """A blob's content, wherever the place is. Call it in a thread. Raises Refused."""
        try:
            return open_blob(self.place, ref)
        except Lost as error:
            raise Refused("worker-error", f"a blob cannot be fetched: {error}") from None

    async def put(self, ref: BlobRef, path: Path) -> None:
        """Put a file of `spools` into the place. Raises Refused."""
        self.expected.name([ref])  # Keeps the blob from being removed for BLOB_NAMED_S.
        put = self.place.put if self.store is None else self.store.adopt
        try:
            await asyncio.to_thread(put, ref, path)
        except Lost as error:
            raise Refused("worker-error", f"content cannot be put into the leader's place: {error}") from None
        self.expected.name([ref])  # Again, since the put may have been slow.

    async def keep(self, spool: Spool) -> BlobRef:
        """Put a whole body into the place. Raises Refused."""
        path = await spool.name()
        try:
            ref = BlobRef(spool.sha256, spool.size)
            if not ref.sha256:  # The body was changed.
                ref = await self.spools.beside(lambda: ref_of_file(path))
            await self.put(ref, path)
        finally:
            path.unlink(missing_ok=True)
        return ref

    def read(self, refs: Sequence[BlobRef]) -> dict[str, bytes]:
        """The verified content of small blobs, by their hashes. Call it in a thread. Raises Refused."""
        contents: dict[str, bytes] = {}
        for ref in refs:
            if ref.sha256 not in contents:
                with self.open(ref) as file:
                    content = contents[ref.sha256] = file.read()
                if ref_of_bytes(content) != ref:
                    raise Refused("blob-broken", "the content is not what its SHA-256 says")
        return contents

    def missing(
        self,
        refs: Sequence[BlobRef],
        then: Callable[[list[str]], None],
        failed: Callable[[Exception], None] | None = None,
        *,
        asker: Identity | None = None,
    ) -> None:
        """Call `then` with the blobs that have to be put into the place: now, or later in the loop. Blobs that `asker`
        may not read are among them.

        If the place does not answer, these are all blobs: the sender then checks each, and retries while it cannot
        reach the place. A job thus survives a short outage, and its user sees a long one. An unexpected error goes to
        `failed`, if given.
        """
        unseen = [ref.sha256 for ref in refs if asker is not None and not self.readers.may_read(asker, ref.sha256)]
        self.look_for(refs, lambda absent, unknown: then(list(dict.fromkeys([*absent, *unknown, *unseen]))), failed)

    def look_for(
        self,
        refs: Sequence[BlobRef],
        then: Callable[[list[str], list[str]], None],
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Call `then` with the absent blobs and the unknown ones, or `failed`: now, or later in the loop. One of the
        two is always called."""
        answer = _Answer(refs, then, failed)
        now = time.monotonic()
        removals = [removal for ref in refs if (removal := self._removing.get(ref.sha256))] if self._removing else []
        if removals:
            self._tasks.start(answer.surely(partial(self._look_after, removals, refs, answer)), name="look for blobs")
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
        """Start to sweep the place, inside a running loop. `is_held`: whether a blob is still needed."""
        self.is_held = is_held
        if self.store is not None and self._sweeps:
            self._tasks.start_loop(partial(self._sweep_for_ever, self.store), name="sweep blobs")

    async def close(self) -> None:
        await self._tasks.close()
        self.spools.close()

    async def sweep(self, store: BlobStore) -> None:
        """Remove unneeded blobs that are old or take too much space. Only the loop may call `is_held`."""
        found = await asyncio.to_thread(lambda: [entry.sha256 for entry in store.entries()])
        held = {sha256 for sha256 in found if self.is_held(sha256)}
        now = time.time()
        removed = await asyncio.to_thread(store.evict, self._bytes_max, held.__contains__, now, BLOB_UNUSED_S)
        abandoned = await asyncio.to_thread(store.remove_abandoned, now, BLOB_ABANDONED_S)
        if removed or abandoned:
            total = sum(entry.size for entry in removed)
            log.info("blobs removed count=%d bytes=%d abandoned_uploads=%d", len(removed), total, abandoned)

    async def _sweep_for_ever(self, store: BlobStore) -> None:
        while True:
            await self.sweep(store)
            await asyncio.sleep(BLOB_SWEEP_S)

    async def _look(self, refs: list[BlobRef], then: Callable[[list[str], list[str]], None]) -> None:
        there, absent, error = await asyncio.to_thread(_ask, self.place, refs)
        if error is not None:
            log.warning("place for blobs does not answer place=%s: %s", self.place.url, error)
        until = time.monotonic() + _KNOWN_S
        for ref in there:
            self._known[ref.sha256] = ref.size, until
            self._known.move_to_end(ref.sha256)
        while len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        then(absent, [ref.sha256 for ref in refs[len(there) + len(absent) :]])

    async def _look_after(
        self,
        removals: Sequence[asyncio.Future[None]],
        refs: Sequence[BlobRef],
        answer: _Answer,
    ) -> None:
        """Look only after these removals have ended: until then a blob may seem to be present."""
        await asyncio.wait(set(removals))
        self.look_for(refs, answer.then, answer.failed)

    def _removed(self, blobs: Sequence[str], removal: asyncio.Future[None]) -> None:
        for blob in blobs:
            if self._removing.get(blob) is removal:
                del self._removing[blob]

    def _is_known(self, ref: BlobRef, now: float) -> bool:
        size, until = self._known.get(ref.sha256, (-1, 0.0))
        return size == ref.size and until >= now


class _Answer:
    """The callbacks of one `look_for`; one of them is called even if the look fails."""

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
        """Call `failed`, or `then` with all blobs as unknown."""
        log.error("look for blobs failed", exc_info=error)
        if self.failed is not None:
            self.failed(error)
        else:
            self.then([], [ref.sha256 for ref in self._refs])


def _ask(place: Place, refs: Sequence[BlobRef]) -> tuple[list[BlobRef], list[str], WakugumiError | None]:
    """Present blobs, absent blobs, and the error that ended the look."""
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
    except WakugumiError as error:  # The sweep will remove them.
        log.warning("unneeded blobs not removed: %s", error)
