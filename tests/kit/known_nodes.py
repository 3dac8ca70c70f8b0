"""A real leader that knows some fake nodes by their addresses, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.kit.a_leader import Running, a_leader
from tests.kit.fake_node import FakeNode

from wakugumi.core.leader.nodes.machine import NodeAt
from wakugumi.core.subject import worker_patterns
from wakugumi.roles.client.grid import Grid, connect
from wakugumi.roles.client.job import Job
from wakugumi.roles.leader.nodes.remote_node import RemoteNodes


@asynccontextmanager
async def known_to(leader: Running, *nodes: FakeNode, weights: tuple[int, ...] = ()) -> AsyncIterator[RemoteNodes]:
    """The nodes become the leader's."""
    at = [
        NodeAt(node.url, worker_patterns(""), weight=weights[index] if weights else 1)
        for index, node in enumerate(nodes)
    ]
    known = RemoteNodes(leader.leader.hub, leader.leader.blobs, at)
    try:
        yield known
    finally:
        await known.close()


@asynccontextmanager
async def a_group(*nodes: FakeNode, **options: object) -> AsyncIterator[tuple[Running, Grid]]:
    async with (
        a_leader(**options) as leader,
        known_to(leader, *nodes),
        connect(f"127.0.0.1:{leader.port}") as grid,
    ):
        yield leader, grid


async def hand_in(grid: Grid, name: str | None = None, text: bytes = b"text", retries: int = 0) -> Job:
    return await grid.submit("calc", args=["--fast", "in.txt"], files={"in.txt": text}, job_id=name, retries=retries)
