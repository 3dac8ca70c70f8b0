"""Which handler answers which method on which path? A role hands a port a table of routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from aiohttp import web

Handler: TypeAlias = "Callable[[web.BaseRequest, str], Awaitable[web.StreamResponse]]"
"""Gets the request and the rest of its path. A raised Refused is answered as a problem."""


class Route(NamedTuple):
    """The handler of a method and a path. A path that ends in `/` stands for all paths that begin like it."""

    method: str
    path: str
    handler: Handler
    waits: bool = False
    """The handler calls `http/server.let_come` when the body may be sent: little of it is read before."""
    quiet: bool = False
    """Machines request this route again and again: logged for debugging only."""


Routes: TypeAlias = Callable[[], Sequence[Route]]
"""Called in a thread at the first byte of HTTP, so that the import blocks no other connection; and again with the next
request if that failed."""
