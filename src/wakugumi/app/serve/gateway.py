"""`waku gateway`: how does a gateway start, report its address, and end? Asynchronous jobs go on with the next gateway
on its folder."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Final

from msgspec.structs import replace

from wakugumi.adapters.files import sync_folder
from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.machine.open_files import raise_open_files
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.programs.linux import hide_from_programs
from wakugumi.app.flags import server
from wakugumi.app.serve.access import guard_of
from wakugumi.app.serve.binding import binding, names_for
from wakugumi.app.serve.stops import Stops
from wakugumi.app.settings import state_folder
from wakugumi.app.show.output import line_out
from wakugumi.core.gateway.groups import NEAR
from wakugumi.errors import ConfigError
from wakugumi.limits.wire import DRAIN_DEADLINE_S
from wakugumi.roles.gateway.server import GatewayServer
from wakugumi.roles.gateway.settings import GatewaySettings

log = logging.getLogger("wakugumi.app")

PORT: Final = 5000


@server
def gateway(port: int = PORT, /, *, settings: GatewaySettings) -> int:
    """waku gateway [PORT] --group NAME=URL[,zone=Z][,weight=N]… [OPTIONS]

    A job goes to the best group, and to the next one when that is full or gone. Its answer is kept, so that the
    same id has the same answer. Several gateways on one --state folder give the same answers, and finish the jobs
    of a gateway that died. The first SIGTERM or Ctrl-C lets waiting callers have their answers, the second ends the
    gateway at once.

    Examples:
      waku gateway --group a=http://a:5081 --group b=http://b:5081
      waku gateway 5001 --group a=http://a:5081,zone=east --zone east --choice near
      waku gateway 5002 --group a=http://a:5081,weight=2 --state /srv/gateway
    """
    hide_from_programs()
    where = binding(settings.host, port)
    names, zone = names_for(settings.names, settings.host), settings.zone
    if not settings.groups:
        raise ConfigError("a gateway needs a group", "name one: --group one=http://127.0.0.1:5081")
    if settings.choice == NEAR and not any(one.zone == zone for one in settings.groups if zone):
        why = f"no group is in the zone {zone}" if zone else "nobody said where this gateway is"
        raise ConfigError(f"--choice near has nothing to go by: {why}", "say --zone WORD, and ,zone=WORD of groups")
    with _folder(settings.state, port) as folder:
        raise_open_files()
        return run(_serve(where, names, replace(settings, state=folder)))


async def _serve(where: Address, names: frozenset[str], settings: GatewaySettings) -> int:
    stops = Stops()
    tasks = Tasks()
    async with GatewayServer(settings, await guard_of(settings, "gateway", where, settings.state)) as server:
        there = Address(where.host, await server.listen(where.host, where.port, names))
        groups = ", ".join(f"{group.name} at {group.url}" for group in settings.groups)
        log.info("gateway ready at %s, with the groups %s; state in %s", there, groups, settings.state)
        line_out(f"http://{there}", flush=True)
        await stops.wait(1, server.gateway.failed)
        log.info("draining: those who wait may have their answers; ask again to stop at once")
        draining: asyncio.Task[bool] = tasks.start(server.drain(DRAIN_DEADLINE_S), name="drain")
        await stops.wait(2, draining, server.gateway.failed)
        await tasks.close()
    log.info("gateway stopped")
    return 0


@contextmanager
def _folder(said: Path | None, port: int) -> Iterator[Path]:
    """Where it keeps what it knows. A gateway on any port, with no folder, keeps it for as long as it lives."""
    if said is not None:
        yield _usable(said)
    elif port:
        yield _usable(state_folder(port, "gateway"))
    else:
        folder = Path(mkdtemp(prefix="waku-gateway-"))
        try:
            yield folder
        finally:
            rmtree(folder, ignore_errors=True)


def _usable(folder: Path) -> Path:
    """Made, for this user alone, if need be. Raises ConfigError."""
    hint = "name a folder of its own with --state DIR"
    try:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True)
            sync_folder(folder.parent)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used for the gateway's state: {error.strerror}", hint) from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"this user may not read and write {folder}", hint)
    return folder
