"""A server of a grid with keys, over real TLS: its authority, as whom it knows a key, and certificates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kit.guards import ScriptedGuard

from wakugumi.adapters.access.certificates import sign_csr
from wakugumi.adapters.access.state_folder import AccessFolder, new_key
from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.port.port import listen_http
from wakugumi.core.access.decide import Right
from wakugumi.core.access.identity import Identity, Role
from wakugumi.core.access.known_as import Degree
from wakugumi.errors import Refused
from wakugumi.roles.http.status_pages import OK, wayside_pages
from wakugumi.wire.access_line import Key


class AccessServer:
    def __init__(self, folder: Path, role: str = "leader") -> None:
        self.folder = AccessFolder.open(folder, role, ["127.0.0.1"])
        self.keys: dict[Key, Role] = {}
        self.shown: list[Key | None] = []
        """Keys of all requests."""
        self.days = 90.0
        self.address = Address("127.0.0.1", 0)
        self.on_certificate: Callable[[], object] = lambda: None
        """Called before a certificate is sent."""

    def key(self, name: str, role: Role) -> Key:
        key = new_key(name, self.folder.digest)
        self.keys[key] = role
        return key

    def line(self, key: Key) -> str:
        return f"waku://{key.text}@{self.address}"

    def _who(self, key: Key | None, _forwarded: bool) -> Identity:
        self.shown.append(key)
        role = None if key is None else self.keys.get(key)
        if key is None or role is None:
            raise Refused("denied", "the key is not valid here", "ask the operator for a new key")
        return Identity(key.name, role, key=key.name, proof="key")

    async def _ca(self, _request: HttpRequest) -> Reply:
        return Reply(200, self.folder.ca_pem)

    async def _certificate(self, request: HttpRequest) -> Reply:
        csr = b"".join([piece async for piece in request.pieces()])
        who = request.identity
        self.on_certificate()
        return Reply(200, sign_csr(self.folder.ca(), csr, who.role.value, who.name, self.days))

    def _pages(self) -> list[PageRoute]:
        return [
            PageRoute("GET", "/access/ca", self._ca, need=Right.OPEN),
            PageRoute("POST", "/access/certificate", self._certificate, need=Right.KNOWN),
            *wayside_pages("leader", "1", lambda: OK, dict, list, degree=lambda: Degree.KEYS),
        ]

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[AccessServer]:
        guard = ScriptedGuard(self._who)
        listener = await listen_http("127.0.0.1", 0, [self._pages], guard, tls=self.folder.context())
        self.address = Address("127.0.0.1", listener.port)
        try:
            yield self
        finally:
            await listener.close()
