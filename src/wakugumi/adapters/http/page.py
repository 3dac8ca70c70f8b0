"""What does a role need of an HTTP request, and what does it answer? The interface between roles and the HTTP server.

A role's page gets an HttpRequest and returns a Reply; a raised Refused is answered as a problem (RFC 9457). This file
does not import the serving library: `adapters/http/server.py` makes the requests and sends the replies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from wakugumi.core.access.decide import Right
from wakugumi.core.access.identity import Identity
from wakugumi.errors import Refused


class Stream(NamedTuple):
    """A large or growing body. Pieces are requested as fast as the other side reads."""

    size: int | None
    """None if unknown: then the body is sent in chunks."""
    pieces: AsyncIterator[bytes]
    """An `aclose` is called in the end if there is one, also if no piece was requested."""


class Reply(NamedTuple):
    """An answer."""

    status: int = 200
    body: bytes | Stream = b""
    content_type: str = "application/octet-stream"
    headers: Mapping[str, str] = {}
    hear_out: bool = False
    """The request's body is not needed, and the client may send all of it before it reads: the body is read and dropped
    while the reply is sent. Then the connection is closed."""
    on_sent: Callable[[], None] | None = None
    """Called once the whole reply is written, and not at all if the reader left before."""


class HttpRequest(Protocol):
    """One request, as a page sees it."""

    method: str
    path: str
    rest: str
    """The rest of the path behind the page's, percent-encoded as received."""
    job: str
    """The job of the request, for the access log: set by the page."""
    identity: Identity
    """The sender; nobody for a page that is open to all."""

    @property
    def peer(self) -> str: ...

    @property
    def is_tls(self) -> bool: ...

    def header(self, name: str) -> str | None: ...

    def parameters(self) -> Collection[str]:
        """Names in the query. Raises Refused if they are not UTF-8."""
        ...

    def query(self, name: str) -> list[str]:
        """All values of a parameter, decoded, in order. Raises Refused if they are not UTF-8."""
        ...

    @property
    def query_text(self) -> str:
        """The whole query as received, for passing it on."""
        ...

    @property
    def content_length(self) -> int | None: ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The body as it is received. The first piece sends `100 Continue` if the client waits for it; little of the
        body is read before. Raises Refused (`too-slow`) for a sender of next to nothing, Lost if the sender is gone."""
        ...

    async def read(self) -> bytes:
        """The next piece of the body, without a deadline; empty at the end. May be cancelled and called again. Raises
        Refused if the body is broken, Lost if the sender is gone."""
        ...

    @property
    def is_whole(self) -> bool:
        """The whole body has arrived, read or not."""
        ...

    def cut_off(self) -> None:
        """Ends the connection at once."""
        ...

    @property
    def is_gone(self) -> bool:
        """The client has disconnected."""
        ...


Page: TypeAlias = Callable[[HttpRequest], Awaitable[Reply]]


class PageRoute(NamedTuple):
    """The page of a method and a path. A path that ends in `/` stands for all paths that begin like it."""

    method: str
    path: str
    page: Page
    quiet: bool = False
    """Machines request this page again and again: its requests are logged for debugging only."""
    need: Right = Right.KEYS
    """The right that the sender must have."""


Pages: TypeAlias = Callable[[], Sequence[PageRoute]]
"""Called in a thread at the first byte of HTTP, so that imports block no other connection; and again with the next
request if that failed."""


class HttpRefusal(Refused):
    """A refusal with a status of its own, or with headers."""

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None, hint: str | None = None
    ) -> None:
        super().__init__(code, message, hint)
        self.status = status
        self.headers = headers or {}
