"""What a TLS handshake may cost, over real sockets and on both loops: a connection that never ends its handshake is a
stranger as those on plain ports are, and those that do end it lose no byte."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from tests.kit.certificates import Certificates, make_certificates
from tests.kit.eventually import eventually
from tests.kit.guards import OpenGuard
from tests.kit.http_peer import HttpPeer
from tests.kit.some_routes import echo, some_routes

from wakugumi.adapters.lines.server import LineServer, listen_lines
from wakugumi.adapters.net.gate import gate
from wakugumi.adapters.net.tls import client_context, server_context
from wakugumi.adapters.port.port import listen_http
from wakugumi.limits.units import KIB

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O6")]

DEADLINE_S = 20.0
KINDS = ["http", "both", "lines"]
ASKED = {
    "http": b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "both": b"JOB a b 5\nhello",
    "lines": b"JOB a b 5\nhello",
}
"""What each kind of port answers."""


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def all_ports(certs: Certificates) -> AsyncIterator[dict[str, int]]:
    tls = server_context(certs.server_cert, certs.server_key)
    http = await listen_http("127.0.0.1", 0, [some_routes], OpenGuard(), tls=lambda: tls)
    both = await listen_http(
        "127.0.0.1", 0, [some_routes], OpenGuard(), tls=lambda: tls, lines=LineServer(echo, OpenGuard())
    )
    lines = await listen_lines("127.0.0.1", 0, LineServer(echo, OpenGuard()), lambda: tls)
    try:
        yield {"http": http.port, "both": both.port, "lines": lines.port}
    finally:
        for listener in (http, both, lines):
            await listener.close()


class ByHand:
    """TLS without a transport, so that it can be said in any pieces."""

    def __init__(self, certs: Certificates) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client_context(certs.ca).wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def hello(self) -> bytes:
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()

    async def ending(self, peer: HttpPeer, data: bytes) -> bytes:
        """What ends the handshake, with this data after it."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                self._incoming.write(await peer.reader.read(64 * KIB))
                with suppress(ssl.SSLWantReadError):
                    self._tls.do_handshake()
                    break
        self._tls.write(data)
        return self._outgoing.read()

    async def answer(self, peer: HttpPeer) -> bytes:
        got = b""
        async with asyncio.timeout(DEADLINE_S):
            while piece := await peer.reader.read(64 * KIB):
                self._incoming.write(piece)
                with suppress(ssl.SSLWantReadError):
                    while more := self._tls.read(64 * KIB):
                        got += more
                    break  # All is said; the server waits for the same of us.
        return got


async def served(kind: str, port: int, certs: Certificates) -> bytes:
    """What an honest client is answered."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("localhost", port, ssl=client_context(certs.ca))
        writer.write(ASKED[kind])
        try:
            return await reader.read(-1)
        finally:
            writer.transport.abort()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "says", ["nothing", "half a hello", "a hello", "a handshake", "a handshake and half a request"]
)
async def test_a_stranger_is_cut_off_in_time_however_far_its_handshake_goes(
    certs: Certificates, kind: str, says: str
) -> None:
    strangers = gate().strangers
    strangers.deadline_s = 0.3
    by_hand = ByHand(certs)
    async with all_ports(certs) as ports, HttpPeer(ports[kind]) as peer:
        hello = by_hand.hello()
        if says == "half a hello":
            await peer.say(hello[:100])
        elif says != "nothing":
            await peer.say(hello)
        if says.startswith("a handshake"):
            await peer.say(await by_hand.ending(peer, ASKED[kind][:4] if "half" in says else b""))
        async with asyncio.timeout(DEADLINE_S):
            with suppress(ConnectionError):
                while await peer.reader.read(KIB):
                    pass
        await eventually(lambda: len(strangers) == 0)
        assert strangers.bytes == 0


async def test_a_handshake_and_the_request_after_it_are_one_stranger(certs: Certificates) -> None:
    strangers = gate().strangers
    by_hand = ByHand(certs)
    async with all_ports(certs) as ports, HttpPeer(ports["http"]) as peer:
        await eventually(lambda: len(strangers) == 1)
        hello = by_hand.hello()
        await peer.say(hello[:100])
        await eventually(lambda: strangers.bytes == 100)
        await peer.say(hello[100:])
        await peer.say(await by_hand.ending(peer, ASKED["http"][:30]))
        await eventually(lambda: strangers.bytes == 30)
        assert len(strangers) == 1


async def test_of_too_many_handshakes_the_oldest_goes_and_honest_clients_are_served(certs: Certificates) -> None:
    strangers = gate().strangers
    strangers.count_max = 8
    async with all_ports(certs) as ports, AsyncExitStack() as stack:
        silent = [
            await stack.enter_async_context(HttpPeer(port))
            for _ in range(10)
            for port in (*ports.values(), ports["http"])
        ]
        await eventually(lambda: len(strangers) == 8)
        for peer in silent[:32]:
            assert await peer.is_cut_off()
        for kind, port in ports.items():
            assert b"hello" in await served(kind, port, certs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("piece", [1, 7, 100_000])
async def test_no_byte_is_lost_in_whatever_pieces_it_comes(certs: Certificates, kind: str, piece: int) -> None:
    by_hand = ByHand(certs)

    async def say(peer: HttpPeer, data: bytes) -> None:
        for at in range(0, len(data), piece):
            await peer.say(data[at : at + piece])
            await asyncio.sleep(0)

    async with all_ports(certs) as ports, HttpPeer(ports[kind]) as peer:
        await say(peer, by_hand.hello())
        await say(peer, await by_hand.ending(peer, ASKED[kind]))
        assert b"hello" in await by_hand.answer(peer)
        await eventually(lambda: len(gate().strangers) == 0)


async def test_a_port_that_closes_cuts_off_those_in_their_handshake(certs: Certificates) -> None:
    strangers = gate().strangers
    async with AsyncExitStack() as stack:
        async with all_ports(certs) as ports:
            peers = [await stack.enter_async_context(HttpPeer(ports[kind])) for kind in KINDS for _ in range(2)]
            for peer in peers[::2]:
                await peer.say(ByHand(certs).hello())
            await eventually(lambda: len(strangers) == len(peers))
        for peer in peers:
            with suppress(ConnectionError):
                async with asyncio.timeout(DEADLINE_S):
                    await peer.reader.read(-1)
        await eventually(lambda: len(strangers) == 0)
