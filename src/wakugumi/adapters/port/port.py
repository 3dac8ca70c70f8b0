"""How does one port speak frames, HTTP and lines? By the first four bytes: a frame's fourth is 0, a line has `JOB `
or `AUTH`.

A connection with frames goes to its Link at once. For HTTP a role supplies a table of routes. The library that serves
them is imported with the first request, in a thread, as most leaders and workers never need it; only
`adapters/http/server.py` touches it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, cast

from wakugumi.adapters.http.page import Pages
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.machine.open_files import connections_max as connections_of_process
from wakugumi.adapters.net.gate import gate, name_of
from wakugumi.adapters.net.guard import Guard
from wakugumi.adapters.net.handshake import Entrance, Handshakes, TlsSource, enter, speaks_tls
from wakugumi.adapters.net.link import Link
from wakugumi.limits.http import HTTP_IDLE_S, HTTP_LINE_BYTES_MAX
from wakugumi.limits.units import KIB
from wakugumi.limits.wire import CLOSE_DEADLINE_S, FIRST_FRAME_BYTES_MAX, HELLO_DEADLINE_S
from wakugumi.wire.line import FIRST_BYTES, FIRST_BYTES_AUTH
from wakugumi.wire.web_origin import NAME_OPTION

if TYPE_CHECKING:
    from wakugumi.adapters.http.server import WebServer
    from wakugumi.adapters.lines.server import LineServer

log = logging.getLogger("wakugumi.web")

_NOT_LOADED_BODY: Final = (
    b'{"type":"about:blank","status":503,"code":"busy","detail":"the HTTP server could not be loaded",'
    b'"hint":"come again in a moment; the log has more"}'
)
_NOT_LOADED: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
    b"Content-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s" % (len(_NOT_LOADED_BODY), _NOT_LOADED_BODY)
)
"""An answer without the library, if it cannot be imported."""
_LOOK_BYTES: Final = 4
_LINES: Final = (FIRST_BYTES, FIRST_BYTES_AUTH[:_LOOK_BYTES])
_READ_BYTES: Final = 16 * KIB


class HttpPort:
    """The HTTP connections of one port. Create it inside a running loop, and close it."""

    def __init__(
        self,
        pages: Sequence[Pages],
        guard: Guard,
        *,
        names: Iterable[str] = (),
        name_option: str = NAME_OPTION,
        connections_max: int | None = None,
        idle_s: float = HTTP_IDLE_S,
    ) -> None:
        """`names`: hosts that a request may name, besides IP addresses, localhost and this machine's own name (SPEC
        O1). `name_option`: the option that sets such names; empty if there is none. `connections_max`: by default as
        many as this process may hold."""
        self._names = frozenset(name.lower() for name in names) | _machine_names()
        self._name_option = name_option
        self._pages = pages
        self._guard = guard
        self._connections_max = connections_of_process() if connections_max is None else connections_max
        self._idle_s = idle_s
        self._waiting: dict[NewConnection, asyncio.TimerHandle] = {}
        """HTTP connections that wait for the server's import, with their timeouts."""
        self._looking: set[NewConnection] = set()
        """Connections whose protocol or request is not known yet and that are counted nowhere else."""
        self.handshakes: Handshakes | None = None
        self.gate = gate()
        self.room = bytearray(_READ_BYTES)
        """Buffer that unidentified connections read into, one after the other."""
        self._server: WebServer | None = None
        self._tasks = Tasks()
        self._loading: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        return len(self._looking) + len(self._waiting) + (0 if self._server is None else len(self._server.connections))

    def secure(self, tls: TlsSource, new_protocol: Callable[[], NewConnection]) -> None:
        """Connections may speak TLS, too. After their handshakes they get a new protocol."""

        def over_tls() -> NewConnection:
            protocol = new_protocol()
            protocol.handshakes = None
            return protocol

        self.handshakes = Handshakes(over_tls, tls)

    def at(self, link: Link) -> NewConnection:
        """The protocol for a new connection of a listener."""
        return NewConnection(self, link)

    def look(self, step: NewConnection) -> asyncio.TimerHandle | None:
        """Count an unidentified connection; returns its timeout, or None if there is no room for it."""
        if self._is_full(step):
            step.transport.abort()
            return None
        self._looking.add(step)
        within_s = self._idle_s if step.speaks_http else HELLO_DEADLINE_S
        return asyncio.get_running_loop().call_later(within_s, step.transport.abort)

    def looked(self, step: NewConnection) -> None:
        """The connection is identified, or gone."""
        self._looking.discard(step)

    def take(self, step: NewConnection) -> None:
        """Serve an HTTP connection."""
        if self._is_full(step):
            step.transport.close()
            return
        if self._server is not None:
            step.hand_over(self._server)
            return
        self._waiting[step] = asyncio.get_running_loop().call_later(HELLO_DEADLINE_S, self._send_away, step)
        if self._loading is None:
            self._loading = self._tasks.start(self._load(), name="import the HTTP server")

    def drop(self, step: NewConnection) -> None:
        """The connection ended before it was served."""
        if (timer := self._waiting.pop(step, None)) is not None:
            timer.cancel()

    async def close(self) -> None:
        """End all connections, with a short grace period."""
        await self._tasks.close()
        if self.handshakes is not None:
            await self.handshakes.close()
        for step in [*self._looking, *self._take_all()]:
            step.transport.abort()
        if self._server is not None:
            await self._server.close(CLOSE_DEADLINE_S)

    async def _load(self) -> None:
        def load() -> Callable[[], WebServer]:
            from wakugumi.adapters.http.server import WebServer

            table = [page for pages in self._pages for page in pages()]
            names, option, idle_s = self._names, self._name_option, self._idle_s
            return lambda: WebServer(table, self._guard, names=names, name_option=option, idle_s=idle_s)

        # In a thread of its own: those of the loop may all be waiting for an answer of this server.
        pool = ThreadPoolExecutor(1, "import")
        try:
            self._server = (await asyncio.get_running_loop().run_in_executor(pool, load))()
        except Exception:  # For example no descriptor or memory left. The next request tries again.
            log.exception("the HTTP server could not be loaded")
            for step in self._take_all():
                step.refuse()
            return
        finally:
            self._loading = None
            pool.shutdown(wait=False)
        for step in self._take_all():
            step.hand_over(self._server)

    def _is_full(self, step: NewConnection) -> bool:
        """Whether there are too many connections, with no stranger to close."""
        if self.connections < self._connections_max or self.gate.make_room(step.transport):
            return False
        self.gate.say("full", f"closing {step.peer}: more than {self._connections_max} connections")
        return True

    def _send_away(self, step: NewConnection) -> None:
        log.warning("closing %s: the HTTP server was not loaded within %g s", step.peer, HELLO_DEADLINE_S)
        del self._waiting[step]
        step.refuse()

    def _take_all(self) -> list[NewConnection]:
        waiting, self._waiting = self._waiting, {}
        for timer in waiting.values():
            timer.cancel()
        return list(waiting)


