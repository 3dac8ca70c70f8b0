"""How are the keys of a grid kept? (SPEC O1) In `keys.toml`, of which an operator can read all; secrets only as hashes.

[[key]]
name = "desk-1"
role = "client"
secret_sha256 = "6b1f…"
made = 2026-05-04T10:00:00Z
subjects = ["job.assign.risk.>"]
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from wakugumi.adapters.access.private_files import read_private, write_private
from wakugumi.adapters.access.toml_text import TomlValue, read_tables, write_tables
from wakugumi.core.access.identity import Role, Rules, check_key_name, checked_rules
from wakugumi.core.access.key_events import KeyForgotten, KeyKeep, KeyKept
from wakugumi.errors import ConfigError, Refused

_Moment: TypeAlias = Annotated[dt.datetime, msgspec.Meta(tz=True)]
_Hash: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_HEAD: Final = "# Keys of this grid. A running leader replaces this file: change keys with `waku keys`.\n\n"


class _KeyTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    role: Role
    secret_sha256: _Hash
    made: _Moment
    clients: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    sees: str = ""
    cap: int = 0
    expires: _Moment | None = None
    revoked: _Moment | None = None
    last_used: _Moment | None = None


class KeysFile:
    """The keys on the disk. Only the process that owns the folder keeps keys."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError if there is a file that cannot be read."""
        self.path = path
        data = read_private(path)
        self.is_new = data is None
        """There was no file."""
        self._keys = {key.name: key for key in read_keys(data, path)} if data is not None else {}

    @property
    def keys(self) -> list[KeyKept]:
        return list(self._keys.values())

    def keep(self, records: Sequence[KeyKeep]) -> None:
        """Write these records, all or none. May wait for the disk. Raises ConfigError."""
        keys = dict(self._keys)
        for record in records:
            if isinstance(record, KeyForgotten):
                keys.pop(record.name, None)
            else:
                keys[record.name] = record
        write_private(self.path, write_keys(keys.values()))
        self._keys, self.is_new = keys, False


def read_keys(data: bytes, path: Path) -> list[KeyKept]:
    """Raises ConfigError for a file that is none: a key that cannot be read may be one that denies."""
    keys: dict[str, KeyKept] = {}
    for number, table in enumerate(read_tables("key", data, path), 1):
        try:
            key = _kept(msgspec.convert(table, _KeyTable))
        except (msgspec.ValidationError, Refused) as error:
            raise ConfigError(f"key {number} in {path} cannot be read: {error}", "mend it, or remove it") from None
        if key.name in keys:
            raise ConfigError(f"the key {key.name} is twice in {path}", "remove one of the two")
        keys[key.name] = key
    return list(keys.values())


def write_keys(keys: Iterable[KeyKept]) -> bytes:
    return (_HEAD + write_tables("key", map(_table, keys))).encode()


def _kept(row: _KeyTable) -> KeyKept:
    """Raises Refused for a name or rule that cannot be."""
    rules = Rules(row.clients, row.programs, row.subjects, row.caches, row.sees, row.cap)
    return KeyKept(
        check_key_name(row.name),
        row.role,
        bytes.fromhex(row.secret_sha256),
        row.made.timestamp(),
        checked_rules(rules),
        *(0.0 if at is None else at.timestamp() for at in (row.expires, row.revoked, row.last_used)),
    )


def _table(key: KeyKept) -> dict[str, TomlValue]:
    rules = key.rules
    every: dict[str, Any] = {
        "name": key.name,
        "role": key.role.value,
        "secret_sha256": key.secret_hash.hex(),
        "made": dt.datetime.fromtimestamp(key.made_at, dt.UTC),
        "clients": rules.clients,
        "programs": rules.programs,
        "subjects": rules.subjects,
        "caches": rules.caches,
        "sees": rules.sees,
        "cap": rules.cap,
        "expires": _moment(key.expires_at),
        "revoked": _moment(key.revoked_at),
        "last_used": _moment(key.last_used),
    }
    return {name: value for name, value in every.items() if value}


def _moment(at: float) -> dt.datetime | None:
    return dt.datetime.fromtimestamp(at, dt.UTC) if at else None
