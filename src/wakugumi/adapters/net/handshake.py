"""How does a port speak TLS and plain, and what may an endless handshake cost? (SPEC O1, O6)

The first three bytes decide: a record of TLS begins with 22, 3 and a version from 1 to 4. No frame does (its length
would be above the limit of a first frame), and HTTP and lines begin with letters. Which peers may speak plain is
decided later, by the port's guard.

A connection is a stranger from its acceptance on, and the same stranger after its handshake:

    accepted ──► its first record is complete ──► `start_tls` ──► the handshake is done ──► the protocol of the port
    gate.came    only bytes are counted                           gate.went_over

Until its first record is complete, a connection costs only its bytes: a silent one gets no TLS state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.connect import accept, bound_port
from wakugumi.adapters.net.gate import gate, name_of
from wakugumi.limits.units import KIB
from wakugumi.limits.wire import CLOSE_DEADLINE_S

if TYPE_CHECKING:
    from ssl import SSLContext

_READ_BYTES: Final = 16 * KIB
_HEAD_BYTES: Final = 5
"""Head of a record: its kind, a version, and the size of its content in two bytes."""
_HANDSHAKE: Final = 22
"""The kind of the first record."""
_MAJOR_VERSION: Final = 3
_MINOR_VERSIONS: Final = range(1, 5)


class Served(Protocol):
    """Serves the connections of a port."""

    async def close(self) -> None: ...


class Entrance:
    """An open port."""

    def __init__(self, server: asyncio.Server, served: Sequence[Served]) -> None:
        self._server = server
        self._served = served
        self.port = bound_port(server)

    def stop(self) -> None:
        """Accept no more connections."""
        self._server.close()

    async def close(self) -> None:
        """As `stop`, and ends its connections and handshakes."""
        self._server.close()
        for one in self._served:
            await one.close()


TlsSource: TypeAlias = "Callable[[], SSLContext | None]"
"""The context of the next handshake, which may change as certificates are renewed; None: the port has none yet."""


async def enter(
    host: str, port: int, new_protocol: Callable[[], asyncio.BaseProtocol], tls: TlsSource | None, *served: Served
) -> Entrance:
    """Accept connections of any kind; with `tls` plain ones, and others after a handshake. `served` are closed with the
    port. Raises ConfigError if the port cannot be used."""
    if tls is None:
        return Entrance(await accept(host, port, new_protocol), served)
    handshakes = Handshakes(new_protocol, tls)
    return Entrance(await accept(host, port, handshakes.new_connection), [handshakes, *served])


class Handshakes:
    """Handshakes of one port. Create it inside a running loop, and close it."""

    def __init__(self, new_protocol: Callable[[], asyncio.BaseProtocol], tls: TlsSource) -> None:
        self.gate = gate()
        self.room = bytearray(_READ_BYTES)
        """Buffer that all of them read into, one after the other."""
        self._new_protocol = new_protocol
        self._tls = tls
        self._open: set[asyncio.Transport] = set()
        """Connections with an unfinished handshake."""
        self._tasks = Tasks()

    @property
    def has_certificate(self) -> bool:
        return self._tls() is not None

    def new_connection(self) -> asyncio.BaseProtocol:
        return _Outside(self)

    async def close(self) -> None:
        await self._tasks.close()
        for transport in list(self._open):
            transport.abort()

    def take_over(self, transport: asyncio.Transport, first: bytes) -> None:
        """A connection of another protocol has begun to speak TLS with these bytes. It stays a stranger."""
        outside = _Outside(self)
        transport.pause_reading()
        transport.set_protocol(outside)
        transport.resume_reading()  # A transport may check the type of its protocol only when reading starts.
        outside.connection_made(transport)
        outside.read(first)

    def came(self, transport: asyncio.Transport) -> None:
        self._open.add(transport)
        self.gate.came(transport)

    def ended(self, transport: asyncio.Transport) -> None:
        """The connection is gone, or its handshake failed."""
        self._open.discard(transport)
        self.gate.known(transport)

    def pass_on(self, transport: asyncio.Transport, first: bytes) -> None:
        """The connection is plain: give it, with its first bytes, to the protocol of the port. It stays a stranger."""
        self._open.discard(transport)
        self.gate.brought(transport, 0)
        to = self._new_protocol()
        transport.set_protocol(to)
        transport.resume_reading()  # A transport may check the type of its protocol only when reading starts.
        _hand_over(transport, to, (first,))

    def begin(self, transport: asyncio.Transport, first: bytes) -> None:
        """Begin the handshake with these bytes."""
        loop = asyncio.get_running_loop()
        tls = self._tls()
        assert tls is not None
        self._tasks.start(self._shake(transport, tls), name="a TLS handshake")
        # `start_tls` makes its protocol one turn later, and may drop bytes that arrive before.
        loop.call_soon(loop.call_soon, _feed_beneath, transport, first)

    async def _shake(self, transport: asyncio.Transport, tls: SSLContext) -> None:
        inside = _Inside()
        over: asyncio.Transport | None = None
        if transport.is_closing():
            return
        try:
            within_s = 2 * self.gate.strangers.deadline_s  # The gate's own deadline comes first.
            over = await asyncio.get_running_loop().start_tls(
                transport,
                inside,
                tls,
                server_side=True,
                ssl_handshake_timeout=within_s,
                ssl_shutdown_timeout=CLOSE_DEADLINE_S,  # A peer need not answer our end of TLS.
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
        self.read(memoryview(self._handshakes.room)[:count])

    def read(self, data: bytes | memoryview) -> None:
        kept = self._kept
        kept += data
        is_tls = speaks_tls(kept)
        if is_tls and not self._handshakes.has_certificate:
            peer = name_of(self.transport)
            self._handshakes.gate.say("broken", f"closing {peer}: it begins like TLS, and this port has no certificate")
            self.transport.abort()
        elif is_tls is None or (is_tls and len(kept) < _HEAD_BYTES + int.from_bytes(kept[3:_HEAD_BYTES])):
            self._handshakes.gate.brought(self.transport, len(kept))
        elif not self.transport.is_closing():
            self.transport.pause_reading()
            (self._handshakes.begin if is_tls else self._handshakes.pass_on)(self.transport, bytes(kept))

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
        _hand_over(transport, to, self._kept)
        if self._at_eof:
            cast(asyncio.Protocol, transport.get_protocol()).eof_received()


def speaks_tls(first: bytes | bytearray) -> bool | None:
    """Are these the first bytes of TLS? None if they are too few."""
    if first[0] != _HANDSHAKE or (len(first) > 1 and first[1] != _MAJOR_VERSION):
        return False
    return first[2] in _MINOR_VERSIONS if len(first) > 2 else None


def _hand_over(transport: asyncio.Transport, to: asyncio.BaseProtocol, kept: Iterable[bytes]) -> None:
    to.connection_made(transport)
    for data in kept:
        if not transport.is_closing():
            feed(transport, data)


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
