"""What does a role need of an HTTP request, and what does it answer? The words between roles and the HTTP server.

A role's page gets an HttpRequest and returns a Reply; what it raises as Refused is answered as a problem (RFC 9457).
Nothing here imports the library that serves: `adapters/http/server.py` makes the requests and sends the replies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from wakugumi.errors import Refused


class Stream(NamedTuple):
    """A body that does not fit, or is not all there yet. Its pieces are asked for as fast as the other side reads."""

    size: int | None
    """None if nobody knows: then it is sent in chunks."""
    pieces: AsyncIterator[bytes]
    """If it has an `aclose`, that is called in the end, be it that nothing was asked for."""


class Reply(NamedTuple):
    """An answer."""

    status: int = 200
    body: bytes | Stream = b""
    content_type: str = "application/octet-stream"
    headers: Mapping[str, str] = {}
    hear_out: bool = False
    """Its request's body is of no use any more, and all of it may come before any of this is read: it is read and
    dropped meanwhile. The connection ends then."""
    on_sent: Callable[[], None] | None = None
    """Called once all of it is written, and not at all if its reader left before."""


class HttpRequest(Protocol):
    """One request, as a page sees it."""

    method: str
    path: str
    rest: str
    """What follows the page's path, percent-encoded as it came."""
    job: str
    """The job it is about, for the access log: a page that knows sets it."""

    @property
    def peer(self) -> str: ...

    def header(self, name: str) -> str | None: ...

    def parameters(self) -> Collection[str]:
        """What its query names. Raises Refused for what is no UTF-8."""
        ...

    def query(self, name: str) -> list[str]:
        """All values of a parameter, decoded, in order. Raises Refused for what is no UTF-8."""
        ...

    @property
    def query_text(self) -> str:
        """The whole query, encoded as it came, for who passes it on."""
        ...

    @property
    def content_length(self) -> int | None: ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. A client that waits for it is told to go on at the first call; before that nothing of
        it is read beyond a little. Raises Refused (`too-slow`) for who sends next to nothing, Lost for who is gone."""
        ...

    @property
    def is_gone(self) -> bool:
        """Nobody is there any more to hear an answer."""
        ...


Page: TypeAlias = Callable[[HttpRequest], Awaitable[Reply]]


class PageRoute(NamedTuple):
    """Which page answers a method on a path. A path that ends in `/` stands for all that begin like it."""

    method: str
    path: str
    page: Page
    quiet: bool = False
    """It is asked again and again, by machines: its visits are logged for debugging only."""


Pages: TypeAlias = Callable[[], Sequence[PageRoute]]
"""Called once, when the first HTTP byte has come."""


class HttpRefusal(Refused):
    """A refusal with a status of its own, or with more to say in the head."""

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None, hint: str | None = None
    ) -> None:
        super().__init__(code, message, hint)
        self.status = status
        self.headers = headers or {}
