"""Who answers an HTTP request? The route it names; what goes wrong is told as a problem (RFC 9457) with our codes.

The only place that knows how aiohttp serves. It is imported when the first HTTP connection comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from wakugumi.adapters.net import is_loopback
from wakugumi.adapters.web import Route
from wakugumi.errors import CODES, Refused
from wakugumi.limits import HTTP_HEAD_BYTES_MAX

log = logging.getLogger("wakugumi.web")

_LINGER_S: Final = 2.0
"""Who goes on sending what we did not want is heard out for so long, so that it can read our answer first."""
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
        self._server = web.Server(
            self._answer,
            keepalive_timeout=idle_s,
            lingering_time=_LINGER_S,
            access_log=None,
            logger=_quiet(),
            auto_decompress=False,
            max_line_size=HTTP_HEAD_BYTES_MAX,
            max_field_size=HTTP_HEAD_BYTES_MAX,
        )

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    def new_connection(self) -> asyncio.Protocol:
        return self._server()

    async def close(self, deadline_s: float) -> None:
        await self._server.shutdown(deadline_s)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if self._is_loopback:
                _check_home(request)
            route, rest = self._find(request)
            return await route.handler(request, rest)
        except Refused as error:
            return problem(error)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return problem(Refused("worker-error", "this should not have happened; the log has the details", hint=""))

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


class Refusal(Refused):
    """A refusal with a status of its own, or with more to say in the head."""

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None, hint: str | None = None
    ) -> None:
        super().__init__(code, message, hint)
        self.status = status
        self.headers = headers or {}


def problem(error: Refused) -> web.Response:
    """A refusal as an answer."""
    known = CODES.get(error.code)
    status = error.status if isinstance(error, Refusal) else known.http_status if known else 500
    headers = dict(error.headers) if isinstance(error, Refusal) else {}
    if status in {409, 503} and error.retry:
        headers.setdefault("Retry-After", "1")
    body = {"type": "about:blank", "status": status, "code": error.code, "detail": error.message, "hint": error.hint}
    return web.Response(status=status, body=msgspec.json.encode(body), content_type=_PROBLEM, headers=headers)


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
