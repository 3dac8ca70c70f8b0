"""What does one HTTP connection read, write and cost? Requests are parsed by httptools, and answered one after the
other.

head too slow, or no request        closed after `idle_s`; bytes of a head count as a stranger's
                                    (`adapters/net/gate.py`)
body not wanted yet                 not read: neither its rest nor the next request
body too slow                       its reader refuses (`adapters/http/request.py`)
body not wanted at all              read and dropped for LINGER_S, so that the answer is not lost to a reset
answer not read                     cut off, once next to nothing was read for BODY_RECEIVED_MIN_S, unless as much was
                                    received of a body that is dropped: some clients read after sending
not HTTP, or too large a head       answered with a problem; further bytes are dropped for LINGER_S
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NoReturn, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from wakugumi.adapters.http.request import READ_BYTES, WebRequest
from wakugumi.adapters.net.gate import gate
from wakugumi.adapters.net.guard import Caller
from wakugumi.core.connections.pace import OutputPace
from wakugumi.errors import Lost, Refused
from wakugumi.limits.http import (
    BODY_RECEIVED_MIN_S,
    HTTP_HEADERS_MAX,
    HTTP_LINE_BYTES_MAX,
    LINGER_S,
)

_AHEAD_MAX: Final = 16
"""Requests that are received while an earlier one is answered."""
_FRAMING: Final = (b"content-length", b"transfer-encoding")
_SINGLE: Final = frozenset({*_FRAMING, b"host", b"origin", b"content-type", b"content-range", b"authorization"})
"""Headers that stand once in a head: a proxy and we might each believe another one."""


class Answering(Protocol):
    """A server, as its connections see it."""

    connections: set[Connection]

    async def answer(self, request: WebRequest) -> None:
        """Raises ConnectionError if the connection is of no use any more."""
        ...

    def refuse_broken(self, transport: asyncio.Transport, fault: str) -> bytes:
        """The answer to bytes that are not HTTP, or to too large a head."""
        ...


class Connection(asyncio.Protocol):
    """One connection of a server."""

    transport: asyncio.Transport

    def __init__(self, server: Answering, idle_s: float) -> None:
        self._server = server
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._gate = gate()
        self.caller: Caller | None = None
        self._gone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

        self._parser = HttpRequestParser(self)
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_count = 0
        self._line_bytes = 0
        """Bytes that were received since the last whole line of a head."""
        self._fault = ""
        """Why the bytes are not HTTP, in our words."""
        self._is_replay = False
        """The parser gets the framing of a request again, without its wish to speak another protocol."""

        self._incoming: WebRequest | None = None
        """Its head is whole, and its body is not."""
        self._waiting: deque[WebRequest] = deque()
        self._current: WebRequest | None = None
        self._broken = ""
        """No more requests follow: what came is not HTTP."""
        self._is_last = False
        """No more requests are answered."""
        self._wake: asyncio.Future[None] | None = None
        self._idle_until = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_reading = True

        self._is_stranger = True
        """No whole head was received, or a part of the next one."""
        self._head_bytes = 0
        self._written: asyncio.Future[None] | None = None
        """Done when the other side has read most of what was written."""
        self._unread_watch: asyncio.TimerHandle | None = None
        self.dropped = 0
        """Bytes of a body that were received and dropped."""

    @property
    def is_gone(self) -> bool:
        return self.transport.is_closing()

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)
        self._task = self._loop.create_task(self._serve(), name="http")
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._broken or self._is_last:
            return
        try:
            self._feed(data)
        except (HttpParserError, ValueError) as error:
            if not self._is_last:
                self._break(self._fault or _plain(str(error)))
        self.pace()

    def _feed(self, data: bytes) -> None:
        if self._incoming is None:
            self._line_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as stop:  # We speak nothing else. The body and the next request follow as they are.
            self._parser, self._is_replay = HttpRequestParser(self), True
            headers = self._headers
            framing = b"".join(b"%s: %s\r\n" % (name, headers[name]) for name in _FRAMING if name in headers)
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % framing)
            self._feed(data[stop.args[0] :])
            return
        if self._incoming is None:
            if self._line_bytes > HTTP_LINE_BYTES_MAX + len(data):
                self._refuse(f"a line of the head is longer than {HTTP_LINE_BYTES_MAX} bytes")
            if self._current is None and not self._waiting:  # More bytes of an incomplete head.
                self._is_stranger = True
                self._head_bytes += len(data)
                self._gate.brought(self.transport, self._head_bytes)

    def pause_writing(self) -> None:
        self._written = self._loop.create_future()
        self._watch()

    def resume_writing(self) -> None:
        self._unwatch()
        if self._written is not None and not self._written.done():
            self._written.set_result(None)
        self._written = None

    def connection_lost(self, _error: Exception | None) -> None:
        self._gone.set()
        self._is_last = True
        if self.caller is not None:
            self.caller.left()
        self.resume_writing()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._is_stranger:
            self._gate.known(self.transport)
        if self._incoming is not None:
            self._incoming.body_ended(f"{self._incoming.peer} ended before its request did")
        self._waiting.clear()
        self._continue()
        self._server.connections.discard(self)

    # The parser.

    def on_url(self, part: bytes) -> None:
        if self._is_replay:
            return
        self._target += part
        if len(self._target) > HTTP_LINE_BYTES_MAX:
            self._refuse(f"the target is longer than {HTTP_LINE_BYTES_MAX} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._line_bytes = 0
        self._header_count += 1
        if self._header_count > HTTP_HEADERS_MAX or len(name) + len(value) > HTTP_LINE_BYTES_MAX:
            self._refuse(f"more than {HTTP_HEADERS_MAX} headers, or one longer than {HTTP_LINE_BYTES_MAX} bytes")
        if self._incoming is None:
            name = name.lower()
            if name not in self._headers:
                self._headers[name] = value
            elif name in _SINGLE:
                self._refuse("a header stands there twice")

    def on_headers_complete(self) -> None:
        if self._is_replay:
            self._is_replay = False
            self._header_count = 0
            return
        self._head_bytes = self._line_bytes = self._header_count = 0
        if self._is_stranger:
            self._is_stranger = False
            self._gate.known(self.transport)
        parser = self._parser
        try:
            request = WebRequest(
                self, parser.get_method().decode(), self._target, parser.get_http_version(), self._headers
            )
        except ValueError:
            self._refuse("the target is not a path or a URL")
        self._target = b""
        if not parser.should_upgrade():
            self._headers = {}
        self._incoming = request
        self._waiting.append(request)
        self._continue()

    def on_body(self, data: bytes) -> None:
        assert self._incoming is not None
        self._incoming.body_received(data)

    def on_message_complete(self) -> None:
        if self._incoming is None or self._parser.should_upgrade():
            return
        self._headers = {}
        self._incoming.body_ended()
        self._is_last = not self._incoming.keeps_alive
        self._incoming = None

    def _refuse(self, why: str) -> NoReturn:
        self._fault = why
        raise ValueError(why)  # The parser stops with an error of its own.

    def _break(self, why: str) -> None:
        self._broken = why
        if self._incoming is not None:
            self._incoming.body_broken()
            self._incoming = None
        self._continue()

    # Reading.

    def pace(self) -> None:
        """Reads as long as somebody wants the next bytes."""
        incoming = self._incoming
        if incoming is not None:
            wanted = incoming.is_wanted and incoming.buffered < READ_BYTES
        else:
            wanted = len(self._waiting) < _AHEAD_MAX
        if wanted != self._is_reading and not self.transport.is_closing():
            self._is_reading = wanted
            (self.transport.resume_reading if wanted else self.transport.pause_reading)()

    def _expect_head(self) -> None:
        self._idle_until = self._loop.time() + self._idle_s
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(self._idle_s, self._check_idle)

    def _check_idle(self) -> None:
        """One timer for all requests of a connection: a timer for each would cost more."""
        self._idle_timer = None
        if self._current is None and not self._waiting and not self._broken:
            left_s = self._idle_until - self._loop.time()
            if left_s > 0:
                self._idle_timer = self._loop.call_later(left_s, self._check_idle)
            else:
                self.stop()

    # Answering.

    def _continue(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _serve(self) -> None:
        try:
            while await self._next():
                request = self._current
                assert request is not None
                await self._server.answer(request)
                if not await self._drop_rest(request) or (self._is_last and not self._waiting):
                    break
                self._current = None
                self._expect_head()
            if self._broken and not self._waiting and not self.is_gone and self._current is None:
                await self._refuse_broken()
        except ConnectionError:
            self.transport.abort()
        finally:
            self._close()

    async def _next(self) -> bool:
        """Waits for a request. False if none follows."""
        while not self._waiting:
            if self._is_last or self._broken:
                return False
            self._wake = self._loop.create_future()
            await self._wake
        self._current = self._waiting.popleft()
        if not self._is_reading:
            self.pace()
        return True

    async def _drop_rest(self, request: WebRequest) -> bool:
        """May another request follow? The rest of this one's body is read for a moment: a close with unread bytes would
        be a reset, and the answer lost."""
        if request.is_whole:
            return request.keeps_alive
        if request.awaits_continue:
            return False
        try:
            async with asyncio.timeout(LINGER_S):
                while await request.next_piece():
                    pass
        except (TimeoutError, Refused, Lost):
            return False
        return request.keeps_alive and request.is_whole

    async def _refuse_broken(self) -> None:
        """The answer to bytes that are not HTTP is the last one."""
        self.transport.write(self._server.refuse_broken(self.transport, self._broken))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.transport.resume_reading()
        try:
            async with asyncio.timeout(LINGER_S):
                await self._gone.wait()
        except TimeoutError:
            self.transport.abort()

    def write(self, data: bytes) -> None:
        """Raises ConnectionError if the other side has left."""
        if self.transport.is_closing():
            raise ConnectionResetError("the client has left")
        self.transport.write(data)

    async def drain(self) -> None:
        """Waits until the other side has read most. Raises ConnectionError if it left."""
        if self._written is not None:
            await self._written
            if self._gone.is_set():
                raise ConnectionResetError("the client has left")

    # The end.

    def stop(self) -> None:
        """No more requests: closes now, or after the current answer."""
        self._is_last = True
        if self._current is not None:
            self._current.keeps_alive = False
        self._waiting.clear()
        self._continue()

    async def end(self, deadline_s: float) -> None:
        """Closes, at the latest after so long."""
        self.stop()
        assert self._task is not None
        await asyncio.wait([self._task], timeout=deadline_s)
        self._task.cancel()
        await asyncio.wait([self._task])

    def _close(self) -> None:
        """A close lasts until the other side has read all bytes; some never do."""
        self._is_last = True
        if not self._gone.is_set():
            self.transport.close()
            self._loop.call_later(BODY_RECEIVED_MIN_S, self.transport.abort)

    # Readers of answers.

    def _watch(self) -> None:
        pace = OutputPace(self.transport.get_write_buffer_size(), self.dropped)
        self._unread_watch = self._loop.call_later(pace.look_s, self._look, pace)

    def _look(self, pace: OutputPace) -> None:
        if pace.is_too_slow(self.transport.get_write_buffer_size(), self.dropped):
            self.transport.abort()
        else:
            self._unread_watch = self._loop.call_later(pace.look_s, self._look, pace)

    def _unwatch(self) -> None:
        if self._unread_watch is not None:
            self._unread_watch.cancel()
            self._unread_watch = None


def _plain(message: str) -> str:
    """The parser's message, without the stranger's bytes in it."""
    return (message or "no request").strip().partition("\n")[0].rstrip(":. ")[:200]