class NewConnection(asyncio.BufferedProtocol):
    """A connection of an unidentified protocol. Its Link counts it, and cuts it off if it stays silent.

    Reads are small: a thousand waiting uploads must not hold a quarter of a MiB each. The head of an HTTP request is
    collected here, which costs next to nothing, and handed over when it is complete or cannot become one.
    """

    transport: asyncio.Transport

    def __init__(self, port: HttpPort, link: Link | None, lines: LineServer | None = None) -> None:
        """Without a link and lines only HTTP is spoken."""
        self._port = port
        self._link = link
        self._lines = lines
        self.speaks_http = link is None and lines is None
        self.handshakes = port.handshakes
        """None if the port has no TLS, or the connection speaks it already."""
        self._looks = True
        """Protocol or request are not known yet."""
        self._deadline: asyncio.TimerHandle | None = None
        self._kept = bytearray()
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._link is not None:
            self._link.connection_made(transport)
            self.peer = self._link.peer
        else:
            self.peer = name_of(transport)
            self._port.gate.came(self.transport)
            self._deadline = self._port.look(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return memoryview(self._port.room)  # Beneath TLS asyncio fills slices of it: those of a bytearray are copies.

    def buffer_updated(self, count: int) -> None:
        self._kept += memoryview(self._port.room)[:count]
        if self.handshakes is not None:
            is_tls = speaks_tls(self._kept)
            if is_tls is None:
                return
            if is_tls:
                self._begin_handshake(self.handshakes)
                return
            self.handshakes = None
        if not self._looks:
            if len(self._kept) > FIRST_FRAME_BYTES_MAX:
                self.transport.pause_reading()
        elif self.speaks_http:
            self._gather()
        elif len(self._kept) >= _LOOK_BYTES:
            self._stop_looking()
            self._recognise()

    def _begin_handshake(self, handshakes: Handshakes) -> None:
        self._stop_looking()
        if self._link is not None:
            self._link.release()
            self._link = None
        handshakes.take_over(self.transport, bytes(self._kept))
        self._kept.clear()

    def _gather(self) -> None:
        """Collect the head of a request as long as it can become one."""
        head = self._kept
        if b"\r\n\r\n" in head:
            self._port.gate.known(self.transport)
        elif len(head) < HTTP_LINE_BYTES_MAX and b"\n\n" not in head:
            line, end, _ = head.partition(b"\n")
            if not end or b" HTTP/" in line:
                self._port.gate.brought(self.transport, len(head))
                return
        self._looks = False
        self._stop_looking()
        if not self.transport.is_closing():
            self._port.take(self)

    def _recognise(self) -> None:
        link = self._link
        self._looks = False
        if self._lines is not None and bytes(self._kept[:_LOOK_BYTES]) in _LINES:
            to = self._lines.new_connection()
            self._switch_to(to)
            to.connection_made(self.transport)
            to.data_received(bytes(self._kept))
        elif self._kept[3] != 0 and self._kept[:3].isalpha():
            self._link = None
            if link is not None:
                link.release()
            self.speaks_http = self._looks = True
            self._deadline = self._port.look(self)
            self._gather()
        elif link is not None:  # A frame, or bytes that the link refuses.
            self._switch_to(link)
            link.data_received(bytes(self._kept))
        else:
            self._port.gate.say("broken", f"closing {self.peer}: it speaks neither lines nor HTTP")
            self.transport.abort()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """Needs no action: nothing is written here."""

    def resume_writing(self) -> None:
        """Needs no action: nothing is written here."""

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_looking()
        if self._link is not None:
            self._link.data_received(bytes(self._kept))  # It can then report the missing bytes.
            self._link.connection_lost(error)
        else:
            self._port.gate.known(self.transport)
            self._port.drop(self)
        self._kept.clear()

    def hand_over(self, server: WebServer) -> None:
        """Give the connection, with the kept bytes, to this server."""
        if self.transport.is_closing():
            return
        to = server.new_connection()
        self._switch_to(to)
        to.connection_made(self.transport)
        if self._kept:
            to.data_received(bytes(self._kept))
            self._kept.clear()

    def refuse(self) -> None:
        """Answer 503, as the server could not be loaded."""
        if not self.transport.is_closing():
            self.transport.write(_NOT_LOADED)
            self.transport.close()

    def _stop_looking(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self._port.looked(self)

    def _switch_to(self, protocol: asyncio.Protocol) -> None:
        self.transport.pause_reading()  # A transport may check the type of its protocol only when reading starts.
        self.transport.set_protocol(protocol)
        self.transport.resume_reading()


def _machine_names() -> frozenset[str]:
    name = socket.gethostname().lower()
    return frozenset({name, name.partition(".")[0]} - {""})


async def listen_http(
    host: str,
    port: int,
    pages: Sequence[Pages],
    guard: Guard,
    *,
    names: Iterable[str] = (),
    name_option: str = NAME_OPTION,
    tls: TlsSource | None = None,
    lines: LineServer | None = None,
    connections_max: int | None = None,
) -> HttpListener:
    """Open a port for HTTP and, with `lines`, for lines. Raises ConfigError if it cannot be used."""
    http_port = HttpPort(pages, guard, names=names, name_option=name_option, connections_max=connections_max)
    served = [http_port] if lines is None else [lines, http_port]

    def new_connection() -> NewConnection:
        return NewConnection(http_port, None, lines)

    if tls is not None:
        http_port.secure(tls, new_connection)
    return HttpListener(await enter(host, port, new_connection, None, *served), http_port)


class HttpListener:
    """An open port for HTTP."""

    def __init__(self, entrance: Entrance, http_port: HttpPort) -> None:
        self.stop = entrance.stop
        self.http_port = http_port
        self.port = entrance.port
        self._close = entrance.close

    async def close(self) -> None:
        await self._close()
