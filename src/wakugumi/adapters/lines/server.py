"""How does a port speak lines? (SPEC N1) One job per connection: a line and its bytes are received, a line and its
bytes are sent.

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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from wakugumi.adapters.http.page import Stream
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.machine.open_files import connections_max as connections_of_process
from wakugumi.adapters.net.gate import gate, name_of
from wakugumi.adapters.net.handshake import Entrance, enter
from wakugumi.adapters.net.socket_options import tune
from wakugumi.errors import Lost, Refused, bad_request
from wakugumi.limits.http import (
    BODY_RECEIVED_MIN_BYTES,
    BODY_RECEIVED_MIN_S,
    LINE_BYTES_MAX,
    LINE_GONE_S,
    LINGER_BYTES_MAX,
    LINGER_S,
)
from wakugumi.limits.units import KIB
from wakugumi.limits.wire import CLOSE_DEADLINE_S, HELLO_DEADLINE_S, JOB_NAME_CHARS_MAX
from wakugumi.wire.line import JobLine, read_job_line, write_err

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger("wakugumi.lines")
access = logging.getLogger("wakugumi.access")

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

    def __init__(self, line: JobLine, connection: _Connection) -> None:
        self.line = line
        self.peer = connection.peer
        self._connection = connection
        self._reader = connection.reader
        self._left = line.size
        self._tasks = Tasks()
        self._dropping: asyncio.Task[None] | None = None
        self.dropped = 0
        """Bytes of the input that were received and dropped."""

    @property
    def is_read(self) -> bool:
        """The whole input was received."""
        return not self._left

    async def pieces(self) -> AsyncIterator[bytes]:
        """The input as it is received. Raises Refused for a sender that stops early or sends next to nothing, Lost if
        the sender is gone."""
        clock = asyncio.get_running_loop().time
        left_s, received = BODY_RECEIVED_MIN_S, 0
        while self._left:
            asked_at = clock()
            try:
                async with asyncio.timeout(left_s):
                    piece = await self._reader.read(min(self._left, _READ_BYTES))
            except TimeoutError:
                text = f"less than {BODY_RECEIVED_MIN_BYTES} bytes came in {BODY_RECEIVED_MIN_S:g} s"
                raise Refused("too-slow", text) from None
            except OSError as error:
                raise Lost(f"{self.peer} ended before its input did: {error}", "dead") from None
            if not piece:
                said = self.line.size
                raise bad_request(f"{said - self._left} bytes came, and the line says {said}")
            self._left -= len(piece)
            left_s -= clock() - asked_at  # Our own time with a piece is not the sender's fault.
            received += len(piece)
            if received >= BODY_RECEIVED_MIN_BYTES:
                left_s, received = BODY_RECEIVED_MIN_S, 0
            yield piece

    def drop(self) -> None:
        """Reads and drops the input from now on, in the background."""
        if self._left and self._dropping is None:
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
                await asyncio.wait(ends, timeout=LINE_GONE_S, return_when=asyncio.FIRST_COMPLETED)
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
                self.dropped += len(piece)


LinePage: TypeAlias = Callable[[LineCall], Awaitable[LineReply]]


class LineServer:
    """Serves connections that speak lines. Make it inside a running loop, and close it."""

    def __init__(self, page: LinePage, *, connections_max: int | None = None) -> None:
        self._page = page
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
                line = await connection.read_line()
                name = line.job
                call = LineCall(line, connection)
                reply = await self._page(call)
            except Refused as error:
                reply = LineReply(write_err(error.code, error.message))
            except (Lost, asyncio.CancelledError):
                raise
            except Exception:
                log.exception("request by line failed")
                reply = LineReply(write_err("worker-error", "internal error; the log has the details"))
            answered = reply.line
            if reply.hear_out and call is not None:
                call.drop()
            sent = await connection.answer(reply, call)
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
        self.peer = name_of(transport)
        self._lines.gate.came(both_ways)
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
        self._lines.gate.known(self.transport)
        if not self.gone.done():
            self.gone.set_result(None)
        self._lines.drop(self)

    async def read_line(self) -> JobLine:
        """Raises Refused, or Lost for a client that sent no byte."""
        try:
            async with asyncio.timeout(HELLO_DEADLINE_S):
                line = await self.reader.readuntil(b"\n")
        except TimeoutError:
            raise Refused("too-slow", f"no whole line came in {HELLO_DEADLINE_S:g} s") from None
        except asyncio.LimitOverrunError:
            raise bad_request(f"the line is longer than {LINE_BYTES_MAX} bytes") from None
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                raise Lost(f"{self.peer} sent no line") from None
            raise bad_request("the line has no end") from None
        except OSError as error:
            raise Lost(f"{self.peer} is gone: {error}", "dead") from None
        job = read_job_line(line)
        self._lines.gate.known(self.transport)
        return job

    async def answer(self, reply: LineReply, call: LineCall | None) -> int:
        """Sends the reply; returns the sent bytes of the body. Raises Lost if the client does not read, or is gone."""
        body = reply.body
        if isinstance(body, bytes):
            await self._write(reply.line + body if len(body) <= _READ_BYTES else reply.line, call)
            if len(body) > _READ_BYTES:
                for at in range(0, len(body), _READ_BYTES):
                    await self._write(body[at : at + _READ_BYTES], call)
            return len(body)
        sent = 0
        try:
            await self._write(reply.line, call)
            async for piece in body.pieces:
                await self._write(piece, call)
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
                if call.is_read and not self._writer.can_write_eof():
                    return  # Over TLS only the end of both halves tells the client that no more follows.
            left = LINGER_BYTES_MAX
            async with asyncio.timeout(LINGER_S):
                while left > 0 and (piece := await self.reader.read(_READ_BYTES)):
                    left -= len(piece)

    def cut_off(self) -> None:
        """Drops unwritten bytes. The close is orderly, unless unread bytes tear it down."""
        if self._writer is not None:
            self._writer.transport.close()

    async def _write(self, data: bytes, call: LineCall | None) -> None:
        """A client that does not read has as much time as it needs to send."""
        assert self._writer is not None
        self._writer.write(data)
        before = -BODY_RECEIVED_MIN_BYTES
        while (dropped := 0 if call is None else call.dropped) - before >= BODY_RECEIVED_MIN_BYTES:
            before = dropped
            try:
                async with asyncio.timeout(BODY_RECEIVED_MIN_S):
                    await self._writer.drain()
                    return
            except TimeoutError:
                continue
            except OSError as error:
                raise Lost(f"{self.peer} is gone: {error}", "dead") from None
        self._writer.transport.abort()
        raise Lost(f"{self.peer} reads too slowly", "slow")


async def listen_lines(host: str, port: int, lines: LineServer, tls: SSLContext | None = None) -> LineListener:
    """Opens a port that speaks only lines. Raises ConfigError if the port cannot be opened."""
    return LineListener(await enter(host, port, lines.new_connection, tls), lines)


class LineListener:
    """A port that speaks only lines, until it is closed."""

    def __init__(self, entrance: Entrance, lines: LineServer) -> None:
        self._entrance = entrance
        self._lines = lines
        self.port = entrance.port

    def stop(self) -> None:
        """Takes no new connections."""
        self._entrance.stop()

    async def close(self) -> None:
        await self._entrance.close()
        await self._lines.close()
