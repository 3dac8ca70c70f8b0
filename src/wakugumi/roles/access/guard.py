"""Who asks at a role's ports? (SPEC O1) The kernel knows a user of this machine; every other peer shows a key or a
certificate over TLS.

    shown                          who asks
    a key                          the key, if it is valid and came over TLS or from this machine
    a certificate of the grid      the key that it was made for
    a browser's cookie             over TLS the key that asked for its link; a cookie of a user is no proof
    nothing, from this machine     the user that the kernel names, as `--local` says
    nothing, with --allow-open     anybody
    nothing, otherwise             nobody: refused, with a sentence that says what to do
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from base64 import b32encode
from collections.abc import Callable, Container
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from wakugumi.adapters.access.peer_user import is_local, peer_uid
from wakugumi.adapters.net.gate import gate, name_of
from wakugumi.adapters.net.handshake import TlsSource
from wakugumi.core.access.browser_links import BrowserLink, BrowserLinks, Holder
from wakugumi.core.access.identity import ALL_NAMES, EMBEDDED, Identity, Role, Rules, anybody
from wakugumi.core.access.known_as import Degree
from wakugumi.core.access.local_rule import LocalRule
from wakugumi.errors import Refused
from wakugumi.limits.access import BROWSER_LINK_S
from wakugumi.wire.access_line import Key

if TYPE_CHECKING:
    from ssl import SSLContext

    from wakugumi.adapters.net.tls import PeerCertificate

audit = logging.getLogger("wakugumi.audit")

_OPEN: Final = anybody()
_LINK_BYTES: Final = 20
_COOKIE_BYTES: Final = 32
_LINE: Final = "make a key with `waku keys make`, and run `waku join` with its line on this machine"


class KeyHolder(Protocol):
    """The keys of a grid, as its guard asks for them (`roles/access/keys.py`)."""

    def tls(self) -> SSLContext | None:
        """None if there are no keys yet."""
        ...

    version: int
    """Grows with every key that is made, revoked or expires."""

    def identify(self, key: Key) -> Identity:
        """Raises Refused."""
        ...

    def identify_certificate(self, shown: PeerCertificate) -> Identity:
        """Raises Refused."""
        ...

    def made_at(self, name: str) -> float:
        """Tells a key from a later one of its name. Raises Refused."""
        ...

    def identify_again(self, name: str, made_at: float) -> Identity:
        """For a browser that was let in for this key. Raises Refused."""
        ...

    def used(self, conn: int, name: str, close: Callable[[str], None]) -> None:
        """A connection belongs to this key."""
        ...

    def left(self, conn: int) -> None: ...
    async def close(self) -> None: ...


class AccessGuard:
    """The guard of all ports of a role."""

    def __init__(
        self,
        local: LocalRule | None = None,
        *,
        is_open: bool = False,
        keys: KeyHolder | None = None,
        knows_certificates: bool = False,
        tls: TlsSource | None = None,
        members: Container[int] = frozenset(),
    ) -> None:
        """`local`: rights of this machine's users [default: this process's own user and root are administrators].
        `knows_certificates`: the operator's own authority signs certificates of clients. `members`: user ids of the
        rule's group."""
        self.local = local or LocalRule("admin", os.geteuid())
        self.is_open = is_open
        self.keys = keys
        self.knows_certificates = knows_certificates
        self._tls = tls
        self._members = members
        self._numbers = count(1)
        self.links = BrowserLinks()

    def caller(self, transport: asyncio.BaseTransport, close: Callable[[str], None]) -> AccessCaller:
        return AccessCaller(self, next(self._numbers), transport, close)

    def tls(self) -> SSLContext | None:
        """Certificate of the role's ports: the operator's own, or the grid's."""
        if self._tls is not None:
            return self._tls()
        return None if self.keys is None else self.keys.tls()

    @property
    def degree(self) -> Degree:
        if self.knows_certificates:
            return Degree.CERTIFICATES
        if self.is_open:
            return Degree.OPEN
        return Degree.THIS_USER if self.keys is None or self.keys.tls() is None else Degree.KEYS

    def new_link(self, identity: Identity) -> BrowserLink:
        """A link with which a browser is known as this identity. Raises Refused."""
        holder = Holder(identity)
        if identity.key and self.keys is not None:
            holder = Holder(identity, self.keys.made_at(identity.key))
        word = _new_word(_LINK_BYTES)
        self.links.make(word, holder, time.monotonic())
        audit.info("link made who=%s", identity.name)
        return BrowserLink(word, BROWSER_LINK_S, identity.key != "" or self.knows_certificates)

    def open_link(self, word: str, *, is_tls: bool) -> str:
        """The word of a cookie. Raises Refused with the same words for all reasons."""
        cookie = _new_word(_COOKIE_BYTES)
        holder = self.links.open(word, cookie, time.monotonic())
        if holder is not None and holder.identity.key and not is_tls:  # Others may have read it.
            self.links.drop(cookie)
            holder = None
        if holder is None:
            raise Refused("denied", "the link is not valid here", "make a new one with `waku link`")
        audit.info("link opened who=%s", holder.identity.name)
        return cookie

    def known_browser(self, cookie: str) -> Identity | None:
        """The key for which a browser was let in. None if there is none, or not any more."""
        holder = self.links.holder(cookie, time.monotonic())
        if holder is None or not holder.identity.key or self.keys is None:
            return None
        try:
            return self.keys.identify_again(holder.identity.key, holder.made_at)
        except Refused:
            self.links.drop(cookie)
            return None

    async def close(self) -> None:
        """The role ends: last uses of keys are kept."""
        if self.keys is not None:
            await self.keys.close()

    def user(self, uid: int | None, *, forwarded: bool) -> Identity | None:
        group = self.local.group
        groups = frozenset({group}) if group is not None and uid in self._members else frozenset[int]()
        return self.local.identity_of_user(uid, groups, forwarded=forwarded)


