"""How does a role send requests to another over HTTP? Over kept-alive connections; failures are raised as Lost.

    async with calls.call("POST", url, body=…) as answer:
        answer.status, answer.header("Retry-After"), answer.pieces()

`Lost.why` is `refused` (no connection, so the request did not begin), `slow` (no answer in time) or `dead` (the
connection broke). The parser is imported by this file: import it where the first call is made.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import string
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote

from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.adapters.http.kept_connection import AnswerBroken, KeptConnection
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.connect import no_connection
from wakugumi.adapters.net.reach import reach
from wakugumi.adapters.net.socket_options import tune
from wakugumi.errors import ConfigError, Lost
from wakugumi.limits.client import CONNECT_DEADLINE_S
from wakugumi.limits.http import CALL_IDLE_S, CALLS_MAX
from wakugumi.wire.access_line import write_authorization
from wakugumi.wire.web_origin import NO_BROWSER

_URL: Final = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[^\[\]/?#:@\s]+)(?::([0-9]{1,5}))?([/?][^#]*)?(?:#.*)?")
_REPEATED: Final = frozenset({"GET", "PUT", "DELETE"})
"""Requests that may be sent again if a kept connection ended before any byte of the answer."""
_WITH_BODY: Final = frozenset({"POST", "PUT"})


class _Place:
    """A server, and idle connections to it: the last used one is used next."""

    def __init__(self, host: str, port: int, *, is_tls: bool) -> None:
        self.host = host.strip("[]")
        self.port = port
        self.is_tls = is_tls
        named = host if port == (443 if is_tls else 80) else f"{host}:{port}"
        self.head = "".join(f"{name}: {value}\r\n" for name, value in {"Host": named, **NO_BROWSER}.items())
        self.address = Address(self.host, port)
        self.idle: list[tuple[float, KeptConnection]] = []
        """The time since which each is idle."""


class HttpAnswer:
    """The head of an answer, and its body as it is received."""

    def __init__(
        self, client: HttpClient, place: _Place, connection: KeptConnection, url: str, silence_s: float | None
    ) -> None:
        self._client = client
        self._place = place
        self._connection: KeptConnection | None = connection
        self._url = url
        self._silence_s = silence_s
        self._headers = connection.headers
        self.status = connection.status
        size = self._headers.get(b"content-length")
        self.size = None if size is None else int(size)
        """Size of the body, if declared."""

    @property
    def is_here(self) -> bool:
        """Was the whole body received?"""
        return self._connection is not None and self._connection.is_whole

    @property
    def awaited_at(self) -> int | None:
        """Bytes of the body so far, if the other side is to send more now; None if it is not."""
        connection = self._connection
        return connection.received if connection is not None and connection.is_awaited else None

    def header(self, name: str) -> str | None:
        value = self._headers.get(name.lower().encode())
        return None if value is None else value.decode(errors="surrogateescape")

    def headers_of(self, wanted: Mapping[bytes, str]) -> dict[str, str]:
        """These headers by their usual names, in their order, as text that can be kept, whatever its bytes. `wanted`
        has the names by their lower case."""
        headers = self._headers
        found = [(name, headers[low].decode(errors="replace")) for low, name in wanted.items() if low in headers]
        return {name: value if value.isascii() else value.replace("\ufffd", "?") for name, value in found}

    async def next_piece(self) -> bytes:
        """Empty at the end. Raises Lost if the body ends early, or stalls."""
        if self._connection is None:
            raise Lost(f"{self._url} was given up in the midst of its answer", "dead")
        try:
            return await self._connection.next_piece(self._silence_s)
        except TimeoutError:
            raise Lost(f"{self._url} stopped in the midst of its answer", "slow") from None
        except AnswerBroken as error:
            raise Lost(f"{self._url} ended in the midst of its answer: {error}", "dead") from None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Raises Lost if the body ends early, or stalls."""
        while piece := await self.next_piece():
            yield piece

    def close(self) -> None:
        """Gives the connection back, if the answer was read to its end; otherwise the connection ends."""
        if self._connection is not None:
            self._client.give_back(self._place, self._connection)
            self._connection = None

    async def read(self, bytes_max: int) -> bytes:
        """All of a small body; of a larger one the beginning. Raises Lost."""
        data = bytearray()
        while len(data) < bytes_max and (piece := await self.next_piece()):
            data += piece
        return bytes(data[:bytes_max])


