"""A call gets the answer, or learns how far it came: nobody reached, no answer in time, ended in the midst."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.kit.http_peer import DEADLINE_S, a_door

from wakugumi.adapters.http import client as adapter
from wakugumi.adapters.http.client import HttpClient
from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply, Stream
from wakugumi.errors import Lost, Refused
from wakugumi.limits.units import MIB

pytestmark = pytest.mark.anyio

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


def some_pages() -> Sequence[PageRoute]:
    async def echo(visit: HttpRequest) -> Reply:
        body = b"".join([piece async for piece in visit.pieces()])
        return Reply(201, body, headers={"X-Said": visit.header("X-Say") or "", "X-Query": ",".join(visit.query("q"))})

    async def refuse(_visit: HttpRequest) -> Reply:
        raise Refused("busy", "all slots are taken")

    async def large(_visit: HttpRequest) -> Reply:
        return Reply(200, Stream(8 * MIB, many(8 * MIB)))

    return [PageRoute("POST", "/echo", echo), PageRoute("POST", "/refuse", refuse), PageRoute("GET", "/large", large)]


@asynccontextmanager
async def a_role() -> AsyncIterator[str]:
    async with a_door(some_pages) as listener:
        yield f"http://127.0.0.1:{listener.port}"


async def test_a_call_brings_its_body_and_gets_the_answer() -> None:
    async with a_role() as url, calling() as calls:
        called = calls.call("POST", f"{url}/echo?q=a%2Fb&q=c", headers={"X-Say": "x"}, body=b"abc")
        async with called as answer:
            assert (answer.status, answer.size, await answer.read(100)) == (201, 3, b"abc")
            assert (answer.header("x-said"), answer.header("x-query")) == ("x", "a/b,c")


async def test_a_body_may_come_in_pieces_and_an_answer_too() -> None:
    async with a_role() as url, calling() as calls:
        async with calls.call("POST", f"{url}/echo", body=many(4 * MIB)) as answer:
            assert sum([len(piece) async for piece in answer.pieces()]) == 4 * MIB
        async with calls.call("GET", f"{url}/large") as answer:
            assert answer.size == 8 * MIB
            assert len(await answer.read(10)) == 10
        async with calls.call("POST", f"{url}/echo", body=b"abc") as answer:
            assert await answer.read(10) == b"abc", "what was left unread harms nobody"


async def test_an_answer_that_comes_while_we_still_send_is_the_answer() -> None:
    async with a_role() as url, calling() as calls:
        for _ in range(5):
            async with calls.call("POST", f"{url}/refuse", body=many(64 * MIB)) as answer:
                assert (answer.status, answer.header("Retry-After")) == (503, "1")
                assert b"busy" in await answer.read(1000)
        async with calls.call("POST", f"{url}/echo", body=b"abc") as answer:
            assert await answer.read(10) == b"abc"


async def test_one_connection_serves_many_calls() -> None:
    async with a_door(some_pages) as listener, calling() as calls:
        for _ in range(5):
            async with calls.call("POST", f"http://127.0.0.1:{listener.port}/echo", body=b"abc") as answer:
                await answer.read(10)
        assert listener.http_port.connections == 1


async def test_a_machine_that_vanishes_is_found_out_about(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[socket.socket] = []
    monkeypatch.setattr(adapter, "tune", tuned.append)
    async with a_role() as url, calling() as calls, calls.call("POST", f"{url}/echo", body=b"abc"):
        assert len(tuned) == 1


async def lost(
    calls: HttpClient, url: str, *, body: bytes | AsyncIterator[bytes] | None = None, silence_s: float = 5
) -> str:
    """How far it came, by the head or by the body."""
    with pytest.raises(Lost) as caught:
        async with asyncio.timeout(DEADLINE_S), calls.call("POST", url, body=body, silence_s=silence_s) as answer:
            await answer.read(1000)
    return caught.value.why


async def test_who_is_not_there_was_never_reached() -> None:
    async def nothing(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        """Says nothing."""

    async with scripted(nothing) as url:
        pass
    async with calling() as calls:
        assert await lost(calls, url) == "refused"
        assert await lost(calls, "http://no-such-host.invalid:1/") == "refused"
        assert await lost(calls, "nonsense") == "refused"
        assert await lost(calls, "http://a..b:80/") == "refused"


async def test_who_hangs_up_without_an_answer_is_dead() -> None:
    async def hang_up(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    async with scripted(hang_up) as url, calling() as calls:
        assert await lost(calls, url, body=b"abc") == "dead"


async def test_who_hangs_up_in_the_midst_of_its_answer_is_dead() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")

    async with scripted(half) as url, calling() as calls:
        assert await lost(calls, url) == "dead"


async def test_who_speaks_no_http_is_dead() -> None:
    async def babble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"BUSY\n")

    async with scripted(babble) as url, calling() as calls:
        assert await lost(calls, url) == "dead"


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"])
async def test_who_is_silent_for_too_long_is_slow(said: bytes) -> None:
    ends = asyncio.Event()

    async def silence(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await ends.wait()

    async with scripted(silence) as url, calling() as calls:
        assert await lost(calls, url, silence_s=0.1) == "slow"
        ends.set()


async def test_a_body_that_fails_on_our_side_is_lost_and_not_sent_as_a_whole() -> None:
    ended = asyncio.Event()

    async def count(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        with pytest.raises(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n0\r\n\r\n")
        ended.set()

    async def broken() -> AsyncIterator[bytes]:
        yield b"abc"
        raise Lost("our own disk", "dead")

    async with scripted(count) as url, calling() as calls:
        assert await lost(calls, url, body=broken()) == "dead"
        async with asyncio.timeout(DEADLINE_S):
            await ended.wait()


async def test_where_an_answer_points_elsewhere_nobody_goes() -> None:
    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")

    async with scripted(elsewhere) as url, calling() as calls, calls.call("GET", url) as answer:
        assert (answer.status, answer.header("Location")) == (302, "http://127.0.0.1:1/")
