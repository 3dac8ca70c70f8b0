"""Who may use a role's ports? (SPEC O1) Its settings make the guard of its ports, and secure a wide one."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from wakugumi.adapters.net.address import Address, is_loopback
from wakugumi.core.access.key_ring import have_rules
from wakugumi.core.access.known_as import Degree
from wakugumi.core.access.local_rule import LocalMode, LocalRule
from wakugumi.errors import ConfigError
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.access.keys import GridKeys, KeyPlace

if TYPE_CHECKING:
    from wakugumi.adapters.net.tls import TlsContext

log = logging.getLogger("wakugumi.app")


class AccessSettings(Protocol):
    """The settings of a leader, node or gateway about access."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def local(self) -> LocalMode: ...
    @property
    def local_group(self) -> str: ...
    @property
    def allow_open(self) -> bool: ...
    @property
    def tls_cert(self) -> str: ...
    @property
    def tls_key(self) -> str: ...
    @property
    def client_ca(self) -> str: ...


async def guard_of(settings: AccessSettings, role: str, at: Address, state: Path | None) -> AccessGuard:
    """The guard of a role at this address, with its keys in the folder `access` of its state. A role on this machine
    alone has no keys until the first one is made. Raises ConfigError."""
    own = _own_certificate(settings)
    rule = LocalRule(settings.local, os.geteuid())
    members: Container[int] = frozenset()
    if settings.local_group:
        from wakugumi.adapters.access.group_members import GroupMembers

        group = GroupMembers(settings.local_group)
        rule, members = LocalRule(settings.local, os.geteuid(), group.group), group
    guard = AccessGuard(
        rule,
        is_open=settings.allow_open,
        knows_certificates=bool(settings.client_ca),
        tls=None if own is None else lambda: own,
        members=members,
    )
    if not (settings.client_ca or settings.allow_open):
        guard.keys = await _keys(settings, role, at, state)
    log.info("access: %s", guard.degree.value)
    return guard


def expected_degree(settings: AccessSettings, at: Address, state: Path | None) -> Degree:
    """The degree of a guard of `guard_of`, before there is a loop for it. Raises ConfigError."""
    if settings.client_ca:
        return Degree.CERTIFICATES
    if settings.allow_open:
        return Degree.OPEN
    _check_folder("node", at, state)
    has_keys = not is_loopback(at.host) or (state is not None and (state / "access").exists())
    return Degree.KEYS if has_keys else Degree.THIS_USER


def keys_have_rules(settings: AccessSettings, state: Path | None) -> bool:
    """Do the keys that a guard of `guard_of` would find have rules? Raises ConfigError."""
    if state is None or settings.client_ca or settings.allow_open or not (state / "access").exists():
        return False
    from wakugumi.adapters.access.keys_file import KeysFile

    return have_rules(KeysFile(state / "access" / "keys.toml").keys, time.time())


async def _keys(settings: AccessSettings, role: str, at: Address, state: Path | None) -> GridKeys | None:
    _check_folder(role, at, state)
    wide = not is_loopback(at.host)
    if state is None:
        return None
    folder = state / "access"

    def make() -> KeyPlace:
        return _place(folder, role, at, settings.names)

    is_there = wide or folder.exists()
    place = await asyncio.to_thread(make) if is_there else None
    if wide:
        log.info(
            "keys and certificates in %s: admin.key, client.key and worker.key hold lines for other machines", folder
        )
    return GridKeys(make, place)


def _check_folder(role: str, at: Address, state: Path | None) -> None:
    """Raises ConfigError for a wide port without a folder for its keys."""
    if state is None and not is_loopback(at.host):
        folder = "choose a port" if role == "node" else "name one with --state DIR, choose a port"
        raise ConfigError(
            f"a {role} on {at.host} needs a folder for its keys, and has none",
            f"{folder}, or say --allow-open if the network is closed to strangers",
        )


def _place(path: Path, role: str, at: Address, names: tuple[str, ...]) -> KeyPlace:
    """Raises ConfigError."""
    from wakugumi.adapters.access.state_folder import AccessFolder
    from wakugumi.adapters.net.own_hosts import own_hosts

    hosts = own_hosts(at.host, names)
    folder = AccessFolder.open(path, role, [*hosts, "localhost", "127.0.0.1", "::1"])
    file = folder.keys(str(Address(hosts[0], at.port)))
    _tell_user(folder.path, folder.ca_pem, role, [Address(host, at.port) for host in hosts])
    return KeyPlace(folder, file, folder.context(), hosts)


def _tell_user(path: Path, ca_pem: bytes, role: str, addresses: list[Address]) -> None:
    """Write the role's own user an entry with the admin key: other machines with the same home need no command."""
    from wakugumi.adapters.access.access_file import AccessFile
    from wakugumi.adapters.access.dialled import access_path
    from wakugumi.adapters.access.entry import AccessEntry
    from wakugumi.adapters.access.private_files import read_private
    from wakugumi.adapters.net.address import parse_access_line

    line = (read_private(path / "admin.key") or b"").decode("utf-8", "replace")
    if not line:  # The operator has moved it away.
        return
    try:
        (_, key), *_ = parse_access_line(line.split()[-1])
        file = AccessFile(access_path(None))
        if any(file.find(address) is None for address in addresses):
            file.add(AccessEntry(tuple(addresses), ca_pem.decode(), key, role=role))
            log.info("access of this user to this %s is in %s", role, file.path)
    except ConfigError as error:
        log.warning("this user gets no access file: %s", error)


def _own_certificate(settings: AccessSettings) -> TlsContext | None:
    """TLS with the operator's own certificate. Raises ConfigError."""
    cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.client_ca
    if not cert and not key and not client_ca:
        return None
    if not cert or not key:
        raise ConfigError("TLS needs a certificate and its key", "say --tls-cert FILE and --tls-key FILE")
    from wakugumi.adapters.net.tls import server_context

    return server_context(Path(cert), Path(key), Path(client_ca) if client_ca else None)
