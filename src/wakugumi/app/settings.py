"""Where does a setting come from? Flag > environment > `waku.toml` > default, and every error names the place.

`waku.toml` is in the current folder, or WAKU_CONFIG names it. Its keys are the names of the flags:

    leader = "grid.example:5000,grid2.example:5000"
    slots = 8

In a stranger's folder the file may be a stranger's: a command that takes a value from it says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from wakugumi.core.setting import RoleSetting, options_of
from wakugumi.errors import ConfigError
from wakugumi.wire.access_line import hide_secrets

V = TypeVar("V", bound=msgspec.Struct)

FILE_NAME: Final = "waku.toml"
_TOLD_CHARS_MAX: Final = 500
"""Length of the file's values in a message."""
_NOT_SAID: Final = object()


def load(role: type[V], said: Mapping[str, object] = {}, fields: Collection[str] | None = None) -> V:
    """A role's settings, from flags (`said`), the environment and `waku.toml`. Raises ConfigError.

    With `fields`, all others have their defaults."""
    found: dict[str, object] = {}
    for field, option in options_of(role).items():
        if fields is None or field in fields:
            value = _found(option, said.get(field))
            if value is not _NOT_SAID:
                found[field] = value
    if "by_flag" in role.__struct_fields__:
        found["by_flag"] = frozenset(field for field, value in said.items() if value is not None and value != ())
    return role(**found)


def _found(option: RoleSetting, said: object) -> object:
    if said is not None and said != ():
        return option.of_flag(said)
    for name in option.env:
        if text := os.environ.get(name):
            return option.of_text(text, name)
    if not option.env or option.setting.not_in_file:
        return _NOT_SAID
    path, table = _file()
    if option.key not in table:
        return _NOT_SAID
    _note(path, table)
    return option.of_toml(table[option.key], f"{option.key} in {path}")


def all_options() -> list[RoleSetting]:
    """The settings of all roles."""
    from wakugumi.app.client_settings import ClientSettings
    from wakugumi.app.program_settings import ProgramSettings
    from wakugumi.roles.gateway.settings import GatewaySettings
    from wakugumi.roles.leader.settings import LeaderSettings
    from wakugumi.roles.node.settings import NodeSettings
    from wakugumi.roles.runner.settings import WorkerSettings

    roles = (LeaderSettings, WorkerSettings, NodeSettings, GatewaySettings, ProgramSettings, ClientSettings)
    return [option for role in roles for option in options_of(role).values() if option.env]


def state_folder(port: int, role: str = "leader") -> Path:
    """The default folder for the journal of a leader, or the jobs of a gateway, on this port.

    Port 0 is any port, and has no such folder.
    """
    assert port > 0
    beside = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return beside / "wakugumi" / f"{role}-{port}"


_noted: Final[set[str]] = set()
"""Files whose use was reported, or will be."""
_untold: Final[list[str]] = []
_tellers: Final[list[Callable[[str], None]]] = []
"""At most one function that reports; none before a command has begun."""


def tell_used_by(tell: Callable[[str], None]) -> None:
    """Report each settings file of the current folder that is used, also those used before this call."""
    _tellers[:] = [tell]
    while _untold:
        tell(_untold.pop(0))


def _note(path: str, table: dict[str, Any]) -> None:
    """Once for each file. A file that WAKU_CONFIG names is the user's own choice, and not reported."""
    there = os.path.abspath(path)
    if os.environ.get("WAKU_CONFIG") or there in _noted:
        return
    _noted.add(there)
    values = hide_secrets(", ".join(f"{name} = {value!r}" for name, value in table.items()))
    _untold.append(
        f"settings of {there}: {values if len(values) <= _TOLD_CHARS_MAX else values[:_TOLD_CHARS_MAX] + '…'}"
    )
    if _tellers:
        tell_used_by(_tellers[0])


@cache
def _file() -> tuple[str, dict[str, Any]]:
    """Path and table of the settings file, read once; an empty table if there is none."""
    path = os.environ.get("WAKU_CONFIG") or FILE_NAME
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        if "WAKU_CONFIG" in os.environ and path != FILE_NAME:
            raise ConfigError(f"WAKU_CONFIG names {path}, which cannot be read: {error.strerror}") from None
        return path, {}
    import tomllib  # Most runs have no settings file.

    try:
        table = tomllib.loads(data.decode())
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    known = sorted({option.key for option in all_options() if not option.setting.not_in_file})
    for name in table:
        if name not in known:
            raise ConfigError(f"{path} has {name!r}, which is no setting", f"settings are {', '.join(known)}")
    return path, table
