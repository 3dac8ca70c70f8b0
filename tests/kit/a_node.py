"""A node to call, in this process: real programs, real ports, and at the end all of its slots are counted."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.eventually import eventually
from tests.kit.form import FORM

from wakugumi.adapters.net.address import Address
from wakugumi.adapters.programs.default_command import parse_command
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.node.node import Node
from wakugumi.roles.node.ports import NodePorts, listen
from wakugumi.roles.node.settings import NodeSettings
from wakugumi.roles.runner.station import Station

DEADLINE_S = 20.0
HERE = Address("127.0.0.1", 0)


class ANode(NamedTuple):
    node: Node
    ports: NodePorts
    folder: Path
    """Holds `bin`, `jobs`, `runs` (a line for each run) and, once it is there, `gate`."""

    @property
    def http(self) -> int:
        assert self.ports.http is not None
        return self.ports.http.port

    @property
    def lines(self) -> int:
        assert self.ports.lines is not None
        return self.ports.lines.port

    @property
    def runs(self) -> int:
        runs = self.folder / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    def open_gate(self) -> None:
        (self.folder / "gate").touch()

    async def until(self, what: str) -> None:
        """Until this holds, as Python sees it of the node."""
        names = {"node": self.node, "station": self.node.station}
        await eventually(lambda: eval(what, {}, names), what)

    async def all_free(self) -> None:
        """Nothing runs, nothing is received, nobody waits, and nothing is left of what was received."""
        await self.until("(station.running, node.receiving, node.answering) == (0, 0, 0)")
        await self.until("station.stopping or station.free == station.limit")
        assert left_in(self.node.spools.folder) == []


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def make_programs(folder: Path) -> Path:
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    runs = f'echo run >> "{folder}/runs"'
    for name, script in {
        "copy": f'{runs}; wc -c < "$1"; cp "$1" copied; echo warned >&2',
        "fail": f"{runs}; echo why >&2; exit 3",
        "wait": f'{runs}; while [ ! -e "{folder}/gate" ]; do sleep 0.01; done; cat "$1"',
        "large": f"{runs}; head -c 20000000 /dev/urandom > made; echo large",
        "spoil": f"{runs}; head -c 20000000 /dev/urandom > made; exit 4",
        "args": f'{runs}; for word in "$@"; do echo "$word"; done',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    return programs


@asynccontextmanager
async def a_node(
    folder: Path,
    command: str = "copy",
    *,
    slots: int = 2,
    one_port: bool = False,
    tls: ssl.SSLContext | None = None,
    keep_s: float = 600.0,
    guard: AccessGuard | None = None,
    **settings: Any,
) -> AsyncIterator[ANode]:
    """Its slots are counted to zero when all callers are gone."""
    programs = Programs(make_programs(folder), default=parse_command(command) if command else None)
    told = NodeSettings(jobs=folder / "jobs", slots=slots, cpu_cap=None, done_ttl_s=keep_s, **settings)
    station = Station(told, programs)
    node = Node(station, told)
    asks = tls is not None and tls.verify_mode == ssl.CERT_REQUIRED
    guard = guard or AccessGuard(tls=lambda: tls, knows_certificates=asks)
    ports = await listen(node, HERE, HERE, guard, one_port=one_port)
    serving = asyncio.get_running_loop().create_task(station.serve(), name="node under test")
    made = ANode(node, ports, folder)
    try:
        yield made
        made.open_gate()
        await made.all_free()
    finally:
        station.request_stop()
        station.request_stop()
        async with asyncio.timeout(DEADLINE_S):
            await serving
        ports.hurry()
        await ports.close()


class Got(NamedTuple):
    """An answer over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> str:
        assert self.headers["content-type"].startswith("application/problem+json")
        code: str = json.loads(self.body)["code"]
        return code

    @property
    def files(self) -> dict[str, bytes]:
        return unzipped(self.body)


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def post(path: str, body: bytes, *headers: str, length: int | None = None) -> bytes:
    """A whole request, as anybody may write it."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        FORM,
        *([f"Content-Length: {len(body) if length is None else length}"] if length != -1 else []),
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def say(port: int, data: bytes, *, end: bool = False) -> bytes:
    """All that comes back for these bytes. With `end` no more can follow them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with suppress(ConnectionError):
            writer.write(data)
            if end:
                writer.write_eof()
            await writer.drain()
        async with asyncio.timeout(DEADLINE_S):
            return await reader.read(-1)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def ask(port: int, request: bytes, *, end: bool = False) -> Got:
    """One request, one answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with suppress(ConnectionError):
            writer.write(request)
            if end:
                writer.write_eof()
        async with asyncio.timeout(DEADLINE_S):
            return await answer_from(reader)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def answer_from(reader: asyncio.StreamReader) -> Got:
    """The next answer; what only says that the body may come is none."""
    while (head := await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 "):
        pass
    first, *lines = head.decode().rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Got(int(first.split()[1]), headers, await reader.readexactly(int(headers["content-length"])))
