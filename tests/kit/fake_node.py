"""A node that answers as SPEC N2 says, or does not: some lines of HTTP over a plain socket, without any library.

It runs no programs: a job's answer is its input in capitals, once `go` is set. What it does to the next requests
for /run is said by `tricks`: "busy", "cut" (its connection ends), "cut-answer" (in the midst of the ZIP),
"stall-answer" (there, too), "silent", "no-zip", "odd-head" (bytes that are no text). With the word "job" in `takes` it
speaks in envelopes.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import ssl
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec
from tests.kit.eventually import eventually

from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.wire.form import Data, Multipart, boundary_of
from wakugumi.wire.messages.envelope import JOB_TYPE, RESULT_TYPE, opened
from wakugumi.wire.messages.job import JobResult, write_result
from wakugumi.wire.request_digest import HEADER


class Asked(NamedTuple):
    """One request, as it came."""

    method: str
    job: str
    query: dict[str, list[str]]
    body: bytes
    request: str = ""
    """Digest of the request."""


def zipped(files: dict[str, bytes], stdout: bytes = b"", stderr: bytes = b"", *, with_texts: bool = True) -> bytes:
    data = io.BytesIO()
    texts = {"stdout.txt": stdout, "stderr.txt": stderr} if with_texts else {}
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**files, **texts}.items():
            archive.writestr(name, content)
    return data.getvalue()


class FakeNode:
    """One that listens. What it was asked, and what it ran, may be looked at."""

    def __init__(self) -> None:
        self.limit = 2
        self.lies = 0
        """So many slots more than it has, it says."""
        self.others = 0
        """Slots that somebody else's jobs take."""
        self.go = asyncio.Event()
        self.go.set()
        self.tricks: list[str] = []
        self.takes = ""
        """What it says it takes of a job."""
        self.opens = True
        """It opens envelopes, if it says so; else its capacity is of a later version."""
        self.large: list[bytes] = []
        """Contents of stdout and stderr, as blobs behind an envelope."""
        self.claims: dict[str, object] = {}
        """Fields of its results in envelopes that it sets to other values."""
        self.capacity: bytes | None = None
        """What it says instead."""
        self.raw_capacity: bytes | None = None
        """The same, as a whole answer; the connection ends after it."""
        self.raw: list[bytes] = []
        """Whole answers to the next jobs, in turn; the connection ends after each."""
        self.status: tuple[int, dict[str, object]] | None = None
        """What it answers to every job instead of running it."""
        self.deaf_to: set[str] = set()
        """Methods of requests that it never answers."""
        self.files: Callable[[bytes], dict[str, bytes]] = lambda content: {"out": content.upper()}
        self.heads = {"Waku-Status": "OK", "Waku-Exit-Code": "0", "Waku-Run-Seconds": "0.5", "Waku-Worker": "fake"}
        self.busy = 0
        """How often it had to say that it is."""
        self.polls = 0
        """How often it was asked what it has free."""
        self.asked: list[Asked] = []
        self.began: list[str] = []
        """Jobs whose programs it started."""
        self.running: set[str] = set()
        self.done: dict[str, bytes] = {}
        self.envelopes: dict[str, bytes] = {}
        self.port = 0
        self._server: asyncio.Server | None = None
        self._conns: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As if it was killed."""
        assert self._server is not None
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        for writer in list(self._conns):
            writer.transport.abort()

    async def until(self, holds: Callable[[FakeNode], object]) -> None:
        await eventually(lambda: holds(self))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._conns.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._one(reader, writer):
                pass
        self._conns.discard(writer)
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        parts = urlsplit(target)
        if parts.path == "/capacity" and method not in self.deaf_to:
            self.polls += 1
            if self.raw_capacity is not None:
                return await _send_raw(writer, self.raw_capacity)
            said = {"running": len(self.running) + self.others, "limit": self.limit + self.lies}
            body = json.dumps(said).encode() if self.capacity is None else self.capacity
            return _send(writer, 200, body, {"Waku-Takes": self.takes} if self.takes else {})
        trick = self.tricks.pop(0) if self.tricks and method == "POST" else ""
        if trick == "busy-early":  # Before the input has come.
            _send(writer, 503, b'{"code":"busy"}', {"Connection": "close"})
            await writer.drain()
            await reader.readexactly(int(headers["content-length"]))
            return False
        body = await _body(reader, headers)
        name = parts.path.rpartition("/")[2]
        self.asked.append(Asked(method, name, parse_qs(parts.query), body, headers.get(HEADER.lower(), "")))
        if method in self.deaf_to:
            await asyncio.Event().wait()
        if method == "DELETE":
            self.running.discard(name)
            return _send(writer, 202, b'{"cancelled":true}')
        if self.raw and method == "POST":
            return await _send_raw(writer, self.raw.pop(0))
        if trick == "cut":
            return False
        if trick == "silent":
            await asyncio.Event().wait()
        if trick == "busy":
            return _send(writer, 503, b'{"code":"busy","detail":"no slot"}', {"Retry-After": "5"})
        if trick == "no-zip":
            return _send(writer, 200, b"this is no ZIP", self.heads)
        if trick == "odd-head":
            writer.write(b"HTTP/1.1 200 -\r\nWaku-Worker: \xff\xfe\r\n")
            writer.write(b"Waku-Status: OK\r\nContent-Length: 22\r\n\r\n" + b"PK\5\6" + bytes(18))
            return True
        if self.status is not None:
            takes = {"Waku-Takes": self.takes} if self.opens and headers.get("content-type") == JOB_TYPE else {}
            return _send(writer, self.status[0], json.dumps(self.status[1]).encode(), takes)
        return await self._run(writer, name, headers, body, trick)

    async def _run(
        self, writer: asyncio.StreamWriter, name: str, headers: dict[str, str], body: bytes, trick: str
    ) -> bool:
        kind = headers.get("content-type")
        if name in self.running:
            return _send(writer, 423, b'{"code":"running"}', {"Retry-After": "0"})
        if name not in self.done:
            if not body:
                return _send(writer, 400, b'{"code":"bad-request"}')
            if len(self.running) + self.others >= self.limit:
                self.busy += 1
                return _send(writer, 503, b'{"code":"busy","detail":"no slot"}', {"Retry-After": "5"})
            if kind == JOB_TYPE:
                if not self.opens:
                    return _send(writer, 400, b'{"code":"bad-request","detail":"no form"}')
                content = body[opened(body)[1] :]
            else:
                form = Multipart(boundary_of(kind))
                content = b"".join(event.data for event in form.feed(body) if isinstance(event, Data))
            self.began.append(name)
            self.running.add(name)
            await self.go.wait()
            if name not in self.running:
                return _send(writer, 410, b'{"code":"cancelled"}')
            self.running.discard(name)
            self.done[name] = zipped(self.files(content), b"printed\n", b"said\n")
            self.envelopes[name] = self._envelope(name, content)
        answer, heads = self.done[name], self.heads
        if headers.get("accept") == RESULT_TYPE and self.opens:
            answer, heads = self.envelopes[name], {"Content-Type": RESULT_TYPE}
        if trick in {"cut-answer", "stall-answer"}:
            _send(writer, 200, answer[: len(answer) // 2], heads | {"Content-Length": str(len(answer))})
            await writer.drain()
            if trick == "stall-answer":
                await asyncio.Event().wait()
            return False
        return _send(writer, 200, answer, heads)

    def _envelope(self, name: str, content: bytes) -> bytes:
        ok = self.heads["Waku-Status"] == "OK"
        archive = zipped(self.files(content), with_texts=False)
        result = JobResult(name, "", "calc", "OK" if ok else "FAILED", "printed\n", "said\n", archive)
        exit_code, reason = int(self.heads["Waku-Exit-Code"]), self.heads.get("Waku-Reason")
        result = msgspec.structs.replace(result, exit_code=exit_code, reason=reason, run_s=0.5, worker="fake")
        for field, large in zip(("stdout_blob", "stderr_blob"), self.large, strict=False):
            result = msgspec.structs.replace(result, **{field: ref_of_bytes(large)})
        return write_result(msgspec.structs.replace(result, **self.claims)) + b"".join(self.large)


def _send(writer: asyncio.StreamWriter, status: int, body: bytes, headers: dict[str, str] | None = None) -> bool:
    head = {"Content-Length": str(len(body))} | (headers or {})
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    writer.write(f"HTTP/1.1 {status} -\r\n{lines}\r\n".encode() + body)
    return True


async def _send_raw(writer: asyncio.StreamWriter, data: bytes) -> bool:
    writer.write(data)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    return False


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    body = b""
    while headers.get("transfer-encoding") == "chunked":
        size = int(await reader.readuntil(b"\r\n"), 16)
        body += (await reader.readexactly(size + 2))[:size]
        if not size:
            break
    return body


@asynccontextmanager
async def a_node() -> AsyncIterator[FakeNode]:
    node = FakeNode()
    await node.start()
    try:
        yield node
    finally:
        await node.stop()