class AccessCaller:
    """One connection. The kernel and the certificate are asked once: their answers do not change."""

    def __init__(
        self, guard: AccessGuard, number: int, transport: asyncio.BaseTransport, close: Callable[[str], None]
    ) -> None:
        self._guard = guard
        self._number = number
        self._transport = transport
        self._close = close
        self._asked_certificate = False
        self._certificate: PeerCertificate | None = None
        self._asked_kernel = False
        self._uid: int | None = None
        self._shown: Key | PeerCertificate | None = None
        self._found: Identity | None = None
        self._version = -1
        """`_found` is the identity of `_shown`, by this version of the keys."""
        self._used = ""

    @property
    def is_tls(self) -> bool:
        return self._transport.get_extra_info("ssl_object") is not None

    @property
    def is_here(self) -> bool:
        """Both ends are on this machine, as their addresses say."""
        info = self._transport.get_extra_info
        return is_local(info("sockname"), info("peername"))

    def identify(self, key: Key | None = None, *, forwarded: bool = False, cookie: str = "") -> Identity:
        try:
            # Browsers send a cookie to all ports of a host, so that of a user proves less than the kernel does.
            known = self._guard.known_browser(cookie) if cookie and key is None and self.is_tls else None
            identity = known or self._identify(key, forwarded=forwarded)
        except Refused as no:
            if gate().may_say("denied"):
                audit.warning("denied peer=%s: %s", name_of(self._transport), no.message)
            raise
        if identity.key != self._used:
            self._use(identity.key)
        return identity

    def left(self) -> None:
        self._use("")

    def _identify(self, key: Key | None, *, forwarded: bool) -> Identity:
        keys = self._guard.keys
        shown: Key | PeerCertificate | None = key if key is not None else self._certified()
        if self._guard.knows_certificates and key is None:
            from wakugumi.adapters.net.tls import peer_name

            name = peer_name(self._transport) if self.is_tls else None
            if name is None:
                raise Refused("denied", "this port asks for a certificate", "dial with TLS, and show a certificate")
            return Identity(name, Role.CLIENT, Rules(clients=ALL_NAMES), proof="certificate")
        if shown is not None:
            if keys is None:
                raise Refused("denied", "there are no keys here", "dial without a key")
            if not (self.is_tls or self.is_here):
                raise Refused(
                    "denied", "a key came over a connection that others can read", "dial with TLS, and revoke the key"
                )
            if shown != self._shown or self._version != keys.version or self._found is None:
                self._found = self._known(keys, shown)
                self._shown, self._version = shown, keys.version
            return self._found
        identity = self._guard.user(self._user(), forwarded=forwarded)
        if identity is not None:
            return identity
        if self._guard.is_open:
            return _OPEN
        raise self._refusal(forwarded=forwarded)

    def _known(self, keys: KeyHolder, shown: Key | PeerCertificate) -> Identity:
        if isinstance(shown, Key):
            return keys.identify(shown)
        return keys.identify_certificate(shown)

    def _certified(self) -> PeerCertificate | None:
        if not self._asked_certificate and self.is_tls:
            from wakugumi.adapters.net.tls import peer_certificate

            self._certificate = peer_certificate(self._transport)
        self._asked_certificate = True
        return self._certificate

    def _user(self) -> int | None:
        if not self._asked_kernel:
            self._asked_kernel = True
            sock = self._transport.get_extra_info("socket")
            self._uid = peer_uid(sock) if sock is not None and self.is_here else None
        return self._uid

    def _refusal(self, *, forwarded: bool) -> Refused:
        if not self.is_here:
            if self.is_tls:
                return Refused("denied", "a peer on another machine shows a key", _LINE)
            return Refused("denied", "this port speaks TLS with other machines", _LINE)
        if forwarded:
            return Refused("denied", "a relay passed the request on, so its user is unknown: it must show a key", _LINE)
        if self._uid is None:
            return Refused("denied", "the kernel does not tell which user this is, so it must show a key", _LINE)
        return Refused("denied", f"user {self._uid} of this machine must show a key here", _LINE)

    def _use(self, key: str) -> None:
        keys = self._guard.keys
        if keys is None:
            return
        if self._used:
            keys.left(self._number)
        self._used = key
        if key:
            keys.used(self._number, key, self._close)


class EmbeddedGuard:
    """The guard of a socket pair inside one process."""

    degree = Degree.THIS_USER

    def caller(self, _transport: asyncio.BaseTransport, _close: Callable[[str], None]) -> EmbeddedGuard:
        return self

    def identify(self, _key: Key | None = None, *, forwarded: bool = False, cookie: str = "") -> Identity:  # noqa: ARG002
        return EMBEDDED

    def left(self) -> None:
        """Needs no action."""


def _new_word(size_bytes: int) -> str:
    return b32encode(secrets.token_bytes(size_bytes)).decode().rstrip("=").lower()
