"""`waku leader`: how does a leader start, report its address, and end?"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from wakugumi.adapters.journal.journal import Journal
from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.machine.memory import memory_room
from wakugumi.adapters.machine.open_files import raise_open_files
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.programs.linux import hide_from_programs
from wakugumi.app.flags import server
from wakugumi.app.serve.access import guard_of
from wakugumi.app.serve.binding import binding, names_for
from wakugumi.app.serve.leader_blobs import leader_blobs
from wakugumi.app.serve.leader_nodes import check_nodes, nodes_of
from wakugumi.app.serve.stops import Stops
from wakugumi.app.settings import state_folder
from wakugumi.app.show.output import line_out
from wakugumi.core.backoff import EVERYWHERE
from wakugumi.core.memory_budget import Budget, budget_of
from wakugumi.errors import ConfigError
from wakugumi.limits.units import MIB
from wakugumi.limits.wire import DRAIN_DEADLINE_S
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.leader import Leader
from wakugumi.roles.leader.settings import WHOLE, LeaderSettings

log = logging.getLogger("wakugumi.app")

PORT: Final = 5000


class NoJournal(NamedTuple):
    """This leader keeps nothing."""

    why: str


@server
def leader(port: int = PORT, /, *, settings: LeaderSettings) -> int:
    """waku leader [PORT] [--state DIR | --memory] [--policy [PATTERN=]NAME]… [--program NAME] [--host HOST] [OPTIONS]

    Accepted jobs survive kill -9 and power loss: they are in a journal in --state DIR, and the next leader on that
    folder goes on with them. Without --state each port has a folder of its own, which the log names. With --memory,
    or with port 0 and no --state, there is no journal, and queued jobs end with the leader.

    --policy chooses the worker of a job: most free slots (most-credit, the default), each in its turn
    (round-robin), the same worker for the same --key (sticky), or the least busy by slots and CPU (score).
    PATTERN=NAME is a policy for matching subjects; the most specific pattern counts, and `calcA` means all below
    job.assign.calcA.

    Files that do not fit a frame are kept beside the journal, up to --blob-bytes, and sent over HTTP on the same
    port; --blobs names a shared folder or a bucket instead, which clients and workers then use directly.

    The same port accepts jobs over HTTP (docs/use/http.md). Jobs that name no program get --program, and a client
    id has at most --http-cap jobs in flight.

    The leader prints its address once it listens; port 0 is any free port. The first SIGTERM or Ctrl-C lets running
    jobs finish, the second ends the leader at once.

    Examples:
      waku leader 5000
      waku leader 5000 --state /var/lib/wakugumi
      waku leader 5000 --memory
      waku leader 5000 --blobs s3://bucket/grid
      waku leader 5000 --policy round-robin --policy 'calcA=sticky'
      waku leader 5081 --program pricer         then: curl -F file=@in.csv -o out.zip localhost:5081/dispatch/night-7
      waku leader 5000 --host 10.0.0.1 --allow-open
    """
    hide_from_programs()
    check_nodes(settings)
    state = prepared(settings, port)
    raise_open_files()
    return run(_lead(settings, port, state))


def prepared(settings: LeaderSettings, port: int) -> Path | NoJournal:
    """Where the journal of a leader goes that can start like this, or why there is none. Raises ConfigError."""
    binding(settings.host, port)
    names_for(settings.names, settings.host)
    state = _state(settings, port)
    if settings.policies is not EVERYWHERE:
        log.info("policies: %s", settings.policies)
    return state


async def _lead(settings: LeaderSettings, port: int, state: Path | NoJournal) -> int:
    stops = Stops()
    async with leading(settings, port, state) as (leader, tasks), nodes_of(leader, settings):
        await listen(leader, settings, port)
        await stops.wait(1, leader.drive.failed)
        await drain(leader, stops, tasks)
    log.info("leader stopped")
    return 0


@asynccontextmanager
async def leading(settings: LeaderSettings, port: int, state: Path | NoJournal) -> AsyncIterator[tuple[Leader, Tasks]]:
    """A leader, and tasks that end before it does. Raises the error by which the leader failed, also on closing."""
    with leader_blobs(settings, state if isinstance(state, Path) else None) as blobs:
        leader = await _new_leader(replace(settings, budget=_budget()), port, state, blobs)
        tasks = Tasks()
        try:
            yield leader, tasks
        finally:
            await tasks.close()
            await leader.close()
            failed = leader.drive.failed
            if not failed.cancelled():
                failed.result()


async def drain(leader: Leader, stops: Stops, tasks: Tasks) -> None:
    """Let running jobs finish, until the second signal. Raises the error by which the leader failed meanwhile."""
    log.info("draining: running jobs may finish; ask again to stop at once")
    draining = tasks.start(leader.drain(), name="drain")
    await stops.wait(2, leader.drive.failed, draining)
    if draining.done() and not draining.result():
        log.warning("jobs still run after %g s: the leader leaves without their results", DRAIN_DEADLINE_S)


async def _new_leader(settings: LeaderSettings, port: int, state: Path | NoJournal, blobs: LeaderBlobs) -> Leader:
    folder = state if isinstance(state, Path) else state_folder(port) if port else None
    guard = await guard_of(settings, "leader", Address(settings.host, port), folder)
    if isinstance(state, NoJournal):
        log.info("%s: no journal, and what is queued is gone with this process", state.why)
        return Leader(settings=settings, blobs=blobs, guard=guard)
    journal = Journal.open(state)
    log.info("journal in %s: accepted jobs outlive this process", state)
    try:
        return Leader(journal, settings=settings, blobs=blobs, guard=guard)
    except BaseException:
        await journal.close()
        raise


def _budget() -> Budget:
    """Jobs and results that the leader may hold in memory. Raises ConfigError."""
    room = memory_room()
    if room is None:
        return WHOLE
    budget = budget_of(room.room_bytes)
    if budget != WHOLE:
        text = "memory: at most %d MiB by %s, so at most %d jobs are queued and %d MiB of results wait"
        results = budget.undelivered_bytes // MIB
        log.info(text, room.limit_bytes // MIB, room.limit, budget.queue_jobs, results)
    return budget


async def listen(leader: Leader, settings: LeaderSettings, port: int) -> Address:
    names = names_for(settings.names, settings.host)
    there = Address(settings.host, await leader.listen(settings.host, port, names))
    log.info("leader ready at %s", there)
    line_out(str(there), flush=True)
    return there


def _state(settings: LeaderSettings, port: int) -> Path | NoJournal:
    """Where the journal goes, or why there is none."""
    if settings.memory:
        if "state" in settings.by_flag:
            raise ConfigError("--memory means that nothing is kept, so --state has no use", "say one of them")
        return NoJournal("--memory")
    if settings.state:
        return Path(settings.state).absolute()
    if port == 0:  # Every leader on any port would share the folder of port 0.
        return NoJournal("port 0 and no --state")
    return state_folder(port)
