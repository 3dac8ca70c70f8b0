"""A guard that lets everybody in, for tests of ports that are about something else, and one that a test scripts; keys
without a grid."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from wakugumi.adapters.net.tls import PeerCertificate
from wakugumi.core.access.identity import Identity, Role, anybody
from wakugumi.core.access.known_as import Degree
from wakugumi.errors import Refused
from wakugumi.wire.access_line import Key, parse_key


class OpenGuard:
    """Everybody may do everything."""

    degree = Degree.OPEN

    def caller(self, _transport: asyncio.BaseTransport, _close: Callable[[str], None]) -> OpenGuard:
        return self

    def identify(self, _key: Key | None = None, *, forwarded: bool = False, cookie: str = "") -> Identity:
        return anybody()

    def left(self) -> None:
        """Nothing was kept."""


class ScriptedGuard:
    """Says who asks: `who` gets the key and whether a relay passed the request on, and may raise Refused."""

    degree = Degree.KEYS

    def __init__(self, who: Callable[[Key | None, bool], Identity]) -> None:
        self._who = who
        self.close: Callable[[str], None] = lambda _why: None
        """Of the last connection."""
        self.open = 0

    def caller(self, _transport: asyncio.BaseTransport, close: Callable[[str], None]) -> ScriptedGuard:
        self.close = close
        self.open += 1
        return self

    def identify(self, key: Key | None = None, *, forwarded: bool = False, cookie: str = "") -> Identity:
        return self._who(key, forwarded)

    def left(self) -> None:
        self.open -= 1


ANN = Identity("ann", Role.CLIENT)
BOB = Identity("bob", Role.CLIENT)


class KeysAtHand:
    """A key for each of these identities (`roles/access/guard.py` asks for them)."""

    def __init__(self, *identities: Identity) -> None:
        self.version = 0
        self._known = {one.name: replace(one, key=one.name, proof="key") for one in identities}
        self._conns: dict[int, tuple[str, Callable[[str], None]]] = {}

    def identify(self, key: Key) -> Identity:
        if key.name not in self._known:
            raise Refused("denied", "the key is not valid here")
        return self._known[key.name]

    def identify_certificate(self, shown: PeerCertificate) -> Identity:
        return self._known[shown.name]

    def made_at(self, _name: str) -> float:
        return 0.0

    def identify_again(self, name: str, _made_at: float) -> Identity:
        if name not in self._known:
            raise Refused("denied", "the key is not valid here")
        return replace(self._known[name], proof="cookie")

    def tls(self) -> None:
        """There is no certificate."""

    async def close(self) -> None:
        """Needs no action."""

    def used(self, conn: int, name: str, close: Callable[[str], None]) -> None:
        self._conns[conn] = name, close

    def left(self, conn: int) -> None:
        self._conns.pop(conn, None)

    def revoke(self, identity: Identity) -> None:
        del self._known[identity.name]
        self.version += 1
        for name, close in list(self._conns.values()):
            if name == identity.name:
                close("the key was revoked")


def key_of(identity: Identity) -> Key:
    return parse_key(f"{identity.name}:{'a' * 32}-{'b' * 52}")


def shows(identity: Identity) -> str:
    """The line of a request by HTTP."""
    return f"Authorization: Bearer {key_of(identity).text}"
