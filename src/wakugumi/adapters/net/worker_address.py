"""Which address may a worker name for other workers to fetch from it?

The leader sends other workers to that address, with a token: a worker that could name any address could direct them to
any machine. The host is therefore that of the worker's own connection, whatever name it gives; only the port is its
choice. Other hosts (several networks, address translation) must be allowed with `--workers-at`. A loopback address
differs for each machine: only workers on the leader's machine are sent there.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from contextlib import suppress
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from wakugumi.adapters.net.address import Address


def workers_url(url: str, connected_from: str, allowed: Collection[str]) -> str | None:
    """URL of a worker for other workers; None if its host is not its own. `connected_from`: IP address of its
    connection, empty for a process of this machine. Raises ValueError if the URL is invalid."""
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError("a worker's URL is http://host:port")
    there = _own_host(host, connected_from, allowed)
    if there is None:
        return None
    # Only scheme, host and port are passed on: no user, no path.
    return f"{parts.scheme}://{Address(there, port) if port is not None else _bare(there)}"


def is_loopback(host: str) -> bool:
    """Whether the host is the machine of the caller itself. Empty: a process of this machine."""
    found = _ip(host)
    if found is not None:
        return found.is_loopback or found.is_unspecified
    return host in {"", "localhost"} or host.endswith(".localhost")


def _own_host(host: str, connected_from: str, allowed: Collection[str]) -> str | None:
    if any(fnmatchcase(host, pattern.lower()) for pattern in allowed):
        return host
    named, from_ip = _ip(host), _ip(connected_from)
    if from_ip is None or from_ip.is_loopback:
        return host if _is_this_machine(host, named) else None
    if named is None:
        return str(from_ip)
    return host if named == from_ip else None


def _ip(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def _is_this_machine(host: str, named: IPv4Address | IPv6Address | None) -> bool:
    if named is None:
        name = socket.gethostname().lower()
        return host in {"localhost", name, name.partition(".")[0]}
    if named.is_loopback:
        return True
    family = socket.AF_INET if named.version == 4 else socket.AF_INET6
    # Only an address of this machine can be bound to.
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.bind((str(named), 0))
        return not named.is_unspecified and not named.is_multicast
    return False


def _bare(host: str) -> str:
    return f"[{host}]" if ":" in host else host
