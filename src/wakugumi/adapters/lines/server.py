"""How does a port speak lines? (SPEC N1) One job per connection: a line and its bytes are received, a line and its
bytes are sent.

A client may show a key in a line `AUTH <key>` before the line of its job.

    page = async (call) -> LineReply        gets `call.line`, reads `call.pieces()`, may raise Refused

An answer also reaches a client that is still sending: the answer is written, our half is closed, and further bytes are
read for a while. Only then the connection is closed, for a close with unread bytes would tear down the answer. Some
clients read only after sending: a reply with `hear_out` is written while the input is read and dropped.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from wakugumi.adapters.http.page import Stream
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.machine.open_files import connections_max as connections_of_process
from wakugumi.adapters.net.gate import gate, name_of
from wakugumi.adapters.net.guard import Guard
from wakugumi.adapters.net.handshake import Entrance, TlsSource, enter
from wakugumi.adapters.net.socket_options import tune
from wakugumi.core.access.decide import Right, check_need
from wakugumi.core.access.identity import Identity
from wakugumi.core.connections.line_connection import LineConnection
from wakugumi.core.connections.pace import OutputPace
from wakugumi.errors import Lost, Refused
from wakugumi.limits.http import LINE_BYTES_MAX
from wakugumi.limits.units import KIB
from wakugumi.limits.wire import CLOSE_DEADLINE_S, JOB_NAME_CHARS_MAX
from wakugumi.wire.line import FIRST_BYTES_AUTH, JobLine, read_auth_line, read_job_line, write_err

log = logging.getLogger("wakugumi.lines")
access = logging.getLogger("wakugumi.access")
audit = logging.getLogger("wakugumi.audit")

_READ_BYTES: Final = 256 * KIB
_LOGGED_BYTES: Final = 200
"""Bytes of an answer's line in the log."""
_TCP_CLOSED: Final = 7
"""The state of a connection in Linux's TCP_INFO once the other side has torn it down."""

T = TypeVar("T")


class LineReply(NamedTuple):
    """A line, and the bytes that follow it."""

    line: bytes
    body: bytes | Stream = b""
    hear_out: bool = False
    """The input is not needed, and the client may send all of it before it reads."""


