"""How do a gateway's parts become a port that serves? Store, spools, calls, housekeeper and pages, started and ended in
order.

    async with GatewayServer(settings) as server:
        await server.listen("127.0.0.1", 5000)

For an orderly end, `drain` first: synchronous jobs may finish, and asynchronous ones are left to the next gateway.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from urllib.parse import urlsplit

from wakugumi import __version__
from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.adapters.gateway_store.sqlite import SqliteGatewayStore, disk_refused
from wakugumi.adapters.http.page import PageRoute
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.port.port import HttpListener, listen_http
from wakugumi.adapters.spool import Spools
from wakugumi.core import metric_table as table
from wakugumi.core.gateway.groups import Groups
from wakugumi.core.gateway.state import GatewayBounds
from wakugumi.core.metrics import Family
from wakugumi.limits.gateway import SPOOL_MEMORY_BYTES
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.access.renew import renew_often
from wakugumi.roles.gateway.gateway import Gateway
from wakugumi.roles.gateway.pages import GatewayPages
from wakugumi.roles.gateway.settings import GatewaySettings
from wakugumi.roles.http.access_pages import access_pages
from wakugumi.roles.http.page_table import GATEWAY
from wakugumi.roles.http.status_pages import OK, STOPPING, wayside_pages

log = logging.getLogger("wakugumi.gateway")


class GatewayServer:
    """One gateway, while it is entered."""

    gateway: Gateway
    pages: GatewayPages

    def __init__(self, settings: GatewaySettings, guard: AccessGuard | None = None) -> None:
        """`guard`: by default of this user alone."""
        self._settings = settings
        self._guard = guard or AccessGuard()
        self._parts = AsyncExitStack()
        self._listener: HttpListener | None = None
        self._groups = Groups(settings.groups, settings.choice, settings.zone)

    async def __aenter__(self) -> GatewayServer:
        """Raises ConfigError if the folder cannot be used."""
        settings = self._settings
        assert settings.state is not None
        async with self._parts as parts:
            store = SqliteGatewayStore(settings.state)
            parts.push_async_callback(store.close)
            spools = Spools(settings.state / "contents", memory_max=SPOOL_MEMORY_BYTES, refuse=disk_refused)
            parts.callback(spools.close)
            bounds = GatewayBounds(
                poll_s=settings.poll_s,
                answer_s=settings.answer_s,
                try_s=settings.try_s,
                silence_s=settings.silence_s,
                look_s=settings.look_s,
                lease_s=settings.lease_s,
                kept_s=settings.kept_s,
                kept_bytes=settings.kept_bytes,
                heartbeat_s=settings.heartbeat_s,
            )
            sources = AccessSources(settings.access)
            self.gateway = Gateway(
                f"{os.getpid()}-{secrets.token_hex(8)}",
                store,
                spools,
                self._groups,
                bounds,
                queue_bytes=settings.queue_bytes,
                body_bytes_max=settings.body_bytes_max,
                access=sources,
            )
            parts.push_async_callback(self.gateway.calls.close)
            await self.gateway.start()
            parts.push_async_callback(self.gateway.leave)
            self.pages = GatewayPages(self.gateway, body_bytes_max=settings.body_bytes_max)
            tasks, urls = Tasks(), [urlsplit(group.url) for group in settings.groups]
            parts.push_async_callback(tasks.close)
            leaders = [Address(url.hostname or "", url.port or 0) for url in urls]
            tasks.start_loop(lambda: renew_often(sources, leaders), name="certificate")
            self._parts = parts.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.gateway.stop(leaves=True)  # Requests that still wait are answered before their connections end.
        if self._listener is not None:
            await self._listener.close()
        await self._parts.aclose()

    async def listen(self, host: str, port: int, names: Iterable[str] = ()) -> int:
        """Serves at this address, and returns the port. Raises ConfigError."""
        self._listener = await listen_http(host, port, [self.routes], self._guard, names=names, tls=self._guard.tls)
        return self._listener.port

    async def drain(self, deadline_s: float) -> bool:
        """Takes no new jobs, and waits for the answers of waiting requests. False if some are not answered by then."""
        self.gateway.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self.gateway.idle.wait()
        return self.pages.submits == 0

    def metrics(self) -> Iterable[Family]:
        keeper, flights, requests = self.gateway.keeper, self.gateway.machine.flights, self.gateway.machine.requests
        totals = keeper.totals
        now = asyncio.get_running_loop().time()
        states = list(self._groups.states(now))
        yield table.GATEWAY_JOBS_QUEUED.with_value(totals.queued)
        yield table.GATEWAY_JOBS_RUNNING.with_value(totals.running)
        yield table.GATEWAY_QUEUE_BYTES.with_value(self.gateway.quota.used)
        yield table.GATEWAY_JOBS_KEPT.with_value(totals.ended)
        yield table.GATEWAY_KEPT_BYTES.with_value(totals.ended_bytes)
        yield table.GATEWAY_FLIGHTS.with_value(len(flights.by_job))
        yield table.GATEWAY_SUBMITS.with_value(requests.submits)
        yield table.GATEWAY_WATCHERS.with_value(requests.watchers)
        yield table.GATEWAY_TAKEN_OVER.with_value(keeper.taken_over)
        yield table.GATEWAY_STRANDED.with_value(keeper.stranded)
        yield flights.outcomes.family()
        yield flights.took.family()
        yield flights.forwarder.failovers.family()
        yield requests.busy.family()
        yield table.GATEWAY_GROUP_FREE_SLOTS.with_samples(((group.name,), said.free) for group, _, said in states)
        yield table.GATEWAY_GROUP_UP.with_samples(
            ((group.name,), word not in {"gone", "resting"}) for group, word, _ in states
        )

    def routes(self) -> list[PageRoute]:
        return [
            *self.pages.routes(),
            *access_pages(GATEWAY, self._guard),
            *wayside_pages(
                GATEWAY, __version__, self._health, self._capacity, self.metrics, degree=lambda: self._guard.degree
            ),
        ]

    def _health(self) -> str:
        return STOPPING if self.gateway.is_stopping else OK

    def _capacity(self) -> dict[str, int]:
        running, limit, queued, free, _ = self._groups.capacity()
        return {"running": running, "limit": limit, "queued": queued, "free": free}
