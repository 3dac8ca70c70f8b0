"""How does a result's bulk reach the leader? (SPEC C5)

    leader ── Missing: these blobs ──► put each into the leader's place, in a thread ──► the same AckJob again

A result names by their hashes what did not fit its frame; the files lie in the job's directory. Nothing is sent before
the leader asks for it, and what it has already is not sent again. A transfer outlives the connection; one that fails is
tried again while there is a leader, and after a new connection the leader asks anew.
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
from wakugumi.limits.files import LARGE_TRANSFERS_MAX
from wakugumi.limits.runner import LARGE_WORK_BYTES

T = TypeVar("T")

log = logging.getLogger("wakugumi.worker")

AT_ONCE: Final = 4
"""Results on their way: enough to fill a link, few enough that each gets on."""
PAUSE_FIRST_S: Final = 0.5
PAUSE_MAX_S: Final = 30.0
_BROKEN_MAX: Final = 3
"""So often the place may say that what came is not what its hash says; then what lies here is broken."""


class SendingStopped(Exception):
    """Nobody wants it any more."""


class ResultUpload:
    """The bulk of one result, on its way to one place."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stopped = False
        self.next_url: str | None = None
        """The leader asked again meanwhile, and has another place."""

    def on_bytes(self, _count: int) -> None:
        if self.stopped:
            raise SendingStopped


class ResultUploads:
    """All of one worker. Make it inside a running loop; its calls are made there, and so are those it makes."""

    def __init__(
        self,
        load: Callable[[JobId], Whole | None],
        send_again: Callable[[JobId, bytes, bytes], None],
        fail: Callable[[JobId, str, str], None],
    ) -> None:
        """`load` is called in a thread. `send_again` gets a result, and the digest of its request. `fail` gets a code
        and words: what the leader waits for will not come."""
        self._load = load
        self._send_again = send_again
        self._fail = fail
        self._url = ""
        self._under_way: dict[JobId, ResultUpload] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._large = asyncio.Semaphore(LARGE_TRANSFERS_MAX)
        """What is large takes hours: all others pass beside it."""
        self._tasks = Tasks()

    @property
    def has_place(self) -> bool:
        """There is a leader, and it takes what does not fit a frame."""
        return bool(self._url)

    def connected(self, url: str) -> None:
        """A leader greeted us; its place has this URL, or it has none."""
        self._url = url

    def lost(self) -> None:
        self._url = ""

    def missing(self, job: JobId, blobs: Collection[str]) -> None:
        """The leader takes a job's result once it has these."""
        if not self._url:
            return
        known = self._under_way.get(job)
        if known is None:
            delivery = self._under_way[job] = ResultUpload(self._url)
            self._tasks.start(self._deliver(job, blobs, delivery), name=f"delivery of {show_job_id(job)}")
        elif known.stopped or known.url != self._url:
            known.stopped, known.next_url = True, self._url

    def settled(self, jobs: Collection[JobId]) -> None:
        """The leader has these, or does not want them."""
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
            await self._bring(job, blobs, delivery)
        except SendingStopped:
            pass
        except Refused as error:
            if not delivery.stopped:
                log.warning("job=%s its result cannot be delivered: %s", show_job_id(job), error)
                self._fail(job, error.code, error.message)
        except Exception as error:
            log.exception("job=%s its result cannot be delivered", show_job_id(job))
            if not delivery.stopped:
                self._fail(job, "worker-error", f"the worker failed to deliver the result: {type(error).__name__}")
        finally:
            del self._under_way[job]
        if delivery.next_url is not None:
            self.missing(job, blobs)

    async def _bring(self, job: JobId, blobs: Collection[str], delivery: ResultUpload) -> None:
        """Put it all, and say so. Raises Refused if that can never be, and Stopped."""
        await self._start_threads(job, delivery)
        whole = await self._in_thread(lambda: self._load(job))
        parts = [] if whole is None else [part for part in whole.parts if part.ref.sha256 in blobs]
        if whole is None or len(parts) < len(set(blobs)):
            raise Refused("worker-error", "what the job made is no longer on the worker's disk")
        for part in parts:
            if not await self._put(job, part, delivery):
                return
        if self._url == delivery.url and not delivery.stopped:
            self._send_again(job, whole.payload, whole.request)

    async def _put(self, job: JobId, part: LargePart, delivery: ResultUpload) -> bool:
        """False if it was given up, because there is no leader now: the next one will ask for it."""
        pause_s, broken = PAUSE_FIRST_S, 0
        while True:
            try:
                async with self._large if part.ref.size > LARGE_WORK_BYTES else nullcontext():
                    await self._in_thread(lambda: _put(delivery, part))
                return True
            except (Lost, Refused) as error:
                if isinstance(error, Refused):
                    broken += error.code == "blob-broken"
                    if not error.retry or broken >= _BROKEN_MAX:
                        raise
                if not self._url:
                    return False
                level = logging.DEBUG if isinstance(error, Refused) and error.code == "blob-busy" else logging.WARNING
                log.log(level, "job=%s its result waits %.1f s: %s", show_job_id(job), pause_s, error)
            await asyncio.sleep(pause_s)
            if delivery.stopped:
                raise SendingStopped
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _start_threads(self, job: JobId, delivery: ResultUpload) -> None:
        """All of them at once, so that no delivery needs a new one. While there are none left here, it waits."""
        pause_s = PAUSE_FIRST_S
        while self._threads is None:
            try:
                self._threads = started_pool(AT_ONCE, "waku-delivery")
            except RuntimeError as error:
                if not is_no_thread(error):
                    raise
                log.warning("job=%s its result waits %.1f s: no thread can be started", show_job_id(job), pause_s)
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
