"""Where do the jobs of this command run? On a leader's grid if one is named, otherwise right here.

Here the program is any file that can be run; on a grid it is a name, and the workers have the file. Both give the same
Grid, so the rest of a command does not care.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, cast

from wakugumi.app import settings
from wakugumi.app.work import early
from wakugumi.app.work.programs import exec_name, find
from wakugumi.core.client.leaders import Choice
from wakugumi.core.names import check_exec_name
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.client import UNFINISHED_PER_CLIENT_MAX
from wakugumi.roles.client.grid import Grid, connect

CONNECT_WITHIN_S: Final = 2.0
"""A person waits for it: long enough for a leader that is just starting, short enough to see a typing error."""


class JobTarget(NamedTuple):
    """Where, and what: all that is decided before the first job."""

    leader: str
    """Its address, or several with commas; empty if the jobs run here."""
    program: str
    """What the jobs call it."""
    path: str
    """Its file, if the jobs run here."""
    parallel: int
    """How many may run at once."""
    client_id: str
    patience_s: float = 0.0
    """How long to wait while no leader serves; 0: for ever."""
    old_leader: bool | None = None
    """A leader that says nothing is one of the first version."""


def choose(
    program: str,
    leader: str | None,
    *,
    slots: int | None = None,
    cap: int | None = None,
    client_id: str | None = None,
    patience: float | None = None,
    old_leader: bool | None = None,
) -> JobTarget:
    """Raises ConfigError if the program cannot be run there."""
    address = settings.LEADER.value(leader)
    who = settings.CLIENT_ID.value(client_id)
    if address:
        try:
            check_exec_name(program)
        except Refused as no:
            raise ConfigError(
                str(no),
                "with a leader, PROGRAM is the name of a program that is installed on the workers (their --programs)",
            ) from None
        return JobTarget(
            address, program, "", settings.CAP.value(cap), who, settings.PATIENCE_S.value(patience), old_leader
        )
    path = find(program)
    return JobTarget("", exec_name(path), path, settings.LOCAL_SLOTS.value(slots), who)


@asynccontextmanager
async def connected(
    leader: str | None,
    *,
    client_id: str | None = None,
    cap: int | None = None,
    patience: float | None = None,
    unfinished_max: int = UNFINISHED_PER_CLIENT_MAX,
    old_leader: bool | None = None,
) -> AsyncIterator[Grid]:
    """A grid's leaders: those that are named, or the one on this machine. Raises Refused("no-leader")."""
    async with connect(
        settings.LEADER.value(leader) or settings.LEADER_HERE,
        client_id=settings.CLIENT_ID.value(client_id) or None,
        cap=settings.CAP.value(cap),
        choice=cast(Choice, settings.CHOICE.value()),
        grace_s=settings.GRACE_S.value(),
        connect_timeout_s=CONNECT_WITHIN_S,
        patience_s=settings.PATIENCE_S.value(patience) or None,
        unfinished_max=unfinished_max,
        old_leader=settings.OLD_LEADER.value(old_leader),
    ) as grid:
        yield grid


@asynccontextmanager
async def open_grid(place: JobTarget) -> AsyncIterator[Grid]:
    """The grid of this place. Raises Refused("no-leader")."""
    if place.leader:
        async with connected(
            place.leader,
            client_id=place.client_id,
            cap=place.parallel,
            patience=place.patience_s,
            old_leader=place.old_leader,
        ) as grid:
            yield grid
    else:
        async with early.take(place.path, place.parallel, place.client_id) as grid:
            yield grid
