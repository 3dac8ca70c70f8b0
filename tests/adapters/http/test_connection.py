"""Strangers at the door: each is told clearly or cut off, costs a bounded amount, and hurts nobody else. (O1, O2)"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kit.eventually import eventually
from tests.kit.http_peer import DEADLINE_S, HttpPeer, a_door, ask

from wakugumi.adapters.http import connection as web_connection
from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply, Stream
from wakugumi.adapters.port.port import HttpListener
from wakugumi.core.connections import pace
from wakugumi.errors import Refused
from wakugumi.limits.http import BODY_RECEIVED_MIN_BYTES, HTTP_HEADERS_MAX, HTTP_LINE_BYTES_MAX
from wakugumi.limits.units import KIB, MIB

pytestmark = pytest.mark.anyio

GET = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /hello HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


class Streaming:
    """An answer without end, which counts how often it was closed."""

    closed = 0

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(MIB)
        finally:
            self.closed += 1


def some_pages(streaming: Streaming | None = None) -> Sequence[PageRoute]:
    async def hello(visit: HttpRequest) -> Reply:
        size = 0
        async for piece in visit.pieces():
            size += len(piece)
        return Reply(200, b"hello %d" % size)

    async def refuse(_visit: HttpRequest) -> Reply:
        raise Refused("busy", "all slots are taken")

    async def large(_visit: HttpRequest) -> Reply:
        return Reply(200, bytes(32 * MIB))

    async def some(_visit: HttpRequest) -> Reply:
        return Reply(200, bytes(32 * KIB))

    async def stream(_visit: HttpRequest) -> Reply:
        assert streaming is not None
        return Reply(200, Stream(None, streaming.pieces()))

    return [
        PageRoute("GET", "/hello", hello),
        PageRoute("POST", "/hello", hello),
        PageRoute("POST", "/refuse", refuse),
        PageRoute("GET", "/large", large),
        PageRoute("GET", "/some", some),
        PageRoute("GET", "/stream", stream),
    ]


@asynccontextmanager
async def listening(streaming: Streaming | None = None) -> AsyncIterator[HttpListener]:
    async with a_door(lambda: some_pages(streaming)) as listener:
        yield listener
        assert (await ask(listener.port, "GET", "/hello")).body == b"hello 0", "others are served as ever"


@pytest.mark.parametrize(
    "data",
    [
        GET + b"".join(b"X%d: y\r\n" % number for number in range(100_000)) + b"\r\n",
        GET + b"X: " + b"y" * 8 * MIB + b"\r\n\r\n",
        b"GET /" + b"y" * 8 * MIB + b" HTTP/1.1\r\n\r\n",
        POST + b"Content-Length: 99999999999999999999999999\r\n\r\n",
        POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://[::/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["headers", "header", "line", "length", "lengths", "both", "trailers", "http2", "nul", "url"],
)
async def test_what_is_no_request_is_a_problem_that_reaches_who_still_sends(data: bytes) -> None:
    async with listening() as listener, HttpPeer(listener.port) as peer:
        peer.writer.write(data)
        answer = await peer.answer()
        assert (answer.status, answer.code) == (400, "bad-request")
        assert len(answer.body) < 1000, "it does not say again what it was sent"
        assert await peer.is_cut_off()


async def test_a_head_may_be_as_large_as_is_said() -> None:
    line = "X: " + "y" * (HTTP_LINE_BYTES_MAX - 100)
    async with listening() as listener, HttpPeer(listener.port) as peer:
        lines = [line] * (HTTP_HEADERS_MAX - 10)
        assert (await peer.ask("GET", "/hello", *lines)).status == 200


async def test_a_refusal_reaches_who_goes_on_sending_and_the_connection_is_of_use_again() -> None:
    async with listening() as listener, HttpPeer(listener.port) as peer:
        refused = await peer.ask("POST", "/refuse", body=bytes(32 * MIB))
        assert (refused.status, refused.code, refused.head["retry-after"]) == (503, "busy", "1")
        assert (await peer.ask("POST", "/hello", body=b"abc")).body == b"hello 3"


async def test_who_never_ends_a_body_that_nobody_wants_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.adapters.http.connection.LINGER_S", 0.05)
    async with listening() as listener, HttpPeer(listener.port) as peer:
        await peer.head("POST", "/refuse", "Content-Length: 1000000")
        assert (await peer.answer()).status == 503
        assert await peer.is_cut_off()
        await eventually(lambda: listener.http_port.connections == 0)


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with listening() as listener, HttpPeer(listener.port) as peer:
        bodies = [b"x" * size for size in (0, 5, 70_000, 1)]
        for body in bodies:
            await peer.say(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert [(await peer.answer()).body for _ in bodies] == [b"hello %d" % len(body) for body in bodies]


def connection_of(listener: HttpListener) -> Any:
    server = listener.http_port._server
    return None if server is None else next(iter(server.connections), None)


async def test_who_sends_all_before_it_reads_is_heard_out_and_then_reads_what_was_wrong() -> None:
    def send_then_read(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
            sock.sendall(GET + b"X: " + b"y" * 32 * MIB)
            return sock.recv(12)

    async with listening() as listener:
        assert await asyncio.to_thread(send_then_read, listener.port) == b"HTTP/1.0 400"


async def test_of_a_flood_of_requests_little_is_read_at_a_time() -> None:
    goes_on = asyncio.Event()

    async def wait(_visit: HttpRequest) -> Reply:
        await goes_on.wait()
        return Reply(200)

    request = b"GET /wait HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 2000 + b"\r\n\r\n"
    async with a_door(lambda: [PageRoute("GET", "/wait", wait)]) as listener, HttpPeer(listener.port) as peer:
        peer.writer.write(request * 20_000)
        await eventually(lambda: connection_of(listener) is not None)
        connection = connection_of(listener)
        await eventually(lambda: not connection.transport.is_reading())
        goes_on.set()
        for _ in range(1000):
            assert (await peer.answer()).status == 200


def unread(port: int) -> socket.socket:
    """A connection that takes as little as can be of what it is sent."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    return sock


