"""Which grids may this user reach, and how? (SPEC O1) `~/.config/wakugumi/access.toml`, found by the dialled address.

    [[grid]]
    leaders = ["10.0.0.5:5000"]
    ca = "-----BEGIN CERTIFICATE-----…"
    key = "desk-1:…"

The file is refused if others may read it, or another user owns it. It is never looked for in the current folder.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from wakugumi.adapters.access.certificates import SERVER_ROLES
from wakugumi.adapters.access.entry import AccessEntry, checked_entry
from wakugumi.adapters.access.private_files import locked, make_private_folder, read_private, write_private
from wakugumi.adapters.access.toml_text import TomlValue, read_tables, write_tables
from wakugumi.adapters.net.address import Address, parse_address
from wakugumi.errors import ConfigError
from wakugumi.wire.access_line import parse_key

_HEAD: Final = "# Grids that this user may reach: `waku join` adds to them. It holds secrets.\n\n"


class _GridTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    leaders: tuple[str, ...]
    ca: str
    key: str = ""
    certificate: str = ""
    certificate_key: str = ""
    role: str = "leader"


class AccessFile:
    """The entries of one file, read anew each time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[AccessEntry]:
        """None for a missing file. Raises ConfigError."""
        data = read_private(self.path)
        tables = [] if data is None else read_tables("grid", data, self.path)
        return [self._entry(number, table) for number, table in enumerate(tables, 1)]

    def find(self, address: Address) -> AccessEntry | None:
        """The entry of the address, as it is dialled. Raises ConfigError."""
        wanted = _same(address)
        return next((one for one in self.entries() if wanted in map(_same, one.leaders)), None)

    def add(self, entry: AccessEntry) -> None:
        """Add an entry. Its addresses leave other entries. Raises ConfigError."""
        self._change([*entry.leaders], checked_entry(entry))

    def remove(self, address: Address) -> bool:
        """Remove the entry's address, and an entry without any. False if it is not there. Raises ConfigError."""
        return self._change([address], None)

    def _change(self, addresses: Iterable[Address], new: AccessEntry | None) -> bool:
        if not self.path.parent.exists():
            make_private_folder(self.path.parent)
        with locked(self.path.parent):
            gone = set(map(_same, addresses))
            before = self.entries()
            left = [
                one._replace(leaders=tuple(address for address in one.leaders if _same(address) not in gone))
                for one in before
            ]
            after = [one for one in left if one.leaders] + ([] if new is None else [new])
            if after == before:
                return False
            write_private(self.path, (_HEAD + write_tables("grid", map(_table, after))).encode())
            return True

    def _entry(self, number: int, table: object) -> AccessEntry:
        try:
            row = msgspec.convert(table, _GridTable)
            if not row.leaders:
                raise ConfigError("it names no leader")
            if row.role not in SERVER_ROLES:
                raise ConfigError(f"{row.role[:40]!r} is no role of a server")
            return checked_entry(
                AccessEntry(
                    tuple(map(parse_address, row.leaders)),
                    row.ca,
                    parse_key(row.key) if row.key else None,
                    self._file(row.certificate),
                    self._file(row.certificate_key),
                    row.role,
                )
            )
        except (msgspec.ValidationError, ConfigError) as error:
            raise ConfigError(
                f"grid {number} in {self.path} cannot be read: {error}", "mend it, or join the grid again"
            ) from None

    def _file(self, name: str) -> Path | None:
        """A path in the file begins at the file's folder."""
        return self.path.parent / Path(name).expanduser() if name else None


def _table(entry: AccessEntry) -> dict[str, TomlValue]:
    every: dict[str, TomlValue] = {
        "leaders": [str(address) for address in entry.leaders],
        "ca": entry.ca_pem,
        "key": "" if entry.key is None else entry.key.text,
        "certificate": str(entry.certificate or ""),
        "certificate_key": str(entry.certificate_key or ""),
        "role": entry.role,
    }
    return {name: value for name, value in every.items() if value}


def _same(address: Address) -> tuple[object, int]:
    """Equal for the same address, however it is written."""
    try:
        return ipaddress.ip_address(address.host), address.port
    except ValueError:
        return address.host.lower().removesuffix("."), address.port
