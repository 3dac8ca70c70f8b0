"""A host with several addresses: dead ones, refusing ones, slow ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISSOCK

import pytest
from tests.kit.certificates import make_certificates

from wakugumi.adapters.net import reach as module
from wakugumi.adapters.net.reach import first_connected, reach
from wakugumi.adapters.net.tls import client_context, server_context

pytestmark = pytest.mark.anyio

DEADLINE_S = 10.0


def open_sockets() -> int:
    """Of this process."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += S_ISSOCK(os.fstat(int(number)).st_mode)
    return count


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


def found(sock: socket.socket) -> tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]:
    """As `getaddrinfo` tells it."""
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", sock.getsockname()


@contextlib.contextmanager
def dead() -> Iterator[socket.socket]:
    """An address that answers no connection: its queue is full."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server


@contextlib.contextmanager
def refusing() -> Iterator[socket.socket]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield server


async def test_dead_addresses_do_not_use_up_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ADDRESS_DELAY_S", 0.01)
    with dead() as one, dead() as other, socket.create_server(("127.0.0.1", 0)) as server:
        before = open_sockets()
        async with asyncio.timeout(DEADLINE_S):
            with await first_connected([found(one), found(other), found(server)]) as sock:
                assert sock.getpeername() == server.getsockname()
        assert open_sockets() == before


async def test_the_next_address_is_tried_at_once_if_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ADDRESS_DELAY_S", 3_600.0)
    with refusing() as one, socket.create_server(("127.0.0.1", 0)) as server:
        async with asyncio.timeout(DEADLINE_S):
            (await first_connected([found(one), found(server)])).close()


async def test_if_none_answers_a_refusal_tells_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ADDRESS_DELAY_S", 0.01)
    unreachable = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("255.255.255.255", 1))
    with refusing() as one:
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(ConnectionRefusedError):
                await first_connected([unreachable, found(one), unreachable])
            with pytest.raises(OSError, match="Errno") as caught:
                await first_connected([unreachable])
    assert not isinstance(caught.value, ConnectionRefusedError)


async def test_a_name_without_addresses_cannot_be_reached() -> None:
    with pytest.raises(OSError, match="no address"):
        await first_connected([])


async def test_a_cancelled_try_leaves_no_socket() -> None:
    with dead() as one:
        before = open_sockets()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await first_connected([found(one)])
        assert open_sockets() == before


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_host_is_reached_over_tls_under_its_name(host: str, tmp_path: Path) -> None:
    certs = make_certificates(tmp_path)
    server = await asyncio.get_running_loop().create_server(
        asyncio.Protocol, "127.0.0.1", 0, ssl=server_context(certs.server_cert, certs.server_key)
    )
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(DEADLINE_S):
        transport, _ = await reach(asyncio.Protocol, host, port, client_context(certs.ca))
        assert transport.get_extra_info("ssl_object") is not None
        transport.abort()
        with pytest.raises(ssl.SSLError):
            await reach(asyncio.Protocol, host, port, ssl.create_default_context())
    server.close()
