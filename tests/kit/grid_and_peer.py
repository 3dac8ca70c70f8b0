"""A client in this process and the connection that it has to a scripted leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
from tests.kit.scripted_leader import Peer, ScriptedLeader, scripted

from wakugumi.roles.client.grid import Grid, connect


@asynccontextmanager
async def grid_and_peer(
    *, own: bool = True, client_id: str = "tester", cap: int = 8, unfinished_max: int = 100
) -> AsyncIterator[tuple[Grid, Peer]]:
    async with scripted(ScriptedLeader(own=own)) as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        url = f"waku://127.0.0.1:{leader.port}"
        options = {"client_id": client_id, "cap": cap, "unfinished_max": unfinished_max}
        async with connect(url, **options, old_leader=not own) as grid:  # type: ignore[arg-type]
            yield grid, await coming


async def raises_later(error: type[BaseException], work: Awaitable[object]) -> None:
    with pytest.raises(error):
        await work
