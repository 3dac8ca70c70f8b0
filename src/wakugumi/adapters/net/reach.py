"""How is a host reached that has several addresses? All are tried, one beside the other, and the first that answers is
used: a dead address must not use up the time to connect. (RFC 8305)

    address 1   ├──────────────────────────
    address 2        ├─────► connected           after ADDRESS_DELAY_S, or at once if the one before failed
    address 3             not tried
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, TypeAlias, TypeVar

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.limits.client import ADDRESS_DELAY_S

P = TypeVar("P", bound=asyncio.BaseProtocol)

_Found: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


async def reach(
    new_protocol: Callable[[], P],
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
) -> tuple[asyncio.Transport, P]:
    """Connects, without a deadline of its own. The server's certificate has the name `server_name`, by default the
    host's. Raises OSError, or ValueError for what is no name."""
    loop = asyncio.get_running_loop()
    if _is_address(host):
        return await loop.create_connection(new_protocol, host, port, ssl=tls, server_hostname=server_name)
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    sock = await first_connected(found)
    try:
        name = (server_name or host) if tls else None
        return await loop.create_connection(new_protocol, sock=sock, ssl=tls, server_hostname=name)
    except BaseException:
        sock.close()
        raise


async def first_connected(addresses: Sequence[_Found]) -> socket.socket:
    """A socket to the first address that answers. Raises OSError if none does."""
    tasks, ended = Tasks(), set[asyncio.Task[socket.socket]]()
    trying: set[asyncio.Task[socket.socket]] = set()
    left = deque(addresses)
    try:
        while left or trying:
            if left:
                trying.add(tasks.start(_connect(left.popleft()), name="connect to an address", quiet=True))
            delay_s = ADDRESS_DELAY_S if left else None
            done, trying = await asyncio.wait(trying, timeout=delay_s, return_when=asyncio.FIRST_COMPLETED)
            ended |= done
            for task in done:
                if task.exception() is None:
                    ended.discard(task)
                    return task.result()
        raise _of([error for task in ended if isinstance(error := task.exception(), OSError)])
    finally:
        await tasks.close()
        for task in ended | trying:
            if not task.cancelled() and task.exception() is None:
                task.result().close()


async def _connect(address: _Found) -> socket.socket:
    family, kind, protocol, _, where = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


def _of(errors: list[OSError]) -> OSError:
    """A host that refused is there: that tells most."""
    refused = [error for error in errors if isinstance(error, ConnectionRefusedError)]
    return (refused or errors or [OSError("the name has no address")])[0]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
