"""How do other workers fetch from this one? Over HTTP, each content by its hash, with a token of their leader's (C8).

The leader decides who fetches what from whom, and makes the tokens by a key that it alone was told. Nothing can be
written here, and nothing but contents can be read.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from wakugumi.adapters.blobs.routes import blob_routes
from wakugumi.adapters.blobs.store import BlobStore
from wakugumi.adapters.machine.open_files import connections_max
from wakugumi.adapters.net.address import Address, is_loopback
from wakugumi.adapters.port.port import HttpListener, listen_http
from wakugumi.errors import ConfigError

log = logging.getLogger("wakugumi.serving")

PARTS_OF_WORKER: Final = 4
"""What a worker may open is for programs above all; its two ports have a quarter each of what may be connections."""
_EVERYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104


class Serving:
    """A worker's door for other workers, while it is open."""

    def __init__(self, listener: HttpListener, url: str, key: str) -> None:
        self._listener = listener
        self.url = url
        self.key = key

    async def close(self) -> None:
        await self._listener.close()


def where_to_serve(leader: Address | None, said: Address | None, advertised: Address | None) -> Address | None:
    """Where a worker listens for others: where it was told, or on its own machine if its leader is there too.

    Raises ConfigError if nobody could know where that is.
    """
    if said is not None:
        if advertised is None and said.host in _EVERYWHERE:
            raise ConfigError(
                f"--serve {said} does not say where others find this worker", "say --advertise HOST:PORT as well"
            )
        return said
    if advertised is not None:
        raise ConfigError("--advertise says where others find what --serve offers", "say --serve PORT as well")
    return Address("127.0.0.1", 0) if leader is not None and is_loopback(leader.host) else None


async def serve(store: BlobStore, where: Address, advertised: Address | None) -> Serving:
    """Raises ConfigError if the port cannot be had."""
    key = os.urandom(32).hex()
    routes = [blob_routes(store, writable=False, key=key)]
    names = [] if advertised is None else [advertised.host]
    most = connections_max(PARTS_OF_WORKER)
    listener = await listen_http(where.host, where.port, routes, names=names, name_option="", connections_max=most)
    there = advertised or Address(where.host, listener.port)
    log.info("other workers may fetch from http://%s", there)
    return Serving(listener, f"http://{there}", key)
