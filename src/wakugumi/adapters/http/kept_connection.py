"""What does a connection to another role send and receive? One exchange after the other: a request, and its answer as
it comes in. Answers are parsed by httptools.

body in pieces              sent beside the answer: an answer that comes early is the answer
answer not read             reading pauses once READ_BYTES are held
silence                     counted from the last byte received, and not while a body is being sent
not HTTP, too large a head  the exchange has failed, and with it the connection
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from wakugumi.limits.units import KIB

READ_BYTES: Final = 256 * KIB
_HEAD_BYTES_MAX: Final = 64 * KIB
_WITHOUT_BODY: Final = frozenset({204, 304})


class AnswerBroken(Exception):
    """The connection ended before the answer was whole, or the answer is none."""


class KeptConnection(asyncio.Protocol):
    """One connection. `begin` an exchange, wait for `head`, and read `next_piece` until it is empty."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = HttpResponseParser(self)
        self.proof = b""
        """Header that shows the caller's key, of a connection to a server that has proven who it is."""
        self.status = 0
        """Of the answer; 0 until its head is whole."""
        self.headers: dict[bytes, bytes] = {}
        """By names in lower case; of several, the first."""
        self.has_received = False
        """Any byte of the answer."""
        self.received = 0
        """Bytes of the answer's body."""
        self._pieces: list[bytes] = []
        self._buffered = 0
        self._head_bytes = 0
        self.is_whole = True
        """Was all of the answer received?"""
        self._is_kept = True
        """May another exchange follow?"""
        self._ends_with_connection = False
        self._failure = ""
        self._is_paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._written: asyncio.Future[None] | None = None
        """Done when the other side has read most of what was written."""
        self._sending: asyncio.Task[None] | None = None

    @property
    def is_free(self) -> bool:
        """The last answer was received and read, and another exchange may begin."""
        is_over = self.is_whole and not self._pieces and not self._is_paused and self._sending is None
        return is_over and self._is_kept and not self.transport.is_closing()

    @property
    def is_awaited(self) -> bool:
        """Does the reader of the answer wait for the other side?"""
        return self._waiter is not None

    def begin(self, head: bytes, body: AsyncIterator[bytes] | None = None, *, is_chunked: bool = False) -> None:
        self.status, self.headers, self.has_received = 0, {}, False
        self._head_bytes = self.received = 0
        self.is_whole = self._ends_with_connection = False
        self.transport.write(head)
        if body is not None:
            self._sending = self._loop.create_task(self._send(body, is_chunked=is_chunked), name="http body")

    async def head(self, silence_s: float | None) -> None:
        """Raises AnswerBroken, or TimeoutError."""
        while not self.status:
            if self._failure:
                raise AnswerBroken(self._failure)
            await self._wait(silence_s)

    async def next_piece(self, silence_s: float | None) -> bytes:
        """Empty at the end. Raises AnswerBroken, or TimeoutError."""
        while not self._pieces:
            if self.is_whole:
                return b""
            if self._failure:
                raise AnswerBroken(self._failure)
            await self._wait(silence_s)
        pieces, self._pieces, self._buffered = self._pieces, [], 0
        if self._is_paused and not self.transport.is_closing():
            self._is_paused = False
            self.transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def abort(self, why: str = "it was given up") -> None:
        self._is_kept = False
        self._failure = self._failure or why
        if self._sending is not None:
            self._sending.cancel()
        self.transport.abort()
        self._tell()

    async def close(self) -> None:
        self.abort()
        if (sending := self._sending) is not None:
            await asyncio.wait([sending])

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.has_received = True
        self._head_bytes += 0 if self.status else len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._is_kept = False
            if not self.is_whole:
                self.abort(f"it does not speak HTTP: {error}")
                return
        if self.is_whole and not self._is_kept:
            if self._sending is not None:
                self._sending.cancel()
            self.transport.close()
        elif not self.status and self._head_bytes > _HEAD_BYTES_MAX:
            self.abort(f"the head of its answer is longer than {_HEAD_BYTES_MAX} bytes")
        elif self._buffered >= READ_BYTES and not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()
        self._tell()

    def eof_received(self) -> None:
        self.is_whole = self.is_whole or self._ends_with_connection

    def connection_lost(self, error: Exception | None) -> None:
        self._failure = self._failure or str(error or "it ended the connection")
        self._is_kept = False
        if self._sending is not None:
            self._sending.cancel()
        self._tell()

    def pause_writing(self) -> None:
        self._written = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._written is not None and not self._written.done():
            self._written.set_result(None)
        self._written = None

    # The parser.

    def on_message_begin(self) -> None:
        if self.is_whole:
            raise ValueError("nobody asked for this answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # Otherwise it stands behind the body.
            self.headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:  # The answer follows.
            self.headers = {}
            return
        self.status = status
        self._is_kept = self._parser.should_keep_alive()
        is_framed = b"content-length" in self.headers or b"transfer-encoding" in self.headers
        self._ends_with_connection = not is_framed and status not in _WITHOUT_BODY

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self._buffered += len(data)
        self.received += len(data)

    def on_message_complete(self) -> None:
        self.is_whole = bool(self.status)

    # Waiting.

    async def _wait(self, silence_s: float | None) -> None:
        """For anything that happens."""
        self._waiter = waiter = self._loop.create_future()
        timer = None
        if silence_s is not None and self._sending is None:
            timer = self._loop.call_later(silence_s, self._tell, TimeoutError())
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _tell(self, error: Exception | None = None) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)

    # The body of a request.

    async def _send(self, body: AsyncIterator[bytes], *, is_chunked: bool) -> None:
        try:
            async for piece in body:
                if piece and is_chunked:
                    self.transport.writelines((b"%x\r\n" % len(piece), piece, b"\r\n"))
                elif piece:
                    self.transport.write(piece)
                if self._written is not None:
                    await self._written
            if is_chunked:
                self.transport.write(b"0\r\n\r\n")
        except Exception as error:
            self._sending = None
            self.abort(f"the request was not sent whole: {error}")
        finally:
            self._sending = None
            self._tell()
            if (aclose := getattr(body, "aclose", None)) is not None:
                with suppress(Exception):
                    await aclose()
