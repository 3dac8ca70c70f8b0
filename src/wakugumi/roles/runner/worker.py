"""The worker as a process: a station that has a leader, and that nobody else calls."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from wakugumi import __version__
from wakugumi.adapters.http.page import PageRoute
from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.loop.signals import on_stop_signals
from wakugumi.adapters.net.link import Address
from wakugumi.adapters.port.port import listen_http, page_routes
from wakugumi.adapters.programs.linux import connections_max
from wakugumi.adapters.programs.processes import RULES, ProgramRules, Programs
from wakugumi.core.runner.metrics import run_families
from wakugumi.limits.runner import CPU_CAP
from wakugumi.roles.http.openapi import WORKER, document
from wakugumi.roles.http.status_pages import OK, STOPPING, wayside_pages
from wakugumi.roles.runner.files.serve import PARTS_OF_WORKER
from wakugumi.roles.runner.leader_link import Dial
from wakugumi.roles.runner.station import Station

log = logging.getLogger("wakugumi.worker")


class WorkerSettings(msgspec.Struct, frozen=True):
    """What the command line and the environment say."""

    leader: Address
    programs: Path | None
    jobs_folder: Path
    slots: int
    named_programs: dict[str, Path] = {}
    patterns: str = ""
    name: str = ""
    cpu_cap: float | None = CPU_CAP
    copy_in: bool = False
    """Programs are copied into each job's directory, for those that look beside themselves (SPEC W1)."""
    cache_folder: Path | None = None
    cache_bytes: int = 0
    serve: Address | None = None
    """Where other workers may fetch from it, and where they find that."""
    advertise: Address | None = None
    metrics: Address | None = None
    """Where it tells those who watch."""
    rules: ProgramRules = RULES
    """What programs get of the worker."""
    old_leader: bool = False
    """A leader that says nothing is one of the first version, and gets results."""


def main_worker(settings: WorkerSettings) -> int:
    """A worker's process, until it is told to stop. Returns its exit code; raises ConfigError."""
    run(_serve(settings))
    return 0


async def _serve(settings: WorkerSettings) -> None:
    worker = Worker(
        settings.leader,
        Programs(settings.programs, settings.named_programs),
        settings.jobs_folder,
        patterns=settings.patterns,
        name=settings.name,
        slots=settings.slots,
        cpu_cap=settings.cpu_cap,
        copy_in=settings.copy_in,
        cache_folder=settings.cache_folder,
        cache_bytes=settings.cache_bytes,
        serve=settings.serve,
        advertise=settings.advertise,
        metrics=settings.metrics,
        rules=settings.rules,
        old_leader=settings.old_leader,
    )
    on_stop_signals(asyncio.get_running_loop(), worker.request_stop)
    await worker.run()


class Worker:
    """One worker. Make it inside a running loop, then `run` it once."""

    def __init__(
        self,
        leader: Address | Dial,
        programs: Programs,
        jobs_folder: Path,
        *,
        patterns: str = "",
        name: str = "",
        slots: int | None = None,
        cpu_cap: float | None = CPU_CAP,
        copy_in: bool = False,
        cache_folder: Path | None = None,
        cache_bytes: int = 0,
        serve: Address | None = None,
        advertise: Address | None = None,
        metrics: Address | None = None,
        rests: bool = True,
        rules: ProgramRules = RULES,
        old_leader: bool = False,
    ) -> None:
        """Without `slots` there is one for each CPU that this process may use. Without a `cpu_cap` credit is never held
        back. What is kept of inputs goes into the `cache_folder`, or one
        below that of the jobs; `cache_bytes` of 0 is a share of the disk. Others fetch from it at `serve`, and read its
        metrics at `metrics`. `rules` say what programs get of this process, and as
        whom they run.

        Raises ConfigError for what no leader would accept, and for folders that cannot be used.
        """
        self.station = Station(
            leader,
            programs,
            jobs_folder,
            patterns=patterns,
            name=name,
            slots=slots,
            cpu_cap=cpu_cap,
            copy_in=copy_in,
            cache_folder=cache_folder,
            cache_bytes=cache_bytes,
            serve=serve,
            advertise=advertise,
            rests=rests,
            rules=rules,
            old_leader=old_leader,
        )
        assert self.station.link is not None
        self._deliveries = self.station.link.deliveries
        self._supply = self.station.supply
        self.worker_id = self.station.worker_id
        self._name = name
        self._metrics_at = metrics
        self.metrics_port: int | None = None
        """Where they are, once they are: it matters if port 0 was asked for."""

    async def run(self) -> None:
        """Serve until `request_stop` has had its effect. Raises ConfigError, else only for our own bugs."""
        async with AsyncExitStack() as ends:
            if self._metrics_at is not None:
                most = connections_max(PARTS_OF_WORKER)
                pages = [page_routes(self.pages)]
                names = [self._name]
                listener = await listen_http(
                    *self._metrics_at, pages, names=names, name_option="", connections_max=most
                )
                ends.push_async_callback(listener.close)
                self.metrics_port = listener.port
                log.info("metrics at http://%s/metrics", Address(self._metrics_at.host, listener.port))
            await self.station.serve()

    def request_stop(self) -> None:
        """Finish what runs, deliver, and stop; asked again, stop now."""
        self.station.request_stop()

    def pages(self) -> list[PageRoute]:
        """For those who watch; nothing can be run or changed there."""
        station = self.station
        return wayside_pages(
            WORKER,
            __version__,
            lambda: STOPPING if station.stopping else OK,
            lambda: {"running": station.running, "limit": station.limit},
            lambda: run_families(station.counts, running=station.running, limit=station.limit, free=station.free),
            lambda: document(WORKER),
        )
