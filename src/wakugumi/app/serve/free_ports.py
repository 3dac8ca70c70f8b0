"""Which port is free, and stays so while its process is away?"""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

from wakugumi.errors import ConfigError

HOST: Final = "127.0.0.1"
_PORTS_TRIED: Final = 100


def free_port() -> int:
    """A port that stays free while its process is away: none that the system gives to connections of its own."""
    try:
        given_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        given_from = 32_768
    for _ in range(_PORTS_TRIED):
        port = random.randrange(1_024, max(given_from, 1_025))
        with socket.socket() as listener:
            try:
                listener.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ConfigError(f"no port of {_PORTS_TRIED} tried below {given_from} is free")


def free_ports(count: int) -> list[int]:
    """So many different ones."""
    ports: dict[int, None] = {}
    while len(ports) < count:
        ports[free_port()] = None
    return list(ports)
