"""How is an HTTP request answered? By the handler of its route; errors become problems (RFC 9457) with our codes.

The only place that knows how aiohttp serves. Imported at the first HTTP connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec
from aiohttp import ClientError, HttpVersion11, web

from wakugumi.adapters.http.connection import Connection
from wakugumi.adapters.http.page import HttpRefusal, PageRoute, Reply, Stream
from wakugumi.adapters.http.routes import Route
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.gate import gate
from wakugumi.errors import CODES, Lost, PeerError, Refused, bad_request
from wakugumi.limits.http import (
    BODY_RECEIVED_MIN_BYTES,
    BODY_RECEIVED_MIN_S,
    HTTP_HEADERS_MAX,
    HTTP_LINE_BYTES_MAX,
    LINGER_S,
)
from wakugumi.limits.units import KIB
from wakugumi.wire.web_origin import NAME_OPTION, NO_BROWSER, Foreign, check_page

log = logging.getLogger("wakugumi.web")
access = logging.getLogger("wakugumi.access")

_READ_BYTES: Final = 64 * KIB
"""Twice this is read of a body that its handler does not take."""
_EXPECT: Final = "Expect"
_GONE: Final = 499
"""Status in the log for a request whose sender left."""
_PATH_CHARS_LOGGED: Final = 200
_PROBLEM: Final = "application/problem+json"
SAFE_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Headers of every answer: a browser trusts the declared type, runs none of it and shows it in no other page."""
_SEE_PAGES: Final = "GET /openapi.json lists all pages"


class Trace:
    """Fields of a request for the access log."""

    __slots__ = ("quiet", "sent_bytes", "status", "told", "visit")

    def __init__(self) -> None:
        self.status = 500
        self.sent_bytes = 0
        self.quiet = False
        self.told = False
        """The sender knows that the body may be sent."""
        self.visit: WebVisit | None = None


_TRACE: Final = web.RequestKey("trace", Trace)


class WebServer:
    """Serves accepted HTTP connections."""

    def __init__(
        self, routes: Sequence[Route], *, names: frozenset[str], idle_s: float, name_option: str = NAME_OPTION
    ) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._below: dict[str, dict[str, Route]] = {}
        for route in routes:
            table = self._below if route.path.endswith("/") else self._exact
            table.setdefault(route.path, {})[route.method] = route
        for table in (self._exact, self._below):
            for methods in table.values():
                if "GET" in methods:
                    methods.setdefault("HEAD", methods["GET"])  # The library sends no body then.
        self._names = names
        self._name_option = name_option
        self._server = web.Server(self._answer)
        self._options = {
            "keepalive_timeout": idle_s,
            "lingering_time": LINGER_S,
            "access_log": None,
            "logger": _quiet(),
            "auto_decompress": False,
            "read_bufsize": _READ_BYTES,
            "max_line_size": HTTP_LINE_BYTES_MAX,
            "max_field_size": HTTP_LINE_BYTES_MAX,
            "max_headers": HTTP_HEADERS_MAX,
        }

    @property
    def connections(self) -> int:
        return len(self._server._connections)  # The public one copies them for each new connection.

    def new_connection(self) -> Connection:
        return Connection(self._server, _refuse_broken, **self._options)

    async def close(self, deadline_s: float) -> None:
        await self._server.shutdown(deadline_s)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        request[_TRACE] = trace = Trace()
        began_at = time.perf_counter()
        try:
            _check_page(request, self._names, self._name_option)
            route, rest = self._find(request)
            trace.quiet = route.quiet
            if not route.waits or not request.body_exists:
                let_come(request)
            response = await route.handler(request, rest)
            trace.status = response.status
            return response
        except (Refused, PeerError) as error:
            refusal = problem(error if isinstance(error, Refused) else Refused("bad-request", str(error)))
            if _EXPECT in request.headers and not trace.told:
                # The client need not send its body, and must not take the answer for `100 Continue`.
                refusal.force_close()
            return _traced(trace, refusal)
        except ConnectionError:
            trace.status = _GONE
            raise
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("request failed method=%s path=%s", request.method, request.path)
            text = "internal error; the log has the details"
            return _traced(trace, problem(Refused("worker-error", text, hint="")))
        finally:
            let_come(request)
            level = logging.DEBUG if trace.quiet else logging.INFO
            if access.isEnabledFor(level):
                _log_access(request, trace, began_at, level)

    def _find(self, request: web.BaseRequest) -> tuple[Route, str]:
        path = request.rel_url.raw_path
        methods, rest = self._exact.get(path), ""
        if methods is None:
            for below, found in self._below.items():
                if path.startswith(below):
                    methods, rest = found, path[len(below) :]
                    break
        if methods is None:
            raise HttpRefusal(404, "unknown-question", f"there is no page {path[:100]}", hint=_SEE_PAGES)
        route = methods.get(request.method)
        if route is None:
            allowed = ", ".join(sorted(methods))
            text = f"{path[:100]} takes {allowed}"
            raise HttpRefusal(405, "unknown-question", text, {"Allow": allowed}, _SEE_PAGES)
        return route, rest


