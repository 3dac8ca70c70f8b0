"""A call gets the answer, or learns how far it came: nobody reached, no answer in time, ended in the midst."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.kit.http_calls import calling, lost, many, scripted
from tests.kit.http_peer import DEADLINE_S, a_door
from tests.kit.shown_keys import ShownKeys
from tests.kit.tls_grid import TlsGrid

from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.adapters.http import client as adapter
from wakugumi.adapters.http.kept_connection import KeptConnection
from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply, Stream
from wakugumi.errors import Lost, Refused
from wakugumi.limits.units import MIB

pytestmark = pytest.mark.anyio


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


@pytest.mark.parametrize("size", [3, 300_000])
async def test_an_answer_that_was_not_read_is_no_part_of_the_next_one(size: int) -> None:
    async with a_role() as url, calling() as calls:
        for _ in range(3):
            async with calls.call("POST", f"{url}/echo", body=b"x" * size) as answer:
                await asyncio.sleep(0.05)  # All that the transport takes has come.
                assert answer.status == 201
            async with calls.call("POST", f"{url}/echo", body=b"abc") as answer:
                assert await answer.read(10) == b"abc"


async def test_calls_that_failed_or_were_given_up_leave_nothing_behind() -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    def alive() -> int:
        return sum(isinstance(each, KeptConnection) for each in gc.get_objects())

    async with scripted(silent) as url, calling() as calls:
        before = alive()
        for _ in range(5):
            with pytest.raises(Lost):
                await calls.send("GET", url, silence_s=0.01)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await calls.send("GET", url)
        await asyncio.sleep(0.05)
        gc.collect()
        assert alive() <= before


async def test_a_machine_that_vanishes_is_found_out_about(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[socket.socket] = []
    monkeypatch.setattr(adapter, "tune", tuned.append)
    async with a_role() as url, calling() as calls, calls.call("POST", f"{url}/echo", body=b"abc"):
        assert len(tuned) == 1


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


@pytest.mark.spec("O1")
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_server_with_an_entry_is_called_by_tls_and_gets_the_key(tmp_path: Path, scheme: str) -> None:
    grid, guard = TlsGrid(tmp_path / "grid"), ShownKeys()
    key = grid.key("gw-1")
    async with a_door(some_pages, guard=guard, tls=grid.server()) as listener:
        file = grid.write_access(tmp_path / "access" / "access.toml", grid.entry(listener.port, key))
        calls = adapter.HttpClient(access=AccessSources(file))
        for _ in range(2):
            async with calls.call("POST", f"{scheme}://127.0.0.1:{listener.port}/echo", body=b"abc") as answer:
                assert (answer.status, await answer.read(10)) == (201, b"abc")
        await calls.close()
    assert guard.keys == [key, key]


@pytest.mark.spec("O1")
@pytest.mark.parametrize("other", ["grid", "role", "plain"])
async def test_a_server_that_does_not_prove_its_role_gets_no_key(tmp_path: Path, other: str) -> None:
    grid, guard = TlsGrid(tmp_path / "grid"), ShownKeys()
    key = grid.key()
    tls = {"grid": TlsGrid(tmp_path / "other").server(), "role": grid.server("leader"), "plain": None}[other]
    async with a_door(some_pages, guard=guard, tls=tls) as listener:
        entry = grid.entry(listener.port, key, "node")
        file = grid.write_access(tmp_path / "access" / "access.toml", entry)
        calls = adapter.HttpClient(access=AccessSources(file), role="node")
        with pytest.raises(Lost, match=r"is not believed|does not speak TLS") as raised:
            await calls.send("POST", f"http://127.0.0.1:{listener.port}/echo", body=b"abc")
        assert raised.value.why == "refused", "the request did not begin"
        await calls.close()
    assert guard.keys == []
    assert key.secret not in str(raised.value)


@pytest.mark.spec("O1")
async def test_sources_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    calls = adapter.HttpClient(access=AccessSources(tmp_path / "missing"))
    with pytest.raises(Lost, match="does not exist"):
        await calls.send("GET", "http://127.0.0.1:1/")
    await calls.close()
