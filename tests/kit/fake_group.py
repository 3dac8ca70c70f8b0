"""A group that says whatever a test likes, over plain sockets; and a client that counts what it sends."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.eventually import eventually
from tests.kit.form import form

from wakugumi.core.gateway.groups import GroupAt
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.gateway.server import GatewayServer
from wakugumi.roles.gateway.settings import GatewaySettings

DEADLINE_S = 20.0


class Asked(NamedTuple):
    """A request that came to a group."""

    method: str
    path: str
    head: dict[str, str]
    body: bytes

    @property
    def is_file(self) -> bool:
        """Did the file come as it is, without a form?"""
        return self.head["content-type"] == "application/vnd.wakugumi.job"

    @property
    def job(self) -> Any:
        """The head of a file that came as it is."""
        return json.loads(self.body[8 : 8 + int.from_bytes(self.body[4:8], "little")])

    @property
    def content(self) -> bytes | None:
        """The file, of its form or as it is; None if head and body do not belong together."""
        if self.is_file:
            file = self.body[8 + int.from_bytes(self.body[4:8], "little") :]
            return file if self.body[:4] == b"\0WK1" and self.job["Files"][0].get("Size", 0) == len(file) else None
        boundary = self.head["content-type"].partition("boundary=")[2]
        start, _, rest = self.body.partition(b"\r\n\r\n")
        end = f"\r\n--{boundary}--\r\n".encode()
        is_form = start.startswith(f"--{boundary}\r\n".encode()) and rest.endswith(end)
        return rest.removesuffix(end) if is_form else None


class Said(NamedTuple):
    """What a group answers."""

    status: int = 200
    body: bytes = b"PK the result"
    head: dict[str, str] = {}  # noqa: RUF012


class Raw(NamedTuple):
    """An answer as bytes of its own, be it HTTP or not. The connection ends after it."""

    data: bytes


OK = {"Content-Type": "application/zip", "Waku-Status": "OK", "Waku-Exit-Code": "0"}
FAILED = {"Content-Type": "application/zip", "Waku-Status": "FAILED", "Waku-Exit-Code": "3", "Waku-Reason": "exit"}
Behaviour = Callable[[Asked], Awaitable[Said | Raw | None]]
"""None: the connection ends without an answer."""


def a_result(job: str, body: bytes = b"PK the result") -> Said:
    return Said(200, body, OK | {"Waku-Job": job, "Content-Disposition": f'attachment; filename="result-{job}.zip"'})


def a_problem(status: int, code: str, **head: str) -> Said:
    body = {"type": "about:blank", "status": status, "code": code, "detail": f"it is {code}", "hint": ""}
    return Said(status, json.dumps(body).encode(), {"Content-Type": "application/problem+json"} | head)


class FakeGroup:
    """Answers /capacity, and every dispatch as it is told; by default with a result that names the group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dispatched: list[Asked] = []
        self.began = 0
        """Jobs whose heads were received."""
        self.cancelled: list[str] = []
        self.capacity: dict[str, int] | None = {"running": 0, "limit": 8, "queued": 0, "free": 8}
        self.raw_capacity: bytes | None = None
        """What is answered to a poll instead, as it stands."""
        self.says_takes = self.takes_files = False
        """Does it say that it takes files without a form, and does it?"""
        self.polls = 0
        self.behave: Behaviour = self.result
        self.open = asyncio.Event()
        """What `hold` waits for."""
        self.arrived = asyncio.Event()
        self.stays_open = False
        """After half an answer, of which nothing more comes."""
        self._server: asyncio.Server
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def result(self, asked: Asked) -> Said | None:
        return a_result(asked.path.split("?")[0].rpartition("/")[2], f"PK by {self.name}".encode())

    async def hold(self, asked: Asked) -> Said | None:
        await self.open.wait()
        return await self.result(asked)

    def say(self, *said: Said | Raw | None) -> None:
        """These in turn, and the last one for ever."""
        left = list(said)

        async def behave(_asked: Asked) -> Said | Raw | None:
            return left.pop(0) if len(left) > 1 else left[0]

        self.behave = behave

    @property
    def names(self) -> list[str]:
        return [asked.path.split("?")[0].rpartition("/")[2] for asked in self.dispatched]

    def at(self, zone: str = "") -> GroupAt:
        return GroupAt(self.name, f"http://127.0.0.1:{self.port}", zone)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                asked = await _read_request(reader, self._begins)
                said = await self._answer(asked)
                if said is None:
                    break
                if isinstance(said, Raw):
                    writer.write(said.data)
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
                    break
                head = {"Content-Length": str(len(said.body))} | said.head
                lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
                told = f"HTTP/1.1 {said.status} X\r\n{lines}\r\n"
                writer.write(told.encode(errors="surrogateescape") + said.body)
                await writer.drain()
                if int(head["Content-Length"]) != len(said.body):
                    if self.stays_open:
                        await reader.read()
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    def _begins(self, path: str) -> None:
        self.began += path.startswith("/dispatch/")

    async def _answer(self, asked: Asked) -> Said | Raw | None:
        if asked.path == "/capacity":
            self.polls += 1
            if self.raw_capacity is not None:
                return Raw(self.raw_capacity)
            if self.capacity is None:
                await asyncio.Event().wait()
            takes = {"Waku-Takes": "env, job"} if self.says_takes else {}
            return Said(200, json.dumps(self.capacity).encode(), {"Content-Type": "application/json"} | takes)
        if asked.method == "DELETE":
            self.cancelled.append(asked.path.rpartition("/")[2])
            return Said(202, b'{"cancelled": true}')
        assert asked.path.startswith("/dispatch/"), asked.path
        self.dispatched.append(asked)
        self.arrived.set()
        if asked.content is None or (asked.is_file and not self.takes_files):
            return a_problem(400, "bad-request")
        said = await self.behave(asked)
        if asked.is_file and isinstance(said, Said) and said.status != 200:
            said.head["Waku-Takes"] = "job"
        return said


