"""How do a job's inputs get here? And what is the leader told of what is here? (SPEC C1–C6)

    runner ── bring ──► InputSupply ── need ──► fetching ◄── Want, Source ──► leader
       ◄──── Goods ────┘   └─ lend ──► goods (links, copies)
    leader ── CachePut, CacheDrop ──► cached ── CacheAck, Stock ──► leader

A cache's files that are here count for a job only if this leader has confirmed, on this connection, which life of the
cache they are from: another may have dropped it and filled it anew. Otherwise the leader is asked what is in it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from wakugumi.adapters.blobs.file_leases import Leases
from wakugumi.adapters.blobs.store import is_sha256
from wakugumi.adapters.blobs.worker_cache import CachedBlob, CacheFolder
from wakugumi.core.ids import JobId
from wakugumi.errors import Refused
from wakugumi.roles.runner.files.caches import WorkerCaches
from wakugumi.roles.runner.files.fetch import Fetcher, Need
from wakugumi.roles.runner.files.place_inputs import InputLinker, JobInputs
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.cache import CachePutResult, Stock, Want, read_cache_put, read_source
from wakugumi.wire.messages.job import FAILED, InputFile
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

log = logging.getLogger("wakugumi.supply")

_TOLD_AT_ONCE: Final = 5_000
"""Contents and caches named in one Stock: it must fit a frame, however long the ids of the caches are."""
_SWEEP_S: Final = 60.0
"""How often what nobody needs any more is looked for. What is in somebody's way goes at once."""

Then = Callable[[JobInputs | Refused], None]


class InputOrder:
    """What one job waits for."""

    __slots__ = ("contents", "job", "needs", "program", "then")

    def __init__(self, job: JobId, program: str, then: Then) -> None:
        self.job = job
        self.program = program
        self.then = then
        self.contents: dict[str, tuple[BlobRef, CachedBlob]] = {}
        """What is here, and in use for it."""
        self.needs: dict[str, tuple[Need, Callable[[BlobRef | Refused], None]]] = {}


