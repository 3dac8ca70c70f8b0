"""Where may a server listen, and under which names? On this machine alone, unless it is told otherwise (SPEC O1)."""

from __future__ import annotations

from collections.abc import Iterable

from wakugumi.adapters.net.address import Address, check_binding
from wakugumi.errors import ConfigError
from wakugumi.wire.web_origin import server_names


def binding(host: str, port: int, *, allow_open: bool) -> Address:
    """Raises ConfigError."""
    check_port(port)
    check_binding(host, allow_open=allow_open)
    return Address(host, port)


def names_for(names: Iterable[str], host: str) -> frozenset[str]:
    """What HTTP requests may call a server, beside what its machine is called. Raises ConfigError."""
    return server_names(names) | ({host} - {""})


def check_port(port: int, least: int = 0) -> int:
    """Raises ConfigError."""
    if not least <= port <= 65535:
        raise ConfigError(f"a port is {least} to 65535, not {port}")
    return port
