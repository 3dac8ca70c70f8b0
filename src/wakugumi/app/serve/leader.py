"""`waku leader`, `waku worker`, `waku up`: how does a role become a process that starts, says so, and ends well?

stdout gets one line, the address, once it listens; the rest is a log on stderr. The first SIGTERM or Ctrl-C lets what
runs finish, the second ends it at once. Programs run below a guardian, so that none outlives its worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from cyclopts import Parameter

from wakugumi.adapters.journal.journal import Journal
from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.loop.signals import on_stop_signals
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.machine.memory import memory_room
from wakugumi.adapters.machine.usable_cpus import usable_cpus
from wakugumi.adapters.net.link import Address, check_binding, is_loopback
from wakugumi.adapters.programs.linux import hide_from_programs, open_files_max, raise_open_files
from wakugumi.adapters.programs.processes import ProgramRules, Programs
from wakugumi.app import logs
from wakugumi.app import settings as config
from wakugumi.app.options import LOGGING, Logging, OldLeader
from wakugumi.app.serve.guarded import guarded
from wakugumi.app.serve.leader_blobs import BlobBytes, BlobSettings, BlobsUrl, WorkersAt, blob_settings, leader_blobs
from wakugumi.app.serve.node_addresses import (
    NO_NODES,
    NodeCa,
    NodeCert,
    NodeKey,
    NodeSettings,
    NodeUrls,
    node_settings,
    nodes_of,
)
from wakugumi.app.serve.program_rules import OPTIONS, ProgramOptions
from wakugumi.app.serve.worker_cache import Advertise, CacheBytes, CacheDir, MetricsAt, ServeAt, keeping, metrics_at
from wakugumi.app.show.output import line_out, one, say
from wakugumi.core.backoff import Policies, parse_policies
from wakugumi.core.memory_budget import Budget, budget_of
from wakugumi.core.names import check_exec_name
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.runner import OPEN_FILES_BESIDE_MIN, OPEN_FILES_PER_SLOT_MAX
from wakugumi.limits.units import MIB
from wakugumi.limits.wire import DRAIN_DEADLINE_S
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.leader import HTTP, WHOLE, HttpSettings, Leader
from wakugumi.roles.runner.worker import Worker, WorkerSettings, main_worker
from wakugumi.wire.web_origin import server_names

log = logging.getLogger("wakugumi.app")

PORT: Final = 5000
BLOB_SETTINGS: Final = BlobSettings()
"""Nothing was said."""
_DRAINING: Final = "draining: running jobs may finish; ask again to stop at once"

Host = Annotated[str | None, Parameter(help="The address to listen on; 127.0.0.1 if nothing is said. [WAKU_HOST]")]
AllowOpen = Annotated[
    bool,
    Parameter(
        negative="",
        show_default=False,
        help="Listen wider than this machine: whoever reaches the port may run programs.",
    ),
]
PortsOpen = Annotated[
    bool,
    Parameter(
        name="--allow-open",
        negative="",
        show_default=False,
        help="--serve and --metrics may listen wider than this machine.",
    ),
]
ProgramsDir = Annotated[str | None, Parameter(help="The folder with the programs; /opt/grid/exe. [WAKU_PROGRAMS]")]
JobsDir = Annotated[str | None, Parameter(help="The folder for the jobs' directories; /tmp/jobs. [WAKU_JOBS]")]
WorkerSlots = Annotated[
    int | None, Parameter(help="Jobs at once; one per CPU if nothing is said. [WAKU_SLOTS, WORKER_MAX_PAR]")
]
CpuCap = Annotated[
    str | None,
    Parameter(
        help="While other programs use more of the CPU, wait before the next job: as long as the last one ran, and at "
        "most 2 s; off: never. 0.75 if nothing is said. [WAKU_CPU_CAP, WORKER_CPU_CAP]"
    ),
]
WorkerName = Annotated[str | None, Parameter(help="What people call it, and a subject of its own. [WAKU_NAME]")]
ServerNames = Annotated[
    tuple[str, ...],
    Parameter(
        name="--name",
        negative="",
        consume_multiple=False,
        show_default=False,
        help="A name that HTTP requests may use for it, such as a DNS alias or the service's name in compose or "
        "Kubernetes. IP addresses, localhost and the machine's own name need none. May be repeated. "
        "[WAKU_HOST_NAMES, with blanks between them]",
    ),
]
StateDir = Annotated[
    str | None,
    Parameter(
        help="The folder for the leader's journal; one per port below ~/.local/state, and none for port 0. [WAKU_STATE]"
    ),
]
Memory = Annotated[
    bool | None,
    Parameter(
        negative="",
        show_default=False,
        help="Keep no journal: faster for very short jobs, and what is queued is gone with the leader. [WAKU_MEMORY]",
    ),
]
PolicyNames = Annotated[
    tuple[str, ...],
    Parameter(
        name="--policy",
        negative="",
        consume_multiple=False,
        show_default=False,
        help="Which worker gets a job: most-credit (if nothing is said), round-robin, sticky or score. PATTERN=NAME "
        "says so for the subjects that it matches. May be repeated. [WAKU_POLICY, with commas]",
    ),
]
GroupProgram = Annotated[
    str | None,
    Parameter(
        name="--program",
        help="What is run for jobs by HTTP that name no program; if none, whoever runs them has one. [WAKU_PROGRAM]",
    ),
]
HttpCap = Annotated[
    int | None,
    Parameter(help="Jobs in flight of one client id over HTTP; 1000 if nothing is said. [WAKU_HTTP_CAP]"),
]
Groups = Annotated[
    int | None,
    Parameter(help="A gateway at PORT and so many groups instead, each part a process, for a try-out."),
]
Nodes = Annotated[int | None, Parameter(help="With --groups: the nodes of each; 2.")]
UpProgram = Annotated[
    str | None,
    Parameter(help="With --groups: what is run for jobs that name no program; if nothing is said, each has to."),
]
CopyProgram = Annotated[
    bool,
    Parameter(negative="", show_default=False, help="Copy the program into each job's directory, beside its inputs."),
]


class NoJournal(NamedTuple):
    """This leader keeps nothing."""

    why: str


def leader(
    port: int = PORT,
    /,
    *,
    state: StateDir = None,
    memory: Memory = None,
    blobs: BlobsUrl = None,
    blob_bytes: BlobBytes = None,
    workers_at: WorkersAt = (),
    policy: PolicyNames = (),
    node: NodeUrls = (),
    node_ca: NodeCa = None,
    node_cert: NodeCert = None,
    node_key: NodeKey = None,
    program: GroupProgram = None,
    http_cap: HttpCap = None,
    host: Host = None,
    name: ServerNames = (),
    allow_open: AllowOpen = False,
    logged: Logging = LOGGING,
) -> int:
    logs.start(logged.log_level, logged.log_json)
    hide_from_programs()
    where, names = binding(host, port, allow_open), names_for(name, host)
    kept, policies = _state(state, memory, port), _policies(policy)
    nodes = node_settings(node, node_ca, node_cert, node_key)
    http = HttpSettings(_program(program), config.HTTP_CAP.value(http_cap))
    raise_open_files()
    return run(_lead(where, names, kept, policies, blob_settings(blobs, blob_bytes, workers_at), http, nodes))


def worker(
    host: str,
    port: int,
    pattern: str = "",
    /,
    *,
    programs: ProgramsDir = None,
    jobs: JobsDir = None,
    slots: WorkerSlots = None,
    cpu_cap: CpuCap = None,
    name: WorkerName = None,
    cache: CacheDir = None,
    cache_bytes: CacheBytes = None,
    serve: ServeAt = None,
    advertise: Advertise = None,
    metrics: MetricsAt = None,
    allow_open: PortsOpen = False,
    copy_program: CopyProgram = False,
    old_leader: OldLeader = None,
    program_options: ProgramOptions = OPTIONS,
    logged: Logging = LOGGING,
) -> int:
    logs.start(logged.log_level, logged.log_json)
    hide_from_programs()
    kept = keeping(cache, cache_bytes, serve, advertise, allow_open=allow_open)
    settings = WorkerSettings(
        leader=Address(host, _port(port, least=1)),
        programs=programs_folder(programs),
        jobs_folder=Path(config.JOBS.value(jobs)),
        patterns=pattern,
        name=config.NAME.value(name),
        slots=config.SLOTS.value(slots),
        cpu_cap=config.CPU_CAP_SHARE.share(cpu_cap),
        copy_in=copy_program,
        cache_folder=kept.folder,
        cache_bytes=kept.bytes_max,
        serve=kept.serve,
        advertise=kept.advertise,
        metrics=metrics_at(metrics, allow_open=allow_open),
        rules=program_options.rules(),
        old_leader=config.OLD_LEADER.value(old_leader),
    )
    say_limits("worker", settings.slots, settings.cpu_cap, settings.rules)
    raise_open_files()
    check_open_files(settings.slots)
    return guarded(lambda: main_worker(settings))


def up(
    port: int = PORT,
    /,
    *,
    groups: Groups = None,
    nodes: Nodes = None,
    program: UpProgram = None,
    programs: ProgramsDir = None,
    jobs: JobsDir = None,
    slots: WorkerSlots = None,
    cpu_cap: CpuCap = None,
    state: StateDir = None,
    memory: Memory = None,
    blobs: BlobsUrl = None,
    blob_bytes: BlobBytes = None,
    cache: CacheDir = None,
    cache_bytes: CacheBytes = None,
    policy: PolicyNames = (),
    host: Host = None,
    name: ServerNames = (),
    allow_open: AllowOpen = False,
    copy_program: CopyProgram = False,
    program_options: ProgramOptions = OPTIONS,
    logged: Logging = LOGGING,
) -> int:
    logs.start(logged.log_level, logged.log_json)
    hide_from_programs()
    where, names = binding(host, port, allow_open), names_for(name, host)
    if groups is not None:
        return _up_tiers(groups, nodes, program, where, programs, slots, state, program_options, logged)
    if nodes is not None or program is not None:
        raise ConfigError("--nodes and --program are for --groups", "say how many groups: --groups 2")
    keeps = keeping(cache, cache_bytes, allow_open=allow_open)
    settings = WorkerSettings(
        leader=where,
        programs=programs_folder(programs),
        jobs_folder=Path(config.JOBS.value(jobs)),
        slots=config.SLOTS.value(slots),
        cpu_cap=config.CPU_CAP_SHARE.share(cpu_cap),
        copy_in=copy_program,
        cache_folder=keeps.folder,
        cache_bytes=keeps.bytes_max,
        rules=program_options.rules(),
    )
    kept, policies = _state(state, memory, port), _policies(policy)
    place = blob_settings(blobs, blob_bytes)
    say_limits("worker", settings.slots, settings.cpu_cap, settings.rules)
    raise_open_files()
    check_open_files(settings.slots)
    return guarded(lambda: run(_up(where, names, settings, kept, policies, place)))


def say_limits(role: str, slots: int, cpu_cap: float | None, rules: ProgramRules) -> None:
    """The first line of its log: how much a machine will take, and as whom programs run, if that is a surprise."""
    cap = "off" if cpu_cap is None else f"{cpu_cap:g}"
    text = "%s: slots=%d usable-cpus=%d cpu-cap=%s"
    if rules.user is not None:
        text += f" run-as={rules.user.name}"
    elif rules.runs_as_root:
        text += " run-as=root: whoever may send jobs is root on this machine (--run-as USER changes that)"
    log.info(text, role, slots, usable_cpus(), cap)


def check_open_files(slots: int) -> None:
    """Raises ConfigError if so many jobs at once cannot be."""
    needs, most = OPEN_FILES_PER_SLOT_MAX * slots + OPEN_FILES_BESIDE_MIN, open_files_max()
    if needs > most:
        fit = max(1, (most - OPEN_FILES_BESIDE_MIN) // OPEN_FILES_PER_SLOT_MAX)
        raise ConfigError(
            f"{slots} slots may need {needs} open files at once, and this process may have {most}",
            f"raise the limit (ulimit -n), or say --slots {fit}",
        )


def _up_tiers(
    groups: int,
    nodes: int | None,
    program: str | None,
    where: Address,
    programs: str | None,
    slots: int | None,
    state: str | None,
    program_options: ProgramOptions,
    logged: Logging,
) -> int:
    from wakugumi.app.serve.tiers import Tiers
    from wakugumi.app.serve.up_tiers import up_tiers

    if not is_loopback(where.host):
        raise ConfigError("a try-out with --groups stays on this machine", "docs/DEPLOYING.md has one part at a time")
    folder = programs_folder(programs).absolute()
    if program:
        try:
            Programs(folder).resolve(program)
        except Refused as error:
            raise ConfigError(f"in {folder}: {error.message}", "--program names one of --programs") from None
    said = config.STATE.value(state)
    if not said and where.port == 0:
        raise ConfigError("port 0 is any port, and has no folder of its own", "name one with --state DIR")
    kept = Path(said).absolute() if said else config.state_folder(where.port, "tiers")
    program_options.rules()
    words = program_options.words()
    tiers = Tiers(groups, 2 if nodes is None else nodes, config.SLOTS.value(slots), folder, program or "", kept, words)
    return up_tiers(tiers, where.port, logged.log_level or "warning")


async def _lead(
    where: Address,
    names: frozenset[str],
    state: Path | NoJournal,
    policies: Policies,
    blobs: BlobSettings = BLOB_SETTINGS,
    http: HttpSettings = HTTP,
    nodes: NodeSettings = NO_NODES,
) -> int:
    stops = Stops()
    async with _leader(state, policies, blobs, http) as (leader, tasks), nodes_of(leader, nodes):
        await _listen(leader, where, names)
        await stops.wait(1, leader.drive.failed)
        await _drain(leader, stops, tasks)
    log.info("leader stopped")
    return 0


async def _up(
    where: Address,
    names: frozenset[str],
    settings: WorkerSettings,
    state: Path | NoJournal,
    policies: Policies,
    blobs: BlobSettings,
) -> int:
    stops = Stops()
    async with _leader(state, policies, blobs) as (leader, tasks):
        there = await _listen(leader, where, names)
        worker = Worker(
            _reachable(there),
            Programs(settings.programs),
            settings.jobs_folder,
            slots=settings.slots,
            cpu_cap=settings.cpu_cap,
            copy_in=settings.copy_in,
            cache_folder=settings.cache_folder,
            cache_bytes=settings.cache_bytes,
            rules=settings.rules,
        )
        serving = tasks.start(worker.run(), name="worker")
        _say_how(there, settings)
        await stops.wait(1, leader.drive.failed, serving)
        await _drain(leader, stops, tasks)
        # Nothing is assigned any more. Asked twice, a worker does not wait for what it still runs.
        worker.request_stop()
        await stops.wait(2, leader.drive.failed, serving)
        if not serving.done():
            worker.request_stop()
            await serving
    return 0


@asynccontextmanager
async def _leader(
    state: Path | NoJournal, policies: Policies, settings: BlobSettings, http: HttpSettings = HTTP
) -> AsyncIterator[tuple[Leader, Tasks]]:
    """A leader, and tasks that end before it does. Raises what it failed by, be it while it was closed."""
    with leader_blobs(settings, state if isinstance(state, Path) else None) as blobs:
        leader = await _new_leader(state, policies, blobs, http)
        tasks = Tasks()
        try:
            yield leader, tasks
        finally:
            await tasks.close()
            await leader.close()
            failed = leader.drive.failed
            if not failed.cancelled():
                failed.result()


async def _drain(leader: Leader, stops: Stops, tasks: Tasks) -> None:
    """Let what runs finish, unless we are asked once more. Raises what the leader failed by meanwhile."""
    log.info(_DRAINING)
    draining = tasks.start(leader.drain(), name="drain")
    await stops.wait(2, leader.drive.failed, draining)
    if draining.done() and not draining.result():
        log.warning("jobs still run after %g s: the leader leaves without their results", DRAIN_DEADLINE_S)


async def _new_leader(state: Path | NoJournal, policies: Policies, blobs: LeaderBlobs, http: HttpSettings) -> Leader:
    budget = _budget()
    if isinstance(state, NoJournal):
        log.info("%s: no journal, and what is queued is gone with this process", state.why)
        return Leader(policies=policies, blobs=blobs, http=http, budget=budget)
    journal = Journal.open(state)
    log.info("journal in %s: accepted jobs outlive this process", state)
    try:
        return Leader(journal, policies=policies, blobs=blobs, http=http, budget=budget)
    except BaseException:
        await journal.close()
        raise


def _budget() -> Budget:
    """What the leader may hold in memory. Raises ConfigError."""
    room = memory_room()
    if room is None:
        return WHOLE
    budget = budget_of(room.room_bytes)
    if budget != WHOLE:
        text = "memory: at most %d MiB by %s, so at most %d jobs are queued and %d MiB of results wait"
        results = budget.undelivered_bytes // MIB
        log.info(text, room.limit_bytes // MIB, room.limit, budget.queue_jobs, results)
    return budget


class Stops:
    """What the signals ask for: the first time to end in order, the second time at once."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Event()
        on_stop_signals(asyncio.get_running_loop(), self._ask)

    async def wait(self, count: int, *others: asyncio.Future[Any]) -> None:
        """Returns when we were asked so often, or one of the others is done. Raises what that one raised."""
        for other in others:
            other.add_done_callback(lambda _other: self._news.set())
        while self.count < count and not any(other.done() for other in others):
            self._news.clear()
            await self._news.wait()
        for other in others:
            if other.done():
                other.result()

    def _ask(self) -> None:
        self.count += 1
        self._news.set()


