"""Which pages does every role have? Health, capacity, metrics, and the description of all pages.

Called where the role's pages are made, at the first byte of HTTP: the writer of metrics is imported then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from time import monotonic
from typing import Final

import msgspec

from wakugumi.adapters.http.page import HttpRequest, Page, PageRoute, Reply
from wakugumi.core.access.known_as import Degree, known_as
from wakugumi.core.metrics import Family
from wakugumi.limits.node import CAPACITY_AGE_MAX_S
from wakugumi.roles.http.openapi import document
from wakugumi.roles.http.page_table import page_routes

OK: Final = "ok"
STOPPING: Final = "stopping"
_JSON: Final = "application/json"


def wayside_pages(
    role: str,
    version: str,
    health: Callable[[], str],
    capacity: Callable[[], Mapping[str, int]],
    metrics: Callable[[], Iterable[Family]],
    about: Mapping[str, str] = {},
    degree: Callable[[], Degree] = lambda: Degree.THIS_USER,
) -> list[PageRoute]:
    """`health` returns OK, STOPPING or the fault; `about` are headers of the capacity, for a polling leader; `degree`
    is the proof that the port asks for."""
    from wakugumi.adapters.http.metrics_page import metrics_page

    handlers = {
        "get_health": _health_page(role, version, health, degree),
        "get_access_me": _me_page(degree),
        "get_capacity": _capacity_page(capacity, about),
        "get_metrics": metrics_page(metrics),
        "get_openapi_json": _openapi_page(role),
    }
    return page_routes(role, handlers)


def _health_page(role: str, version: str, health: Callable[[], str], degree: Callable[[], Degree]) -> Page:
    async def page(_visit: HttpRequest) -> Reply:
        status = health()
        body = {"status": status, "role": role, "version": version, "access": degree().value}
        return Reply(200 if status == OK else 503, msgspec.json.encode(body), _JSON)

    return page


def _me_page(degree: Callable[[], Degree]) -> Page:
    async def page(visit: HttpRequest) -> Reply:
        return Reply(200, msgspec.json.encode(known_as(visit.identity, degree())), _JSON)

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


def _openapi_page(role: str) -> Page:
    """The document is made by the first request for it."""
    made = b""

    async def page(_visit: HttpRequest) -> Reply:
        nonlocal made
        made = made or document(role)
        return Reply(200, made, _JSON)

    return page
