"""Which files make a grid's access, and who makes them? (SPEC O1) The first server with this folder, once:

    ca.pem, ca.key                       the grid's authority
    server.pem, server.key               this server's certificate, renewed when a third of its life is left
    keys.toml                            all keys, with hashes of their secrets
    admin.key, client.key, worker.key    the first keys: each file holds the line `waku join …`

The folder has mode 0700 and its files 0600, from their making on. A file that decides is written last: `ca.pem` after
`ca.key`, `keys.toml` after the first keys. So a start that was killed is repeated, and never half.
"""

from __future__ import annotations

import ipaddress
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from wakugumi.adapters.access.certificates import (
    CertifiedKey,
    belong_together,
    ca_digest,
    covers_server,
    expires_at,
    make_ca,
    make_server_certificate,
)
from wakugumi.adapters.access.keys_file import KeysFile
from wakugumi.adapters.access.private_files import (
    locked,
    make_private_folder,
    read_private,
    remove_halves,
    write_private,
)
from wakugumi.adapters.net.tls import RenewedContext, grid_server_context
from wakugumi.core.access.identity import Role, Rules
from wakugumi.core.access.key_events import KeyKept
from wakugumi.errors import ConfigError
from wakugumi.limits.access import CERTIFICATE_DAYS_MAX, CERTIFICATE_RENEWED_SHARE
from wakugumi.wire.access_line import SECRET_BYTES, Key, base32, secret_hash

FIRST_KEYS: Final = (Role.ADMIN, Role.CLIENT, Role.WORKER)
"""Roles that get a key of their name with a new grid. These keys speak for all clients."""
_DAY_S: Final = 86_400.0


class AccessFolder:
    """The access files of a grid's server, made or checked by `open`."""

    def __init__(self, path: Path, role: str, names: Iterable[str]) -> None:
        self.path = path
        self._role = role
        self._names: list[str] = []
        self._addresses: list[str] = []
        for name in dict.fromkeys(names):
            (self._addresses if _is_address(name) else self._names).append(name)
        self.ca_pem = b""
        """Certificate of the authority: public."""
        self.digest = ""
        """Of the authority, as in keys."""

    @classmethod
    def open(cls, path: Path, role: str, names: Iterable[str], now: float | None = None) -> AccessFolder:
        """The folder `path` of a server in this role, which is reached by these host names and addresses. `now` is the
        wall clock. May wait for the disk. Raises ConfigError."""
        folder = cls(path, role, names)
        make_private_folder(path)
        with locked(path):
            remove_halves(path)
            folder.ca_pem = folder._make_ca().certificate
            folder.digest = ca_digest(folder.ca_pem)
            folder._renew(time.time() if now is None else now)
        return folder

    def ca(self) -> CertifiedKey:
        """The authority with its key, read from the disk. Raises ConfigError."""
        found = self._pair("ca")
        if found is None or not belong_together(found) or (self.ca_pem and found.certificate != self.ca_pem):
            raise ConfigError(
                f"ca.pem and ca.key in {self.path} are not the grid's authority",
                f"restore both from a copy; without one remove {self.path}, start again, and join every machine again",
            )
        return found

    def renew_if_due(self, now: float | None = None) -> bool:
        """Make a new server certificate if a third of its life is left. May wait for the disk. Raises ConfigError."""
        with locked(self.path):
            return self._renew(time.time() if now is None else now)

    def context(self) -> RenewedContext:
        """The context of the next handshake. Raises ConfigError."""
        files = self.path / "server.pem", self.path / "server.key"
        return RenewedContext(lambda: grid_server_context(*files, self.ca_pem.decode()), *files)

    def keys(self, at: str, now: float | None = None) -> KeysFile:
        """The keys of the grid; the first ones are made now if there are none. The lines in their files name the
        address `at`. May wait for the disk. Raises ConfigError."""
        with locked(self.path):
            file = KeysFile(self.path / "keys.toml")
            if file.is_new:
                made_at = time.time() if now is None else now
                made = [(role, new_key(role.value, self.digest)) for role in FIRST_KEYS]
                for _, key in made:
                    write_private(self._line_file(key.name), f"{join_line(key, at, self._role)}\n".encode())
                rules = Rules(clients=("*",))
                file.keep([KeyKept(key.name, role, secret_hash(key), made_at, rules) for role, key in made])
            else:
                self._move_lines(at)
        return file

    def _make_ca(self) -> CertifiedKey:
        if (self.path / "ca.pem").exists():
            return self.ca()
        if (self.path / "keys.toml").exists():
            return self.ca()  # Raises: with a new authority no key would be valid.
        made = make_ca()
        self._write_pair("ca", made)
        return made

    def _renew(self, now: float) -> bool:
        found = self._pair("server")
        if found is not None and self._is_fine(found, now):
            return False
        made = make_server_certificate(self.ca(), self._role, self._names, self._addresses, now=now)
        self._write_pair("server", made)
        return True

    def _is_fine(self, found: CertifiedKey, now: float) -> bool:
        if not belong_together(found):
            return False
        if not covers_server(found.certificate, self.ca_pem, self._role, self._names, self._addresses):
            return False
        left_s = expires_at(found.certificate) - now
        life_s = CERTIFICATE_DAYS_MAX * _DAY_S
        return life_s * CERTIFICATE_RENEWED_SHARE < left_s <= life_s + _DAY_S  # More: the clock was wrong.

    def _move_lines(self, at: str) -> None:
        """Write the address into the lines of the first keys, where they are still there."""
        for role in FIRST_KEYS:
            path = self._line_file(role.value)
            text = (read_private(path) or b"").decode("utf-8", "replace")
            user, found, _ = text.rpartition("@")
            if found and text != f"{user}@{at}\n":
                write_private(path, f"{user}@{at}\n".encode())

    def _line_file(self, name: str) -> Path:
        return self.path / f"{name}.key"

    def _pair(self, name: str) -> CertifiedKey | None:
        certificate, key = (read_private(self.path / f"{name}.{kind}") for kind in ("pem", "key"))
        return None if certificate is None or key is None else CertifiedKey(certificate, key)

    def _write_pair(self, name: str, made: CertifiedKey) -> None:
        write_private(self.path / f"{name}.key", made.key)
        write_private(self.path / f"{name}.pem", made.certificate)


def new_key(name: str, digest: str) -> Key:
    """A key with a new secret."""
    return Key(name, digest, base32(secrets.token_bytes(SECRET_BYTES)))


def join_line(key: Key, at: str, role: str = "leader") -> str:
    """The command that joins another machine to a server of this role: it holds the secret."""
    return f"waku join {'' if role == 'leader' else f'--to {role} '}waku://{key.text}@{at}"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