class InputSupply:
    """The inputs of one worker's jobs. All calls are made in the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        folder: CacheFolder,
        jobs_folder: str,
        send: Callable[[bytes], None],
        on_changed: Callable[[JobId], None],
    ) -> None:
        """`send` gives a frame to the leader, if one listens. `on_changed` ends a job whose input another changed."""
        self.folder = folder
        self.url = ""
        """Where other workers fetch from us, and the key of their tokens."""
        self.key = ""
        self._loop = loop
        self._send = send
        self._has_blobs = False
        """A leader with blobs listens."""
        self._link = 0
        """Counts connections: what came over an earlier one is not answered."""
        self._confirmed: dict[str, str] = {}
        """Caches and their versions that this leader has confirmed on this connection."""
        self._orders: dict[JobId, InputOrder] = {}
        self._news: dict[str, bool] = {}
        self._cache_news: dict[str, None] = {}
        self._is_telling = False
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="waku-cache")
        self._lender = InputLinker(folder, jobs_folder, partial(Leases, loop), on_changed)
        self._fetching = Fetcher(loop, folder, self._want, self._here)
        self._caches = WorkerCaches(folder, self._fetching, self._threads, self._here, self._changed)
        folder.on_gone = self._gone
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep)

    # The connection.

    def welcomed(self, blobs: str | None) -> None:
        """A leader listens, and its blobs are there; None if it has none."""
        self._has_blobs = blobs is not None
        self._news.clear()
        self._cache_news.clear()
        if blobs is None:
            self._fetching.refuse()
        else:
            self._tell_all()
            self._fetching.welcomed(blobs)

    def lost(self) -> None:
        self._link += 1
        self._has_blobs = False
        self._confirmed.clear()
        self._fetching.lost()

    def on_source(self, frame: Frame) -> None:
        self._fetching.on_source(frame.corr_id, read_source(frame.payload))

    def on_cache_put(self, frame: Frame) -> None:
        cache_id = read_cache_put(frame.payload)
        self._confirmed.pop(cache_id, None)
        self._caches.put(cache_id, frame.payload, partial(self._answer, self._link, frame.msg_id))

    def on_cache_drop(self, frame: Frame) -> None:
        cache_id = read_cache_put(frame.payload)
        self._confirmed.pop(cache_id, None)
        self._caches.drop(cache_id)

    async def close(self) -> None:
        self._sweeper.cancel()
        await self._caches.close()
        self._fetching.close()
        await asyncio.to_thread(self._threads.shutdown)
        self._lender.close()
        self.folder.close()

    # Jobs.

    def bring(self, job: JobId, program: str, files: Sequence[InputFile], then: Then) -> JobInputs | None:
        """What a job's files need that is not in its request: now, or later by `then`. Raises Refused."""
        order = InputOrder(job, program, then)
        try:
            for file in files:
                if file.content is None:
                    self._look(order, file)
        except Refused:
            self._let_go(order)
            raise
        if not order.needs:
            return self._lender.lend(job, program, order.contents)
        self._orders[job] = order
        for need, came in order.needs.values():
            self._fetching.need(need, came, soon=True)
        return None

    def cancel(self, job: JobId) -> bool:
        """It waits no longer. False if it did not wait."""
        order = self._orders.pop(job, None)
        if order is not None:
            self._let_go(order)
        return order is not None

    def _look(self, order: InputOrder, file: InputFile) -> None:
        need = self._need(file)
        if need.ref is not None:
            held = self.folder.use(need.ref.sha256)
            if held is not None:
                order.contents[file.name] = (need.ref, held)
                return
        if not self._has_blobs:
            code = "no-cache" if file.cache_id else "no-blob"
            raise Refused(code, f"{file.name!r} is not on this worker, and its leader has no place for contents")
        order.needs[file.name] = (need, partial(self._came, order, file.name))

    def _need(self, file: InputFile) -> Need:
        if file.sha256 is not None:
            if not is_sha256(file.sha256) or file.size is None or file.size < 0:
                raise Refused("bad-request", f"the file {file.name!r} has no SHA-256 and size")
            return Need(BlobRef(file.sha256, file.size))
        if not file.cache_id:
            raise Refused("bad-request", f"the file {file.name!r} has no content")
        cache = self.folder.caches.get(file.cache_id)
        if cache is not None and (not self._has_blobs or self._confirmed.get(file.cache_id) == cache.version):
            ref = cache.files.get(file.name)
            if ref is not None:
                return Need(ref)
        return Need(None, file.cache_id, file.name)

    def _came(self, order: InputOrder, name: str, outcome: BlobRef | Refused) -> None:
        if self._orders.get(order.job) is not order:
            return
        del order.needs[name]
        if isinstance(outcome, BlobRef):
            held = self.folder.use(outcome.sha256)
            if held is None:
                outcome = Refused("input-changed", f"the content of {name!r} came and was changed at once")
            else:
                order.contents[name] = (outcome, held)
        if isinstance(outcome, Refused):
            self.cancel(order.job)
            order.then(outcome)
        elif not order.needs:
            del self._orders[order.job]
            order.then(self._lender.lend(order.job, order.program, order.contents))

    def _let_go(self, order: InputOrder) -> None:
        for need, came in order.needs.values():
            self._fetching.give_up(need, came)
        for ref, held in order.contents.values():
            self.folder.let_go(ref.sha256, held)

    def _sweep(self) -> None:
        try:
            self.folder.sweep(time.time())
            if self.folder.has_trash:
                self._threads.submit(self.folder.empty_trash)
        except Exception:
            log.exception("the cache could not be swept")
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    # What the leader is told.

    def _want(self, want_id: bytes, want: Want) -> None:
        self._send(fr.encode(fr.WANT, want_id, payload=encode(want)))

    def _answer(self, link: int, msg_id: bytes, result: CachePutResult, version: str) -> None:
        if link != self._link:
            return
        if result.status != FAILED:
            self._confirmed[result.cache_id] = version
        log.info("cache=%s %s: %s", result.cache_id, result.status, result.message)
        subject = f"cache.ack.{result.cache_id}"[:255]
        self._send(fr.encode(fr.CACHE_ACK, corr_id=msg_id, subject=subject, payload=encode(result)))

    def _here(self, sha256: str) -> None:
        self._news[sha256] = True
        self._tell_soon()

    def _gone(self, sha256: str) -> None:
        self._news[sha256] = False
        self._lender.forget(sha256)
        self._tell_soon()

    def _changed(self, cache_id: str) -> None:
        self._cache_news[cache_id] = None
        self._tell_soon()

    def _tell_soon(self) -> None:
        if not self._is_telling:
            self._is_telling = True
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        """All that has changed in this turn of the loop."""
        self._is_telling = False
        news, caches = self._news, self._cache_news
        self._news, self._cache_news = {}, {}
        if self._has_blobs and (news or caches):
            here = [sha256 for sha256, is_here in news.items() if is_here]
            gone = [sha256 for sha256, is_here in news.items() if not is_here]
            self._tell_stock(False, here, gone, list(caches))

    def _tell_all(self) -> None:
        self._tell_stock(True, list(self.folder.blobs), [], list(self.folder.caches))

    def _tell_stock(self, whole: bool, here: list[str], gone: list[str], caches: list[str]) -> None:
        for at in range(0, max(len(here), len(gone), len(caches), 1), _TOLD_AT_ONCE):
            end = at + _TOLD_AT_ONCE
            stock = Stock(
                whole and at == 0,
                self.url,
                self.key,
                here[at:end],
                gone[at:end],
                {cache_id: self._version(cache_id) for cache_id in caches[at:end]},
                self.folder.used_bytes,
                self.folder.bytes_max,
            )
            self._send(fr.encode(fr.STOCK, payload=encode(stock)))

    def _version(self, cache_id: str) -> str:
        """Which life of a cache is here, and how many of its names; empty if none is."""
        cache = self.folder.caches.get(cache_id)
        return "" if cache is None else f"{cache.version}/{len(cache.files)}"
