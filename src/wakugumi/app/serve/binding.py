"""Where does a server listen, and under which names?"""

from __future__ import annotations

from collections.abc import Iterable

from wakugumi.adapters.net.address import Address
from wakugumi.errors import ConfigError
from wakugumi.wire.web_origin import server_names


def binding(host: str, port: int) -> Address:
    """Raises ConfigError."""
    return Address(host, check_port(port))


def names_for(names: Iterable[str], host: str) -> frozenset[str]:
    """Names that HTTP requests may use for a server, beside those of its machine. Raises ConfigError."""
    return server_names(names) | ({host} - {""})


def check_port(port: int, least: int = 0) -> int:
    """Raises ConfigError."""
    if not least <= port <= 65535:
        raise ConfigError(f"a port is {least} to 65535, not {port}")
    return port
