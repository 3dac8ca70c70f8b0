"""What is a setting? Help, names, bounds and reading of one value, written once: beside the field that holds it.

    slots: Annotated[int, Setting("Jobs at once.", least=1, most=4096)] = 4

The field's name is the key in `waku.toml`; `--slots` and WAKU_SLOTS follow from it. The field's type and default are
the type and default of the setting. `app.settings` finds the value, `app.flags` makes the flag of a command.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import structs

from wakugumi.errors import ConfigError

OFF: Final = "off"
_KINDS: Final[dict[type, str]] = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off"})
_UNITS: Final = ("", "k", "m", "g", "t", "p")
_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)


class Setting(msgspec.Struct, frozen=True):
    """The part of a setting that its field's name, type and default do not tell."""

    about: str
    """A noun or verb phrase, and a sentence if need be."""
    shown: str = ""
    """The default in words, where the value itself says little."""
    key: str = ""
    """The name in `waku.toml`, if that is not the field's."""
    flag: str = ""
    """The flag's name, if that is not the key."""
    short: str = ""
    """A one-letter flag that means the same."""
    also: tuple[str, ...] = ()
    """Older environment variables."""
    least: float = -math.inf
    most: float = math.inf
    per: float = 1
    """The field holds a multiple of the number: 3600 for hours that become seconds."""
    off: bool = False
    """The word `off` is allowed, and means None."""
    joined: str = ""
    """The flag may be repeated; this stands between the values in one text."""
    read: Callable[[str, str], object] | None = None
    """Makes the value of a text and of the place where the text stands. Raises ConfigError."""
    no_flag: bool = False
    """Only the environment and `waku.toml` set it."""
    only_flag: bool = False
    """Neither the environment nor `waku.toml` sets it."""
    not_in_file: bool = False
    """`waku.toml` does not set it: in a stranger's folder it may be a stranger's."""


class RoleSetting(msgspec.Struct, frozen=True):
    """A setting in its place: a field of one role's value."""

    field: str
    setting: Setting
    kind: type
    """Type of the written value: text, a number or a truth value."""
    choices: tuple[str, ...]
    default: object

    @property
    def key(self) -> str:
        return self.setting.key or self.field.replace("_", "-")

    @property
    def flag(self) -> str:
        return f"--{self.setting.flag or self.key}"

    @property
    def env(self) -> tuple[str, ...]:
        """The variables that set it, in the order of their precedence."""
        return () if self.setting.only_flag else (f"WAKU_{self.key.upper().replace('-', '_')}", *self.setting.also)

    @property
    def shown_default(self) -> str:
        """Empty if no default is worth showing."""
        default = self.default
        if self.setting.shown or default is None or default is False or default in ("", ()):
            return self.setting.shown
        return f"{default / self.setting.per:g}" if isinstance(default, int | float) else str(default)

    @property
    def help(self) -> str:
        """The setting's line in the help of a command."""
        about = f"{self.setting.about} May be repeated." if self.setting.joined else self.setting.about
        default = f" [default: {self.shown_default}]" if self.shown_default else ""
        between = {" ": ", with blanks between", ",": ", with commas between"}.get(self.setting.joined, "")
        return f"{about}{default}" + (f" [env: {', '.join(self.env)}{between}]" if self.env else "")

    def of_text(self, text: str, where: str) -> Any:
        """The value of a text, for example of a variable. Raises ConfigError."""
        if self.setting.off and text.lower() == OFF:
            return None
        try:
            if self.kind is bool:
                return self._checked({**dict.fromkeys(_YES, True), **dict.fromkeys(_NO, False)}[text.lower()], where)
            written = self.kind(text)
        except (KeyError, ValueError):
            what = f"is neither a number nor {OFF}" if self.setting.off else f"is not {_KINDS[self.kind]}"
            raise ConfigError(f"{where} is {text!r}, which {what}") from None
        return self._checked(written, where)

    def of_toml(self, found: object, where: str) -> Any:
        """The value of an entry of a TOML file. Raises ConfigError."""
        if self.setting.off and found == OFF:
            return None
        if self.kind is float and type(found) is int:
            found = float(found)
        if type(found) is not self.kind:
            raise ConfigError(f"{where} is {found!r}, which is not {_KINDS[self.kind]}")
        return self._checked(found, where)

    def of_flag(self, said: object) -> Any:
        """The value of an argument of the command line. Raises ConfigError."""
        if isinstance(said, tuple):
            said = self.setting.joined.join(said)
        return self.of_text(said, self.flag) if isinstance(said, str) else self._checked(said, self.flag)

    def _checked(self, written: Any, where: str) -> Any:
        setting = self.setting
        if isinstance(written, str):
            if self.choices and written not in self.choices:
                raise ConfigError(f"{where} is {written!r}, and must be one of {', '.join(self.choices)}")
            if setting.read is not None:
                return setting.read(written, where) if written else self.default
            return words(written, setting.joined) if setting.joined else written
        if self.kind is bool:
            return written
        if not setting.least <= written <= setting.most:
            ends = f"{setting.least:g} to {setting.most:g}" + (f", or {OFF}" if setting.off else "")
            raise ConfigError(f"{where} is {written:g}, and must be {ends}")
        return written if setting.per == 1 else written * setting.per


@cache
def options_of(role: type[msgspec.Struct]) -> dict[str, RoleSetting]:
    """The settings among the fields of a role's value, by field."""
    fields = {field.name: field for field in structs.fields(role)}
    found: dict[str, RoleSetting] = {}
    for name, hint in get_type_hints(role, include_extras=True).items():
        notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        for setting in notes:
            if isinstance(setting, Setting):
                kind, choices = _kind(get_args(hint)[0], setting)
                field = fields[name]
                default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
                found[name] = RoleSetting(name, setting, kind, choices, default)
    return found


def _kind(hint: object, setting: Setting) -> tuple[type, tuple[str, ...]]:
    """The written type for a field of this type; and the words, if there is a choice."""
    some = [each for each in get_args(hint) if each is not NoneType] if NoneType in get_args(hint) else [hint]
    if get_origin(some[0]) is Literal:
        return str, get_args(some[0])
    kind = some[0]
    return (kind, ()) if isinstance(kind, type) and kind in _KINDS and setting.read is None else (str, ())


def words(text: str, between: str) -> tuple[str, ...]:
    """The parts of a text, without the blanks around them."""
    return tuple(word for part in text.split(between) if (word := part.strip()))


def read_bytes(text: str, where: str) -> int:
    """`20GB`, `512MiB`, `1.5T` or a plain number. Raises ConfigError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(
            f"{where} is {text!r}, which is no size", "write a number with a unit, such as 20GB or 512MiB"
        )
    number, unit, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** _UNITS.index(unit.lower()))


def read_duration(text: str, where: str) -> float:
    """Seconds of `30d`, `12h`, `90min`, `2w` or `45s`. Raises ConfigError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ConfigError(
            f"{where} is {text!r}, which is no duration", "write a number with a unit s, min, h, d or w, such as 30d"
        )
    return float(found[1]) * _SECONDS[found[2]]