class LineCall:
    """One request for a job, as seen by a page."""

    def __init__(self, line: JobLine, identity: Identity, connection: _Connection) -> None:
        self.line = line
        self.identity = identity
        self.peer = connection.peer
        self._connection = connection
        self._rules = connection.rules
        self._rules.begin(line.size)
        self._tasks = Tasks()
        self._dropping: asyncio.Task[None] | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """The input as it is received. Raises Refused for a sender that stops early or sends next to nothing, Lost if
        the sender is gone."""
        clock, rules = asyncio.get_running_loop().time, self._rules
        while rules.left:
            asked_at = clock()
            try:
                async with asyncio.timeout(rules.pace.left_s):
                    piece = await self._connection.reader.read(min(rules.left, _READ_BYTES))
            except TimeoutError:
                raise rules.input_late() from None
            except OSError as error:
                raise Lost(f"{self.peer} ended before its input did: {error}", "dead") from None
            if not piece:
                raise rules.input_ended()
            rules.came(len(piece), clock() - asked_at)
            yield piece

    def drop(self) -> None:
        """Reads and drops the input from now on, in the background."""
        if self._rules.left and self._dropping is None:
            self._dropping = self._tasks.start(self._drop(), name="drop an input")

    async def dropped_all(self) -> None:
        """Waits for the end of dropping: the input is whole, stalls, or the client is gone."""
        if self._dropping is not None:
            await asyncio.wait([self._dropping])

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work. Raises Lost, and cancels the work, if the client is gone."""
        gone = self._connection.gone
        doing: asyncio.Task[T] = self._tasks.start(work, name="a job by line", quiet=True)
        ends: list[asyncio.Future[Any]] = [doing, gone]
        try:
            await asyncio.sleep(0)  # The work has begun in any case, and so cleans up in any case.
            while not doing.done() and not gone.done() and not self._connection.is_dead:
                await asyncio.wait(ends, timeout=self._rules.look_s, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
            raise Lost(f"{self.peer} is gone", "dead")
        finally:
            doing.cancel()

    async def close(self) -> None:
        await self._tasks.close()

    async def _drop(self) -> None:
        with suppress(Refused, Lost):
            async for piece in self.pieces():
                self._rules.dropped += len(piece)


LinePage: TypeAlias = Callable[[LineCall], Awaitable[LineReply]]


class LineServer:
    """Serves connections that speak lines. Make it inside a running loop, and close it."""

    def __init__(self, page: LinePage, guard: Guard, *, connections_max: int | None = None) -> None:
        self._page = page
        self.guard = guard
        self._connections_max = connections_of_process() if connections_max is None else connections_max
        self._tasks = Tasks()
        self._open: set[_Connection] = set()
        self.gate = gate()
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def connections(self) -> int:
        return len(self._open)

    def new_connection(self) -> asyncio.Protocol:
        return _Connection(self)

    async def close(self) -> None:
        """Connections that are nearly done have a moment."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self._quiet.wait()
        await self._tasks.close()
        for one in list(self._open):
            one.cut_off()

    def add(self, connection: _Connection) -> None:
        """Serves the connection, if there is room."""
        if len(self._open) >= self._connections_max and not self.gate.make_room(connection.transport):
            self.gate.say("full", f"closing {connection.peer}: more than {self._connections_max} connections")
            connection.cut_off()
            return
        self._open.add(connection)
        self._quiet.clear()
        self._tasks.start(self._serve(connection), name="a connection by line")

    def drop(self, connection: _Connection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._quiet.set()

    async def _serve(self, connection: _Connection) -> None:
        began_at = time.perf_counter()
        name, answered, sent = "", b"", 0
        call: LineCall | None = None
        try:
            try:
                line, identity = await connection.read_request()
                name = line.job
                call = LineCall(line, identity, connection)
                reply = await self._page(call)
            except Refused as error:
                if error.code == "denied" and call is not None:
                    _log_denial(call.identity.name, connection.peer, name, error)
                reply = LineReply(write_err(error.code, error.message))
            except (Lost, asyncio.CancelledError):
                raise
            except Exception:
                log.exception("request by line failed")
                reply = LineReply(write_err("worker-error", "internal error; the log has the details"))
            answered = reply.line
            if reply.hear_out and call is not None:
                call.drop()
            sent = await connection.answer(reply)
            await connection.leave(call)
        except Lost as error:
            answered = answered or b"(nobody there)"
            log.debug("%s", error)
        finally:
            connection.cut_off()
            if call is not None:
                await call.close()
            if access.isEnabledFor(logging.INFO):
                said = answered[:_LOGGED_BYTES].decode("utf-8", "replace").rstrip("\n")
                fields = {
                    "answer": said,
                    "job": name[:JOB_NAME_CHARS_MAX],
                    "peer": connection.peer,
                    "sent": sent,
                    "ms": round(1000 * (time.perf_counter() - began_at), 1),
                }
                access.info("JOB %s", said.partition(" ")[0], extra={"fields": fields})


class _Connection(asyncio.StreamReaderProtocol):
    """One connection, once it is known to speak lines."""

    transport: asyncio.Transport

    def __init__(self, lines: LineServer) -> None:
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=LINE_BYTES_MAX, loop=loop)
        super().__init__(self.reader, loop=loop)
        self._lines = lines
        self._writer: asyncio.StreamWriter | None = None
        self.gone: asyncio.Future[None] = loop.create_future()
        self._half: int | None = 0
        """Bytes of an incomplete line; None once it is whole."""
        self.peer = "?"
        self.rules = LineConnection(self.peer)

    @property
    def is_dead(self) -> bool:
        """A client that has sent all and closed its half may wait for an answer, or be gone: only the system knows,
        without an event."""
        if not self.reader.at_eof() or self._writer is None or not hasattr(socket, "TCP_INFO"):
            return False
        sock = self._writer.get_extra_info("socket")
        with suppress(OSError):
            return sock is not None and sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSED
        return False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport = both_ways = cast(asyncio.Transport, transport)
        self._writer = asyncio.StreamWriter(both_ways, self, self.reader, asyncio.get_running_loop())
        # `drain` then means that the system has taken the bytes. With 0, TLS would never be below the limit.
        self._writer.transport.set_write_buffer_limits(high=1, low=0)
        if (sock := transport.get_extra_info("socket")) is not None:
            tune(sock)
        self.peer = self.rules.peer = name_of(transport)
        self._lines.gate.came(both_ways)
        self._caller = self._lines.guard.caller(transport, lambda _why: both_ways.abort())
        self._lines.add(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._half is not None:
            if b"\n" in data:  # The line is checked soon after.
                self._half = None
            else:
                self._half += len(data)
                self._lines.gate.brought(self.transport, self._half)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._caller.left()
        self._lines.gate.known(self.transport)
        if not self.gone.done():
            self.gone.set_result(None)
        self._lines.drop(self)

    async def read_request(self) -> tuple[JobLine, Identity]:
        """The line of a job, behind that of a key if the client shows one. Raises Refused, or Lost for a client that
        sent no byte."""
        line, key = await self._read_line(), None
        if line.startswith(FIRST_BYTES_AUTH):
            key = read_auth_line(line)
            line = await self._read_line()
        identity = self._caller.identify(key)
        check_need(identity, Right.RUN, "run jobs")
        job = read_job_line(line)
        self._lines.gate.known(self.transport)
        return job, identity

    async def _read_line(self) -> bytes:
        try:
            async with asyncio.timeout(self.rules.line_s):
                return await self.reader.readuntil(b"\n")
        except TimeoutError:
            raise self.rules.no_line(is_late=True) from None
        except asyncio.LimitOverrunError:
            raise self.rules.no_line(is_long=True) from None
        except asyncio.IncompleteReadError as error:
            raise self.rules.no_line(len(error.partial)) from None
        except OSError as error:
            raise Lost(f"{self.peer} is gone: {error}", "dead") from None

    async def answer(self, reply: LineReply) -> int:
        """Sends the reply; returns the sent bytes of the body. Raises Lost if the client does not read, or is gone."""
        body = reply.body
        if isinstance(body, bytes):
            await self._write(reply.line + body if len(body) <= _READ_BYTES else reply.line)
            if len(body) > _READ_BYTES:
                for at in range(0, len(body), _READ_BYTES):
                    await self._write(body[at : at + _READ_BYTES])
            return len(body)
        sent = 0
        try:
            await self._write(reply.line)
            async for piece in body.pieces:
                await self._write(piece)
                sent += len(piece)
        finally:
            if (close := getattr(body.pieces, "aclose", None)) is not None:
                await close()
        if body.size != sent:  # The client must not take a part for the whole.
            raise Lost(f"{(body.size or 0) - sent} bytes of the answer are missing")
        return sent

    async def leave(self, call: LineCall | None) -> None:
        """Closes our half; further bytes are read and dropped, within bounds."""
        assert self._writer is not None
        with suppress(OSError, TimeoutError):
            if self._writer.can_write_eof():
                self._writer.write_eof()
            if call is not None:
                await call.dropped_all()
            if self.rules.lingers(can_half_close=self._writer.can_write_eof()):
                async with asyncio.timeout(self.rules.linger_s):
                    while (piece := await self.reader.read(_READ_BYTES)) and self.rules.lingered(len(piece)):
                        pass

    def cut_off(self) -> None:
        """Drops unwritten bytes. The close is orderly, unless unread bytes tear it down."""
        if self._writer is not None:
            self._writer.transport.close()

    async def _write(self, data: bytes) -> None:
        """A client that does not read has as much time as it needs to send."""
        assert self._writer is not None
        self._writer.write(data)
        unread, rules = self._writer.transport.get_write_buffer_size, self.rules
        pace = OutputPace(unread(), rules.dropped)
        is_too_slow = False
        while not is_too_slow:
            try:
                async with asyncio.timeout(pace.look_s):
                    await self._writer.drain()
                    return
            except TimeoutError:
                is_too_slow = pace.is_too_slow(unread(), rules.dropped)
            except OSError as error:
                raise Lost(f"{self.peer} is gone: {error}", "dead") from None
        self._writer.transport.abort()
        raise Lost(f"{self.peer} reads too slowly", "slow")


async def listen_lines(host: str, port: int, lines: LineServer, tls: TlsSource | None = None) -> Entrance:
    """Opens a port that speaks only lines. Raises ConfigError if the port cannot be opened."""
    return await enter(host, port, lines.new_connection, tls, lines)


def _log_denial(who: str, peer: str, job: str, error: Refused) -> None:
    """Each identity has lines of its own, so that no other one can hide them."""
    if gate().may_say(f"denied {who}"):
        audit.warning("denied who=%s peer=%s what=JOB %s: %s", who, peer, job[:JOB_NAME_CHARS_MAX], error.message)
