"""How do the large parts of a result reach the leader? (SPEC C5)

    leader ── Missing: these blobs ──► put each into the leader's place, in a thread ──► the same AckJob again

A result names its large parts by hash; the files are in the job's directory. A part is sent only when the leader asks
for it, and not if the place has it already. A transfer outlives the connection. A failed one is repeated while there is
a leader; after a reconnect the leader asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Final, TypeVar

from wakugumi.adapters.blobs.open_place import open_place
from wakugumi.adapters.jobdir.large_parts import LargePart, Whole
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.loop.threads import is_no_thread, started_pool
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.limits.files import LARGE_TRANSFERS_MAX, UPLOAD_BROKEN_MAX
from wakugumi.limits.runner import LARGE_WORK_BYTES

T = TypeVar("T")

log = logging.getLogger("wakugumi.worker")

AT_ONCE: Final = 4
"""Results uploaded at once: enough to fill a connection, few enough that each makes progress."""
PAUSE_FIRST_S: Final = 0.5
PAUSE_MAX_S: Final = 30.0


class SendingStopped(Exception):
    """The upload is not wanted any more."""


class ResultUpload:
    """Upload of one result to one place."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stopped = False
        self.next_url: str | None = None
        """Place for a new upload: the leader has asked again and has another place."""

    def on_bytes(self, _count: int) -> None:
        if self.stopped:
            raise SendingStopped


class ResultUploads:
    """All uploads of one worker. Create it inside a running loop; calls and callbacks are made there."""

    def __init__(
        self,
        load: Callable[[JobId], Whole | None],
        send_again: Callable[[JobId, bytes, bytes], None],
        fail: Callable[[JobId, str, str], None],
    ) -> None:
        """`load` is called in a thread. `send_again` gets a job, its result and the digest of its request. `fail` gets
        a job that cannot be delivered, with a code and a text."""
        self._load = load
        self._send_again = send_again
        self._fail = fail
        self._url = ""
        self._under_way: dict[JobId, ResultUpload] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._large = asyncio.Semaphore(LARGE_TRANSFERS_MAX)
        """Limits large transfers, which take hours: smaller ones overtake them."""
        self._tasks = Tasks()

    @property
    def under_way(self) -> int:
        """Results whose blobs are being sent."""
        return len(self._under_way)

    @property
    def has_place(self) -> bool:
        """A leader is connected that accepts blobs."""
        return bool(self._url)

    def connected(self, url: str) -> None:
        """A leader is connected; `url` is that of its place, or empty."""
        self._url = url

    def lost(self) -> None:
        self._url = ""

    def missing(self, job: JobId, blobs: Collection[str]) -> None:
        """The leader accepts a job's result once it has these blobs."""
        if not self._url:
            return
        known = self._under_way.get(job)
        if known is None:
            delivery = self._under_way[job] = ResultUpload(self._url)
            self._tasks.start(self._deliver(job, blobs, delivery), name=f"delivery of {show_job_id(job)}")
        elif known.stopped or known.url != self._url:
            known.stopped, known.next_url = True, self._url

    def settled(self, jobs: Collection[JobId]) -> None:
        """The leader has these results, or does not want them."""
        if self._under_way:
            for job in jobs:
                if (delivery := self._under_way.get(job)) is not None:
                    delivery.stopped, delivery.next_url = True, None

    async def close(self) -> None:
        for delivery in self._under_way.values():
            delivery.stopped = True
        await self._tasks.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _deliver(self, job: JobId, blobs: Collection[str], delivery: ResultUpload) -> None:
        try:
            await self._upload(job, blobs, delivery)
        except SendingStopped:
            pass
        except Refused as error:
            if not delivery.stopped:
                log.warning("result not delivered job=%s: %s", show_job_id(job), error)
                self._fail(job, error.code, error.message)
        except Exception as error:
            log.exception("result not delivered job=%s", show_job_id(job))
            if not delivery.stopped:
                self._fail(job, "worker-error", f"the worker failed to deliver the result: {type(error).__name__}")
        finally:
            del self._under_way[job]
        if delivery.next_url is not None:
            self.missing(job, blobs)

    async def _upload(self, job: JobId, blobs: Collection[str], delivery: ResultUpload) -> None:
        """Put all parts, then send the result again. Raises SendingStopped, and Refused if it can never succeed."""
        await self._start_threads(job, delivery)
        whole = await self._in_thread(lambda: self._load(job))
        parts = [] if whole is None else [part for part in whole.parts if part.ref.sha256 in blobs]
        if whole is None or len(parts) < len(set(blobs)):
            raise Refused("worker-error", "the files of the job's result are no longer on the worker's disk")
        for part in parts:
            if not await self._put(job, part, delivery):
                return
        if self._url == delivery.url and not delivery.stopped:
            self._send_again(job, whole.payload, whole.request)

    async def _put(self, job: JobId, part: LargePart, delivery: ResultUpload) -> bool:
        """False if there is no leader now: the next one will ask for the part."""
        pause_s, broken = PAUSE_FIRST_S, 0
        while True:
            try:
                async with self._large if part.ref.size > LARGE_WORK_BYTES else nullcontext():
                    await self._in_thread(lambda: _put(delivery, part))
                return True
            except (Lost, Refused) as error:
                if isinstance(error, Refused):
                    broken += error.code == "blob-broken"
                    if not error.retry or broken >= UPLOAD_BROKEN_MAX:
                        raise
                if not self._url:
                    return False
                level = logging.DEBUG if isinstance(error, Refused) and error.code == "blob-busy" else logging.WARNING
                log.log(level, "result waits job=%s retry_s=%.1f: %s", show_job_id(job), pause_s, error)
            await asyncio.sleep(pause_s)
            if delivery.stopped:
                raise SendingStopped
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _start_threads(self, job: JobId, delivery: ResultUpload) -> None:
        """Start all threads at once, so that no upload needs a new one. Waits until threads can be started."""
        pause_s = PAUSE_FIRST_S
        while self._threads is None:
            try:
                self._threads = started_pool(AT_ONCE, "waku-delivery")
            except RuntimeError as error:
                if not is_no_thread(error):
                    raise
                log.warning("result waits job=%s retry_s=%.1f: no thread can be started", show_job_id(job), pause_s)
                await asyncio.sleep(pause_s)
                if delivery.stopped or not self._url:
                    raise SendingStopped from None
                pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        assert self._threads is not None
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _put(delivery: ResultUpload, part: LargePart) -> None:
    delivery.on_bytes(0)
    try:
        place = open_place(delivery.url)
    except ConfigError as error:
        raise Refused("worker-error", f"the leader's place for files cannot be used: {error}") from None
    place.put(part.ref, part.path, delivery.on_bytes)
