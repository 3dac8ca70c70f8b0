"""`waku node`: how does a node start for HTTP, lines and a leader, and end without leaving programs behind?"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.loop.signals import on_stop_signals
from wakugumi.adapters.net.address import Address, is_loopback, parse_address
from wakugumi.adapters.programs.default_command import DefaultCommand, parse_command
from wakugumi.adapters.programs.linux import hide_from_programs
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.app.flags import server
from wakugumi.app.program_settings import ProgramSettings
from wakugumi.app.serve.access import expected_degree, guard_of, keys_have_rules
from wakugumi.app.serve.binding import names_for
from wakugumi.app.serve.guarded import guarded
from wakugumi.app.serve.worker import ready
from wakugumi.app.settings import state_folder
from wakugumi.app.show.output import line_out
from wakugumi.core.setting import OFF
from wakugumi.errors import ConfigError
from wakugumi.roles.node.node import Node
from wakugumi.roles.node.ports import NodePorts, listen
from wakugumi.roles.node.settings import NodeSettings
from wakugumi.roles.runner.station import Station

if TYPE_CHECKING:
    pass

log = logging.getLogger("wakugumi.app")

SAME: Final = "same"


@server
def node(*, settings: NodeSettings, programs: ProgramSettings) -> int:
    """waku node [--program NAME | --command 'NAME {input}'] [--programs DIR] [--http PORT] [--lines PORT] [OPTIONS]

    A job is an id and one file. POST /run/{id} with the file as a form is answered with a ZIP of the program's
    files; so is `JOB <id> <file name> <size>` with the bytes over plain TCP (docs/use/http.md). HTTP is on port
    5080 and lines on 9099, or both on one port. --program names the program, which gets the input's path. A
    repeated job does not run again while its result is kept, even after a restart.

    With --leader the node is a worker too, over the same slots. With --tls-cert and --tls-key both ports speak TLS,
    and --client-ca admits only callers with a certificate. The node prints its addresses. The first SIGTERM or
    Ctrl-C lets running jobs finish, the second ends the node at once.

    Examples:
      waku node --program pricer --programs ./bin
      waku node --command 'pricer --fast {input}' --programs ./bin --slots 8
      waku node --program pricer --http 8080 --lines 8080
      waku node --program pricer --leader grid:5000 --pattern calcA
    """
    hide_from_programs()
    names_for(settings.names, settings.host)
    http, lines, command = *_ports(settings), _command(settings)
    if "names" in settings.by_flag:
        settings = replace(settings, name=settings.names[0])
    at = _best(http, lines)
    state = state_folder(at.port, "node") if at.port else None
    degree, have_rules = expected_degree(settings, at, state), keys_have_rules(settings, state)
    settings = ready("node", settings, programs, degree, keys_have_rules=have_rules)
    return guarded(lambda: run(_serve(settings, command, http, lines, at, state)))


async def _serve(
    settings: NodeSettings,
    command: DefaultCommand | None,
    http: Address | None,
    lines: Address | None,
    at: Address,
    state: Path | None,
) -> int:
    station = Station(settings, Programs(settings.programs, default=command))
    guard = await guard_of(settings, "node", at, state)
    is_same = settings.lines == SAME or (http == lines and http is not None and http.port != 0)
    names = names_for(settings.names, settings.host)
    ports = await listen(Node(station, settings), http, lines, guard, names=names, one_port=is_same)
    stops = _Stops(station, ports)
    on_stop_signals(asyncio.get_running_loop(), stops.ask)
    log.info("node ready at %s: slots=%d", ports, station.limit)
    line_out(str(ports), flush=True)
    try:
        await station.serve()
    finally:
        await stops.close()
    log.info("node stopped")
    return 0


class _Stops:
    """The first signal lets running jobs finish and be answered; the second ends the node at once."""

    def __init__(self, station: Station, ports: NodePorts) -> None:
        self._station = station
        self._ports = ports
        self._count = 0

    def ask(self) -> None:
        self._count += 1
        self._station.request_stop()
        if self._count > 1:
            self._ports.hurry()

    async def close(self) -> None:
        if self._count > 1:
            self._ports.hurry()
        await self._ports.close()


def _command(settings: NodeSettings) -> DefaultCommand | None:
    """The command of jobs that name no program. Raises ConfigError."""
    name, line = settings.program, settings.command
    if name and line:
        raise ConfigError("--program and --command both say what jobs run", "say one of them")
    if name:
        parsed = parse_command(name)
        if parsed != DefaultCommand(name):
            raise ConfigError(f"--program is one name, not {name[:80]!r}", "arguments go into --command")
        return parsed
    return parse_command(line) if line else None


def _ports(settings: NodeSettings) -> tuple[Address | None, Address | None]:
    """Where HTTP and lines are spoken. Raises ConfigError."""
    http = _address(settings.http, settings.host, "--http")
    lines = http if settings.lines == SAME else _address(settings.lines, settings.host, "--lines")
    if http is None and lines is None:
        raise ConfigError("a node without HTTP and without lines cannot be reached", "say --http or --lines")
    return http, lines


def _best(http: Address | None, lines: Address | None) -> Address:
    """The address by which other machines know the node: a wide one before one of this machine."""
    ports = [one for one in (http, lines) if one is not None]
    return next((one for one in ports if not is_loopback(one.host)), ports[0])


def _address(text: str, host: str, flag: str) -> Address | None:
    """`[HOST:]PORT`, or None for `off`. Raises ConfigError."""
    if text == OFF:
        return None
    hint = f"write {flag} PORT, {flag} HOST:PORT or {flag} off"
    if text.isascii() and text.isdigit():
        text = f"[{host}]:{text}" if ":" in host else f"{host}:{text}"
    try:
        return parse_address(text)
    except ConfigError as error:
        raise ConfigError(f"{flag}: {error}", hint) from None
