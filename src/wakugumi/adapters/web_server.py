"""Who answers an HTTP request? The route it names; what goes wrong is told as a problem (RFC 9457) with our codes.

The only place that knows how aiohttp serves. It is imported when the first HTTP connection comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec
from aiohttp import ClientError, web

from wakugumi.adapters.net import is_loopback
from wakugumi.adapters.visit import PageAt, Refusal, Reply, Stream
from wakugumi.adapters.web import Route
from wakugumi.errors import CODES, Lost, Refused
from wakugumi.limits import BODY_RECEIVED_MIN_BYTES, BODY_RECEIVED_MIN_S, HTTP_HEAD_BYTES_MAX, KIB

log = logging.getLogger("wakugumi.web")
access = logging.getLogger("wakugumi.access")

_LINGER_S: Final = 2.0
"""Who goes on sending what we did not want is heard out for so long, so that it can read our answer first."""
_READ_BYTES: Final = 64 * KIB
"""Of a body that its handler does not take, twice this is read and no more."""
_HELD: Final = web.RequestKey("held", set[web.RequestHandler])
_PROBLEM: Final = "application/problem+json"


class WebServer:
    """Serves HTTP connections that others have accepted."""

    def __init__(self, routes: Sequence[Route], *, is_loopback: bool, idle_s: float) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._below: dict[str, dict[str, Route]] = {}
        for route in routes:
            table = self._below if route.path.endswith("/") else self._exact
            table.setdefault(route.path, {})[route.method] = route
        self._is_loopback = is_loopback
        self._held: set[web.RequestHandler] = set()
        """Connections whose first body nobody wants yet."""
        self._server = web.Server(
            self._answer,
            keepalive_timeout=idle_s,
            lingering_time=_LINGER_S,
            access_log=None,
            logger=_quiet(),
            auto_decompress=False,
            read_bufsize=_READ_BYTES,
            max_line_size=HTTP_HEAD_BYTES_MAX,
            max_field_size=HTTP_HEAD_BYTES_MAX,
        )

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    def new_connection(self) -> web.RequestHandler:
        return self._server()

    def hold(self, connection: web.RequestHandler) -> None:
        """Read no more from it until its first request is answered, or whoever answers that lets it."""
        if connection.transport is not None:
            if len(self._held) > len(self._server.connections):
                self._held.intersection_update(self._server.connections)
            self._held.add(connection)
            connection.transport.pause_reading()

    async def close(self, deadline_s: float) -> None:
        await self._server.shutdown(deadline_s)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        request[_HELD] = self._held
        try:
            if self._is_loopback:
                _check_home(request)
            route, rest = self._find(request)
            if not route.waits:
                let_come(request)
            return await route.handler(request, rest)
        except Refused as error:
            return problem(error)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return problem(Refused("worker-error", "this should not have happened; the log has the details", hint=""))
        finally:
            let_come(request)

    def _find(self, request: web.BaseRequest) -> tuple[Route, str]:
        path = request.rel_url.raw_path
        methods, rest = self._exact.get(path), ""
        if methods is None:
            for below, found in self._below.items():
                if path.startswith(below):
                    methods, rest = found, path[len(below) :]
                    break
        if methods is None:
            raise Refusal(404, "unknown-question", f"there is nothing at {path[:100]}")
        route = methods.get(request.method)
        if route is None:
            allowed = ", ".join(sorted(methods))
            raise Refusal(405, "unknown-question", f"{path[:100]} takes {allowed}", {"Allow": allowed})
        return route, rest


def let_come(request: web.BaseRequest) -> None:
    """Go on reading its body, if that was not done yet."""
    held = request[_HELD]
    if request.protocol in held:
        held.discard(request.protocol)
        if request.transport is not None and not request.transport.is_closing():
            request.transport.resume_reading()


def problem(error: Refused) -> web.Response:
    """A refusal as an answer."""
    known = CODES.get(error.code)
    status = error.status if isinstance(error, Refusal) else known.http_status if known else 500
    headers = dict(error.headers) if isinstance(error, Refusal) else {}
    if status in {409, 503} and error.retry:
        headers.setdefault("Retry-After", "1")
    body = {"type": "about:blank", "status": status, "code": error.code, "detail": error.message, "hint": error.hint}
    return web.Response(status=status, body=msgspec.json.encode(body), content_type=_PROBLEM, headers=headers)


def page_route(at: PageAt) -> Route:
    """A role's page as a route of the server."""

    async def answer(request: web.BaseRequest, rest: str) -> web.StreamResponse:
        visit = WebVisit(request, rest)
        began_at = time.perf_counter()
        status, sent = 500, 0
        try:
            try:
                reply = await at.page(visit)
            except Refused as error:
                response: web.StreamResponse = problem(error)
                status = response.status
                return response
            if isinstance(reply.body, bytes):
                status, sent = reply.status, len(reply.body)
                return web.Response(status=status, body=reply.body, headers=_headers(reply))
            status = reply.status
            response, sent = await _stream(request, reply, reply.body)
            return response
        except Lost as error:  # The other side is gone: there is nobody to answer.
            status = 499
            raise ConnectionResetError(str(error)) from None
        finally:
            level = logging.DEBUG if at.quiet else logging.INFO
            if access.isEnabledFor(level):
                took_ms = 1000 * (time.perf_counter() - began_at)
                access.log(
                    level,
                    "%s %s %d job=%s peer=%s sent=%d ms=%.1f",
                    at.method,
                    request.rel_url.raw_path[:200],
                    status,
                    visit.job,
                    visit.peer,
                    sent,
                    took_ms,
                )

    return Route(at.method, at.path, answer, waits=True)


