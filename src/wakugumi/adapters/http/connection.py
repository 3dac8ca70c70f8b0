"""What may one HTTP connection cost? The library has no limit for slow readers and broken requests.

head too slow, or no request        the library's own timer cuts it off (`idle_s`); bytes of a head count as a
                                    stranger's (`adapters/net/gate.py`)
body too slow                       its reader refuses (`adapters/http/server.py`)
answer not read                     cut off here, once next to nothing was read for BODY_RECEIVED_MIN_S, unless as
                                    much was received of a body that is dropped: some clients read after sending
not HTTP, or too large a head       answered with a problem, and further bytes are read for a moment, so that the
                                    answer is not lost to a reset
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import StreamReader, web
from aiohttp.http import RawRequestMessage

from wakugumi.adapters.net.gate import gate
from wakugumi.limits.http import BODY_RECEIVED_MIN_BYTES, BODY_RECEIVED_MIN_S, LINGER_S

Answerer = Callable[[web.BaseRequest, int, str], web.Response]
"""Makes the answer to a broken request from its status and its fault."""


class Connection(web.RequestHandler):
    """One connection of a server."""

    def __init__(self, server: web.Server, refuse: Answerer, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._refuse: Final = refuse
        self._unread_watch: asyncio.TimerHandle | None = None
        self._gone = asyncio.Event()
        self.is_held = False
        self._gate = gate()
        self._made: asyncio.Transport | None = None
        """The transport as the gate knows it: the library forgets its own before the connection is lost."""
        self._is_stranger = True
        """No whole head was received, or a part of the next one."""
        self._head_bytes = 0
        self._body: StreamReader | None = None
        """Body of the latest request."""
        self.dropped = 0
        """Bytes of a body that were received and dropped."""

    def hold(self) -> None:
        """Pauses reading until the first request is answered, or its handler calls `let_come`."""
        if self.transport is not None:
            self.is_held = True
            self.transport.pause_reading()

    def let_come(self) -> None:
        """Resumes reading, unless the library has a reason of its own to pause: it would not pause again, and buffer
        all bytes."""
        if self.is_held:
            self.is_held = False
            transport = self.transport
            if transport is not None and not (transport.is_closing() or self._reading_paused or self._buffer_paused):
                transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._made = made = cast(asyncio.Transport, transport)
        assert self._task_handler is not None
        self._task_handler.add_done_callback(lambda _task: self._closing(made))

    def _closing(self, transport: asyncio.Transport) -> None:
        """A close lasts until the other side has read all bytes; some never do."""
        if not self._gone.is_set():
            asyncio.get_running_loop().call_later(BODY_RECEIVED_MIN_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        asked = self._request_count
        web.RequestHandler.data_received(self, data)  # `super` would cost each request a little.
        if self._request_count == asked:
            if self._current_request is None and data and (self._body is None or self._body.is_eof()):
                self._gather(len(data))
        elif isinstance(self._messages[-1][0], RawRequestMessage):
            self._body = self._messages[-1][1]
            self._head_bytes = 0
            if self._is_stranger and self.transport is not None:
                self._is_stranger = False
                self._gate.known(self.transport)
        request = self._current_request
        if request is None or not self._messages or request.content.is_eof():
            return
        if not isinstance(self._messages[-1][0], RawRequestMessage):  # The body is broken: no more of it follows.
            request.content.set_exception(web.RequestPayloadError("the chunks are broken"))

    def _gather(self, size: int) -> None:
        """More bytes of an incomplete head."""
        transport = self.transport
        if transport is not None and not (self._messages or self._close or self._force_close):
            self._is_stranger = True
            self._head_bytes += size
            self._gate.brought(transport, self._head_bytes)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unwatch()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._gone.set()
        self._unwatch()
        if self._is_stranger and self._made is not None:
            self._gate.known(self._made)
        self._made = None
        super().connection_lost(exc)

    def _watch(self, transport: asyncio.Transport | None) -> None:
        if transport is not None:
            unread = transport.get_write_buffer_size()
            loop = asyncio.get_running_loop()
            self._unread_watch = loop.call_later(BODY_RECEIVED_MIN_S, self._look, transport, unread, self.dropped)

    def _look(self, transport: asyncio.Transport, unread_before: int, dropped_before: int) -> None:
        read = unread_before - transport.get_write_buffer_size()
        if max(read, self.dropped - dropped_before) < BODY_RECEIVED_MIN_BYTES:
            transport.abort()
        else:
            self._watch(transport)

    def _unwatch(self) -> None:
        if self._unread_watch is not None:
            self._unread_watch.cancel()
            self._unread_watch = None

    def _make_error_handler(self, err_info: Any) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            self.close()  # Later bytes are ignored.
            response = self._refuse(request, err_info.status, _told(err_info.message))
            response.force_close()
            await response.prepare(request)
            await response.write_eof()
            await self._linger()
            return response

        return answer

    async def _linger(self) -> None:
        """The answer is sent, and is the last one. A close with unread bytes would be a reset."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if transport.can_write_eof():
            transport.write_eof()
        transport.resume_reading()
        try:
            async with asyncio.timeout(LINGER_S):
                await self._gone.wait()
        except TimeoutError:
            transport.abort()


def _told(message: str) -> str:
    """The parser's message, without the stranger's bytes in it."""
    return (message or "it is not HTTP").strip().partition("\n")[0].rstrip(":. ")[:200]
