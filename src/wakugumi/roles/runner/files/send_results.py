"""How does a worker send the large parts of its results? As `core/transfers/deliveries.py` decides: threads load
results and put files into the leader's place.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from wakugumi.adapters.blobs.file_put import FilePut
from wakugumi.adapters.jobdir.large_parts import LargePart, Whole
from wakugumi.adapters.loop.acts import ActPerformer
from wakugumi.adapters.loop.drive import Drive
from wakugumi.adapters.loop.threads import is_no_thread, started_pool
from wakugumi.core.flows import Abandon, Act, Perform
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.transfers import deliveries as ev
from wakugumi.core.transfers.transfers import PutBlob, PutEnd
from wakugumi.errors import ConfigError, Lost, Refused

log = logging.getLogger("wakugumi.worker")


class _PartUpload(FilePut):
    """One file on its way to one place."""

    def run(self, part: LargePart) -> None:
        """In a thread. Raises Lost, Refused or PutStopped."""
        try:
            self.send(part.ref, part.path, may_link=True)
        except ConfigError as error:
            raise Refused("worker-error", f"the leader's place for files cannot be used: {error}") from None


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
        self._machine = ev.DeliveriesMachine(asyncio.get_running_loop().time(), random.random)
        self._drive: Drive[ev.DeliveriesEvent, None, ev.DeliveriesDo] = Drive(
            self._machine, self._do, name="deliveries"
        )
        self._acts = ActPerformer(self._perform, self._drive.post)
        self._threads: ThreadPoolExecutor | None = None

    @property
    def under_way(self) -> int:
        """Results whose blobs are being sent."""
        return len(self._machine.under_way)

    @property
    def has_place(self) -> bool:
        """A leader is connected that accepts blobs."""
        return bool(self._machine.url)

    @property
    def failed(self) -> asyncio.Future[None]:
        """Done with the error if the machine failed: then the process should end."""
        return self._drive.failed

    def connected(self, url: str) -> None:
        """A leader is connected; `url` is that of its place, or empty."""
        self._tell(ev.PlaceKnown(url))

    def lost(self) -> None:
        self._tell(ev.PlaceLost())

    def missing(self, job: JobId, blobs: Collection[str]) -> None:
        self._tell(ev.PartsAsked(job, blobs))

    def settled(self, jobs: Collection[JobId]) -> None:
        if self._machine.under_way:
            self._tell(ev.ResultsSettled(jobs))

    async def close(self) -> None:
        self._drive.close()
        self._machine.close()
        await self._acts.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _tell(self, event: ev.DeliveriesEvent) -> None:
        self._drive.post(event)
        self._drive.flush()

    def _do(self, effects: Sequence[ev.DeliveriesDo]) -> None:
        for effect in effects:
            match effect:
                case Perform() | Abandon():
                    self._acts.do(effect)
                case ev.ResendResult(job, payload, request):
                    self._send_again(job, payload, request)
                case ev.DeliveryFailed(job, no, None):
                    log.warning("result not delivered job=%s: %s", show_job_id(job), no)
                    self._fail(job, no.code, no.message)
                case ev.DeliveryFailed(job, no, error):
                    log.error("result not delivered job=%s", show_job_id(job), exc_info=error)
                    self._fail(job, no.code, f"the worker failed to deliver the result: {type(error).__name__}")
                case ev.DeliveryWaits(job, error, pause_s):
                    is_busy = isinstance(error, Refused) and error.code == "blob-busy"
                    level = logging.DEBUG if is_busy else logging.WARNING
                    log.log(level, "result waits job=%s retry_s=%.1f: %s", show_job_id(job), pause_s, error)

    async def _perform(self, act: Act[Any]) -> Any:
        if isinstance(act, PutBlob):
            return await self._put(act)
        assert isinstance(act, ev.LoadParts)
        whole = await self._in_thread(lambda: self._load(act.job))
        if whole is None:
            return None
        return ev.LoadedResult(whole.payload, whole.request, {part.ref.sha256: part for part in whole.parts})

    async def _put(self, act: PutBlob) -> PutEnd:
        part = act.blob
        assert isinstance(part, LargePart)
        put = _PartUpload(act.url)
        return await put.end(self._in_thread(lambda: put.run(part)))

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        """All threads are started at once, so that no upload needs a new one. Raises Lost if none can be started."""
        if self._threads is None:
            try:
                self._threads = started_pool(ev.AT_ONCE, "waku-delivery")
            except RuntimeError as error:
                if not is_no_thread(error):
                    raise
                raise Lost("no thread can be started") from None
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