def let_come(request: web.BaseRequest) -> None:
    """Resumes reading the body, if it is paused."""
    connection = request.protocol
    assert isinstance(connection, Connection)
    if connection.is_held:
        connection.let_come()


def let_go_on(request: web.BaseRequest) -> None:
    """The body may be sent now: sends `100 Continue` if the client waits for it."""
    request[_TRACE].told = True
    waits = request.headers.get(_EXPECT, "").lower() == "100-continue" and request.version >= HttpVersion11
    if waits and request.transport is not None and not request.transport.is_closing():
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    let_come(request)


def problem(error: Refused) -> web.Response:
    """A refusal as an answer."""
    known = CODES.get(error.code)
    status = error.status if isinstance(error, HttpRefusal) else known.http_status if known else 500
    headers = dict(SAFE_HEADERS)
    if isinstance(error, HttpRefusal):
        headers.update(error.headers)
    if status in {409, 423, 503} and error.retry:
        headers.setdefault("Retry-After", "1")
    body = {"type": "about:blank", "status": status, "code": error.code, "detail": error.message, "hint": error.hint}
    return web.Response(status=status, body=msgspec.json.encode(body), content_type=_PROBLEM, headers=headers)


def page_route(at: PageRoute) -> Route:
    """A role's page as a route of the server."""

    async def answer(request: web.BaseRequest, rest: str) -> web.StreamResponse:
        trace = request[_TRACE]
        trace.visit = visit = WebVisit(request, rest)
        try:
            reply = await at.page(visit)
        except Lost as error:
            if visit.is_gone:
                raise ConnectionResetError(str(error)) from None
            raise Refused("worker-lost", str(error), hint="") from None
        body = reply.body
        if request.method == "HEAD" and not isinstance(body, bytes):
            return await _head_of(reply, body)
        drops = reply.hear_out and not request.content.is_eof()
        if isinstance(body, bytes):
            if not drops:
                trace.sent_bytes = len(body)
                response = web.Response(status=reply.status, body=body, headers=_headers(reply))
                if reply.on_sent is not None:
                    await response.prepare(request)
                    await _sent(request, response, reply.on_sent)
                return response
            body = Stream(len(body), _once(body))
        trace.status = reply.status
        try:
            streamed = await (_stream_and_drop if drops else _stream)(request, reply, body)
            if reply.on_sent is not None:
                await _sent(request, streamed, reply.on_sent)
            return streamed
        except Lost as error:  # The client is gone, or has half of an answer.
            raise ConnectionResetError(str(error)) from None

    return Route(at.method, at.path, answer, waits=True, quiet=at.quiet)


def _log_access(request: web.BaseRequest, trace: Trace, began_at: float, level: int) -> None:
    path = request.rel_url.raw_path[:_PATH_CHARS_LOGGED]
    fields = {
        "method": request.method,
        "path": path,
        "status": trace.status,
        "job": "" if trace.visit is None else trace.visit.job,
        "peer": request.remote or "a local process",
        "sent": trace.sent_bytes,
        "ms": round(1000 * (time.perf_counter() - began_at), 1),
    }
    access.log(level, "%s %s %d", request.method, path, trace.status, extra={"fields": fields})


def _traced(trace: Trace, response: web.Response) -> web.Response:
    trace.status = response.status
    return response


def _refuse_broken(request: web.BaseRequest, status: int, message: str) -> web.Response:
    """The answer to bytes that are not HTTP, or to too large a head."""
    if gate().may_say("http"):
        access.info("broken request %d", status, extra={"fields": {"status": status, "peer": request.remote or "?"}})
    return problem(HttpRefusal(status, "bad-request", f"the request is not valid HTTP: {message}", hint=""))


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
    def query_text(self) -> str:
        return self._request.rel_url.raw_query_string

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

    def pieces(self) -> AsyncIterator[bytes]:
        if not self._told:
            self._told = True
            let_go_on(self._request)
        return _pieces(self._request)


