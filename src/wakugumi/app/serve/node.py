"""`waku node`: a machine that runs jobs for whoever speaks HTTP or lines, and for a leader too if it is told one.

stdout gets one line once it listens: where HTTP is spoken, and where lines. The first SIGTERM or Ctrl-C gives what
runs 30 s to finish and be answered, the second ends it at once. Programs run below a guardian, so that none outlives
the node.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from cyclopts import Parameter

from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.loop.signals import on_stop_signals
from wakugumi.adapters.net.link import Address, check_binding, parse_address
from wakugumi.adapters.programs.default_command import DefaultCommand, parse_command
from wakugumi.adapters.programs.linux import hide_from_programs, raise_open_files
from wakugumi.adapters.programs.processes import ProgramRules, Programs
from wakugumi.app import logs
from wakugumi.app import settings as config
from wakugumi.app.options import LOGGING, Logging, OldLeader
from wakugumi.app.serve.guarded import guarded
from wakugumi.app.serve.leader import (
    AllowOpen,
    CopyProgram,
    CpuCap,
    Host,
    JobsDir,
    ProgramsDir,
    check_open_files,
    names_for,
    programs_folder,
    say_limits,
)
from wakugumi.app.serve.leader_blobs import parse_bytes
from wakugumi.app.serve.program_rules import OPTIONS, ProgramOptions
from wakugumi.app.serve.worker_cache import CacheBytes, CacheDir, Keeping, keeping
from wakugumi.app.show.output import line_out
from wakugumi.errors import ConfigError
from wakugumi.roles.node.node import Node
from wakugumi.roles.node.ports import NodePorts, listen
from wakugumi.roles.runner.station import Station

if TYPE_CHECKING:
    from wakugumi.adapters.net.tls import TlsContext

log = logging.getLogger("wakugumi.app")

OFF: Final = "off"
SAME: Final = "same"
_HOUR_S: Final = 3_600.0
_DAY_S: Final = 86_400.0

ProgramName = Annotated[
    str | None,
    Parameter(name="--program", help="What jobs run that name no program; it gets the input's path. [WAKU_PROGRAM]"),
]
CommandLine = Annotated[
    str | None,
    Parameter(
        name="--command",
        help="The same with arguments: 'pricer --fast {input}'; without {input} its path is the last. [WAKU_COMMAND]",
    ),
]
NodeSlots = Annotated[
    int | None, Parameter(name="--slots", help="Jobs at once; as many as CPUs if nothing is said. [WAKU_SLOTS]")
]
HttpAt = Annotated[str | None, Parameter(name="--http", help="[HOST:]PORT for HTTP; 5080. `off`: none. [WAKU_HTTP]")]
LinesAt = Annotated[
    str | None,
    Parameter(
        name="--lines",
        help="[HOST:]PORT for lines; 9099. `same`, or the same port: that of HTTP speaks both. `off`: none. "
        "[WAKU_LINES]",
    ),
]
LeaderAt = Annotated[
    str | None, Parameter(name="--leader", help="HOST:PORT of a leader to work for as well; none if nothing is said.")
]
NodeNames = Annotated[
    tuple[str, ...],
    Parameter(
        name="--name",
        negative="",
        consume_multiple=False,
        show_default=False,
        help="What it is called: at a leader (the first), and by HTTP requests, which may also use IP addresses, "
        "localhost and the machine's own name. May be repeated. [WAKU_NAME at a leader; "
        "WAKU_HOST_NAMES by HTTP, with blanks between them]",
    ),
]
Pattern = Annotated[str, Parameter(show_default=False, help="Which jobs it takes from the leader, as with a worker.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Bounds:
    """What a node takes, and for how long it keeps it."""

    receive: Annotated[
        int | None, Parameter(help="Inputs that are received at once; 64 if nothing is said. [WAKU_RECEIVE]")
    ] = None
    input_bytes: Annotated[
        str | None, Parameter(help="The largest input, such as 2GB; 100GB if nothing is said. [WAKU_INPUT_BYTES]")
    ] = None
    retry_after: Annotated[
        int | None, Parameter(help="Seconds after which a caller may come again; 5. [WAKU_RETRY_AFTER]")
    ] = None
    keep_days: Annotated[
        float | None, Parameter(help="Days for which finished jobs are answered; 7. [WAKU_KEEP_DAYS]")
    ] = None
    interrupted_hours: Annotated[
        float | None, Parameter(help="Hours for which interrupted jobs' files stay; 24. [WAKU_INTERRUPTED_HOURS]")
    ] = None


@Parameter(name="*")
@dataclass(frozen=True)
class Tls:
    """What a port shows, and whom it believes."""

    tls_cert: Annotated[
        str | None, Parameter(help="PEM file with the node's certificate: both ports are TLS. [WAKU_TLS_CERT]")
    ] = None
    tls_key: Annotated[str | None, Parameter(help="PEM file with its key. [WAKU_TLS_KEY]")] = None
    client_ca: Annotated[
        str | None,
        Parameter(help="PEM file: only who shows a certificate that these signed is served. [WAKU_CLIENT_CA]"),
    ] = None


BOUNDS: Final = Bounds()
TLS: Final = Tls()
"""Nothing was said."""


class _Settings(NamedTuple):
    """What holds, of the flags and of wherever else it is said."""

    programs: Path
    command: DefaultCommand | None
    jobs: Path
    slots: int
    cpu_cap: float | None
    copy_in: bool
    http: Address | None
    lines: Address | None
    is_same: bool
    tls: TlsContext | None
    leader: Address | None
    pattern: str
    name: str
    names: frozenset[str]
    cache: Keeping
    receive: int
    input_bytes: int
    retry_after_s: int
    keep_s: float
    interrupted_s: float
    rules: ProgramRules
    old_leader: bool


def node(
    *,
    program: ProgramName = None,
    command: CommandLine = None,
    programs: ProgramsDir = None,
    jobs: JobsDir = None,
    slots: NodeSlots = None,
    cpu_cap: CpuCap = None,
    http: HttpAt = None,
    lines: LinesAt = None,
    leader: LeaderAt = None,
    pattern: Pattern = "",
    name: NodeNames = (),
    bounds: Bounds = BOUNDS,
    tls: Tls = TLS,
    cache: CacheDir = None,
    cache_bytes: CacheBytes = None,
    host: Host = None,
    allow_open: AllowOpen = False,
    copy_program: CopyProgram = False,
    old_leader: OldLeader = None,
    program_options: ProgramOptions = OPTIONS,
    logged: Logging = LOGGING,
) -> int:
    logs.start(logged.log_level, logged.log_json)
    hide_from_programs()
    context, asks = _tls(tls)
    where = config.HOST.value(host)
    at_http, at_lines = config.HTTP.value(http), config.LINES.value(lines)
    by_http = _address(at_http, where, "--http")
    by_line = by_http if at_lines == SAME else _address(at_lines, where, "--lines")
    if by_http is None and by_line is None:
        raise ConfigError("a node without HTTP and without lines cannot be reached", "say --http or --lines")
    for one in (by_http, by_line):
        if one is not None:
            check_binding(one.host, allow_open=allow_open or asks)
    size = config.INPUT_BYTES.value(bounds.input_bytes)
    settings = _Settings(
        programs=programs_folder(programs),
        command=_command(program, command),
        jobs=Path(config.JOBS.value(jobs)),
        slots=config.LOCAL_SLOTS.value(slots),
        cpu_cap=config.CPU_CAP_SHARE.share(cpu_cap),
        copy_in=copy_program,
        http=by_http,
        lines=by_line,
        is_same=at_lines == SAME or (by_http == by_line and by_http is not None and by_http.port != 0),
        tls=context,
        # Not WAKU_LEADER: that says whom this user's commands ask, not whom this machine works for.
        leader=parse_address(leader) if leader else None,
        pattern=pattern,
        name=config.NAME.value(name[0] if name else None),
        names=names_for(name, host),
        cache=keeping(cache, cache_bytes, allow_open=allow_open) if leader else Keeping(None, 0, None, None),
        receive=config.RECEIVE.value(bounds.receive),
        input_bytes=parse_bytes(size, "--input-bytes"),
        retry_after_s=config.RETRY_AFTER_S.value(bounds.retry_after),
        keep_s=config.KEEP_DAYS.value(bounds.keep_days) * _DAY_S,
        interrupted_s=config.INTERRUPTED_HOURS.value(bounds.interrupted_hours) * _HOUR_S,
        rules=program_options.rules(),
        old_leader=config.OLD_LEADER.value(old_leader),
    )
    say_limits("node", settings.slots, settings.cpu_cap, settings.rules)
    raise_open_files()
    check_open_files(settings.slots)
    return guarded(lambda: run(_serve(settings)))


async def _serve(settings: _Settings) -> int:
    station = Station(
        settings.leader,
        Programs(settings.programs, default=settings.command),
        settings.jobs,
        patterns=settings.pattern,
        name=settings.name,
        slots=settings.slots,
        cpu_cap=settings.cpu_cap,
        copy_in=settings.copy_in,
        cache_folder=settings.cache.folder,
        cache_bytes=settings.cache.bytes_max,
        done_ttl_s=settings.keep_s,
        interrupted_ttl_s=settings.interrupted_s,
        shares_folder=False,
        rules=settings.rules,
        old_leader=settings.old_leader,
    )
    node = Node(
        station,
        receive_slots=settings.receive,
        retry_after_s=settings.retry_after_s,
        input_bytes_max=settings.input_bytes,
    )
    ports = await listen(
        node, settings.http, settings.lines, settings.tls, names=settings.names, one_port=settings.is_same
    )
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
    """The first time what runs may finish and be answered; the second time nobody is waited for."""

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


def _command(program: str | None, command: str | None) -> DefaultCommand | None:
    """What jobs run that name nothing. Raises ConfigError."""
    name, line = config.PROGRAM.value(program), config.COMMAND.value(command)
    if name and line:
        raise ConfigError("--program and --command both say what jobs run", "say one of them")
    if name:
        parsed = parse_command(name)
        if parsed != DefaultCommand(name):
            raise ConfigError(f"--program is one name, not {name[:80]!r}", "arguments go into --command")
        return parsed
    return parse_command(line) if line else None


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


def _tls(said: Tls) -> tuple[TlsContext | None, bool]:
    """What the ports speak, and whether they ask for certificates. Raises ConfigError."""
    cert, key = config.TLS_CERT.value(said.tls_cert), config.TLS_KEY.value(said.tls_key)
    client_ca = config.CLIENT_CA.value(said.client_ca)
    if not cert and not key and not client_ca:
        return None, False
    if not cert or not key:
        raise ConfigError("TLS needs a certificate and its key", "say --tls-cert FILE and --tls-key FILE")
    from wakugumi.adapters.net.tls import server_context

    return server_context(Path(cert), Path(key), Path(client_ca) if client_ca else None), bool(client_ca)
