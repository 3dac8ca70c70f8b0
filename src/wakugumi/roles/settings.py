"""Which settings do several roles share? Where a server listens, under which names, and how a text becomes a path or an
address."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from wakugumi.adapters.net.address import Address, parse_address
from wakugumi.core.setting import Setting

HOST: Final = "127.0.0.1"
Host = Annotated[str, Setting("Address to listen on.")]
ServerNames = Annotated[
    tuple[str, ...],
    Setting(
        "Name that HTTP requests may use for this server, such as a DNS alias or a service name in compose or "
        "Kubernetes. IP addresses, localhost and the machine's own name are always accepted.",
        key="host-names",
        flag="name",
        joined=" ",
    ),
]
AllowOpen = Annotated[
    bool,
    Setting("Listen wider than this machine: everyone who reaches the port may run programs.", only_flag=True),
]


def read_path(text: str, _where: str) -> Path:
    return Path(text)


def read_absolute(text: str, _where: str) -> Path:
    return Path(text).absolute()


def read_address(text: str, _where: str) -> Address:
    """Raises ConfigError."""
    return parse_address(text)