class WebVisit:
    """A request, as a page sees it."""

    __slots__ = ("_query", "_request", "_told", "job", "method", "path", "rest")

    def __init__(self, request: web.BaseRequest, rest: str) -> None:
        self._request = request
        self.method = request.method
        self.path = request.rel_url.raw_path
        self.rest = rest
        self.job = ""
        self._told = False
        self._query: dict[str, list[str]] | None = None

    @property
    def peer(self) -> str:
        return self._request.remote or "a local process"

    @property
    def content_length(self) -> int | None:
        return self._request.content_length

    @property
    def is_gone(self) -> bool:
        transport = self._request.transport
        return transport is None or transport.is_closing()

    def header(self, name: str) -> str | None:
        return self._request.headers.get(name)

    def parameters(self) -> Collection[str]:
        if self._query is None:
            self._query = _parse_query(self._request.rel_url.raw_query_string)
        return self._query

    def query(self, name: str) -> list[str]:
        if self._query is None:
            self._query = _parse_query(self._request.rel_url.raw_query_string)
        return self._query.get(name, [])

    async def pieces(self) -> AsyncIterator[bytes]:
        request = self._request
        if not self._told:
            self._told = True
            if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
                request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            let_come(request)
        clock = asyncio.get_running_loop().time
        left_s, received = BODY_RECEIVED_MIN_S, 0
        while True:
            asked_at = clock()
            try:
                async with asyncio.timeout(left_s):
                    piece = await request.content.readany()
            except TimeoutError:
                text = f"less than {BODY_RECEIVED_MIN_BYTES} bytes came in {BODY_RECEIVED_MIN_S:g} s"
                raise Refusal(408, "too-slow", text, {"Connection": "close"}) from None
            except (web.RequestPayloadError, ClientError, OSError, RuntimeError) as error:  # it is gone
                raise Lost(f"{self.peer} ended before its request did: {error}", "dead") from None
            if not piece:
                return
            left_s -= clock() - asked_at  # What we do with a piece is not its sender's fault.
            received += len(piece)
            if received >= BODY_RECEIVED_MIN_BYTES:
                left_s, received = BODY_RECEIVED_MIN_S, 0
            yield piece


async def _stream(request: web.BaseRequest, reply: Reply, body: Stream) -> tuple[web.StreamResponse, int]:
    response = web.StreamResponse(status=reply.status, headers=_headers(reply))
    if body.size is None:
        response.enable_chunked_encoding()
    else:
        response.content_length = body.size
    sent = 0
    try:
        await response.prepare(request)
        async for piece in body.pieces:
            async with asyncio.timeout(BODY_RECEIVED_MIN_S):
                await response.write(piece)
            sent += len(piece)
        if body.size is not None and sent != body.size:  # only an end without the rest tells the truth
            raise Lost(f"{body.size - sent} bytes of the answer are missing")
    except TimeoutError:
        _cut_off(request)
        raise Lost("it reads too slowly", "slow") from None
    except OSError as error:
        raise Lost(f"it is gone: {error}", "dead") from None
    except Lost:
        _cut_off(request)
        raise
    finally:
        close = getattr(body.pieces, "aclose", None)
        if close is not None:
            await close()
    return response, sent


def _headers(reply: Reply) -> dict[str, str]:
    return {"Content-Type": reply.content_type, **reply.headers}


def _cut_off(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


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
        raise Refused("bad-request", "the query is not UTF-8", hint="") from None


def _check_home(request: web.BaseRequest) -> None:
    """No web page may use a browser on this machine to reach a port that is only for this machine (SPEC O1)."""
    host = request.headers.get("Host", "localhost")
    if not _is_home(f"//{host}"):
        raise Refusal(403, "denied", f"the Host {host[:100]!r} is not this machine", hint="ask for localhost")
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        raise Refusal(403, "denied", f"a page of {origin[:100]!r} may not ask here", hint="ask from elsewhere")


def _is_home(url: str) -> bool:
    with contextlib.suppress(ValueError):
        return is_loopback(urlsplit(url).hostname or "")
    return False


def _quiet() -> logging.Logger:
    """What a stranger's broken request makes the library say, with a stack trace each, is for those who look for it."""
    logger = logging.getLogger("wakugumi.web.broken")
    logger.setLevel(logging.CRITICAL)
    return logger