@pytest.mark.parametrize("path", ["/large", "/stream"])
async def test_who_does_not_read_an_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(pace, "BODY_RECEIVED_MIN_S", 0.05)
    streaming = Streaming()
    async with listening(streaming) as listener:
        with unread(listener.port) as sock:
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await eventually(lambda: listener.http_port.connections == 1)
            await eventually(lambda: listener.http_port.connections == 0)
            await eventually(lambda: streaming.closed == (path == "/stream"))


async def test_who_asks_again_and_again_and_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "BODY_RECEIVED_MIN_S", 0.05)
    async with listening() as listener:
        with unread(listener.port) as sock:
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(DEADLINE_S):
                    while True:
                        await loop.sock_sendall(sock, b"GET /some HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
            await eventually(lambda: listener.http_port.connections == 0)


async def test_who_reads_slowly_but_reads_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look = pace.OutputPace.is_too_slow

    def counted(self: pace.OutputPace, unread: int, dropped: int) -> bool:
        nonlocal looks
        looks += 1
        return look(self, unread, dropped)

    monkeypatch.setattr(pace.OutputPace, "is_too_slow", counted)
    monkeypatch.setattr(pace, "BODY_RECEIVED_MIN_S", 0.3)
    async with listening() as listener, HttpPeer(listener.port) as peer:
        await peer.head("GET", "/large")
        head = await peer.reader.readuntil(b"\r\n\r\n")
        assert b"Content-Length: 33554432" in head
        got = 0
        while looks < 2 and got < 24 * MIB:
            got += len(await peer.reader.readexactly(16 * BODY_RECEIVED_MIN_BYTES))
            await asyncio.sleep(0.01)
        await peer.reader.readexactly(32 * MIB - got)
        assert (await peer.ask("GET", "/hello")).status == 200


async def test_a_connection_that_ends_does_not_wait_for_ever_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_connection, "BODY_RECEIVED_MIN_S", 0.05)

    async def large(visit: HttpRequest) -> Reply:
        transport = visit.connection.transport  # type: ignore[attr-defined]
        transport.set_write_buffer_limits(high=64 * MIB)  # so that nobody has to wait before the end
        return Reply(200, bytes(32 * MIB))

    async with a_door(lambda: [PageRoute("GET", "/large", large)]) as listener:
        with unread(listener.port) as sock:
            sock.sendall(b"GET /large HTTP/1.0\r\nHost: localhost\r\n\r\n")
            await eventually(lambda: listener.http_port.connections == 1)
            await eventually(lambda: listener.http_port.connections == 0)
