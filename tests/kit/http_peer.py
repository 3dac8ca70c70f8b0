"""A peer that says HTTP byte by byte, so that it can also say it wrongly, and a door for it to come to."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tests.kit.guards import OpenGuard

from wakugumi.adapters.http.page import Pages
from wakugumi.adapters.net.guard import Guard
from wakugumi.adapters.port.port import HttpListener, listen_http

DEADLINE_S = 20.0


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Answer(NamedTuple):
    status: int
    head: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        assert self.head["content-type"].startswith("application/problem+json"), self
        return dict(json.loads(self.body))

    @property
    def code(self) -> str:
        return str(self.problem["code"])


class HttpPeer:
    """One connection."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._tls = tls
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> HttpPeer:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        async with asyncio.timeout(DEADLINE_S):
            await self.writer.drain()

    async def head(self, method: str, path: str, *lines: str) -> None:
        text = "".join(f"{line}\r\n" for line in (f"{method} {path} HTTP/1.1", "Host: localhost", *lines))
        await self.say(text.encode() + b"\r\n")

    async def answer(self, *, has_body: bool = True) -> Answer:
        async with asyncio.timeout(DEADLINE_S):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            head = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:-2])}
            body = b""
            if has_body and "chunked" in head.get("transfer-encoding", ""):
                while size := int(await self.reader.readline(), 16):
                    body += (await self.reader.readexactly(size + 2))[:-2]
                await self.reader.readline()
            elif has_body:
                body = await self.reader.readexactly(int(head.get("content-length", 0)))
        return Answer(int(lines[0].split()[1]), head, body)

    async def ask(self, method: str, path: str, *lines: str, body: bytes = b"") -> Answer:
        length = (f"Content-Length: {len(body)}",) if body or method == "PUT" else ()
        await self.head(method, path, *length, *lines)
        if body:
            await self.say(body)
        return await self.answer(has_body=method != "HEAD")

    async def is_cut_off(self) -> bool:
        """It was ended, in good order or not, and nothing was said before."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def a_door(
    *pages: Pages, guard: Guard | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[HttpListener]:
    source = None if tls is None else lambda: tls
    listener = await listen_http("127.0.0.1", 0, pages, guard or OpenGuard(), tls=source)
    try:
        yield listener
    finally:
        await listener.close()


async def ask(port: int, method: str, path: str, *lines: str, body: bytes = b"") -> Answer:
    """One request on a connection of its own."""
    async with HttpPeer(port) as peer:
        return await peer.ask(method, path, *lines, body=body)
