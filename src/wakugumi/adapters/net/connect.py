"""How is a connection made or accepted, and why can it not be made?"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.descriptor_shortage import watch_descriptors
from wakugumi.adapters.net.link import Link, LinkOwner
from wakugumi.adapters.net.reach import reach
from wakugumi.errors import ConfigError, Lost
from wakugumi.limits.client import CONNECT_DEADLINE_S

if TYPE_CHECKING:
    from wakugumi.adapters.access.entry import AccessEntry

NO_TLS: Final = "does not speak TLS"
NOT_BELIEVED: Final = "is not believed"
"""In reasons why no connection could be made."""


async def listen(
    host: str,
    port: int,
    new_owner: Callable[[], LinkOwner],
    wrap: Callable[[Link], asyncio.BaseProtocol] = lambda link: link,
) -> asyncio.Server:
    """Accepts connections, each with its own owner. `wrap` may look first whether they speak frames. Raises ConfigError
    if the port cannot be used."""
    return await accept(host, port, lambda: wrap(Link(new_owner())))


async def accept(host: str, port: int, new_protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
    """Accepts connections of any kind. Raises ConfigError if the port cannot be used."""
    loop = asyncio.get_running_loop()
    if not 0 <= port <= 0xFFFF:  # uvloop would take the port modulo 65 536.
        raise ConfigError(f"{port} is no port", "choose one from 1 to 65535, or 0 for any free one")
    try:
        server = await loop.create_server(new_protocol, host, port, backlog=1024)
    except ValueError as error:  # The name cannot be encoded as a host name.
        raise ConfigError(f"cannot listen on {Address(host, port)}: {error}") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} on {host} is taken by another process", "choose another port, or 0 for any free one"
            ) from None
        raise ConfigError(f"cannot listen on {Address(host, port)}: {error.strerror or error}") from None
    watch_descriptors(server)
    return server


def bound_port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def dial(address: Address, owner: LinkOwner, access: AccessEntry | None = None) -> Link:
    """Connects: with an entry by TLS, and only to a server that proves its role. Raises Lost with the reason, or
    ConfigError if the entry cannot be used."""
    tls, name = (None, None) if access is None else (access.context(), access.server_hostname)
    try:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            _, link = await reach(lambda: Link(owner, trusted=True), address.host, address.port, tls, name)
    except TimeoutError:
        raise Lost(f"{address} did not answer within {CONNECT_DEADLINE_S:.0f} s") from None
    except (OSError, ValueError) as error:
        raise Lost(no_connection(address, error, tls=tls is not None)) from None
    return link


def no_connection(address: Address, error: OSError | ValueError, *, tls: bool) -> str:
    """Why the address cannot be reached, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server at {address} {NOT_BELIEVED}: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"the server at {address} {NO_TLS}: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if tls and isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return f"the server at {address} {NO_TLS}: it ended the handshake"
    return f"cannot connect to {address}: {why_not(error)}"


async def adopt(sock: socket.socket, owner: LinkOwner, *, trusted: bool) -> Link:
    """A link over a connected socket: an end of an embedded grid."""
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(lambda: Link(owner, trusted=trusted), sock=sock)
    return link


def why_not(error: OSError | ValueError) -> str:
    """Why a connection could not be made, in words."""
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    if isinstance(error, socket.gaierror | ValueError):
        return "the name is unknown"
    return error.strerror or str(error)