class HttpClient:
    """Calls of one role. Make it inside a running loop, and close it."""

    def __init__(
        self,
        tls: ssl.SSLContext | None = None,
        *,
        connect_s: float = CONNECT_DEADLINE_S,
        access: AccessSources | None = None,
        role: str = "leader",
    ) -> None:
        """`access`: sources of keys for servers of this `role`. A server with an entry is always called by TLS."""
        self._loop = asyncio.get_running_loop()
        self._tls = tls
        self._connect_s = connect_s
        self._access = access
        self._role = role
        self._places: dict[tuple[str, str, str | None], _Place] = {}
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._open: set[KeptConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def call(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterator[bytes] | None = None,
        silence_s: float | None = None,
    ) -> AsyncIterator[HttpAnswer]:
        """As `send`, and closes the answer."""
        answer = await self.send(method, url, headers=headers, body=body, silence_s=silence_s)
        try:
            yield answer
        finally:
            answer.close()

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterator[bytes] | None = None,
        silence_s: float | None = None,
    ) -> HttpAnswer:
        """Sends a request, and returns the head of the answer, which must be closed. `silence_s` is how long the other
        side may be silent, also while it works; None: without limit. Raises Lost."""
        place, target = self._find(url)
        sent = body if isinstance(body, bytes) else None
        stream = None if body is None or isinstance(body, bytes) else body
        is_chunked = stream is not None and not (headers and "Content-Length" in headers)
        try:
            line, head = _head(method, target, place, headers or {}, sent, is_chunked=is_chunked)
        except ValueError as error:
            raise Lost(f"{url} cannot be reached: {error}", "refused") from None
        await self._room.acquire()
        try:
            while True:
                kept = self._take(place)
                connection = kept or await self._connect(place, url)
                try:
                    connection.begin(b"".join((line, connection.proof, *head)), stream, is_chunked=is_chunked)
                    await connection.head(silence_s)
                except TimeoutError:
                    self._drop(connection)
                    raise Lost(f"{url} did not answer in time", "slow") from None
                except AnswerBroken as error:
                    self._drop(connection)
                    if kept is None or connection.has_received or method not in _REPEATED or stream is not None:
                        raise Lost(f"{url} ended without an answer: {error}", "dead") from None
                except BaseException:
                    self._drop(connection)
                    raise
                else:
                    return HttpAnswer(self, place, connection, url, silence_s)
        except BaseException:
            self._room.release()
            raise

    def give_back(self, place: _Place, connection: KeptConnection) -> None:
        """For answers."""
        self._room.release()
        if not connection.is_free:
            self._drop(connection)
            return
        place.idle.append((self._loop.time(), connection))
        if self._sweep is None:
            self._sweep = self._loop.call_later(CALL_IDLE_S, self._close_idle)

    async def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._open):
            await connection.close()
        self._open.clear()
        await asyncio.sleep(0)  # Transports close their sockets in the next turn.

    def _find(self, url: str) -> tuple[_Place, str]:
        """Raises Lost."""
        if (found := _URL.fullmatch(url)) is None:
            raise Lost(f"{url} cannot be reached: it is no URL", "refused")
        scheme, host, port, target = found.groups()
        if (place := self._places.get((scheme, host, port))) is None:
            is_tls = scheme == "https"
            place = _Place(host, int(port or (443 if is_tls else 80)), is_tls=is_tls)
            self._places[scheme, host, port] = place
        if target is None or target[0] == "?":
            target = f"/{target or ''}"
        return place, target

    def _drop(self, connection: KeptConnection) -> None:
        connection.abort()
        self._open.discard(connection)

    def _take(self, place: _Place) -> KeptConnection | None:
        """An idle connection that is still good."""
        oldest_at = self._loop.time() - CALL_IDLE_S
        while place.idle:
            since, connection = place.idle.pop()
            if since > oldest_at and connection.is_free:
                return connection
            self._drop(connection)
        return None

    async def _connect(self, place: _Place, url: str) -> KeptConnection:
        """Raises Lost."""
        tls, name, proof = None, None, b""
        try:
            async with asyncio.timeout(self._connect_s):
                entry = None if self._access is None else await self._access.entry(place.address, None, self._role)
                if entry is not None:
                    tls, name = entry.context(), entry.server_hostname
                    if entry.key is not None:
                        proof = f"Authorization: {write_authorization(entry.key)}\r\n".encode()
                elif place.is_tls:
                    tls = self._tls = self._tls or ssl.create_default_context()
                transport, connection = await reach(KeptConnection, place.host, place.port, tls, name)
        except TimeoutError:
            raise Lost(f"{url} was not reached within {self._connect_s:g} s", "refused") from None
        except (OSError, ValueError) as error:  # A ValueError is a name such as `a..b`.
            why = no_connection(place.address, error, tls=tls is not None)
            raise Lost(f"{url} cannot be reached: {why}", "refused") from None
        except (ConfigError, Lost) as error:
            raise Lost(f"{url} cannot be reached: {error}", "refused") from None
        connection.proof = proof
        tune(transport.get_extra_info("socket"))  # A vanished machine is detected, also while it works.
        self._open.add(connection)
        return connection

    def _close_idle(self) -> None:
        self._sweep = None
        oldest_at = self._loop.time() - CALL_IDLE_S
        for place in self._places.values():
            old = [row for row in place.idle if row[0] <= oldest_at or not row[1].is_free]
            place.idle = [row for row in place.idle if row not in old]
            for _, connection in old:
                self._drop(connection)
            if place.idle and self._sweep is None:
                self._sweep = self._loop.call_later(CALL_IDLE_S, self._close_idle)


def _head(
    method: str, target: str, place: _Place, headers: Mapping[str, str], body: bytes | None, *, is_chunked: bool
) -> tuple[bytes, tuple[bytes, bytes]]:
    """The first line of a request, its headers, and its body if that is here. Raises ValueError for what no head can
    have."""
    if not (target.isascii() and target.isprintable()) or " " in target:
        target = quote(target, safe=string.punctuation)
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise ValueError("a header has more than one line")
    if is_chunked:
        lines += "Transfer-Encoding: chunked\r\n"
    elif "Content-Length" not in headers and (body is not None or method in _WITH_BODY):
        lines += f"Content-Length: {len(body or b'')}\r\n"
    return f"{method} {target} HTTP/1.1\r\n".encode(), (f"{place.head}{lines}\r\n".encode(), body or b"")
