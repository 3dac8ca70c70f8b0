"""Under which names and addresses do other machines find this one?"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

import psutil

_ALL: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)


def own_hosts(host: str, names: Iterable[str] = ()) -> list[str]:
    """The best first. `host` is the address that a server listens on, `names` are given by its operator."""
    if host not in _ALL:
        return list(dict.fromkeys([*names, host]))
    entries = [entry for of_one in psutil.net_if_addrs().values() for entry in of_one]
    found = [entry.address for entry in entries if entry.family in _FAMILIES and _is_reachable(entry.address)]
    found.sort(key=lambda address: ":" in address)  # IPv4 first: such an address is easier to type.
    return list(dict.fromkeys([*names, *found, socket.gethostname().lower()]))


def _is_reachable(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    return not (address.is_loopback or address.is_link_local or address.is_unspecified)
