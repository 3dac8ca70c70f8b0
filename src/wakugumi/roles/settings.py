"""Which settings do several roles share? Where a server listens, under which names, and how a text becomes a path or an
address."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from wakugumi.adapters.net.address import Address, parse_address
from wakugumi.core.access.local_rule import LocalMode
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
    Setting("No proof is needed: everyone who reaches the port may run programs.", only_flag=True),
]
Local = Annotated[
    LocalMode,
    Setting(
        "Role of this user and of root on this machine, by the user id alone: admin, client, or none for a server "
        "behind a relay or in a container, where strangers look like root.",
    ),
]
LocalGroup = Annotated[
    str, Setting("Group of this machine's users: its members may submit jobs from this machine without a key.")
]
TlsCert = Annotated[
    str, Setting("PEM file with your own certificate for the port and its chain.", shown="one that is made here")
]
TlsKey = Annotated[str, Setting("PEM file with the key of --tls-cert.")]
ClientCa = Annotated[
    str,
    Setting(
        "PEM file with authorities of your own: callers over TLS must show a certificate that one of them signed, and "
        "are known by its common name."
    ),
]
AccessPath = Annotated[
    Path | None,
    Setting(
        "File with keys, by the addresses that they are for.",
        shown="~/.config/wakugumi/access.toml",
        key="access",
        not_in_file=True,
        read=lambda text, _where: Path(text).expanduser().absolute(),
    ),
]


def read_path(text: str, _where: str) -> Path:
    return Path(text)


def read_absolute(text: str, _where: str) -> Path:
    return Path(text).absolute()


def read_address(text: str, _where: str) -> Address:
    """Raises ConfigError."""
    return parse_address(text)
