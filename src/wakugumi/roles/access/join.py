"""How does a machine join a grid with a line? (SPEC O1)

    the authority is fetched, and compared with the line's digest; no secret is sent before
    GET /access/me with the key, over TLS that this authority has signed: is the key valid, and for what?
    POST /access/certificate for a worker and a gateway: a certificate for their own ports
    the access file gets the entry, so that every later command finds it by the address

Joining again renews the entry and its certificate. A running worker or gateway renews the certificate by itself
(`roles/access/renew.py`).
"""

from __future__ import annotations

import asyncio
import re
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from wakugumi.adapters.access.access_file import AccessFile
from wakugumi.adapters.access.ask_page import ask_page
from wakugumi.adapters.access.certificates import CertifiedKey, belong_together, expires_at, make_csr
from wakugumi.adapters.access.entry import AccessEntry
from wakugumi.adapters.access.fetch_ca import fetch_ca
from wakugumi.adapters.access.private_files import make_private_folder, write_private
from wakugumi.adapters.loop.threads import beside
from wakugumi.adapters.net.address import Address, parse_access_line
from wakugumi.adapters.net.connect import why_not
from wakugumi.core.access.known_as import KnownAs
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.limits.access import JOIN_DEADLINE_S
from wakugumi.wire.access_line import Key, write_authorization
from wakugumi.wire.problem import read_problem
from wakugumi.wire.untrusted_json import Unreadable, read_json

ME: Final = "GET /access/me"
CERTIFICATE: Final = "POST /access/certificate"
JOINED_ROLES: Final = ("leader", "gateway", "node")
_CERTIFIED: Final = frozenset({"worker", "gateway"})
"""Roles of keys that get a certificate: they may serve."""
_COMMAND: Final = re.compile(r"\s*(?:waku\s+join\s+)?(?:--to\s+([a-z]+)\s+)?(\S.*?)?\s*", re.DOTALL)


class Joined(NamedTuple):
    entry: AccessEntry
    known: KnownAs
    certificate_until: float | None = None
    """End of the certificate, by the wall clock."""


class JoinLine(NamedTuple):
    addresses: tuple[Address, ...]
    key: Key
    role: str
    """Role of the servers at these addresses."""


def read_line(text: str, default_port: int) -> JoinLine:
    """The line, also with `waku join` before it. Raises ConfigError, without secrets."""
    command = _COMMAND.fullmatch(text)
    assert command is not None
    role = command[1] or "leader"
    if role not in JOINED_ROLES:
        raise ConfigError(f"{role[:40]!r} is no server to join", f"say --to {' or '.join(JOINED_ROLES)}")
    found = parse_access_line(command[2] or "", default_port)
    keys = {key for _, key in found}
    if len(keys) > 1:
        raise ConfigError("the line has several keys", "join each grid with a line of its own")
    key = keys.pop()
    if key is None:
        raise ConfigError("the line has no key", "write waku://<key>@host:port, as `waku keys make` prints it")
    return JoinLine(tuple(address for address, _ in found), key, role)


async def join(line: JoinLine, file: AccessFile) -> Joined:
    """Join the grid of the line, and write the entry. Raises ConfigError, Lost, or Refused if the key is
    not valid there."""
    addresses, key, role = line
    before = file.entries()  # A file that cannot be used is told before anything is asked.
    address, ca_pem = await _authority(addresses, key)
    entry = AccessEntry(addresses, ca_pem, key, role=role)
    known = _known(await _asked(entry, address, ME), address)
    until = None
    if known.role in _CERTIFIED:
        made = await certify(entry, address)
        until = expires_at(made.certificate)
        entry = entry._replace(certificate=_write(file, key, made))
    file.add(entry)
    _remove_unused(before, file)
    return Joined(entry, known, until)


async def certify(entry: AccessEntry, address: Address) -> CertifiedKey:
    """A new certificate for the key of the entry, with its private key. Raises Refused, ConfigError or Lost."""
    asked = await beside(make_csr, "wakugumi access")
    made = CertifiedKey(await _asked(entry, address, CERTIFICATE, asked.certificate), asked.key)
    if not belong_together(made):
        raise ConfigError("the certificate of the server is not for the key that asked for it", "join again")
    return made


def write_certificate(path: Path, made: CertifiedKey) -> None:
    """One file with certificate and key, so that a renewed one is old or new. Raises ConfigError."""
    write_private(path, made.certificate.rstrip() + b"\n" + made.key)


def forget(address: Address, file: AccessFile) -> bool:
    """Remove the address, and a certificate that no other address has. False if it is not there. Raises ConfigError."""
    before = file.entries()
    if not before or not file.remove(address):
        return False
    _remove_unused(before, file)
    return True


async def _authority(addresses: tuple[Address, ...], key: Key) -> tuple[Address, str]:
    """The first address that answers, and the grid's authority. Raises ConfigError or Lost."""
    lost: Lost | None = None
    for address in addresses:
        try:
            return address, await fetch_ca(address, key.digest, JOIN_DEADLINE_S)
        except Lost as error:
            lost = lost or error
    assert lost is not None
    raise lost


async def _asked(entry: AccessEntry, address: Address, request: str, body: bytes = b"") -> bytes:
    """The answer of a server that proved its role. Raises Refused, ConfigError or Lost."""
    assert entry.key is not None
    headers = {"Authorization": write_authorization(entry.key)}
    try:
        async with asyncio.timeout(JOIN_DEADLINE_S):
            status, answer = await ask_page(address, request, entry.context(), entry.server_hostname, headers, body)
    except TimeoutError:
        raise Lost(f"{address} did not answer within {JOIN_DEADLINE_S:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"{address} is no {entry.role} of the grid: {error.verify_message}",
            "check the address; name the role of another server with --to gateway or --to node",
        ) from None
    except (OSError, ValueError) as error:
        raise Lost(f"cannot connect to {address}: {why_not(error)}") from None
    if status != 200:
        no = read_problem(answer)
        if no.code:
            raise Refused(no.code, no.detail, no.hint or None)
        raise ConfigError(f"{address} answered {status} to {request}", "bring the server up to date")
    return answer


def _known(answer: bytes, address: Address) -> KnownAs:
    try:
        return read_json(answer, KnownAs)
    except Unreadable:
        raise ConfigError(f"{address} does not say as whom it knows the key", "bring the server up to date") from None


def _write(file: AccessFile, key: Key, made: CertifiedKey) -> Path:
    """Raises ConfigError."""
    if not file.path.parent.exists():
        make_private_folder(file.path.parent)
    path = file.path.with_name(f"{key.name}-{key.digest[:12]}.pem")
    write_certificate(path, made)
    return path


def _remove_unused(before: list[AccessEntry], file: AccessFile) -> None:
    """Certificates that the file no longer names."""
    used = {one.certificate for one in file.entries()}
    for entry in before:
        if entry.certificate is not None and entry.certificate not in used:
            entry.certificate.unlink(missing_ok=True)
