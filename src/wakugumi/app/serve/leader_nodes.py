"""How does a leader started from the command line use the nodes that `--node` names, and which of them are trusted?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.errors import ConfigError
from wakugumi.roles.leader.settings import LeaderSettings

if TYPE_CHECKING:
    import ssl

    from wakugumi.roles.leader.leader import Leader


def check_nodes(settings: LeaderSettings) -> None:
    """Raises ConfigError."""
    if settings.node_key and not settings.node_cert:
        raise ConfigError("--node-key is the key of no certificate", "name that with --node-cert")


@asynccontextmanager
async def nodes_of(leader: Leader, settings: LeaderSettings) -> AsyncIterator[None]:
    """The nodes that this leader knows by address, while it lives. Raises ConfigError."""
    if not settings.nodes:
        yield
        return
    from wakugumi.roles.leader.nodes.remote_node import RemoteNodes

    nodes = RemoteNodes(leader.hub, leader.blobs, settings.nodes, _tls(settings), AccessSources(settings.access))
    try:
        yield
    finally:
        await nodes.close()


def _tls(settings: LeaderSettings) -> ssl.SSLContext | None:
    if not any(node.url.startswith("https:") for node in settings.nodes):
        return None
    from wakugumi.adapters.net.tls import client_context

    files = (settings.node_ca, settings.node_cert, settings.node_key)
    ca, cert, key = (Path(word) if word else None for word in files)
    return client_context(ca, cert, key)
