"""How does a port speak TLS, and what may an endless handshake cost? (SPEC O6)

A connection is a stranger from its acceptance on, and the same stranger after its handshake:

    accepted ──► its first record is complete ──► `start_tls` ──► the handshake is done ──► the protocol of the port
    gate.came    only bytes are counted                           gate.went_over

Until its first record is complete, a connection costs only its bytes: a silent one gets no TLS state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.connect import accept, bound_port
from wakugumi.adapters.net.gate import gate
from wakugumi.limits.units import KIB

if TYPE_CHECKING:
    from ssl import SSLContext

_READ_BYTES: Final = 16 * KIB
_HEAD_BYTES: Final = 5
"""Head of a record: its kind, a version, and the size of its content in two bytes."""
_HANDSHAKE: Final = 22
"""The kind of the first record. The library refuses any other with an alert."""


class Entrance:
    """An open port."""

    def __init__(self, server: asyncio.Server, handshakes: Handshakes | None) -> None:
        self._server = server
        self._handshakes = handshakes
        self.port = bound_port(server)

    def stop(self) -> None:
        """Accept no more connections."""
        self._server.close()

    async def close(self) -> None:
        """As `stop`, and cut off unfinished handshakes."""
        self._server.close()
        if self._handshakes is not None:
            await self._handshakes.close()


async def enter(
    host: str, port: int, new_protocol: Callable[[], asyncio.BaseProtocol], tls: SSLContext | None
) -> Entrance:
    """Accept connections of any kind; with `tls` after a handshake. Raises ConfigError if the port cannot be used."""
    if tls is None:
        return Entrance(await accept(host, port, new_protocol), None)
    handshakes = Handshakes(new_protocol, tls)
    return Entrance(await accept(host, port, handshakes.new_connection), handshakes)


class Handshakes:
    """Handshakes of one port. Create it inside a running loop, and close it."""

    def __init__(self, new_protocol: Callable[[], asyncio.BaseProtocol], tls: SSLContext) -> None:
        self.gate = gate()
        self.room = bytearray(_READ_BYTES)
        """Buffer that all of them read into, one after the other."""
        self._new_protocol = new_protocol
        self._tls = tls
        self._open: set[asyncio.Transport] = set()
        """Connections with an unfinished handshake."""
        self._tasks = Tasks()

    def new_connection(self) -> asyncio.BaseProtocol:
        return _Outside(self)

    async def close(self) -> None:
        await self._tasks.close()
        for transport in list(self._open):
            transport.abort()

    def came(self, transport: asyncio.Transport) -> None:
        self._open.add(transport)
        self.gate.came(transport)

    def ended(self, transport: asyncio.Transport) -> None:
        """The connection is gone, or its handshake failed."""
        self._open.discard(transport)
        self.gate.known(transport)

    def begin(self, transport: asyncio.Transport, first: bytes) -> None:
        """Begin the handshake with these bytes."""
        loop = asyncio.get_running_loop()
        self._tasks.start(self._shake(transport), name="a TLS handshake")
        # `start_tls` makes its protocol one turn later, and may drop bytes that arrive before.
        loop.call_soon(loop.call_soon, _feed_beneath, transport, first)

    async def _shake(self, transport: asyncio.Transport) -> None:
        inside = _Inside()
        over: asyncio.Transport | None = None
        if transport.is_closing():
            return
        try:
            within_s = 2 * self.gate.strangers.deadline_s  # The gate's own deadline comes first.
            over = await asyncio.get_running_loop().start_tls(
                transport, inside, self._tls, server_side=True, ssl_handshake_timeout=within_s
            )
        except OSError:  # An SSLError is one.
            pass
        finally:
            if over is None or transport.is_closing():  # Lost, with or without an error.
                transport.abort()
                self.ended(transport)
            else:
                self._open.discard(transport)
                self.gate.went_over(transport, over)
                inside.hand_over(over, self._new_protocol())


class _Outside(asyncio.BufferedProtocol):
    """A connection without a complete record yet."""

    transport: asyncio.Transport

    def __init__(self, handshakes: Handshakes) -> None:
        self._handshakes = handshakes
        self._kept = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._handshakes.came(self.transport)

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self._handshakes.room

    def buffer_updated(self, count: int) -> None:
        kept = self._kept
        kept += memoryview(self._handshakes.room)[:count]
        if kept[0] == _HANDSHAKE and len(kept) < _HEAD_BYTES + int.from_bytes(kept[3:_HEAD_BYTES]):
            self._handshakes.gate.brought(self.transport, len(kept))
        elif not self.transport.is_closing():
            self.transport.pause_reading()
            self._handshakes.begin(self.transport, bytes(kept))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self._handshakes.ended(self.transport)


class _Inside(asyncio.Protocol):
    """Keeps bytes that arrive with the end of a handshake, for one turn of the loop."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []
        self._at_eof = False

    def data_received(self, data: bytes) -> None:
        self._kept.append(data)

    def eof_received(self) -> bool:
        self._at_eof = True
        return False

    def hand_over(self, transport: asyncio.Transport, to: asyncio.BaseProtocol) -> None:
        """Give the connection, with the kept bytes, to this protocol."""
        transport.set_protocol(to)
        to.connection_made(transport)
        for data in self._kept:
            if not transport.is_closing():
                feed(transport, data)
        if self._at_eof:
            cast(asyncio.Protocol, transport.get_protocol()).eof_received()


def _feed_beneath(transport: asyncio.Transport, data: bytes) -> None:
    if not transport.is_closing():
        feed(transport, data)


def feed(transport: asyncio.Transport, data: bytes) -> None:
    """Give bytes to the transport's protocol, which may replace itself meanwhile."""
    left = memoryview(data)
    while left:
        to = transport.get_protocol()
        if not hasattr(to, "get_buffer"):
            cast(asyncio.Protocol, to).data_received(bytes(left))
            return
        buffered = cast(asyncio.BufferedProtocol, to)  # uvloop's class does not derive from it.
        room = memoryview(buffered.get_buffer(len(left)))
        count = min(len(room), len(left))
        room[:count] = left[:count]
        buffered.buffer_updated(count)
        left = left[count:]
