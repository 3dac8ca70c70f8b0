"""How is an address dialled, and who does the caller say it is? (SPEC O1) Asked before each connection.

    waku://name:digest-secret@host:port      a key beside the address. Its digest proves the authority, which is fetched
    --access FILE, WAKU_ACCESS               else the entry of the address in this file
    ~/.config/wakugumi/access.toml           else in the user's file

Without an entry the connection is plain: the kernel tells who the users of this machine are. With one it is always TLS,
and the key is shown only inside. Most callers have no entry: nothing of TLS is imported for them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wakugumi.adapters.loop.threads import beside
from wakugumi.adapters.net.address import Address
from wakugumi.errors import ConfigError
from wakugumi.limits.client import CONNECT_DEADLINE_S
from wakugumi.wire.access_line import Key, parse_key

if TYPE_CHECKING:
    from wakugumi.adapters.access.entry import AccessEntry

VARIABLE: Final = "WAKU_ACCESS"
_OWN_FILE: Final = "~/.config/wakugumi/access.toml"
_NO_KEY: Final = "certificate"
"""In the place of a key's name, for an entry with a certificate alone."""

_authorities: Final[dict[str, str]] = {}
"""Fetched certificates (PEM) of authorities, by their digests: each is fetched once in a process."""
_given: Final[dict[Address, Key]] = {}
"""Keys that settings of this process gave beside an address."""
_shown: Final[dict[tuple[str, Address], AccessEntry]] = {}
"""Entries by key name and address, for URLs made by `url_of`."""


def access_path(said: str | os.PathLike[str] | None, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of --access, of WAKU_ACCESS, or the user's own."""
    return Path(said or environ.get(VARIABLE) or _OWN_FILE).expanduser().absolute()


def take_key(text: str) -> str:
    """The URL without its user part, whose key belongs to the address in this process from now on. Raises ConfigError,
    without secrets."""
    scheme, divider, rest = text.partition("://")
    place, slash, path = rest.partition("/")
    key, at, host = place.rpartition("@")
    if not at:
        return text
    name, colon, port = host.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise ConfigError(f"{host!r} has a key, and no port", "write https://<key>@host:port")
    _given[Address(name.strip("[]"), int(port))] = parse_key(key)
    return f"{scheme}{divider}{host}{slash}{path}"


class AccessSources:
    """The sources of one client or role. `file`: that of --access."""

    def __init__(self, file: str | os.PathLike[str] | None = None) -> None:
        self._file = file

    def key_name(self, address: Address, key: Key | None = None) -> str:
        """Name of the key that will be shown; empty if there is none. Raises ConfigError."""
        if key is None:
            entry = self.in_file(address)
            key = _given.get(address) or (None if entry is None else entry.key)
        return "" if key is None else key.name

    async def entry(self, address: Address, key: Key | None = None, role: str = "leader") -> AccessEntry | None:
        """How to dial this address; None: plain. The `role` of the server holds for a key without an entry. Raises
        ConfigError if the sources cannot be used or another authority answers, Lost if the address does not answer."""
        key = key or _given.get(address)
        if key is not None:
            return await self._with_key(address, key, role)
        if not self._has_file():
            return None
        return await beside(lambda: self.in_file(address), "wakugumi access")

    async def _with_key(self, address: Address, key: Key, role: str) -> AccessEntry:
        from wakugumi.adapters.access.entry import AccessEntry
        from wakugumi.adapters.access.fetch_ca import fetch_ca

        pem = _authorities.get(key.digest)
        if pem is None:
            pem = _authorities[key.digest] = await fetch_ca(address, key.digest, CONNECT_DEADLINE_S)
        return AccessEntry((address,), pem, key, role=role)

    def _has_file(self) -> bool:
        """Raises ConfigError if a named file is missing."""
        path = access_path(self._file)
        if os.path.lexists(path):
            return True
        if self._file or os.environ.get(VARIABLE):
            raise ConfigError(f"the access file {path} does not exist", "name another one, or join a grid: waku join")
        return False

    def in_file(self, address: Address) -> AccessEntry | None:
        """The entry of the file alone: only a file names certificates. Raises ConfigError."""
        if not self._has_file():
            return None
        from wakugumi.adapters.access.access_file import AccessFile

        return AccessFile(access_path(self._file)).find(address)


def url_of(address: Address, entry: AccessEntry | None) -> str:
    """URL of a server that is dialled like this. Its user part is the key's name, which is no secret: `entry_of` finds
    the entry by it."""
    if entry is None:
        return f"http://{address}"
    name = _NO_KEY if entry.key is None else entry.key.name
    _shown[name, address] = entry
    return f"https://{name}@{address}"


def entry_of(name: str, address: Address) -> AccessEntry | None:
    """The entry of a URL made by `url_of`; in another process, that of the user's sources. Raises ConfigError."""
    return _shown.get((name, address)) or (AccessSources().in_file(address) if name else None)
