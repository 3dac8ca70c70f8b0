"""How is an HTTP request answered? By the page of its path; errors become problems (RFC 9457) with our codes.

Imported at the first HTTP connection.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from wakugumi.adapters.http.connection import Connection
from wakugumi.adapters.http.page import HttpRefusal, PageRoute, Reply
from wakugumi.adapters.http.request import WebRequest
from wakugumi.adapters.http.send import head_of, send
from wakugumi.adapters.net.gate import gate, name_of
from wakugumi.adapters.net.guard import Guard
from wakugumi.core.access.decide import Right, check_need
from wakugumi.core.access.identity import Identity
from wakugumi.errors import CODES, ConfigError, Lost, PeerError, Refused
from wakugumi.wire.access_line import read_authorization
from wakugumi.wire.web_origin import NAME_OPTION, NO_BROWSER, Foreign, check_page

log = logging.getLogger("wakugumi.web")
access = logging.getLogger("wakugumi.access")
audit = logging.getLogger("wakugumi.audit")

_GONE: Final = 499
"""Status in the log for a request whose sender left."""
_PATH_CHARS_LOGGED: Final = 200
_PROBLEM: Final = "application/problem+json"
_SEE_PAGES: Final = "GET /openapi.json lists all pages"
_CHALLENGE: Final = 'Bearer realm="wakugumi"'
_RELAYED: Final = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")
"""Headers of relays: the user of the connection is not the sender of the request."""
_COOKIE: Final = re.compile(r"(?:^|;)\s*waku=([a-z2-7]{1,128})\s*(?:;|$)")
_LOOKS: Final = frozenset({"GET", "HEAD"})
_SECRET_PATH: Final = re.compile(r"/*(in|%69n|i%6e|%69%6e)/", re.IGNORECASE)
"""The rest of such a path is the word of a link."""
_PROGRAM: Final = tuple(name.lower().encode() for name in NO_BROWSER)


class WebServer:
    """Serves accepted HTTP connections."""

    def __init__(
        self,
        pages: Sequence[PageRoute],
        guard: Guard,
        *,
        names: frozenset[str],
        idle_s: float,
        name_option: str = NAME_OPTION,
    ) -> None:
        self._guard = guard
        self._exact: dict[str, dict[str, PageRoute]] = {}
        self._below: dict[str, dict[str, PageRoute]] = {}
        for page in pages:
            table = self._below if page.path.endswith("/") else self._exact
            table.setdefault(page.path, {})[page.method] = page
        for table in (self._exact, self._below):
            for methods in table.values():
                if "GET" in methods:
                    methods.setdefault("HEAD", methods["GET"])  # No body is sent then.
        self._names = names
        self._name_option = name_option
        self._idle_s = idle_s
        self.connections: set[Connection] = set()

    def new_connection(self) -> Connection:
        return Connection(self, self._idle_s)

    async def close(self, deadline_s: float) -> None:
        await asyncio.gather(*(connection.end(deadline_s) for connection in self.connections))

    async def answer(self, request: WebRequest) -> None:
        began_at = time.perf_counter()
        level = logging.INFO
        try:
            try:
                shows_key = b"authorization" in request.headers
                if not shows_key:
                    self._check_origin(request)
                    _check_button(request)
                page = self._find(request)
                level = logging.DEBUG if page.quiet else logging.INFO
                if page.need is not Right.OPEN:
                    request.identity = self._identify(request)
                if shows_key:
                    self._check_origin(request)
                check_need(request.identity, page.need, f"{request.method} {page.path}")
                reply = await page.page(request)
                request.sent_bytes = len(reply.body) if isinstance(reply.body, bytes) else 0
            except (Refused, PeerError, Lost) as error:
                if isinstance(error, Lost):
                    if request.is_gone:
                        raise ConnectionResetError(str(error)) from None
                    error = Refused("worker-lost", str(error), hint="")
                if isinstance(error, Refused) and error.code == "denied":
                    _log_denial(request, error)
                reply = problem(error if isinstance(error, Refused) else Refused("bad-request", str(error)))
            request.status = reply.status
            await send(request, reply)
        except ConnectionError:
            request.status = _GONE
            raise
        except Exception:
            log.exception("request failed method=%s path=%s", request.method, _logged_path(request))
            began, request.status = request.status, 500
            if began:
                raise ConnectionResetError("the answer broke off") from None
            text = "internal error; the log has the details"
            await send(request, problem(Refused("worker-error", text, hint="")))
        finally:
            if access.isEnabledFor(level):
                _log_access(request, began_at, level)

    def refuse_broken(self, transport: asyncio.Transport, fault: str) -> bytes:
        if gate().may_say("http"):
            access.info("broken request 400", extra={"fields": {"status": 400, "peer": name_of(transport)}})
        reply = problem(HttpRefusal(400, "bad-request", f"the request is not valid HTTP: {fault}", hint=""))
        assert isinstance(reply.body, bytes)
        return head_of("1.0", reply, len(reply.body), "close") + reply.body

    def _find(self, request: WebRequest) -> PageRoute:
        path = request.path
        methods = self._exact.get(path)
        if methods is None:
            for below, found in self._below.items():
                if path.startswith(below):
                    methods, request.rest = found, path[len(below) :]
                    break
        if methods is None:
            raise HttpRefusal(404, "unknown-question", f"there is no page {path[:100]}", hint=_SEE_PAGES)
        page = methods.get(request.method)
        if page is None:
            allowed = ", ".join(sorted(methods))
            text = f"{path[:100]} takes {allowed}"
            raise HttpRefusal(405, "unknown-question", text, {"Allow": allowed}, _SEE_PAGES)
        return page

    def _identify(self, request: WebRequest) -> Identity:
        """Raises HttpRefusal if the sender does not prove who it is."""
        connection = request.connection
        caller = connection.caller
        if caller is None:
            caller = connection.caller = self._guard.caller(connection.transport, lambda _why: request.cut_off())
        headers = request.headers
        try:
            shown = request.header("Authorization")
            key = None if shown is None else read_authorization(shown)
            cookie = "" if key is not None else _cookie(request)
            return caller.identify(key, forwarded=any(name in headers for name in _RELAYED), cookie=cookie)
        except (Refused, ConfigError) as no:
            raise HttpRefusal(401, "denied", str(no), {"WWW-Authenticate": _CHALLENGE}, no.hint) from None

    def _check_origin(self, request: WebRequest) -> None:
        """Raises HttpRefusal if a web page of another site may have sent the request (SPEC O1). With a key the name of
        the host does not matter: no page has one. With a cookie it does: the browser has it."""
        headers, header = request.headers, request.header
        site = header("Sec-Fetch-Site") or ""
        looks = (
            site != ""
            and request.method in _LOOKS
            and header("Sec-Fetch-Mode") == "navigate"
            and header("Sec-Fetch-Dest") == "document"
        )
        shows_key = b"authorization" in headers and request.identity.key != ""
        program = shows_key or any(name in headers for name in _PROGRAM)
        # A request without Host is HTTP/1.0, which no browser sends.
        host, names, option = header("Host"), self._names, self._name_option
        try:
            check_page(
                "localhost" if host is None else host,
                header("Origin"),
                site,
                looks=looks,
                program=program,
                names=names,
                option=option,
            )
        except Foreign as error:
            raise HttpRefusal(403, "denied", error.message, hint=error.hint) from None


def problem(error: Refused) -> Reply:
    """A refusal as a reply."""
    known = CODES.get(error.code)
    status = error.status if isinstance(error, HttpRefusal) else known.http_status if known else 500
    headers = dict(error.headers) if isinstance(error, HttpRefusal) else {}
    if status in {409, 423, 503} and error.retry:
        headers.setdefault("Retry-After", "1")
    body = {"type": "about:blank", "status": status, "code": error.code, "detail": error.message, "hint": error.hint}
    return Reply(status, msgspec.json.encode(body), _PROBLEM, headers)


def _cookie(request: WebRequest) -> str:
    """The word of a browser's cookie; empty without one."""
    found = _COOKIE.search(request.header("Cookie") or "")
    return "" if found is None else found[1]


