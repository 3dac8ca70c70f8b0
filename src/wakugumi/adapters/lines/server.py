"""How does a port speak lines? (SPEC N1) One job per connection: a line and its bytes come, a line and its bytes go.

    page = async (call) -> LineReply        gets `call.line`, reads `call.pieces()`, may raise Refused

An answer reaches those too who are still sending: it is written, our half is closed, and what still comes is heard out
for a while. Only then the connection is closed, for an end with bytes unread would tear down the answer with it. Some
read only when they have sent all: a reply that is worth it (`hear_out`) is written while the input is read and dropped,
for as long as that comes.
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
from wakugumi.adapters.net.link import tune
from wakugumi.errors import Lost, Refused
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
"""Of an answer's line."""
_TCP_CLOSED: Final = 7
"""The state of a connection in Linux's TCP_INFO once the other side has torn it down."""

T = TypeVar("T")


class LineReply(NamedTuple):
    """A line, and the bytes that follow it."""

    line: bytes
    body: bytes | Stream = b""
    hear_out: bool = False
    """Its input is of no use any more, and all of it may come before any of this is read."""


class LineCall:
    """One job that somebody asks for, as a page sees it."""

    def __init__(self, line: JobLine, connection: _Connection) -> None:
        self.line = line
        self.peer = connection.peer
        self._connection = connection
        self._reader = connection.reader
        self._left = line.size
        self._tasks = Tasks()
        self._dropping: asyncio.Task[None] | None = None
        self.dropped = 0
        """Bytes of the input that came, and nobody wanted."""

    @property
    def is_read(self) -> bool:
        """All of its input has come."""
        return not self._left

    async def pieces(self) -> AsyncIterator[bytes]:
        """Its input as it comes. Raises Refused for who stops too early or sends next to nothing, Lost for who is
        gone."""
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
                raise Refused("bad-request", f"{said - self._left} bytes came, and the line says {said}", "")
            self._left -= len(piece)
            left_s -= clock() - asked_at  # What we do with a piece is not its sender's fault.
            received += len(piece)
            if received >= BODY_RECEIVED_MIN_BYTES:
                left_s, received = BODY_RECEIVED_MIN_S, 0
            yield piece

    def drop(self) -> None:
        """From now on read and drop what comes of its input, beside whatever else is done."""
        if self._left and self._dropping is None:
            self._dropping = self._tasks.start(self._drop(), name="drop an input")

    async def dropped_all(self) -> None:
        """Until no more is dropped: all came, or next to nothing did, or nobody is there."""
        if self._dropping is not None:
            await asyncio.wait([self._dropping])

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """What it returns. Raises Lost, and cancels it, if nobody is there any more to hear of it."""
        gone = self._connection.gone
        doing: asyncio.Task[T] = self._tasks.start(work, name="a job by line", quiet=True)
        ends: list[asyncio.Future[Any]] = [doing, gone]
        try:
            await asyncio.sleep(0)  # It has begun in any case, and so it cleans up in any case.
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
        """Those that are nearly done have a moment."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self._quiet.wait()
        await self._tasks.close()
        for one in list(self._open):
            one.cut_off()

    def add(self, connection: _Connection) -> None:
        """Serve it, if there is room."""
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
                log.exception("a job by line failed")
                reply = LineReply(write_err("worker-error", "this should not have happened; the log has the details"))
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
    """One connection, once it is known that it speaks lines."""

    transport: asyncio.Transport

    def __init__(self, lines: LineServer) -> None:
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=LINE_BYTES_MAX, loop=loop)
        super().__init__(self.reader, loop=loop)
        self._lines = lines
        self._writer: asyncio.StreamWriter | None = None
        self.gone: asyncio.Future[None] = loop.create_future()
        self._half: int | None = 0
        """Bytes of a line that is not whole; None once it is."""
        self.peer = "?"

    @property
    def is_dead(self) -> bool:
        """Who has sent all and closed its half may wait for an answer, or be gone: only the system hears of that, and
        no event tells of it."""
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
        # So `drain` means that the system has taken it. With 0, TLS would wait for less than nothing.
        self._writer.transport.set_write_buffer_limits(high=1, low=0)
        if (sock := transport.get_extra_info("socket")) is not None:
            tune(sock)
        self.peer = name_of(transport)
        self._lines.gate.came(both_ways)
        self._lines.add(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._half is not None:
            if b"\n" in data:  # Whether the line is good is seen soon.
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
        """Raises Refused, or Lost for who said nothing at all."""
        try:
            async with asyncio.timeout(HELLO_DEADLINE_S):
                line = await self.reader.readuntil(b"\n")
        except TimeoutError:
            raise Refused("too-slow", f"no whole line came in {HELLO_DEADLINE_S:g} s") from None
        except asyncio.LimitOverrunError:
            raise Refused("bad-request", f"the line is longer than {LINE_BYTES_MAX} bytes", "") from None
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                raise Lost(f"{self.peer} said nothing") from None
            raise Refused("bad-request", "the line has no end", "") from None
        except OSError as error:
            raise Lost(f"{self.peer} is gone: {error}", "dead") from None
        job = read_job_line(line)
        self._lines.gate.known(self.transport)
        return job

    async def answer(self, reply: LineReply, call: LineCall | None) -> int:
        """How much of the body was sent. Raises Lost for who does not read, or is gone."""
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
        if body.size != sent:  # only an end without the rest tells the truth
            raise Lost(f"{(body.size or 0) - sent} bytes of the answer are missing")
        return sent

    async def leave(self, call: LineCall | None) -> None:
        """Nothing more is said; what the other side still says is heard out, within bounds."""
        assert self._writer is not None
        with suppress(OSError, TimeoutError):
            if self._writer.can_write_eof():
                self._writer.write_eof()
            if call is not None:
                await call.dropped_all()
                if call.is_read and not self._writer.can_write_eof():
                    return  # Over TLS only the end of both halves tells it that no more comes.
            left = LINGER_BYTES_MAX
            async with asyncio.timeout(LINGER_S):
                while left > 0 and (piece := await self.reader.read(_READ_BYTES)):
                    left -= len(piece)

    def cut_off(self) -> None:
        """Whatever is not written by now is not wanted. An end in order, unless something unread tears it down."""
        if self._writer is not None:
            self._writer.transport.close()

    async def _write(self, data: bytes, call: LineCall | None) -> None:
        """Who does not read has the time for it that it needs to send."""
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
    """A port that speaks only lines. Raises ConfigError if it cannot be had."""
    return LineListener(await enter(host, port, lines.new_connection, tls), lines)


class LineListener:
    """A port that speaks only lines, until it is closed."""

    def __init__(self, entrance: Entrance, lines: LineServer) -> None:
        self._entrance = entrance
        self._lines = lines
        self.port = entrance.port

    def stop(self) -> None:
        """Nobody new comes in."""
        self._entrance.stop()

    async def close(self) -> None:
        await self._entrance.close()
        await self._lines.close()
