"""Which address is meant, and may others reach it?"""

from __future__ import annotations

import contextlib
import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from wakugumi.errors import ConfigError
from wakugumi.wire.access_line import Key, hide_secrets, parse_key


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, default_port: int | None = None) -> Address:
    """`host:port`, `[v6]:port`, optionally with `waku://` before it. Raises ConfigError, without secrets."""
    hint = "write host:port, such as localhost:5000"
    try:
        parts = urlsplit(text if "://" in text else f"waku://{text}")
        port = parts.port if parts.port is not None else default_port
    except ValueError as error:
        raise ConfigError(f"{hide_secrets(text)!r} is not an address: {hide_secrets(str(error))}", hint) from None
    host = parts.hostname
    more = parts.path not in {"", "/"} or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in {"waku", "tcp"} or not host or not host.isprintable() or " " in host or port is None or more:
        raise ConfigError(f"{hide_secrets(text)!r} is not a leader's address", hint)
    return Address(host, port)


def parse_addresses(text: str, default_port: int | None = None) -> list[Address]:
    """Several addresses with commas between them, optionally with `waku://` before the first or before each. Raises
    ConfigError, also for an address that is there twice."""
    addresses: list[Address] = []
    for part in _parts(text):
        _add(addresses, parse_address(part, default_port))
    return addresses


def parse_access_line(text: str, default_port: int | None = None) -> list[tuple[Address, Key | None]]:
    """As `parse_addresses`, where a key with `@` may stand before an address. The key of the first address holds for
    all that have none of their own. Raises ConfigError, without secrets."""
    addresses: list[Address] = []
    keys: list[Key | None] = []
    for part in _parts(text):
        address, key = parse_keyed_address(part, default_port)
        _add(addresses, address)
        keys.append(key or (keys[0] if keys else None))
    return list(zip(addresses, keys))


def parse_keyed_address(text: str, default_port: int | None = None) -> tuple[Address, Key | None]:
    """One address, where a key with `@` may stand before it. Raises ConfigError, without secrets."""
    scheme, divider, rest = text.rpartition("://")
    key, at, place = rest.rpartition("@")
    return parse_address(f"{scheme}{divider}{place}", default_port), parse_key(key) if at else None


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ConfigError(f"{hide_secrets(text)!r} names no leader beside a comma", "write host:port,host:port")
    return parts


def _add(addresses: list[Address], address: Address) -> None:
    if address in addresses:
        raise ConfigError(f"the leader {address} is named twice", "name each leader once")
    addresses.append(address)


def is_loopback(host: str) -> bool:
    """Can only this machine reach the host?"""
    with contextlib.suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False
