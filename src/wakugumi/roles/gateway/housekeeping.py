"""What does a gateway do without a request? It renews its lease, takes over jobs of dead gateways, finds jobs of its
own that no task handles, and removes old data: rows and their files, the oldest first, and files without a row."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from wakugumi.adapters.gateway_store.interface import GatewayJob, OpenJob, Totals
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.ids import JobId
from wakugumi.errors import Refused
from wakugumi.limits.gateway import (
    GATEWAY_KEPT_BYTES,
    GATEWAY_KEPT_MAX,
    GATEWAY_KEPT_S,
    GATEWAY_LEASE_S,
    GATEWAY_QUEUE_MAX,
    GATEWAY_STRANDED_S,
)
from wakugumi.roles.gateway.gateway import Gateway

log = logging.getLogger("wakugumi.gateway")

_WATCHED_SHARE: Final = 0.02
"""Share of the loop's time for looking at all open jobs."""
_AT_ONCE: Final = 50
"""Rows per batch: other tasks wait meanwhile."""
SWEEP_S: Final = 30.0
TIDY_S: Final = 3.0
_AGAIN_S: Final = 1.0
"""Pause before a retry after the store refused, unless the task runs more often anyway."""
_NAMELESS_S: Final = 3_600.0
"""Age at which a file without a row is removed: a row names its file only when the file is whole."""


