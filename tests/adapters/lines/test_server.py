"""A port that speaks lines: what is asked and answered, who is still sending, who stops, and who never says a word."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import pytest
from tests.kit.eventually import eventually
from tests.kit.guards import OpenGuard
from tests.kit.some_routes import echo

from wakugumi.adapters.http.page import HttpRequest, Page, PageRoute, Reply
from wakugumi.adapters.lines.server import LineServer, listen_lines
from wakugumi.adapters.port import port as web
from wakugumi.adapters.port.port import listen_http
from wakugumi.core.connections import line_connection, pace
from wakugumi.limits.http import LINE_BYTES_MAX
from wakugumi.limits.units import MIB
from wakugumi.limits.wire import CONNECTIONS_MAX

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


class APort(NamedTuple):
    port: int
    lines: LineServer


@asynccontextmanager
async def a_port(*, with_http: bool = False, connections_max: int = CONNECTIONS_MAX) -> AsyncIterator[APort]:
    async def hello(_visit: HttpRequest) -> Reply:
        return Reply(body=b"hello")

    page: Page = hello
    lines = LineServer(echo, OpenGuard(), connections_max=connections_max)
    if with_http:
        routes = [lambda: [PageRoute("GET", "/hello", page)]]
        http = await listen_http("127.0.0.1", 0, routes, OpenGuard(), lines=lines)
        try:
            yield APort(http.port, lines)
        finally:
            await http.close()
    else:
        listener = await listen_lines("127.0.0.1", 0, lines)
        try:
            yield APort(listener.port, lines)
        finally:
            await listener.close()
    assert lines.connections == 0


async def say(port: int, data: bytes, *, end: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        if end:
            writer.write_eof()
        async with asyncio.timeout(20):
            return await reader.read(-1)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@pytest.mark.spec("N1")
@pytest.mark.parametrize("with_http", [False, True])
async def test_a_job_is_asked_for_and_answered(with_http: bool) -> None:
    async with a_port(with_http=with_http) as at:
        assert await say(at.port, b"JOB x a 5\nhello") == b"OK 5\nhello"
        assert await say(at.port, b"JOB x a 5\r\nhello and more") == b"OK 5\nhello"
        assert await say(at.port, b"JOB x a 0\n", end=True) == b"OK 0\n"
        large = bytes(3 * MIB)
        assert await say(at.port, b"JOB x a %d\n" % len(large) + large) == b"OK %d\n" % len(large) + large


async def test_one_port_speaks_lines_and_http_and_nothing_else() -> None:
    async with a_port(with_http=True) as at:
        answer = await say(at.port, b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert answer.endswith(b"hello")
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        for byte in b"JOB x a 1\ny":
            writer.write(bytes([byte]))
            await writer.drain()
        assert await reader.read(-1) == b"OK 1\ny"
        writer.close()
        with suppress(ConnectionError):
            assert await say(at.port, bytes([47, 0, 0, 0, 9, 0, 0])) == b""


@pytest.mark.spec("N1")
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"JOB bad a 1\nx", b"ERR bad-name: no such name\n"),
        (b"JOB bug a 1\nx", b"ERR worker-error: "),
        (b"JOB x a\n", b"ERR bad-request: "),
        (b"JOB x ../a 1\nx", b"ERR bad-name: "),
        (b"JOB x a 10\nhello", b"ERR bad-request: 5 bytes came, and the line says 10\n"),
        (b"JOB x a", b"ERR bad-request: the line has no end\n"),
        (b"JOB " + b"x" * (LINE_BYTES_MAX + 1000), b"ERR bad-request: the line is longer"),
        (b"\x00" * 100, b"ERR bad-request: "),
        (b"", b""),
    ],
)
async def test_what_is_wrong_is_told_in_a_line(said: bytes, answer: bytes) -> None:
    async with a_port() as at:
        got = await say(at.port, said, end=True)
        assert got.startswith(answer)
        assert got.count(b"\n") == min(1, len(got))


async def test_a_body_that_is_shorter_than_was_said_ends_without_the_rest() -> None:
    async with a_port() as at:
        assert await say(at.port, b"JOB short a 0\n") == b"OK 10\n1234"


async def test_who_says_nothing_to_a_port_of_both_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "HELLO_DEADLINE_S", 0.05)
    async with a_port(with_http=True) as at:
        for said in (b"", b"JO"):
            with suppress(ConnectionError):
                assert await say(at.port, said) == b""
        assert (await say(at.port, b"JOB x a 5\nhello")) == b"OK 5\nhello"


async def test_who_says_nothing_is_told_and_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_connection, "HELLO_DEADLINE_S", 0.05)
    async with a_port() as at:
        assert (await say(at.port, b"JO")).startswith(b"ERR too-slow: ")


async def test_who_sends_next_to_nothing_is_told_and_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "BODY_RECEIVED_MIN_S", 0.05)
    async with a_port() as at:
        assert (await say(at.port, b"JOB x a 100\nx")).startswith(b"ERR too-slow: ")


@pytest.mark.spec("N3")
@pytest.mark.parametrize("polite", [True, False], ids=["reads while it sends", "sends all, then reads"])
async def test_busy_reaches_a_client_that_sends_a_gigabyte(polite: bool) -> None:
    """By a plain socket of the system, as anybody may write it."""
    size = 1_000_000_000
    answers: list[bytes] = []
    sent = 0

    def client(port: int) -> None:
        nonlocal sent
        piece = bytes(MIB)
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            sock.sendall(b"JOB busy a %d\n" % size)
            with suppress(ConnectionError):
                while sent < size:
                    if polite:
                        sock.settimeout(0)
                        with suppress(BlockingIOError):
                            answers.append(sock.recv(100))
                            return
                        sock.settimeout(20)
                    sock.sendall(piece)
                    sent += len(piece)
            answers.append(sock.recv(100))

    async with a_port() as at:
        thread = threading.Thread(target=client, args=(at.port,))
        thread.start()
        await asyncio.to_thread(thread.join)
    assert answers == [b"BUSY retry=5\n"]
    assert sent < size


@pytest.mark.spec("N3")
async def test_who_sends_a_little_more_than_is_wanted_is_not_torn_off() -> None:
    """It sends all of it, sees no error, reads the answer, and then an end in order."""
    seen: list[bytes] = []

    def client(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            sock.sendall(b"JOB busy a %d\n" % (32 * MIB))
            for _ in range(32):
                sock.sendall(bytes(MIB))
            seen.append(sock.recv(100))
            seen.append(sock.recv(100))

    async with a_port() as at:
        thread = threading.Thread(target=client, args=(at.port,))
        thread.start()
        await asyncio.to_thread(thread.join)
    assert seen == [b"BUSY retry=5\n", b""]


async def test_every_job_is_a_line_of_the_access_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "wakugumi.access"):
        async with a_port() as at:
            await say(at.port, b"JOB monday-7 a 5\nhello")
            await say(at.port, b"JOB bad a 5\nhello")
    fields = [vars(record)["fields"] for record in caplog.records]
    assert [(one["job"], one["answer"], one["sent"]) for one in fields] == [
        ("monday-7", "OK 5", 5),
        ("bad", "ERR bad-name: no such name", 0),
    ]


async def test_more_connections_than_there_may_be_are_closed() -> None:
    async with a_port(connections_max=1) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(b"JOB x a 2\nh")
        async with asyncio.timeout(20):
            await eventually(lambda: at.lines.connections == 1)
            with suppress(ConnectionError):
                assert await say(at.port, b"JOB y a 2\nhi") == b""
            writer.write(b"i")
            assert await reader.read(-1) == b"OK 2\nhi"
            writer.close()
            await eventually(lambda: not at.lines.connections)
        assert await say(at.port, b"JOB x a 2\nhi") == b"OK 2\nhi"
