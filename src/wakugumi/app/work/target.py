"""Where do the jobs of a command run? On the grid of a named leader, otherwise on this machine.

On this machine the program is any executable file; on a grid it is a name, and the workers have the file. Both are the
same Grid to the rest of a command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from wakugumi.app.client_settings import LEADER_HERE, ClientSettings
from wakugumi.app.work import early
from wakugumi.app.work.programs import exec_name, find
from wakugumi.core.names import check_exec_name
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.client import COMMAND_CONNECT_S, UNFINISHED_PER_CLIENT_MAX
from wakugumi.roles.client.grid import Grid, connect


class JobTarget(NamedTuple):
    """Place and program of a command's jobs."""

    client: ClientSettings
    program: str
    """Its name in the jobs."""
    path: str
    """Its file, if the jobs run on this machine; else empty."""
    parallel: int
    """Number of jobs that may run at once."""

    @property
    def leader(self) -> str:
        """Address of the leader, or several with commas; empty if the jobs run on this machine."""
        return self.client.leader


def choose(program: str, client: ClientSettings, slots: int | None = None) -> JobTarget:
    """`slots` replaces the slots of the settings on this machine. Raises ConfigError if the program cannot run."""
    if client.leader:
        try:
            check_exec_name(program)
        except Refused as no:
            raise ConfigError(
                str(no),
                "with a leader, PROGRAM is the name of a program that is installed on the workers (their --programs)",
            ) from None
        return JobTarget(client, program, "", client.cap)
    path = find(program)
    return JobTarget(client, exec_name(path), path, client.slots if slots is None else slots)


@asynccontextmanager
async def connected(client: ClientSettings, unfinished_max: int = UNFINISHED_PER_CLIENT_MAX) -> AsyncIterator[Grid]:
    """A grid of the named leaders, or of the one on this machine. Raises Refused("no-leader")."""
    async with connect(
        client.leader or LEADER_HERE,
        client_id=client.client_id or None,
        cap=client.cap,
        choice=client.choice,
        grace_s=client.grace_s,
        connect_timeout_s=COMMAND_CONNECT_S,
        patience_s=client.patience_s or None,
        unfinished_max=unfinished_max,
        old_leader=client.old_leader,
        access=client.access,
    ) as grid:
        yield grid


@asynccontextmanager
async def open_grid(place: JobTarget) -> AsyncIterator[Grid]:
    """The grid of this place. Raises Refused("no-leader")."""
    async with (
        connected(place.client)
        if place.leader
        else early.take(place.path, place.parallel, place.client.client_id) as grid
    ):
        yield grid
