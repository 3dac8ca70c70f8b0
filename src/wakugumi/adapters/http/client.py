"""How does a role send requests to another over HTTP? One session of kept-alive connections; failures are raised as
Lost.

    async with calls.call("POST", url, body=…) as answer:
        answer.status, answer.header("Retry-After"), answer.pieces()

`Lost.why` is `refused` (no connection, so the request did not begin), `slow` (no answer in time) or `dead` (the
connection broke). The library is imported by this file: import it where the first call is made.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import aiohttp

from wakugumi.adapters.net.connect import why_not
from wakugumi.adapters.net.socket_options import tune
from wakugumi.errors import Lost
from wakugumi.limits.client import CONNECT_DEADLINE_S
from wakugumi.limits.http import CALL_IDLE_S, CALLS_MAX
from wakugumi.limits.units import KIB
from wakugumi.wire.web_origin import NO_BROWSER

_READ_BYTES: Final = 256 * KIB


class HttpAnswer:
    """The head of an answer, and its body as it is received."""

    def __init__(self, response: aiohttp.ClientResponse, url: str) -> None:
        self._response = response
        self._url = url
        self.status = response.status
        self.size = response.content_length
        """Size of the body, if declared."""

    def header(self, name: str) -> str | None:
        return self._response.headers.get(name)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Raises Lost if the body ends early, or stalls."""
        content = self._response.content
        while True:
            try:
                piece = await content.readany()
            except TimeoutError:
                raise Lost(f"{self._url} stopped in the midst of its answer", "slow") from None
            except (aiohttp.ClientError, OSError) as error:
                raise Lost(f"{self._url} ended in the midst of its answer: {error}", "dead") from None
            if not piece:
                return
            yield piece

    def close(self) -> None:
        """Gives the connection back, if the answer was read to its end; otherwise the connection ends."""
        self._response.release() if self._response.content.at_eof() else self._response.close()

    async def read(self, bytes_max: int) -> bytes:
        """All of a small body; of a larger one the beginning. Raises Lost."""
        data = bytearray()
        async for piece in self.pieces():
            data += piece
            if len(data) >= bytes_max:
                break
        return bytes(data[:bytes_max])


class HttpClient:
    """Calls of one role. Make it inside a running loop, and close it."""

    def __init__(self, tls: ssl.SSLContext | None = None, *, connect_s: float = CONNECT_DEADLINE_S) -> None:
        connector = aiohttp.TCPConnector(
            limit=CALLS_MAX, keepalive_timeout=CALL_IDLE_S, ssl=tls or True, socket_factory=_socket
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BYTES,
            headers=NO_BROWSER,
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )
        self._connect_s = connect_s

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
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s, sock_read=silence_s)
        try:
            response = await self._session.request(
                method, url, headers=headers, data=body, timeout=timeout, allow_redirects=False
            )
        except aiohttp.ConnectionTimeoutError:
            raise Lost(f"{url} was not reached within {self._connect_s:g} s", "refused") from None
        except aiohttp.ClientConnectorError as error:
            raise Lost(f"{url} cannot be reached: {why_not(error.os_error)}", "refused") from None
        except (aiohttp.InvalidURL, UnicodeError) as error:  # Such as the name `a..b`.
            raise Lost(f"{url} cannot be reached: {error}", "refused") from None
        except TimeoutError:
            raise Lost(f"{url} did not answer in time", "slow") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Lost(f"{url} ended without an answer: {error}", "dead") from None
        return HttpAnswer(response, url)

    async def close(self) -> None:
        await self._session.close()


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that detects a vanished machine, also while it waits for the answer."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    tune(made)
    return made
