"""Where is a node reached, and in which language? HTTP on one port and lines on another, or both on one.

A port takes TLS and plain; the look at the first bytes comes after decryption.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from wakugumi.adapters.http.page import PageRoute
from wakugumi.adapters.lines.server import LineServer, listen_lines
from wakugumi.adapters.machine.open_files import connections_max
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.handshake import Entrance
from wakugumi.adapters.port.port import HttpListener, listen_http
from wakugumi.errors import ConfigError
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.node.lines import line_page
from wakugumi.roles.node.node import Node

_PARTS: Final = 3
"""HTTP connections, line connections and programs: each with a third of the files that may be open."""


class NodePorts:
    """A node's ports, while they are open."""

    def __init__(self, node: Node, scheme: str) -> None:
        self._node = node
        self._scheme = scheme
        self._open: list[HttpListener | Entrance] = []
        self.http: Address | None = None
        self.lines: Address | None = None

    def __str__(self) -> str:
        """The addresses, as printed on stdout."""
        told = [] if self.http is None else [f"{self._scheme}://{self.http}"]
        if self.lines is not None:
            told.append(f"lines={self.lines}")
        return " ".join(told)

    def add(self, listener: HttpListener | Entrance) -> None:
        self._open.append(listener)

    def hurry(self) -> None:
        """`close` does not wait for answers any more."""
        self._node.hurry()

    async def close(self) -> None:
        """Takes no new connections; running answers have their time, unless `hurry` is called."""
        for listener in self._open:
            listener.stop()
        await self._node.all_answered()
        for listener in self._open:
            await listener.close()


async def listen(
    node: Node,
    http: Address | None,
    lines: Address | None,
    guard: AccessGuard | None = None,
    *,
    names: Iterable[str] = (),
    one_port: bool = False,
) -> NodePorts:
    """Opens the ports. `guard`: by default of this user alone. With `one_port` the port of HTTP speaks lines too.
    Raises ConfigError if a port cannot be opened."""
    guard = guard or AccessGuard()
    ports = NodePorts(node, "http" if guard.tls() is None else "https")
    each_max = connections_max(_PARTS)
    by_line = None if lines is None else LineServer(line_page(node), guard, connections_max=each_max)
    try:
        if http is not None:
            routes = [partial(_pages, node, guard)]
            both = by_line if one_port else None
            listener = await listen_http(
                http.host, http.port, routes, guard, names=names, tls=guard.tls, lines=both, connections_max=each_max
            )
            ports.add(listener)
            ports.http = Address(http.host, listener.port)
            if both is not None:
                ports.lines = ports.http
        if lines is not None and by_line is not None and ports.lines is None:
            line_listener = await listen_lines(lines.host, lines.port, by_line, guard.tls)
            ports.add(line_listener)
            ports.lines = Address(lines.host, line_listener.port)
    except ConfigError:
        await ports.close()
        raise
    return ports


def _pages(node: Node, guard: AccessGuard) -> Sequence[PageRoute]:
    """Called at the first byte of HTTP: the needed modules are imported then."""
    from wakugumi.roles.node.pages import node_pages

    return node_pages(node, guard)