class Housekeeper:
    """Maintains a gateway. Start it, and close it."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        lease_s: float = GATEWAY_LEASE_S,
        kept_s: float = GATEWAY_KEPT_S,
        kept_bytes: int = GATEWAY_KEPT_BYTES,
        kept_max: int = GATEWAY_KEPT_MAX,
        stranded_s: float = GATEWAY_STRANDED_S,
    ) -> None:
        self._gateway = gateway
        self._store = gateway.store
        self._lease_s = lease_s
        self._kept_s = kept_s
        self._kept_bytes = kept_bytes
        self._kept_max = kept_max
        self._stranded_s = stranded_s
        self._tasks = Tasks()
        self.totals = Totals()
        """Totals of the last count."""
        self.taken_over = 0
        self.stranded = 0
        """Jobs of this gateway that no task handled, and that were queued again."""
        self._unseen: dict[JobId, float] = {}
        """Open jobs of this gateway that no task handles, and since when."""

    async def start(self) -> None:
        """Takes the lease and starts all tasks. Jobs of dead gateways are taken over while the gateway serves. Raises
        Refused."""
        await self._hold()
        often_s = self._lease_s / 3
        for work, every_s, failed in (
            # Each in a task of its own: the lease must not wait for the others.
            (self._hold, often_s, "lease not renewed"),
            (self._take_over, often_s, "jobs of dead gateways not taken over"),
            (self._tidy, min(often_s, TIDY_S), "state not tidied"),
            (self.sweep, SWEEP_S, "old jobs not removed"),
        ):
            self._tasks.start_loop(partial(_often, work, every_s, failed), name=work.__name__.strip("_"))
        self._tasks.start_loop(self._watch, name="watch open jobs")

    async def close(self) -> None:
        """Ends all tasks. Unfinished jobs may be taken over at once."""
        await self._tasks.close()
        await self._store.release(self._gateway.owner)

    async def sweep(self) -> None:
        """Removes old data. Raises Refused."""
        while rows := await self._store.oldest(_AT_ONCE, self._kept_s):
            if not await self._drop(rows):
                break
        await self._make_room()
        await self._drop_nameless()
        await self._tidy()

    async def _hold(self) -> None:
        await self._store.hold(self._gateway.owner, self._lease_s)

    async def _take_over(self) -> None:
        """Takes over jobs without a living owner, in batches, to leave time for other tasks."""
        before = self.taken_over
        try:
            while len(self._gateway.queue) < GATEWAY_QUEUE_MAX and not self._gateway.is_stopping:
                jobs = await self._store.orphans(_AT_ONCE, but=self._gateway.owner)
                for job in jobs:
                    await self._take(job)
                self._gateway.pump()
                if len(jobs) < _AT_ONCE:
                    break
                await asyncio.sleep(0)
        finally:
            if self.taken_over > before:
                self._gateway.pump()  # For the part of a batch that the store cut short.
                log.info("jobs taken over from dead gateways count=%d", self.taken_over - before)

    async def _take(self, job: JobId) -> None:
        """A synchronous job is dropped: its client is gone or will send it again."""
        row = await self._store.get(job, contents=False)
        if row is None or row.is_final:
            return
        if not row.is_async:
            await self._store.remove(row)
        elif await self._store.replace(row, replace(row, owner=self._gateway.owner)) is not None:
            self.taken_over += 1
            self._gateway.queue.append(job)

    async def _watch(self) -> None:
        """Checks that a task handles every open job of this gateway. With very many jobs a check takes longer, and
        pauses are longer."""
        clock = asyncio.get_running_loop().time
        while True:
            took_s = 0.0
            try:
                took_s = await self.find_stranded(clock())
            except Refused as error:
                log.warning("check for stranded jobs failed: %s", error)
            await asyncio.sleep(max(self._stranded_s / 2, took_s / _WATCHED_SHARE))

    async def find_stranded(self, now: float) -> float:
        """Queues jobs again that no task has handled for long. Returns the time taken, without that of other tasks.
        Raises Refused."""
        gateway, clock = self._gateway, asyncio.get_running_loop().time
        unseen: dict[JobId, float] = {}
        after: OpenJob | None = None
        took_s = 0.0
        while True:
            began_at = clock()
            found = await self._store.open_jobs(gateway.owner, _AT_ONCE, after)
            for one in found:
                if gateway.sees_to(one.job):
                    continue
                unseen[one.job] = since = self._unseen.get(one.job, now)
                if now - since >= self._stranded_s:
                    del unseen[one.job]
                    await self._see_to(one.job)
            took_s += clock() - began_at
            if len(found) < _AT_ONCE:
                break
            after = found[-1]
            await asyncio.sleep(0)
        self._unseen = unseen
        gateway.pump()
        return took_s

    async def _see_to(self, job: JobId) -> None:
        row = await self._store.get(job, contents=False)
        if row is None or row.is_final or row.owner != self._gateway.owner or self._gateway.sees_to(job):
            return
        if not row.is_async:  # Its client has left, or asks anew.
            await self._store.remove(row)
            return
        log.error("stranded job queued again job=%s after_s=%g", row.name, self._stranded_s)
        self.stranded += 1
        self._gateway.queue.append(job)

    async def _tidy(self) -> None:
        await self._store.tidy()
        quota = self._gateway.quota
        begun = quota.count_begins()
        self.totals = await self._store.totals()
        quota.counted(self.totals.open_bytes, begun)

    async def _make_room(self) -> None:
        """Removes the oldest rows beyond the bounds, whatever their age. If other gateways remove rows meanwhile, the
        next sweep counts anew."""
        totals = await self._store.totals()
        rows_over = totals.ended - self._kept_max
        bytes_over = totals.ended_bytes - self._kept_bytes
        while rows_over > 0 or bytes_over > 0:
            going = []
            for row in await self._store.oldest(_AT_ONCE):
                if rows_over <= 0 and bytes_over <= 0:
                    break
                going.append(row)
                rows_over -= 1
                bytes_over -= 0 if row.answer is None else row.answer.size
            if not await self._drop(going):
                break

    async def _drop_nameless(self) -> None:
        """Removes files without a row. The folder may be very large: it is read in a thread."""
        spools = self._gateway.spools
        found = await spools.beside(lambda: list(spools.names(_NAMELESS_S)))
        for start in range(0, len(found), _AT_ONCE):
            nameless = []
            for name, job in found[start : start + _AT_ONCE]:
                row = await self._store.get(job, contents=False)
                if row is None or name not in row.files:
                    nameless.append(name)
            await self._remove(nameless)

    async def _drop(self, rows: list[GatewayJob]) -> int:
        """Returns how many of the rows were there."""
        gone = [row for row in rows if await self._store.remove(row)]
        await self._remove([name for row in gone for name in row.files])
        return len(gone)

    async def _remove(self, names: list[str]) -> None:
        """Removes files in a thread, for a large file takes long; the loop gets a turn at least."""

        def remove() -> None:
            for name in names:
                self._gateway.spools.remove(name)

        if names:
            await self._gateway.spools.beside(remove)
        else:
            await asyncio.sleep(0)


async def _often(work: Callable[[], Awaitable[None]], every_s: float, failed: str) -> None:
    while True:
        pause_s = every_s
        try:
            await work()
        except Refused as error:
            log.warning("%s: %s", failed, error)
            pause_s = min(every_s, _AGAIN_S)
        await asyncio.sleep(pause_s)
