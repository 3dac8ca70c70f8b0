"""Which pages does every role have? Health, capacity, metrics, and the description of all pages.

    GET /health        200 {"status": "ok", …}, or 503 with another status: a balancer sends no more requests there
    GET /capacity      200 {"running": n, "limit": n, …}
    GET /metrics       for Prometheus
    GET /openapi.json  every page of the role, for machines

Called where the role's pages are made, at the first byte of HTTP: the writer of metrics is imported then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from time import monotonic
from typing import Final

import msgspec

from wakugumi.adapters.http.page import HttpRequest, Page, PageRoute, Reply
from wakugumi.core.metrics import Family
from wakugumi.limits.node import CAPACITY_AGE_MAX_S

OK: Final = "ok"
STOPPING: Final = "stopping"
_JSON: Final = "application/json"


def wayside_pages(
    role: str,
    version: str,
    health: Callable[[], str],
    capacity: Callable[[], Mapping[str, int]],
    metrics: Callable[[], Iterable[Family]],
    openapi: Callable[[], bytes],
    about: Mapping[str, str] = {},
) -> list[PageRoute]:
    """`health` returns OK, STOPPING or the fault; `openapi` is called once, by the first request for it. `about` are
    headers of the capacity, for a polling leader."""
    from wakugumi.adapters.http.metrics_page import metrics_page

    return [
        PageRoute("GET", "/health", _health_page(role, version, health), quiet=True),
        PageRoute("GET", "/capacity", _capacity_page(capacity, about), quiet=True),
        PageRoute("GET", "/metrics", metrics_page(metrics), quiet=True),
        PageRoute("GET", "/openapi.json", _openapi_page(openapi), quiet=True),
    ]


def _health_page(role: str, version: str, health: Callable[[], str]) -> Page:
    async def page(_visit: HttpRequest) -> Reply:
        status = health()
        body = {"status": status, "role": role, "version": version}
        return Reply(200 if status == OK else 503, msgspec.json.encode(body), _JSON)

    return page


def _capacity_page(capacity: Callable[[], Mapping[str, int]], about: Mapping[str, str]) -> Page:
    encode = msgspec.json.Encoder().encode
    made, made_at = Reply(), -inf

    async def page(_visit: HttpRequest) -> Reply:
        nonlocal made, made_at
        now = monotonic()
        if now - made_at > CAPACITY_AGE_MAX_S:
            made, made_at = Reply(200, encode(capacity()), _JSON, about), now
        return made

    return page


def _openapi_page(openapi: Callable[[], bytes]) -> Page:
    made = b""

    async def page(_visit: HttpRequest) -> Reply:
        nonlocal made
        made = made or openapi()
        return Reply(200, made, _JSON)

    return page
