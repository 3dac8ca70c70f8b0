"""An HTTP request of which only the head matters, without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from wakugumi.core.access.identity import anybody


class AVisit:
    """A request of which only the head matters."""

    method, path, job, peer, is_gone, content_length = "POST", "/dispatch/", "", "here", False, None
    identity = anybody()

    def __init__(self, rest: str = "night-7", client: str | None = None, **query: str | list[str]) -> None:
        self.rest = rest
        self._client = client
        self._query = {name: value if isinstance(value, list) else [value] for name, value in query.items()}

    def header(self, name: str) -> str | None:
        return self._client if name == "Waku-Client" else None

    def parameters(self) -> Collection[str]:
        return self._query

    def query(self, name: str) -> list[str]:
        return self._query.get(name, [])

    async def pieces(self) -> AsyncIterator[bytes]:
        yield b""
