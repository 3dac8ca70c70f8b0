"""What did an HTTP client ask for? The head as received, and the body as it comes in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Final, Protocol
from urllib.parse import unquote_to_bytes

from httptools import HttpParserInvalidURLError, parse_url

from wakugumi.adapters.http.page import HttpRefusal
from wakugumi.adapters.net.guard import Caller
from wakugumi.core.access.identity import Identity, Role
from wakugumi.core.connections.pace import InputPace
from wakugumi.errors import Lost, bad_request
from wakugumi.limits.units import KIB

NOBODY: Final = Identity("nobody", Role.READER, proof="none")
"""The sender of a request for a page that is open to all."""
READ_BYTES: Final = 64 * KIB
"""Bytes of a wanted body that are held before reading pauses."""


class Carrier(Protocol):
    """The connection of a request."""

    transport: asyncio.Transport
    caller: Caller | None
    """As the guard knows this connection, once a request has asked for it."""
    dropped: int
    """Bytes of a body that were received and dropped."""

    @property
    def is_gone(self) -> bool: ...

    def pace(self) -> None:
        """Reads as long as somebody wants the next bytes."""
        ...

    def write(self, data: bytes) -> None:
        """Raises ConnectionError if the other side has left."""
        ...

    async def drain(self) -> None:
        """Waits until the other side has read most. Raises ConnectionError if it left."""
        ...


class WebRequest:
    """One request, as a page sees it (`adapters/http/page.py`)."""

    __slots__ = (
        *("_pieces", "_query", "_waiter", "_why", "awaits_continue", "buffered", "connection", "headers", "is_wanted"),
        *(
            "identity",
            "is_whole",
            "job",
            "keeps_alive",
            "method",
            "path",
            "query_text",
            "rest",
            "sent_bytes",
            "status",
            "version",
        ),
    )

    def __init__(
        self, connection: Carrier, method: str, target: bytes, version: str, headers: dict[bytes, bytes]
    ) -> None:
        """Names of headers are in lower case. Raises ValueError if the target is neither a path nor a URL."""
        self.connection = connection
        self.method = method
        self.path, self.query_text = _path_and_query(target)
        self.rest = ""
        self.job = ""
        self.identity = NOBODY
        self.version = version
        self.headers = headers
        wish = headers.get(b"connection", b"").lower()
        self.keeps_alive = b"close" not in wish if version == "1.1" else b"keep-alive" in wish
        self.awaits_continue = version == "1.1" and headers.get(b"expect", b"").lower() == b"100-continue"
        """The body is sent only after `100 Continue`, which was not sent."""
        self.status = 0
        """Of the answer, for the access log."""
        self.sent_bytes = 0
        self._query: dict[str, list[str]] | None = None
        self._pieces: list[bytes] = []
        self.buffered = 0
        self.is_whole = False
        self.is_wanted = False
        self._why = ""
        """Why the rest of the body will not come."""
        self._waiter: asyncio.Future[None] | None = None

    @property
    def peer(self) -> str:
        address = self.connection.transport.get_extra_info("peername")
        return str(address[0]) if isinstance(address, tuple) else "a local process"

    @property
    def is_tls(self) -> bool:
        return self.connection.transport.get_extra_info("ssl_object") is not None

    @property
    def content_length(self) -> int | None:
        length = self.headers.get(b"content-length")
        return None if length is None else int(length)

    @property
    def is_gone(self) -> bool:
        return self.connection.is_gone

    def header(self, name: str) -> str | None:
        value = self.headers.get(name.lower().encode())
        return None if value is None else value.decode(errors="surrogateescape")

    def parameters(self) -> Collection[str]:
        if self._query is None:
            self._query = _parse_query(self.query_text)
        return self._query

    def query(self, name: str) -> list[str]:
        if self._query is None:
            self._query = _parse_query(self.query_text)
        return self._query.get(name, [])

    def cut_off(self) -> None:
        self.connection.transport.abort()

    # The body. The connection brings it.

    def body_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self.buffered += len(data)
        self._tell()

    def body_ended(self, why_early: str = "") -> None:
        self.is_whole, self._why = not why_early, why_early
        self._tell()

    def body_broken(self) -> None:
        self.keeps_alive = False
        self.body_ended("the body is not as its head says, or its chunks are broken")

    def _tell(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self) -> bytes:
        if self.awaits_continue:
            self.awaits_continue = False
            if not self.is_whole and not self.is_gone:
                self.connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return await self.next_piece()

    async def next_piece(self) -> bytes:
        """As `read`, without a word to the client."""
        self.is_wanted = True
        while not self._pieces:
            if self.is_whole:
                return b""
            if self._why and self.is_gone:
                raise Lost(self._why, "dead")
            if self._why:
                raise HttpRefusal(400, "bad-request", self._why, {"Connection": "close"}, "")
            self.connection.pace()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        pieces, self._pieces, self.buffered = self._pieces, [], 0
        self.connection.pace()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def drop(self) -> None:
        """Reads and drops the body until it is whole. Raises Refused, or Lost."""
        async for piece in self._at_a_pace(self.next_piece):
            self.connection.dropped += len(piece)

    def pieces(self) -> AsyncIterator[bytes]:
        return self._at_a_pace(self.read)

    async def _at_a_pace(self, read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
        """Pieces until the end. Raises HttpRefusal for a sender of next to nothing."""
        clock = asyncio.get_running_loop().time
        pace = InputPace()
        while True:
            waited_s = 0.0
            if self.is_whole:  # The sender has done its part.
                piece = await read()
            else:
                asked_at = clock()
                try:
                    async with asyncio.timeout(pace.left_s):
                        piece = await read()
                except TimeoutError:
                    raise HttpRefusal(408, "too-slow", pace.why_late(), {"Connection": "close"}) from None
                waited_s = clock() - asked_at
            if not piece:
                return
            pace.came(len(piece), waited_s)
            yield piece


def _path_and_query(target: bytes) -> tuple[str, str]:
    """Raises ValueError."""
    text = target.decode()
    if not text.startswith("/") and text != "*":
        try:
            url = parse_url(target)
        except HttpParserInvalidURLError:
            raise ValueError(text) from None
        return (url.path or b"/").decode(), (url.query or b"").decode()
    path, _, query = text.partition("#")[0].partition("?")
    return path, query


def _parse_query(text: str) -> dict[str, list[str]]:
    """Raises Refused."""
    found: dict[str, list[str]] = {}
    for pair in text.split("&"):
        if pair:
            name, _, value = pair.partition("=")
            found.setdefault(_decoded(name), []).append(_decoded(value))
    return found


def _decoded(text: str) -> str:
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode()
    except UnicodeDecodeError:
        raise bad_request("the query is not UTF-8") from None