async def _read_request(reader: asyncio.StreamReader, begins: Callable[[str], None]) -> Asked:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = lines[0].split(" ")
    begins(path)
    head = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    if head.get("transfer-encoding") == "chunked":
        body = bytearray()
        while size := int(await reader.readuntil(b"\n"), 16):
            body += await reader.readexactly(size)
            await reader.readuntil(b"\n")
        await reader.readuntil(b"\n")
        return Asked(method, path, head, bytes(body))
    return Asked(method, path, head, await reader.readexactly(int(head.get("content-length", 0))))


class Heard(NamedTuple):
    """What a client was answered."""

    status: int
    head: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        assert self.head["content-type"].startswith("application/problem+json"), self
        return str(json.loads(self.body)["code"])

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Caller:
    """One connection of a client, which counts the bytes that it sends."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sent = 0
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Caller:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        self.sent += len(data)
        async with asyncio.timeout(DEADLINE_S):
            await self.writer.drain()

    async def head(self, method: str, path: str, *lines: str) -> None:
        text = "".join(f"{line}\r\n" for line in (f"{method} {path} HTTP/1.1", "Host: localhost", *lines))
        await self.say(text.encode() + b"\r\n")

    async def heard(self) -> Heard:
        async with asyncio.timeout(DEADLINE_S):
            status, head = await self.heard_head()
            if head.get("transfer-encoding") == "chunked":
                body = bytearray()
                while size := int(await self.reader.readline(), 16):
                    body += await self.reader.readexactly(size)
                    await self.reader.readline()
                await self.reader.readline()
                return Heard(status, head, bytes(body))
            return Heard(status, head, await self.reader.readexactly(int(head.get("content-length", 0))))

    async def heard_head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(DEADLINE_S):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        head = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
        return int(lines[0].split(" ")[1]), head


async def call(port: int, method: str, path: str, body: bytes = b"", *lines: str) -> Heard:
    async with Caller(port) as caller:
        await caller.head(method, path, f"Content-Length: {len(body)}", *lines)
        await caller.say(body)
        return await caller.heard()


async def submit(port: int, name: str, content: bytes = b"input", *lines: str, query: str = "") -> Heard:
    """With a boundary of its own, as every client has one."""
    boundary = secrets.token_hex(8)
    head = f"Content-Type: multipart/form-data; boundary={boundary}"
    body = form(content, boundary=boundary)
    return await call(port, "POST", f"/submit/{name}{query}", body, head, *lines)


async def submit_until_taken(port: int, name: str, content: bytes = b"input", *, query: str = "") -> Heard:
    """As a client does that is told to come again (503)."""
    async with asyncio.timeout(DEADLINE_S):
        while (heard := await submit(port, name, content, query=query)).status == 503:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return heard


@asynccontextmanager
async def groups_of(*names: str, takes_files: bool = False) -> AsyncIterator[list[FakeGroup]]:
    made = [FakeGroup(name) for name in names]
    for group in made:
        group.says_takes = group.takes_files = takes_files
        await group.start()
    try:
        yield made
    finally:
        for group in made:
            await group.stop()


class GatewayHere(NamedTuple):
    port: int
    server: GatewayServer


@asynccontextmanager
async def a_gateway(
    folder: Path,
    groups: list[FakeGroup],
    *,
    zones: dict[str, str] | None = None,
    guard: AccessGuard | None = None,
    **more: Any,
) -> AsyncIterator[GatewayHere]:
    """With groups that were asked once, so that it knows them."""
    at = tuple(group.at((zones or {}).get(group.name, "")) for group in groups)
    settings = GatewaySettings(groups=at, state=folder, **({"poll_s": 0.03} | more))
    asked = {group.name: group.polls for group in groups}
    async with GatewayServer(settings, guard) as server:
        port = await server.listen("127.0.0.1", 0)
        known = [group for group in groups if group.capacity is not None]
        await eventually(lambda: all(group.polls > asked[group.name] + 1 for group in known))
        yield GatewayHere(port, server)


async def sweep(gate: GatewayHere) -> None:
    """What is old goes now."""
    machine, ended = gate.server.gateway.machine, asyncio.Event()

    async def work() -> None:
        await machine.keeper.sweep()
        ended.set()

    machine.state.start(work, "sweep")
    await call(gate.port, "GET", "/status/nobody")  # Any event lets the flow begin.
    async with asyncio.timeout(DEADLINE_S):
        await ended.wait()


async def until_state(port: int, name: str, *states: str) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            heard = await call(port, "GET", f"/status/{name}")
            if heard.status == 200 and heard.json["state"] in states:
                return heard.json
            await asyncio.sleep(0.01)


def left_on_disk(folder: Path) -> list[str]:
    return [path.name for path in (folder / "contents").iterdir()]


def open_files(folder: Path, inside: str = "contents") -> list[str]:
    """Of this process, below the folder, also those without a name."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            path = str(Path(f"/proc/self/fd/{number}").readlink())
            if path.startswith(str(folder / inside)):
                found.append(path)
    return found


def words(groups: list[FakeGroup], state: Path) -> list[str]:
    """The command of a gateway before these groups."""
    named = [word for group in groups for word in ("--group", f"{group.name}={group.at().url}")]
    return ["gateway", "0", *named, "--state", str(state), "--lease", "0.6"]