async def _pieces(request: web.BaseRequest) -> AsyncIterator[bytes]:
    """A body as it is received. Raises HttpRefusal, or Lost."""
    clock = asyncio.get_running_loop().time
    left_s, received = BODY_RECEIVED_MIN_S, 0
    while True:
        asked_at = clock()
        try:
            async with asyncio.timeout(left_s):
                piece = await request.content.readany()
        except TimeoutError:
            text = f"less than {BODY_RECEIVED_MIN_BYTES} bytes came in {BODY_RECEIVED_MIN_S:g} s"
            raise HttpRefusal(408, "too-slow", text, {"Connection": "close"}) from None
        except (web.RequestPayloadError, ClientError, OSError, RuntimeError) as error:
            if request.transport is None or request.transport.is_closing():
                raise Lost(f"{request.remote} ended before its request did: {error}", "dead") from None
            text = "the body is not as its head says, or its chunks are broken"
            raise HttpRefusal(400, "bad-request", text, {"Connection": "close"}, "") from None
        if not piece:
            return
        left_s -= clock() - asked_at  # Our own time with a piece is not the sender's fault.
        received += len(piece)
        if received >= BODY_RECEIVED_MIN_BYTES:
            left_s, received = BODY_RECEIVED_MIN_S, 0
        yield piece


async def _stream(request: web.BaseRequest, reply: Reply, body: Stream) -> web.StreamResponse:
    """Raises Lost; then the connection is cut off, for the client must not take a part for the whole."""
    trace = request[_TRACE]
    response = web.StreamResponse(status=reply.status, headers=_headers(reply))
    if body.size is None:
        response.enable_chunked_encoding()
    else:
        response.content_length = body.size
    try:
        await response.prepare(request)
        async for piece in body.pieces:
            await response.write(piece)
            trace.sent_bytes += len(piece)
        if body.size is not None and trace.sent_bytes != body.size:
            raise Lost(f"{body.size - trace.sent_bytes} bytes of the answer are missing")
    except OSError as error:
        raise Lost(f"it is gone: {error}", "dead") from None
    except BaseException:
        _cut_off(request)
        raise
    finally:
        close = getattr(body.pieces, "aclose", None)
        if close is not None:
            await close()
    return response


async def _stream_and_drop(request: web.BaseRequest, reply: Reply, body: Stream) -> web.StreamResponse:
    """Streams to a client that may read only once its own body is sent. A client that waits for `100 Continue` need not
    send."""
    tasks = Tasks()
    dropping = tasks.start(_drop(request), name="drop a body")
    try:
        response = await _stream(request, reply, body)
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
            if _EXPECT not in request.headers:
                await asyncio.wait([dropping])
        return response
    finally:
        await tasks.close()


async def _sent(request: web.BaseRequest, response: web.StreamResponse, on_sent: Callable[[], None]) -> None:
    """Writes the end, and calls `on_sent`. Raises ConnectionError if the connection was closed before; a connection
    that is closed by now may have delivered all of it."""
    await response.write_eof()
    if request.method != "HEAD":
        on_sent()


async def _drop(request: web.BaseRequest) -> None:
    """Drops the body until it is whole, stalls, or the client is gone."""
    connection = request.protocol
    assert isinstance(connection, Connection)
    connection.let_come()
    with contextlib.suppress(Refused, Lost):
        async for piece in _pieces(request):
            connection.dropped += len(piece)


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _head_of(reply: Reply, body: Stream) -> web.StreamResponse:
    """The head of a reply, for HEAD."""
    close = getattr(body.pieces, "aclose", None)
    if close is not None:
        await close()
    response = web.StreamResponse(status=reply.status, headers=_headers(reply))
    response.content_length = body.size
    return response


def _headers(reply: Reply) -> dict[str, str]:
    return {"Content-Type": reply.content_type, **SAFE_HEADERS, **reply.headers}


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
        raise bad_request("the query is not UTF-8") from None


def _check_page(request: web.BaseRequest, names: frozenset[str], option: str) -> None:
    """Raises HttpRefusal if a web page of another site may have sent the request (SPEC O1)."""
    headers = request.headers
    site = headers.get("Sec-Fetch-Site", "")
    looks = (
        site != ""
        and request.method in {"GET", "HEAD"}
        and headers.get("Sec-Fetch-Mode") == "navigate"
        and headers.get("Sec-Fetch-Dest") == "document"
    )
    program = any(name in headers for name in NO_BROWSER)
    try:
        # A request without Host is HTTP/1.0, which no browser sends.
        host = headers.get("Host", "localhost")
        check_page(host, headers.get("Origin"), site, looks=looks, program=program, names=names, option=option)
    except Foreign as error:
        raise HttpRefusal(403, "denied", error.message, hint=error.hint) from None


def _quiet() -> logging.Logger:
    """Logger of the library's stack traces about broken requests: shown only on demand."""
    logger = logging.getLogger("wakugumi.web.broken")
    logger.setLevel(logging.CRITICAL)
    return logger
