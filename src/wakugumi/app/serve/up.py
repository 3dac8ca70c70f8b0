"""`waku up`: how do a leader and a worker run in one process? With `--groups` the three tiers are started instead."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.net.address import Address, is_loopback
from wakugumi.adapters.programs.linux import hide_from_programs
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.app.client_settings import LogSettings
from wakugumi.app.flags import Only, server
from wakugumi.app.program_settings import ProgramSettings
from wakugumi.app.serve.access import keys_have_rules
from wakugumi.app.serve.guarded import guarded
from wakugumi.app.serve.leader import PORT, NoJournal, drain, leading, listen, prepared
from wakugumi.app.serve.stops import Stops
from wakugumi.app.serve.worker import check_programs, ready
from wakugumi.app.settings import state_folder
from wakugumi.app.show.output import one, say
from wakugumi.core.access.known_as import Degree
from wakugumi.errors import ConfigError, Refused
from wakugumi.roles.leader.settings import LeaderSettings
from wakugumi.roles.runner.settings import WorkerSettings
from wakugumi.roles.runner.worker import Worker

Groups = Annotated[
    int | None, Parameter(help="Number of groups behind a gateway at PORT instead, each part a process, for a try-out.")
]
Nodes = Annotated[int | None, Parameter(help="With --groups: number of nodes in each. [default: 2]")]
UpProgram = Annotated[str | None, Parameter(help="With --groups: program of jobs that name none.")]
UpLeader = Annotated[
    LeaderSettings,
    Only(
        "state memory blobs blob_bytes policies host names allow_open local local_group tls_cert tls_key client_ca",
        without_flag="workers_at",
    ),
]
UpWorker = Annotated[WorkerSettings, Only("programs jobs slots cpu_cap cache cache_bytes copy_program")]


@server
def up(
    port: int = PORT,
    /,
    *,
    groups: Groups = None,
    nodes: Nodes = None,
    program: UpProgram = None,
    worker: UpWorker,
    leader: UpLeader,
    program_settings: ProgramSettings,
    logged: LogSettings,
) -> int:
    """waku up [PORT] [--programs DIR] [--slots N] [--state DIR | --memory] [--groups G [--nodes N]] [OPTIONS]

    The quickest grid: it runs the programs of one folder for every client on this machine, or on others with --host
    and --allow-open. Accepted jobs are kept in a journal, as with `waku leader`.

    --groups starts three tiers instead, to be tried with curl: a gateway at PORT, a leader for each group, and
    --nodes in each of them. Kill one process: the others go on.

    Examples:
      waku up --programs ./bin
      waku up --programs ./bin --memory
      waku up --programs ./bin --groups 2 --nodes 2
      waku up 5000 --slots 8 --host 0.0.0.0 --allow-open
    """
    hide_from_programs()
    state = prepared(leader, port)
    if groups is not None:
        return _up_tiers(groups, nodes, program, port, leader, worker, program_settings, logged)
    if nodes is not None or program is not None:
        raise ConfigError("--nodes and --program are for --groups", "say how many groups: --groups 2")
    settings = replace(worker, leader=Address(leader.host, port))
    have_rules = keys_have_rules(leader, state if isinstance(state, Path) else None)
    settings = ready("worker", settings, program_settings, Degree.THIS_USER, keys_have_rules=have_rules)
    return guarded(lambda: run(_up(leader, port, state, settings)))


def _up_tiers(
    groups: int,
    nodes: int | None,
    program: str | None,
    port: int,
    leader: LeaderSettings,
    worker: WorkerSettings,
    program_settings: ProgramSettings,
    logged: LogSettings,
) -> int:
    from wakugumi.app.serve.tiers import Tiers
    from wakugumi.app.serve.up_tiers import up_tiers

    if not is_loopback(leader.host):
        raise ConfigError(
            "a try-out with --groups stays on this machine", "docs/operate/deploying.md has one part at a time"
        )
    folder = check_programs(worker).absolute()
    if program:
        try:
            Programs(folder).resolve(program)
        except Refused as error:
            raise ConfigError(f"in {folder}: {error.message}", "--program names one of --programs") from None
    if not leader.state and port == 0:
        raise ConfigError("port 0 is any port, and has no folder of its own", "name one with --state DIR")
    kept = Path(leader.state).absolute() if leader.state else state_folder(port, "tiers")
    program_settings.rules()
    words = program_settings.words()
    tiers = Tiers(groups, 2 if nodes is None else nodes, worker.slots, folder, program or "", kept, words)
    return up_tiers(tiers, port, logged.log_level or "warning")


async def _up(leading_as: LeaderSettings, port: int, state: Path | NoJournal, settings: WorkerSettings) -> int:
    stops = Stops()
    async with leading(leading_as, port, state) as (leader, tasks):
        there = await listen(leader, leading_as, port)
        worker = Worker(replace(settings, leader=_reachable(there)))
        serving = tasks.start(worker.run(), name="worker")
        _say_how(there, settings)
        await stops.wait(1, leader.drive.failed, serving)
        await drain(leader, stops, tasks)
        # The leader assigns no more jobs. After the second signal the worker does not wait for running ones.
        worker.request_stop()
        await stops.wait(2, leader.drive.failed, serving)
        if not serving.done():
            worker.request_stop()
            await serving
    return 0


def _say_how(there: Address, settings: WorkerSettings) -> None:
    names = sorted(entry.name for entry in os.scandir(settings.programs) if os.access(entry.path, os.X_OK))
    some = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    say(f"a leader and a worker with {one(settings.slots, 'slot')} are up; programs: {some or 'none yet'}")
    say("use them from another terminal:")
    say(f"    export WAKU_LEADER={_reachable(there)}")
    say(f"    waku run {names[0] if names else 'PROGRAM'}")
    say("    waku status")


def _reachable(there: Address) -> Address:
    """Where this machine itself finds it: an address that means all of them is none to connect to."""
    return Address({"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(there.host, there.host), there.port)  # noqa: S104
