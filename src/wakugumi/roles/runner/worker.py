"""The worker as a process: a station with a leader and without other callers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from wakugumi import __version__
from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.adapters.http.page import PageRoute
from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.loop.signals import on_stop_signals
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.machine.open_files import connections_max
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.port.port import listen_http
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.core.runner.metrics import run_families
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.access.renew import renew_often
from wakugumi.roles.http.page_table import WORKER
from wakugumi.roles.http.status_pages import OK, STOPPING, wayside_pages
from wakugumi.roles.runner.files.serve import PARTS_OF_WORKER
from wakugumi.roles.runner.settings import WorkerSettings
from wakugumi.roles.runner.station import Station

log = logging.getLogger("wakugumi.worker")


def main_worker(settings: WorkerSettings) -> int:
    """Run a worker until it stops. Returns its exit code; raises ConfigError."""
    run(_serve(settings))
    return 0


async def _serve(settings: WorkerSettings) -> None:
    worker = Worker(settings)
    on_stop_signals(asyncio.get_running_loop(), worker.request_stop)
    await worker.run()


class Worker:
    """One worker. Create it inside a running loop, then `run` it once."""

    def __init__(self, settings: WorkerSettings, programs: Programs | None = None) -> None:
        """`programs`: by default those in the settings' folder.

        Raises ConfigError for settings that no leader would accept, and for folders that cannot be used.
        """
        self.station = Station(settings, programs)
        assert self.station.link is not None
        self.deliveries = self.station.link.deliveries
        self._supply = self.station.supply
        self.worker_id = self.station.worker_id
        self._name = settings.name
        self._metrics_at = settings.metrics
        self._is_open = settings.allow_open
        self._leader = settings.leader
        self._access = AccessSources(settings.access)
        self.metrics_port: int | None = None
        """Port of the metrics, once it is open."""

    async def run(self) -> None:
        """Run until `request_stop` takes effect. Raises ConfigError; any other exception is a bug."""
        async with AsyncExitStack() as ends:
            if self._metrics_at is not None:
                most = connections_max(PARTS_OF_WORKER)
                pages = [self.pages]
                names = [self._name]
                listener = await listen_http(
                    *self._metrics_at,
                    pages,
                    AccessGuard(is_open=self._is_open),
                    names=names,
                    name_option="",
                    connections_max=most,
                )
                ends.push_async_callback(listener.close)
                self.metrics_port = listener.port
                log.info("metrics at http://%s/metrics", Address(self._metrics_at.host, listener.port))
            if isinstance(self._leader, Address):
                tasks, leaders = Tasks(), [self._leader]
                ends.push_async_callback(tasks.close)
                tasks.start_loop(lambda: renew_often(self._access, leaders), name="certificate")
            await self.station.serve()

    def request_stop(self) -> None:
        """Finish running jobs, deliver their results, and stop; on a second call, stop now."""
        self.station.request_stop()

    def pages(self) -> list[PageRoute]:
        """Read-only pages for monitoring."""
        station = self.station
        return wayside_pages(
            WORKER,
            __version__,
            lambda: STOPPING if station.stopping else OK,
            lambda: {"running": station.running, "limit": station.limit},
            lambda: run_families(station.counts, running=station.running, limit=station.limit, free=station.free),
        )
