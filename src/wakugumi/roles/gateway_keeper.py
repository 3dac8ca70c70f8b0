"""What does a gateway do while nobody asks? It renews its lease, takes over what a dead gateway had, and drops what is
old: rows and their files, the oldest first, and files that no row names.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from msgspec.structs import replace

from wakugumi.adapters.shared import Row, Totals
from wakugumi.adapters.tasks import Tasks
from wakugumi.errors import Refused
from wakugumi.limits import (
    GATEWAY_KEPT_BYTES,
    GATEWAY_KEPT_MAX,
    GATEWAY_KEPT_S,
    GATEWAY_LEASE_S,
    GATEWAY_QUEUE_MAX,
)
from wakugumi.roles.gateway import Gateway

log = logging.getLogger("wakugumi.gateway")

_AT_ONCE: Final = 100
"""Rows that are looked at in one go: others wait meanwhile."""
_SWEEP_S: Final = 30.0
_NAMELESS_S: Final = 3_600.0
"""A file that no row names is given so long: it is named when it is whole."""


class Keeper:
    """Looks after a gateway. Start it, and close it."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        lease_s: float = GATEWAY_LEASE_S,
        kept_s: float = GATEWAY_KEPT_S,
        kept_bytes: int = GATEWAY_KEPT_BYTES,
        kept_max: int = GATEWAY_KEPT_MAX,
    ) -> None:
        self._gateway = gateway
        self._store = gateway.store
        self._lease_s = lease_s
        self._kept_s = kept_s
        self._kept_bytes = kept_bytes
        self._kept_max = kept_max
        self._tasks = Tasks()
        self.totals = Totals()
        """As last counted."""
        self.taken_over = 0

    async def start(self) -> None:
        """From now on the gateway lives. Raises Refused."""
        await self._store.hold(self._gateway.owner, self._lease_s)
        await self._take_over()
        self._tasks.start(self._keep(), name="keep the lease")
        self._tasks.start(self._sweep_often(), name="sweep")

    async def close(self) -> None:
        """What is unfinished may be taken over at once."""
        await self._tasks.close()
        await self._store.release(self._gateway.owner)

    async def sweep(self) -> None:
        """Drop what is old. Raises Refused."""
        while rows := await self._store.oldest(_AT_ONCE, self._kept_s):
            await self._drop(rows)
        while True:
            self.totals = totals = await self._store.totals()
            over = max(totals.ended - self._kept_max, 1 if totals.ended_bytes > self._kept_bytes else 0)
            if over <= 0:
                break
            await self._drop(await self._store.oldest(min(over, _AT_ONCE), 0.0))
        for name, job in self._gateway.spools.names(_NAMELESS_S):
            row = await self._store.get(job)
            if row is None or name not in row.files:
                self._gateway.spools.remove(name)
        await self._store.tidy()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                await self._store.hold(self._gateway.owner, self._lease_s)
                await self._take_over()
                await self._store.tidy()
                self.totals = await self._store.totals()
            except Refused as error:
                log.warning("the gateway's lease is not renewed: %s", error)

    async def _take_over(self) -> None:
        """What belongs to nobody who lives. Of a job that was not accepted for good, its client died or will ask
        again: it is dropped."""
        gateway = self._gateway
        while len(gateway.queue) < GATEWAY_QUEUE_MAX:
            jobs = await self._store.orphans(_AT_ONCE)
            for job in jobs:
                row = await self._store.get(job)
                if row is None or row.is_final:
                    continue
                if not row.is_async:
                    await self._store.remove(row)
                elif await self._store.replace(row, replace(row, owner=gateway.owner)) is not None:
                    log.info("job %s is taken over from %s", row.name, row.owner)
                    self.taken_over += 1
                    gateway.queue.append(job)
            gateway.pump()
            if len(jobs) < _AT_ONCE:
                return
            await asyncio.sleep(0)

    async def _sweep_often(self) -> None:
        while True:
            try:
                await self.sweep()
            except Refused as error:
                log.warning("old jobs are not dropped: %s", error)
            await asyncio.sleep(_SWEEP_S)

    async def _drop(self, rows: list[Row]) -> None:
        for row in rows:
            if await self._store.remove(row):
                for name in row.files:
                    self._gateway.spools.remove(name)
        await asyncio.sleep(0)
