"""Are answers of any shape read as they are, and is a connection used again only if that is safe?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from tests.kit.eventually import eventually
from tests.kit.http_calls import calling, lost, many, scripted
from tests.kit.http_peer import DEADLINE_S

from wakugumi.adapters.http import client as adapter
from wakugumi.adapters.http.client import HttpClient
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.errors import Lost
from wakugumi.limits.units import KIB, MIB

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"


class Answers:
    """A server that gives its answers one after the other, over as many connections as it gets."""

    def __init__(self, *answers: bytes, keeps: bool = True) -> None:
        self._left = list(answers)
        self._keeps = keeps
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while self._left:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            self.heads.append(head)
            lines = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
            self.bodies.append(await reader.readexactly(int(lines.get(b"Content-Length", 0))))
            writer.write(self._left.pop(0))
            if not self._keeps:
                return
        await reader.read()


@asynccontextmanager
async def answering(*answers: bytes, keeps: bool = True) -> AsyncIterator[tuple[Answers, str, HttpClient]]:
    server = Answers(*answers, keeps=keeps)
    async with asyncio.timeout(DEADLINE_S), scripted(server.serve) as url, calling() as calls:
        yield server, url, calls


async def heard(calls: HttpClient, url: str, method: str = "POST") -> tuple[int, bytes]:
    async with calls.call(method, url) as answer:
        return answer.status, await answer.read(1 * MIB)


@pytest.mark.parametrize(
    "said",
    [
        HELLO,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + HELLO,
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nTrailer: x\r\n\r\n",
        b"HTTP/1.1 200\r\ncontent-LENGTH:5\r\n\r\nhello",
    ],
    ids=["sized", "interim", "chunked", "bare"],
)
async def test_an_answer_of_any_shape_leaves_a_connection_for_the_next(said: bytes) -> None:
    async with answering(said, HELLO) as (server, url, calls):
        assert await heard(calls, url) == (200, b"hello")
        assert await heard(calls, url) == (200, b"hello")
        assert server.connections == 1


async def test_an_answer_without_a_size_ends_with_its_connection() -> None:
    async with answering(OK + b"\r\nhello", HELLO, keeps=False) as (server, url, calls):
        assert await heard(calls, url) == (200, b"hello")
        assert await heard(calls, url) == (200, b"hello")
        assert server.connections == 2


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\n\r\n"], ids=["204", "304"]
)
async def test_an_answer_that_has_no_body_needs_no_size(said: bytes) -> None:
    async with answering(said, HELLO) as (server, url, calls):
        assert (await heard(calls, url))[1] == b""
        assert await heard(calls, url) == (200, b"hello")
        assert server.connections == 1


@pytest.mark.parametrize(
    "said",
    [
        HELLO + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ],
    ids=["two answers", "close", "old"],
)
async def test_a_connection_that_is_not_kept_is_not_used_again(said: bytes) -> None:
    async with answering(said, HELLO) as (server, url, calls):
        assert await heard(calls, url) == (200, b"hello")
        assert await heard(calls, url) == (200, b"hello")
        assert server.connections == 2


async def test_bytes_that_come_unasked_end_the_connection() -> None:
    server = Answers(HELLO, HELLO)
    writers: list[asyncio.StreamWriter] = []

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await server.serve(reader, writer)

    async with asyncio.timeout(DEADLINE_S), scripted(keep) as url, calling() as calls:
        assert await heard(calls, url) == (200, b"hello")
        writers[0].write(HELLO.replace(b"hello", b"evil!"))
        await eventually(writers[0].transport.is_closing)
        assert await heard(calls, url) == (200, b"hello")
        assert server.connections == 2


async def test_an_answer_that_was_not_read_to_its_end_takes_its_connection_along() -> None:
    async with answering(OK + b"Content-Length: 50\r\n\r\nhello", HELLO) as (server, url, calls):
        async with calls.call("GET", url) as answer:
            assert await answer.read(5) == b"hello"
        with pytest.raises(Lost):
            await answer.next_piece()
        answer.close()
        assert await heard(calls, url) == (200, b"hello")
        assert server.connections == 2


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
async def test_only_what_may_be_repeated_is_sent_again_over_a_new_connection(method: str) -> None:
    """The server closes its end when the next request is on its way."""
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        writer.write(HELLO)
        if requests == 1:
            await reader.readuntil(b"\r\n\r\n")
            requests += 1
        else:
            await reader.read()

    async with asyncio.timeout(DEADLINE_S), scripted(serve) as url, calling() as calls:
        assert await heard(calls, url, method) == (200, b"hello")
        if method == "POST":
            with pytest.raises(Lost) as caught:
                await heard(calls, url, method)
            assert caught.value.why == "dead"
            assert requests == 2
        else:
            assert await heard(calls, url, method) == (200, b"hello")
            assert requests == 3


@pytest.mark.parametrize(
    "said",
    [
        OK + b"A: " + bytes(100) * KIB + b"\r\n\r\n",
        OK + b"A: b\r\n" * 20_000,
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * 5_000,
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        OK + b"Content-Length: -5\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n\0\0",
    ],
    ids=["zeros", "many headers", "many heads", "two sizes", "two framings", "negative", "chunk", "upgrade"],
)
async def test_what_is_no_answer_is_dead(said: bytes) -> None:
    async with answering(said) as (_, url, calls):
        if b" 101 " in said:
            assert (await heard(calls, url))[0] == 101
        else:
            assert await lost(calls, url) == "dead"


async def test_no_more_is_read_than_somebody_wants() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"Content-Length: %d\r\n\r\n" % (256 * MIB))
        with suppress(ConnectionError):
            for _ in range(256):
                writer.write(bytes(MIB))
                await writer.drain()
                sent += 1

    async with asyncio.timeout(DEADLINE_S), scripted(flood) as url, calling() as calls:
        async with calls.call("GET", url) as answer:
            assert len(await answer.next_piece()) <= 1 * MIB
            for _ in range(50):
                await asyncio.sleep(0)
            before = sent
            assert len(await answer.next_piece()) <= 1 * MIB
        assert before < 100


async def test_a_body_of_a_known_size_is_sent_as_it_is() -> None:
    async with answering(HELLO) as (server, url, calls):
        head = {"Content-Length": str(2 * MIB)}
        async with calls.call("POST", url, headers=head, body=many(2 * MIB)) as answer:
            assert await answer.read(10) == b"hello"
        assert server.bodies == [bytes(2 * MIB)]
        assert b"chunked" not in server.heads[0]


async def test_a_request_says_where_it_goes_and_that_no_browser_sent_it() -> None:
    async with answering(HELLO, HELLO, HELLO) as (server, url, calls):
        await heard(calls, f"{url}a b/\u00fc?q=%2F&\u00e9#part")
        await heard(calls, f"{url.rstrip('/')}?q=1", "GET")
        async with calls.call("POST", url, headers={"X-A": "b"}, body=b"abc") as answer:
            await answer.read(10)
        where = url.removeprefix("http://").rstrip("/").encode()
        assert server.heads == [
            b"POST /a%%20b/%%C3%%BC?q=%%2F&%%C3%%A9 HTTP/1.1\r\nHost: %s\r\nSec-Waku: 1\r\nContent-Length: 0\r\n\r\n"
            % where,
            b"GET /?q=1 HTTP/1.1\r\nHost: %s\r\nSec-Waku: 1\r\n\r\n" % where,
            b"POST / HTTP/1.1\r\nHost: %s\r\nSec-Waku: 1\r\nX-A: b\r\nContent-Length: 3\r\n\r\n" % where,
        ]


@pytest.mark.parametrize("value", ["a\r\nB: c", "a\nb", "a\rb", "\udc80"])
async def test_a_header_that_would_be_two_is_not_sent(value: str) -> None:
    async with answering(HELLO) as (server, url, calls):
        with pytest.raises(Lost) as caught:
            await calls.send("POST", url, headers={"X-A": value})
        assert caught.value.why == "refused"
        assert server.heads == []


async def test_more_calls_than_the_bound_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "CALLS_MAX", 2)
    async with answering(*[HELLO] * 20) as (server, url, calls):
        assert await asyncio.gather(*(heard(calls, url) for _ in range(20))) == [(200, b"hello")] * 20
        assert server.connections <= 2


async def test_a_connection_that_was_idle_for_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HELLO)
        await reader.read()
        ended.set()

    monkeypatch.setattr(adapter, "CALL_IDLE_S", 0.05)
    async with asyncio.timeout(DEADLINE_S), scripted(serve) as url, calling() as calls:
        assert await heard(calls, url) == (200, b"hello")
        await ended.wait()


async def test_a_cancelled_call_takes_its_connection_and_its_body_along() -> None:
    closed = asyncio.Event()
    began = asyncio.Event()

    async def silence(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        began.set()
        await reader.read()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(KIB)
                await asyncio.sleep(0)
        finally:
            closed.set()

    async with asyncio.timeout(DEADLINE_S), scripted(silence) as url, calling() as calls:
        tasks = Tasks()
        tasks.start(calls.send("POST", url, body=endless()), name="call")
        await began.wait()
        await tasks.close()
        await closed.wait()


async def test_silence_is_not_counted_while_a_body_is_being_sent() -> None:
    answered = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"1\r\nx\r\n")
        await asyncio.sleep(0.2)
        writer.write(HELLO)
        await reader.read()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"x"
        await answered.wait()
        yield b"y"

    async with asyncio.timeout(DEADLINE_S), scripted(serve) as url, calling() as calls:
        answer = await calls.send("POST", url, body=slowly(), silence_s=0.02)
        assert await answer.read(10) == b"hello"
        answered.set()
        answer.close()
