"""How does a port speak lines? (SPEC N1) One job per connection: a line and its bytes come, a line and its bytes go.

    page = async (call) -> LineReply        gets `call.line`, reads `call.pieces()`, may raise Refused

An answer reaches those too who are still sending: it is written, our half is closed, and what still comes is heard out
for a while. Only then the connection is closed, for an end with bytes unread would tear down the answer with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from wakugumi.adapters.net import Address, accept, bound_port, tune
from wakugumi.adapters.tasks import Tasks
from wakugumi.adapters.visit import Stream
from wakugumi.errors import Lost, Refused
from wakugumi.limits import (
    BODY_RECEIVED_MIN_BYTES,
    BODY_RECEIVED_MIN_S,
    CLOSE_DEADLINE_S,
    CONNECTIONS_MAX,
    HELLO_DEADLINE_S,
    KIB,
    LINE_BYTES_MAX,
    LINGER_BYTES_MAX,
    LINGER_S,
)
from wakugumi.wire.line import JobLine, read_job_line, write_err

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger("wakugumi.lines")
access = logging.getLogger("wakugumi.access")

_READ_BYTES: Final = 256 * KIB


class LineReply(NamedTuple):
    """A line, and the bytes that follow it."""

    line: bytes
    body: bytes | Stream = b""


class LineCall:
    """One job that somebody asks for, as a page sees it."""

    def __init__(self, line: JobLine, peer: str, reader: asyncio.StreamReader) -> None:
        self.line = line
        self.peer = peer
        self._reader = reader

    async def pieces(self) -> AsyncIterator[bytes]:
        """Its input as it comes. Raises Refused for who stops too early or sends next to nothing, Lost for who is
        gone."""
        clock = asyncio.get_running_loop().time
        left_s, received = BODY_RECEIVED_MIN_S, 0
        left = self.line.size
        while left:
            asked_at = clock()
            try:
                async with asyncio.timeout(left_s):
                    piece = await self._reader.read(min(left, _READ_BYTES))
            except TimeoutError:
                text = f"less than {BODY_RECEIVED_MIN_BYTES} bytes came in {BODY_RECEIVED_MIN_S:g} s"
                raise Refused("too-slow", text) from None
            except OSError as error:
                raise Lost(f"{self.peer} ended before its input did: {error}", "dead") from None
            if not piece:
                said = self.line.size
                raise Refused("bad-request", f"{said - left} bytes came, and the line says {said}", "")
            left -= len(piece)
            left_s -= clock() - asked_at  # What we do with a piece is not its sender's fault.
            received += len(piece)
            if received >= BODY_RECEIVED_MIN_BYTES:
                left_s, received = BODY_RECEIVED_MIN_S, 0
            yield piece


LinePage: TypeAlias = Callable[[LineCall], Awaitable[LineReply]]


class Lines:
    """Serves connections that speak lines. Make it inside a running loop, and close it."""

    def __init__(self, page: LinePage, *, connections_max: int = CONNECTIONS_MAX) -> None:
        self._page = page
        self._connections_max = connections_max
        self._tasks = Tasks()
        self._open: set[_Connection] = set()

    @property
    def connections(self) -> int:
        return len(self._open)

    def new_connection(self) -> asyncio.Protocol:
        return _Connection(self)

    async def close(self) -> None:
        """Those that are nearly done have a moment."""
        if self._open:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_DEADLINE_S):
                    while self._open:
                        await asyncio.wait([one.served for one in self._open if one.served is not None])
        await self._tasks.close()
        for one in list(self._open):
            one.cut_off()

    def add(self, connection: _Connection) -> asyncio.Future[None] | None:
        """Serve it, if there is room."""
        if len(self._open) >= self._connections_max:
            log.warning("closing %s: more than %d connections", connection.peer, self._connections_max)
            connection.cut_off()
            return None
        self._open.add(connection)
        return self._tasks.start(self._serve(connection), name="a job by line")

    def drop(self, connection: _Connection) -> None:
        self._open.discard(connection)

    async def _serve(self, connection: _Connection) -> None:
        began_at = time.perf_counter()
        name, answered, sent = "", b"", 0
        try:
            try:
                line = await connection.read_line()
                name = line.job
                reply = await self._page(LineCall(line, connection.peer, connection.reader))
            except Refused as error:
                reply = LineReply(write_err(error.code, error.message))
            except (Lost, asyncio.CancelledError):
                raise
            except Exception:
                log.exception("a job by line failed")
                reply = LineReply(write_err("worker-error", "this should not have happened; the log has the details"))
            answered = reply.line
            sent = await connection.answer(reply)
            await connection.leave()
        except Lost as error:
            answered = answered or b"(nobody there)"
            log.debug("%s", error)
        finally:
            connection.cut_off()
            if access.isEnabledFor(logging.INFO):
                took_ms = 1000 * (time.perf_counter() - began_at)
                said = answered[:60].decode("utf-8", "replace").rstrip("\n")
                access.info("JOB %r job=%s peer=%s sent=%d ms=%.1f", said, name[:128], connection.peer, sent, took_ms)


class _Connection(asyncio.StreamReaderProtocol):
    """One connection, once it is known that it speaks lines."""

    def __init__(self, lines: Lines) -> None:
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=LINE_BYTES_MAX, loop=loop)
        super().__init__(self.reader, loop=loop)
        self._lines = lines
        self._writer: asyncio.StreamWriter | None = None
        self.served: asyncio.Future[None] | None = None
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        both_ways = cast(asyncio.Transport, transport)
        self._writer = asyncio.StreamWriter(both_ways, self, self.reader, asyncio.get_running_loop())
        self._writer.transport.set_write_buffer_limits(high=0)  # So `drain` means that the system has taken it.
        if (sock := transport.get_extra_info("socket")) is not None:
            tune(sock)
        name = transport.get_extra_info("peername")
        self.peer = str(Address(name[0], name[1])) if isinstance(name, tuple) and len(name) >= 2 else "a local process"
        self.served = self._lines.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
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
        return read_job_line(line)

    async def answer(self, reply: LineReply) -> int:
        """How much of the body was sent. Raises Lost for who does not read, or is gone."""
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
        if body.size != sent:  # only an end without the rest tells the truth
            raise Lost(f"{(body.size or 0) - sent} bytes of the answer are missing")
        return sent

    async def leave(self) -> None:
        """Nothing more is said; what the other side still says is heard out, within bounds."""
        assert self._writer is not None
        with suppress(OSError, TimeoutError):
            if self._writer.can_write_eof():
                self._writer.write_eof()
            left = LINGER_BYTES_MAX
            async with asyncio.timeout(LINGER_S):
                while left > 0 and (piece := await self.reader.read(_READ_BYTES)):
                    left -= len(piece)

    def cut_off(self) -> None:
        """Whatever is not written by now is not wanted. An end in order, unless something unread tears it down."""
        if self._writer is not None:
            self._writer.transport.close()

    async def _write(self, data: bytes) -> None:
        assert self._writer is not None
        try:
            async with asyncio.timeout(BODY_RECEIVED_MIN_S):
                self._writer.write(data)
                await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
            raise Lost(f"{self.peer} reads too slowly", "slow") from None
        except OSError as error:
            raise Lost(f"{self.peer} is gone: {error}", "dead") from None


async def listen_lines(host: str, port: int, lines: Lines, tls: SSLContext | None = None) -> LineListener:
    """A port that speaks only lines. Raises ConfigError if it cannot be had."""
    return LineListener(await accept(host, port, lines.new_connection, tls), lines)


class LineListener:
    """A port that speaks only lines, until it is closed."""

    def __init__(self, server: asyncio.Server, lines: Lines) -> None:
        self._server = server
        self._lines = lines
        self.port = bound_port(server)

    def stop(self) -> None:
        """Nobody new comes in."""
        self._server.close()

    async def close(self) -> None:
        self._server.close()
        await self._lines.close()
