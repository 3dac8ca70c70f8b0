"""What does a worker do with a cache put of its leader? (SPEC C1, C2, C6)

    CachePut ─► checked ─► missing content fetched ─► linked, manifest written ─► CacheAck: OK, SKIPPED or FAILED

A put takes effect when all of its files are here; until then the cache is unchanged. Puts of one cache run one after
the other. A put that arrives again while it is in progress gets the same answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeVar

import msgspec

from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.blobs.worker_cache import CachedBlob, CacheFolder
from wakugumi.adapters.blobs.worker_cache_index import CacheOnDisk, refs_of
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.names import check_cache_id
from wakugumi.core.transfers.fetch_events import Need
from wakugumi.errors import Refused
from wakugumi.roles.runner.files.fetch import Fetcher, need_of
from wakugumi.wire.messages.cache import CacheEntry, CachePutRequest, CachePutResult, read_put
from wakugumi.wire.messages.job import FAILED, OK
from wakugumi.wire.messages.references import BlobRef

T = TypeVar("T")

SKIPPED: Final = "SKIPPED"

Answer = Callable[[CachePutResult, str], None]
"""Gets the answer and the version of the cache."""


class WorkerCaches:
    """The caches of one worker. All calls are made in the loop's thread."""

    def __init__(
        self,
        folder: CacheFolder,
        fetching: Fetcher,
        threads: Executor,
        on_here: Callable[[str], None],
        on_cache: Callable[[str], None],
    ) -> None:
        """`on_here` is called for each content written from a frame, `on_cache` for each changed cache."""
        self._folder = folder
        self._fetching = fetching
        self._threads = threads
        self._on_here = on_here
        self._on_cache = on_cache
        self._tasks = Tasks()
        self._puts: dict[tuple[str, bytes], list[Answer]] = {}
        """Puts in progress, and the callbacks that wait for them."""
        self._turns: dict[str, asyncio.Lock] = {}
        self._writing = asyncio.Lock()
        """Held while inline content is written: two caches may have the same content in their frames."""
        self._drops: dict[str, int] = {}
        """Number of drops of a cache during puts of it."""

    def put(self, cache_id: str, payload: bytes, answer: Answer) -> None:
        waiting = self._puts.setdefault((cache_id, payload), [])
        waiting.append(answer)
        if len(waiting) == 1:
            self._tasks.start(self._put(cache_id, payload), name="put of a cache")

    def drop(self, cache_id: str) -> None:
        """Drop a cache now; puts of it that are in progress fail."""
        if cache_id in self._turns:
            self._drops[cache_id] = self._drops.get(cache_id, 0) + 1
        if cache_id in self._folder.caches:
            self._folder.drop(cache_id)
            self._on_cache(cache_id)
            self._empty_trash()

    async def close(self) -> None:
        await self._tasks.close()

    async def _put(self, cache_id: str, payload: bytes) -> None:
        version = ""
        turn = self._turns.setdefault(cache_id, asyncio.Lock())
        try:
            async with turn:
                version, status, message = await self._take(cache_id, payload)
        except Refused as error:
            status, message = FAILED, f"{error.code}: {error.message}"
        finally:
            waiting = self._puts.pop((cache_id, payload))
            if not any(one == cache_id for one, _ in self._puts):
                self._turns.pop(cache_id, None)
                self._drops.pop(cache_id, None)
        for answer in waiting:
            answer(CachePutResult(cache_id, status, message), version)

    async def _take(self, cache_id: str, payload: bytes) -> tuple[str, str, str]:
        """Returns version, status and message."""
        drops = self._drops.get(cache_id, 0)
        request, files, inline = await self._in_thread(partial(_read, cache_id, payload))
        old = self._folder.caches.get(cache_id)
        if old is not None and old.version != request.version:
            self._folder.drop(cache_id)
            self._on_cache(cache_id)
            self._empty_trash()
            old = None
        added = self._folder.plan(cache_id, files)
        if old is not None and not added.new and not added.absent and old.pinned == request.pinned:
            return request.version, SKIPPED, f"added=0, skipped={added.skipped}"
        held: dict[str, CachedBlob] = {}
        try:
            await self._provide(files, inline, held)
            self._check_dropped(cache_id, drops)
            await self._name(cache_id, request, files, drops)
        finally:
            for sha256, one in held.items():
                self._folder.let_go(sha256, one)
        self._on_cache(cache_id)
        status = OK if added.new else SKIPPED
        return request.version, status, f"added={len(added.new)}, skipped={added.skipped}"

    async def _provide(self, files: dict[str, BlobRef], inline: dict[str, bytes], held: dict[str, CachedBlob]) -> None:
        """Get all contents and mark them as used, in `held`."""
        outcomes: list[asyncio.Future[BlobRef | Refused]] = []
        needs: list[tuple[Need, Callable[[BlobRef | Refused], None]]] = []
        try:
            for ref in {ref.sha256: ref for ref in files.values()}.values():
                if (one := self._folder.use(ref.sha256)) is not None:
                    held[ref.sha256] = one
                elif ref.sha256 in inline:
                    async with self._writing:
                        if not self._folder.has(ref):
                            await self._write(ref, inline[ref.sha256])
                        self._hold(ref, held)
                else:
                    outcome: asyncio.Future[BlobRef | Refused] = asyncio.get_running_loop().create_future()
                    then: Callable[[BlobRef | Refused], None] = partial(self._arrived, outcome, held)
                    self._fetching.need(need_of(ref), then)
                    needs.append((need_of(ref), then))
                    outcomes.append(outcome)
            for outcome in outcomes:
                if isinstance(error := await outcome, Refused):
                    raise error
        finally:
            for one_need, then in needs:
                self._fetching.give_up(one_need, then)

    def _arrived(
        self, outcome: asyncio.Future[BlobRef | Refused], held: dict[str, CachedBlob], ref: BlobRef | Refused
    ) -> None:
        """Mark it as used at once, before the next arrival can evict it."""
        if outcome.done():
            return
        if isinstance(ref, BlobRef):
            try:
                self._hold(ref, held)
            except Refused as error:
                ref = error
        outcome.set_result(ref)

    def _hold(self, ref: BlobRef, held: dict[str, CachedBlob]) -> None:
        one = self._folder.use(ref.sha256)
        if one is None:
            raise Refused("input-changed", f"the content {ref.sha256} was modified right after it arrived")
        held[ref.sha256] = one

    async def _write(self, ref: BlobRef, content: bytes) -> None:
        self._folder.make_room(ref)
        try:
            await self._in_thread(partial(self._folder.write, ref, content))
            self._folder.arrived(ref)
        finally:
            self._folder.not_coming(ref)
        self._on_here(ref.sha256)

    async def _name(self, cache_id: str, request: CachePutRequest, files: dict[str, BlobRef], drops: int) -> None:
        """Write links, then the manifest, then update the memory. A failure leaves the cache unchanged."""
        old = self._folder.caches.get(cache_id)
        cache = CacheOnDisk(request.version, request.pinned, {**(old.files if old is not None else {}), **files})
        unnamed = self._folder.unnamed(cache_id, files)

        def write() -> None:
            refs_of([CacheEntry(name, sha256=ref.sha256, size=ref.size) for name, ref in cache.files.items()])
            self._folder.link(cache_id, files)

        try:
            await self._in_thread(write)
            self._check_dropped(cache_id, drops)
            await self._in_thread(partial(self._folder.write_manifest, cache_id, cache))
            if self._drops.get(cache_id, 0) != drops:
                self._folder.unlink(cache_id, files)
                self._folder.drop(cache_id)  # This put wrote files after the drop.
                self._check_dropped(cache_id, drops)
        except Refused:
            await self._in_thread(partial(self._folder.unlink, cache_id, unnamed))
            raise
        self._folder.keep(cache_id, cache)

    def _check_dropped(self, cache_id: str, drops: int) -> None:
        if self._drops.get(cache_id, 0) != drops:
            raise Refused("no-cache", "it was dropped meanwhile")

    def _empty_trash(self) -> None:
        self._threads.submit(self._folder.empty_trash)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _read(cache_id: str, payload: bytes) -> tuple[CachePutRequest, dict[str, BlobRef], dict[str, bytes]]:
    """Runs in a thread. The request without contents, its files, and its inline contents. Raises Refused."""
    request = read_put(payload)
    check_cache_id(cache_id)
    if not request.entries:
        raise Refused("bad-request", "a cache has at least one file")
    inline: dict[str, bytes] = {}
    entries: list[CacheEntry] = []
    for entry in request.entries:
        if entry.content is not None or entry.sha256 is None:
            content = entry.content or b""
            ref = ref_of_bytes(content)
            if entry.sha256 is not None and (entry.sha256 != ref.sha256 or entry.size not in {None, ref.size}):
                raise Refused("blob-broken", f"the content of {entry.name!r} is not what its SHA-256 says")
            inline[ref.sha256] = content
            entries.append(CacheEntry(entry.name, sha256=ref.sha256, size=ref.size))
        else:
            entries.append(entry)
    return msgspec.structs.replace(request, entries=[]), refs_of(entries), inline
