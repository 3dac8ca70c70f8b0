"""How do other workers fetch from this one? Over HTTP, content by its hash, with a token of their leader. (C8)

The leader chooses which worker fetches which content from which other, and makes the tokens with a key that only it
gets. The port is read-only and serves only content.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from wakugumi.adapters.blobs.routes import blob_routes
from wakugumi.adapters.blobs.store import BlobStore
from wakugumi.adapters.machine.open_files import connections_max
from wakugumi.adapters.net.address import Address, is_loopback
from wakugumi.adapters.net.handshake import TlsSource
from wakugumi.adapters.port.port import HttpListener, listen_http
from wakugumi.errors import ConfigError
from wakugumi.roles.access.guard import AccessGuard

if TYPE_CHECKING:
    from wakugumi.adapters.access.entry import AccessEntry

log = logging.getLogger("wakugumi.serving")

PARTS_OF_WORKER: Final = 4
"""A worker's open files are mainly for programs; each of its two ports gets a quarter of the possible connections."""
_EVERYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104


class Serving:
    """A worker's open port for other workers."""

    def __init__(self, listener: HttpListener, url: str, key: str) -> None:
        self._listener = listener
        self.url = url
        self.key = key

    async def close(self) -> None:
        await self._listener.close()


def where_to_serve(leader: Address | None, serve: Address | None, advertised: Address | None) -> Address | None:
    """Address at which a worker listens for others: `serve`, or a loopback port if its leader is on this machine.

    Raises ConfigError if others could not know the address.
    """
    if serve is not None:
        if advertised is None and serve.host in _EVERYWHERE:
            raise ConfigError(
                f"--serve {serve} does not name an address for other workers", "add --advertise HOST:PORT"
            )
        return serve
    if advertised is not None:
        raise ConfigError("--advertise needs --serve", "add --serve PORT")
    return Address("127.0.0.1", 0) if leader is not None and is_loopback(leader.host) else None


async def serve(
    store: BlobStore, where: Address, advertised: Address | None, access: AccessEntry | None = None
) -> Serving:
    """Open the port: with TLS if the entry of the leader has a certificate of this worker. Raises ConfigError if it
    cannot be opened."""
    key = os.urandom(32).hex()
    routes = [blob_routes(store, writable=False, key=key)]
    names = [] if advertised is None else [advertised.host]
    most = connections_max(PARTS_OF_WORKER)
    guard, tls = AccessGuard(), None if access is None else _certified(access)
    listener = await listen_http(
        where.host, where.port, routes, guard, names=names, name_option="", connections_max=most, tls=tls
    )
    url = f"{'http' if tls is None else 'https'}://{advertised or Address(where.host, listener.port)}"
    log.info("serving other workers url=%s", url)
    return Serving(listener, url, key)


def _certified(access: AccessEntry) -> TlsSource | None:
    """The context of a port with the entry's certificate, renewed with its file. Raises ConfigError."""
    certificate = access.certificate
    if certificate is None:
        return None
    from wakugumi.adapters.net.tls import RenewedContext, grid_server_context

    key = access.certificate_key or certificate
    return RenewedContext(lambda: grid_server_context(certificate, key, access.ca_pem), certificate, key)