async def _listen(leader: Leader, where: Address, names: frozenset[str]) -> Address:
    there = Address(where.host, await leader.listen(where.host, where.port, names))
    log.info("leader ready at %s", there)
    line_out(str(there), flush=True)
    return there


def _say_how(there: Address, settings: WorkerSettings) -> None:
    names = sorted(entry.name for entry in os.scandir(settings.programs or ".") if os.access(entry.path, os.X_OK))
    some = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    say(f"a leader and a worker with {one(settings.slots, 'slot')} are up; programs: {some or 'none yet'}")
    say("use them from another terminal:")
    say(f"    export WAKU_LEADER={_reachable(there)}")
    say(f"    waku run {names[0] if names else 'PROGRAM'}")
    say("    waku status")


def _reachable(there: Address) -> Address:
    """Where this machine itself finds it: an address that means all of them is none to connect to."""
    return Address({"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(there.host, there.host), there.port)  # noqa: S104


def binding(host: str | None, port: int, allow_open: bool) -> Address:
    where = Address(config.HOST.value(host), _port(port))
    check_binding(where.host, allow_open=allow_open)
    return where


def names_for(said: tuple[str, ...], host: str | None) -> frozenset[str]:
    """What HTTP requests may call a server, beside what its machine is called. Raises ConfigError."""
    bound = config.HOST.value(host)
    return server_names(config.HOST_NAMES.value(" ".join(said) or None).split()) | ({bound} - {""})


def _state(folder: str | None, memory: bool | None, port: int) -> Path | NoJournal:
    """Where the journal goes, or why there is none."""
    if config.MEMORY.value(memory):
        if folder is not None:
            raise ConfigError("--memory means that nothing is kept, so --state has no use", "say one of them")
        return NoJournal("--memory")
    if said := config.STATE.value(folder):
        return Path(said).absolute()
    if port == 0:  # Nobody could name the folder of such a leader, and the next one would find it.
        return NoJournal("port 0 and no --state")
    return config.state_folder(port)


def _policies(words: tuple[str, ...]) -> Policies:
    """Which policy holds where: of the flags, or of wherever else it is said."""
    policies = parse_policies(config.POLICY.value(",".join(words) if words else None))
    if config.POLICY.is_said(",".join(words) or None):
        log.info("policies: %s", policies)
    return policies


def _program(name: str | None) -> str:
    said = config.PROGRAM.value(name)
    try:
        return check_exec_name(said) if said else ""
    except Refused as no:
        raise ConfigError(f"--program: {no.message}", "name one of the workers' programs, as in their folder") from None


def _port(port: int, least: int = 0) -> int:
    if not least <= port <= 65535:
        raise ConfigError(f"a port is {least} to 65535, not {port}")
    return port


def programs_folder(folder: str | None) -> Path:
    """Where the programs are. Raises ConfigError if that is no folder."""
    path = Path(config.PROGRAMS.value(folder))
    if not path.is_dir():
        raise ConfigError(
            f"the folder with the programs, {path}, does not exist", "name one with --programs, or make it and fill it"
        )
    return path
