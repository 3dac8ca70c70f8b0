"""Where do the jobs of this command run? On a leader's grid if one is named, otherwise right here.

Here the program is any file that can be run; on a grid it is a name, and the workers have the file. Both give the same
Grid, so the rest of a command does not care.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from wakugumi.app.client_settings import LEADER_HERE, ClientSettings
from wakugumi.app.work import early
from wakugumi.app.work.programs import exec_name, find
from wakugumi.core.names import check_exec_name
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.client import UNFINISHED_PER_CLIENT_MAX
from wakugumi.roles.client.grid import Grid, connect

CONNECT_WITHIN_S: Final = 2.0
"""A person waits for it: long enough for a leader that is just starting, short enough to see a typing error."""


class JobTarget(NamedTuple):
    """Where, and what: all that is decided before the first job."""

    client: ClientSettings
    program: str
    """What the jobs call it."""
    path: str
    """Its file, if the jobs run here."""
    parallel: int
    """How many may run at once."""

    @property
    def leader(self) -> str:
        """Its address, or several with commas; empty if the jobs run here."""
        return self.client.leader


def choose(program: str, client: ClientSettings, slots: int | None = None) -> JobTarget:
    """Right here there are so many `slots`, or those of the settings. Raises ConfigError if the program cannot be run
    there."""
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
    """A grid's leaders: those that are named, or the one on this machine. Raises Refused("no-leader")."""
    async with connect(
        client.leader or LEADER_HERE,
        client_id=client.client_id or None,
        cap=client.cap,
        choice=client.choice,
        grace_s=client.grace_s,
        connect_timeout_s=CONNECT_WITHIN_S,
        patience_s=client.patience_s or None,
        unfinished_max=unfinished_max,
        old_leader=client.old_leader,
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
