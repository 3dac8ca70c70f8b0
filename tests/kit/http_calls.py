"""Calls of our HTTP client, and servers that do as a script says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.kit.http_peer import DEADLINE_S

from wakugumi.adapters.http.client import HttpClient
from wakugumi.errors import Lost
from wakugumi.limits.units import MIB

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def calling() -> AsyncIterator[HttpClient]:
    calls = HttpClient(connect_s=5)
    try:
        yield calls
    finally:
        await calls.close()


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[str]:
    """A server that does as the script says, and its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


async def many(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // MIB):
        yield bytes(MIB)


async def lost(
    calls: HttpClient, url: str, *, body: bytes | AsyncIterator[bytes] | None = None, silence_s: float = 5
) -> str:
    """How far it came, by the head or by the body."""
    with pytest.raises(Lost) as caught:
        async with asyncio.timeout(DEADLINE_S), calls.call("POST", url, body=body, silence_s=silence_s) as answer:
            await answer.read(1000)
    return caught.value.why
