"""How does a worker get a job's inputs, and what does it report to the leader about its content? (SPEC C1–C6)

    runner ── provide ──► InputSupply ── need ──► fetch ◄── Want, Source ──► leader
       ◄── JobInputs ──────┘   └─ lend ──► place_inputs (links, copies)
    leader ── CachePut, CacheDrop ──► caches ── CacheAck, Stock ──► leader

A job may use a cache's files on this disk only if this leader has confirmed their version on this connection: another
leader may have dropped and refilled the cache. Otherwise the worker asks the leader for the file's content.
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
from wakugumi.core.transfers.fetch_events import Need
from wakugumi.errors import Refused
from wakugumi.roles.runner.files.caches import WorkerCaches
from wakugumi.roles.runner.files.fetch import Fetcher, need_of
from wakugumi.roles.runner.files.place_inputs import InputLinker, JobInputs
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.cache import CachePutResult, Stock, Want, read_cache_put, read_source
from wakugumi.wire.messages.job import FAILED, InputFile
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

log = logging.getLogger("wakugumi.supply")

_PER_STOCK: Final = 5_000
"""Most contents and caches in one Stock: it must fit a frame, however long the ids of the caches are."""
SWEEP_S: Final = 60.0
"""Seconds between two sweeps of the cache folder."""

Then = Callable[[JobInputs | Refused], None]


class InputOrder:
    """Inputs that one job waits for."""

    __slots__ = ("contents", "job", "needs", "program", "then")

    def __init__(self, job: JobId, program: str, then: Then) -> None:
        self.job = job
        self.program = program
        self.then = then
        self.contents: dict[str, tuple[BlobRef, CachedBlob]] = {}
        """Inputs that are here, marked as used by the job."""
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
        """`send` sends a frame if a leader is connected. `on_changed` ends a job whose input another job modified."""
        self.folder = folder
        self.url = ""
        """URL at which other workers fetch from this one; `key` makes their tokens."""
        self.key = ""
        self._loop = loop
        self._send = send
        self._has_blobs = False
        """A leader with blobs is connected."""
        self._link = 0
        """Number of lost connections: a frame of an earlier connection is not answered."""
        self._confirmed: dict[str, str] = {}
        """Versions of caches that this leader has confirmed on this connection."""
        self._orders: dict[JobId, InputOrder] = {}
        self._changes: dict[str, bool] = {}
        self._cache_changes: dict[str, None] = {}
        self._is_stock_due = False
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="waku-cache")
        self._lender = InputLinker(folder, jobs_folder, partial(Leases, loop), on_changed)
        self._fetching = Fetcher(folder, self._want, self._here)
        self._caches = WorkerCaches(folder, self._fetching, self._threads, self._here, self._changed)
        folder.on_gone = self._gone
        self._sweeper = loop.call_later(SWEEP_S, self._sweep)

    @property
    def failed(self) -> asyncio.Future[None]:
        """Carries an internal error of the fetching machine."""
        return self._fetching.failed

    # The connection.

    def welcomed(self, blobs: str | None) -> None:
        """A leader is connected; `blobs` is the URL of its blobs, or None if it has none."""
        self._has_blobs = blobs is not None
        self._changes.clear()
        self._cache_changes.clear()
        if blobs is None:
            self._fetching.refuse()
        else:
            self._send_stock(True, list(self.folder.blobs), [], list(self.folder.caches))
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
        await self._fetching.close()
        await asyncio.to_thread(self._threads.shutdown)
        self._lender.close()
        self.folder.close()

    # Jobs.

    def provide(self, job: JobId, program: str, files: Sequence[InputFile], then: Then) -> JobInputs | None:
        """Inputs of a job that are not in its request: now, or later by `then`. Raises Refused."""
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
        for need, arrived in order.needs.values():
            self._fetching.need(need, arrived, soon=True)
        return None

    def cancel(self, job: JobId) -> bool:
        """End the wait of a job. False if it does not wait."""
        order = self._orders.pop(job, None)
        if order is not None:
            self._let_go(order)
        return order is not None

    def _look(self, order: InputOrder, file: InputFile) -> None:
        need = self._need(file)
        if need.sha256 and (held := self.folder.use(need.sha256)) is not None:
            order.contents[file.name] = (BlobRef(need.sha256, need.size), held)
            return
        if not self._has_blobs:
            code = "no-cache" if file.cache_id else "no-blob"
            raise Refused(code, f"{file.name!r} is not on this worker, and its leader has no blobs")
        order.needs[file.name] = (need, partial(self._arrived, order, file.name))

    def _need(self, file: InputFile) -> Need:
        if file.sha256 is not None:
            if not is_sha256(file.sha256) or file.size is None or file.size < 0:
                raise Refused("bad-request", f"the file {file.name!r} has no SHA-256 and size")
            return Need(file.sha256, file.size)
        if not file.cache_id:
            raise Refused("bad-request", f"the file {file.name!r} has no content")
        cache = self.folder.caches.get(file.cache_id)
        if cache is not None and (not self._has_blobs or self._confirmed.get(file.cache_id) == cache.version):
            ref = cache.files.get(file.name)
            if ref is not None:
                return need_of(ref)
        return Need(cache_id=file.cache_id, name=file.name)

    def _arrived(self, order: InputOrder, name: str, outcome: BlobRef | Refused) -> None:
        if self._orders.get(order.job) is not order:
            return
        del order.needs[name]
        if isinstance(outcome, BlobRef):
            held = self.folder.use(outcome.sha256)
            if held is None:
                outcome = Refused("input-changed", f"the input {name!r} was modified right after it was fetched")
            else:
                order.contents[name] = (outcome, held)
        if isinstance(outcome, Refused):
            self.cancel(order.job)
            order.then(outcome)
        elif not order.needs:
            del self._orders[order.job]
            order.then(self._lender.lend(order.job, order.program, order.contents))

    def _let_go(self, order: InputOrder) -> None:
        for need, arrived in order.needs.values():
            self._fetching.give_up(need, arrived)
        for ref, held in order.contents.values():
            self.folder.let_go(ref.sha256, held)

    def _sweep(self) -> None:
        try:
            self.folder.sweep(time.time())
            if self.folder.has_trash:
                self._threads.submit(self.folder.empty_trash)
        except Exception:
            log.exception("sweep of the cache failed")
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    # Frames to the leader.

    def _want(self, want_id: bytes, want: Want) -> None:
        self._send(fr.encode(fr.WANT, want_id, payload=encode(want)))

    def _answer(self, link: int, msg_id: bytes, result: CachePutResult, version: str) -> None:
        if link != self._link:
            return
        if result.status != FAILED:
            self._confirmed[result.cache_id] = version
        log.info("cache put ended cache=%s status=%s: %s", result.cache_id, result.status, result.message)
        subject = f"cache.ack.{result.cache_id}"[:255]
        self._send(fr.encode(fr.CACHE_ACK, corr_id=msg_id, subject=subject, payload=encode(result)))

    def _here(self, sha256: str) -> None:
        self._changes[sha256] = True
        self._send_changes_soon()

    def _gone(self, sha256: str) -> None:
        self._changes[sha256] = False
        self._lender.forget(sha256)
        self._send_changes_soon()

    def _changed(self, cache_id: str) -> None:
        self._cache_changes[cache_id] = None
        self._send_changes_soon()

    def _send_changes_soon(self) -> None:
        if not self._is_stock_due:
            self._is_stock_due = True
            self._loop.call_soon(self._send_changes)

    def _send_changes(self) -> None:
        """Report all changes of this turn of the loop."""
        self._is_stock_due = False
        changes, caches = self._changes, self._cache_changes
        self._changes, self._cache_changes = {}, {}
        if self._has_blobs and (changes or caches):
            here = [sha256 for sha256, is_here in changes.items() if is_here]
            gone = [sha256 for sha256, is_here in changes.items() if not is_here]
            self._send_stock(False, here, gone, list(caches))

    def _send_stock(self, whole: bool, here: list[str], gone: list[str], caches: list[str]) -> None:
        for at in range(0, max(len(here), len(gone), len(caches), 1), _PER_STOCK):
            end = at + _PER_STOCK
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
        """Version and number of files of a cache on this disk; empty if it is not here."""
        cache = self.folder.caches.get(cache_id)
        return "" if cache is None else f"{cache.version}/{len(cache.files)}"
