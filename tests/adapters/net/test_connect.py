"""How is a connection made or accepted, and why can it not be made?"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.kit.link_owner import Owner
from tests.kit.scripted_leader import scripted
from tests.kit.tls_grid import DAY_S, TlsGrid, TlsLeader

from wakugumi.adapters.net import connect
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.connect import adopt, bound_port, dial, listen
from wakugumi.errors import ConfigError, Lost
from wakugumi.limits.wire import FIRST_FRAME_BYTES_MAX
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import encode

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


async def test_dial_gives_a_trusted_link() -> None:
    accepted = Owner()
    server = await listen("127.0.0.1", 0, lambda: accepted)
    here = Owner()
    link = await dial(Address("127.0.0.1", bound_port(server)), here)
    await accepted.until(lambda: accepted.opened)
    accepted.link.send(encode(fr.RESULT, payload=bytes(FIRST_FRAME_BYTES_MAX)))
    await here.until(lambda: here.types == [fr.RESULT])
    assert link.peer == f"127.0.0.1:{bound_port(server)}"
    link.close()
    await accepted.until(lambda: accepted.lost)
    server.close()


@pytest.mark.spec("O1")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_with_an_entry_the_server_must_be_of_the_grid_and_of_the_role(tmp_path: Path, host: str) -> None:
    grid, other = TlsGrid(tmp_path / "a"), TlsGrid(tmp_path / "b")
    old = grid.server(now=time.time() - 100 * DAY_S)
    for tls, why in (
        (grid.server(), ""),
        (other.server(), "is not believed: unable to get local issuer certificate"),
        (grid.server("worker"), "is not believed: Hostname mismatch"),
        (old, "is not believed: certificate has expired"),
    ):
        async with scripted(TlsLeader(tls, b"")) as leader:
            assert isinstance(leader, TlsLeader)
            owner = Owner()
            dialled = dial(Address(host, leader.port), owner, grid.entry(leader.port, None))
            if why:
                with pytest.raises(Lost, match=f"the server at {host}:{leader.port} {why}"):
                    await dialled
                assert (owner.opened, leader.received) == (0, b"")
            else:
                link = await dialled
                link.send(encode(fr.HELLO_CLIENT, subject="a"))
                await leader.peer()
                link.abort()


@pytest.mark.spec("O1")
async def test_a_plain_server_is_told_from_one_that_speaks_tls(tmp_path: Path) -> None:
    grid = TlsGrid(tmp_path)

    async def closes(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def talks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with closing(writer):
            await writer.drain()

    for serve in (closes, talks):
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = bound_port(server)
        with pytest.raises(Lost, match=f"the server at 127.0.0.1:{port} does not speak TLS: "):
            await dial(Address("127.0.0.1", port), Owner(), grid.entry(port, None))
        server.close()


@pytest.mark.spec("O1")
async def test_a_server_that_never_ends_the_handshake_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid, came = TlsGrid(tmp_path), list[asyncio.StreamWriter]()
    monkeypatch.setattr(connect, "CONNECT_DEADLINE_S", 0.2)
    server = await asyncio.start_server(lambda _reader, writer: came.append(writer), "127.0.0.1", 0)
    port = bound_port(server)
    with pytest.raises(Lost, match="did not answer within"):
        await dial(Address("127.0.0.1", port), Owner(), grid.entry(port, None))
    came[0].transport.abort()
    server.close()


async def test_two_ends_of_a_socket_pair_can_be_adopted() -> None:
    ours, theirs = socket.socketpair()
    one, other = Owner(), Owner()
    link = await adopt(ours, one, trusted=True)
    await adopt(theirs, other, trusted=False)
    link.send(encode(fr.HELLO_CLIENT, subject="a"))
    await other.until(lambda: other.types == [fr.HELLO_CLIENT])
    assert other.link.peer == "a local process"
    link.close()
    await other.until(lambda: other.lost)
    await one.until(lambda: one.lost)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("127.0.0.1", "nobody listens there"),
        ("::1", "nobody listens there"),
        ("no-such-host.invalid", "the name is unknown"),
        ("a..b", "the name is unknown"),
        ("x" * 300, "the name is unknown"),
    ],
)
async def test_a_dial_that_fails_says_why(host: str, why: str) -> None:
    with socket.socket() as taken_and_not_listening:
        taken_and_not_listening.bind(("127.0.0.1", 0))
        address = Address(host, taken_and_not_listening.getsockname()[1])
        with pytest.raises(Lost, match=re.escape(f"cannot connect to {address}: {why}")):
            await dial(address, Owner())


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvloop asks the C library, which cannot be made to answer so
async def test_a_name_with_several_addresses_fails_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken_and_not_listening:
        taken_and_not_listening.bind(("127.0.0.1", 0))
        port = taken_and_not_listening.getsockname()[1]
        found = [
            (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("::1", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port)),
        ]

        def both(*_args: object, **_options: object) -> list[object]:
            return list(found)

        monkeypatch.setattr(socket, "getaddrinfo", both)
        with pytest.raises(Lost, match=r"cannot connect to both\.example:\d+: nobody listens there$"):
            await dial(Address("both.example", port), Owner())


async def test_a_dial_that_nobody_answers_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "CONNECT_DEADLINE_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address("127.0.0.1", server.getsockname()[1])
        with pytest.raises(Lost, match=re.escape(f"{address} did not answer within 0 s")):
            await dial(address, Owner())


async def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1 is taken") as caught:
            await listen("127.0.0.1", port, Owner)
        assert "0 for any free one" in caught.value.hint


@pytest.mark.parametrize(
    ("host", "port", "why"),
    [
        ("127.0.0.1", 65_536, "65536 is no port"),
        ("127.0.0.1", -1, "-1 is no port"),
        ("192.0.2.1", 0, "cannot listen on 192.0.2.1:0"),
        ("no-such-host.invalid", 0, "cannot listen on no-such-host.invalid:0"),
        ("a..b", 0, "cannot listen on a..b:0"),
    ],
)
async def test_where_it_cannot_listen_is_told(host: str, port: int, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        await listen(host, port, Owner)
