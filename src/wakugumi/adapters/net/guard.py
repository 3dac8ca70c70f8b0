"""Who is at the other end of a connection? A port asks its guard, once the first request tells what the peer shows.

A guard's decisions stand in `core/access`; `roles/access/guard.py` is the guard of every role.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from wakugumi.core.access.identity import Identity
from wakugumi.core.access.known_as import Degree
from wakugumi.wire.access_line import Key


class Caller(Protocol):
    """One connection, as the guard of its port knows it."""

    def identify(self, key: Key | None = None, *, forwarded: bool = False, cookie: str = "") -> Identity:
        """The sender of a request. `key` is the one that the request shows, if any, and `cookie` the word of a
        browser's; `forwarded`: a relay passes the request on, so the user of the connection is not its sender. Raises
        Refused (`denied`)."""
        ...

    def left(self) -> None:
        """The connection is gone."""
        ...


class Guard(Protocol):
    @property
    def degree(self) -> Degree:
        """The proof that it asks for."""
        ...

    def caller(self, transport: asyncio.BaseTransport, close: Callable[[str], None]) -> Caller:
        """A new connection. `close` is called with the reason if its key is revoked or expires."""
        ...