def _check_button(request: WebRequest) -> None:
    """Raises HttpRefusal if a browser with a cookie changes something other than by a button of a page of here."""
    if request.method in _LOOKS or not _cookie(request):
        return
    if request.header("Sec-Fetch-Site") != "same-origin" or request.header("Waku-Button") != "1":
        text = "a browser with a cookie changes something only by a button of a page of here"
        raise HttpRefusal(403, "denied", text, hint="ask by a program, with a key")


def _logged_path(request: WebRequest) -> str:
    found = _SECRET_PATH.match(request.path)
    return request.path[:_PATH_CHARS_LOGGED] if found is None else f"{found[0]}…"


def _log_denial(request: WebRequest, error: Refused) -> None:
    """The guard logs a sender without a valid proof itself. Each identity has lines of its own, so that no other
    one can hide them."""
    is_unproven = isinstance(error, HttpRefusal) and error.status == 401
    who = request.identity.name
    if not is_unproven and gate().may_say(f"denied {who}"):
        path = _logged_path(request)
        audit.warning("denied who=%s peer=%s what=%s %s: %s", who, request.peer, request.method, path, error.message)


def _log_access(request: WebRequest, began_at: float, level: int) -> None:
    path = _logged_path(request)
    fields = {
        "method": request.method,
        "path": path,
        "status": request.status,
        "job": request.job,
        "peer": request.peer,
        "sent": request.sent_bytes,
        "ms": round(1000 * (time.perf_counter() - began_at), 1),
    }
    access.log(level, "%s %s %d", request.method, path, request.status, extra={"fields": fields})
