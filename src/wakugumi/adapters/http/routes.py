"""Which handler answers which method on which path? A role hands a port a table of routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from aiohttp import web

Handler: TypeAlias = "Callable[[web.BaseRequest, str], Awaitable[web.StreamResponse]]"
"""Gets the request and what follows the route's path. What it raises as Refused is answered as a problem."""


class Route(NamedTuple):
    """Who answers a method on a path. A path that ends in `/` stands for all that begin like it."""

    method: str
    path: str
    handler: Handler
    waits: bool = False
    """It says itself when the body may come, by `http/server.let_come`: until then little of it is read."""
    quiet: bool = False
    """It is asked again and again, by machines: logged for debugging only."""


Routes: TypeAlias = Callable[[], Sequence[Route]]
"""Called in a thread when the first HTTP byte has come, so that importing what serves it costs nobody else; and again
with the next request if that failed."""
