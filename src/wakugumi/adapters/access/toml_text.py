"""How is a table written as TOML? Only what access files need: `tomllib` reads, and has no writer."""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from wakugumi.errors import ConfigError

TomlValue: TypeAlias = str | int | dt.datetime | Sequence[str]
_ESCAPES: Final = {
    **{code: f"\\u{code:04x}" for code in (*range(0x20), 0x7F)},
    **{ord(char): f"\\{char}" for char in '"\\'},
}


def write_tables(name: str, tables: Iterable[Mapping[str, TomlValue]]) -> str:
    """An array of tables, one `[[name]]` each."""
    return "\n".join(
        f"[[{name}]]\n" + "".join(f"{key} = {_value(value)}\n" for key, value in table.items()) for table in tables
    )


def read_tables(name: str, data: bytes, path: Path) -> list[dict[str, Any]]:
    """The array of tables of this name, of a file without others. Raises ConfigError."""
    hint = "mend the file, or restore it from a copy"
    try:
        found = tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise ConfigError(f"{path} cannot be read: it is not UTF-8", hint) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint) from None
    tables = found.pop(name, [])
    if found or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{path} cannot be read: it has not only [[{name}]]", hint)
    return tables


def _value(value: TomlValue) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    return f"[{', '.join(map(_string, value))}]"


def _string(text: str) -> str:
    """Texts of several lines, such as certificates, keep their lines."""
    if "\n" not in text.rstrip("\n") or "\r" in text:
        return f'"{text.translate(_ESCAPES)}"'
    escapes = {code: escape for code, escape in _ESCAPES.items() if code != ord("\n")}
    return f'"""\n{text.translate(escapes)}"""'
