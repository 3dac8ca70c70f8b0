"""Which address is meant, and may others reach it?"""

from __future__ import annotations

import contextlib
import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from wakugumi.errors import ConfigError


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, default_port: int | None = None) -> Address:
    """`host:port`, `[v6]:port`, optionally with `waku://` before it. Raises ConfigError."""
    hint = "write host:port, such as localhost:5000"
    try:
        parts = urlsplit(text if "://" in text else f"waku://{text}")
        port = parts.port if parts.port is not None else default_port
    except ValueError as error:
        raise ConfigError(f"{text!r} is not an address: {error}", hint) from None
    host = parts.hostname
    more = parts.path not in {"", "/"} or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in {"waku", "tcp"} or not host or not host.isprintable() or " " in host or port is None or more:
        raise ConfigError(f"{text!r} is not a leader's address", hint)
    return Address(host, port)


def parse_addresses(text: str, default_port: int | None = None) -> list[Address]:
    """Several addresses with commas between them, optionally with `waku://` before the first or before each. Raises
    ConfigError, also for an address that is there twice."""
    addresses: list[Address] = []
    for part in text.split(","):
        if not part.strip():
            raise ConfigError(f"{text!r} names no leader beside a comma", "write host:port,host:port")
        address = parse_address(part.strip(), default_port)
        if address in addresses:
            raise ConfigError(f"the leader {address} is named twice", "name each leader once")
        addresses.append(address)
    return addresses


def check_binding(host: str, *, allow_open: bool) -> None:
    """Safe by default (SPEC O1): only loopback is allowed without `allow_open`. Raises ConfigError."""
    if allow_open or is_loopback(host):
        return
    raise ConfigError(
        f"listening on {host} would let anyone who reaches this machine run programs on the workers",
        "listen on 127.0.0.1, or say --allow-open if the network is closed to strangers",
    )


def is_loopback(host: str) -> bool:
    """Can only this machine reach the host?"""
    with contextlib.suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False
