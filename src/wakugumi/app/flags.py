"""How does a settings value become the flags of a command? A parameter of its type stands for one flag per setting.

    @with_settings
    def leader(port: int = 5000, /, *, settings: LeaderSettings) -> int: ...

The command gets the value whole, found by `settings.load`. `Only` names the fields that a command takes. The flags of
the log are added, and the log is started.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from cyclopts import Parameter

from wakugumi.app import logs
from wakugumi.app.client_settings import LogSettings
from wakugumi.app.settings import load
from wakugumi.core.setting import RoleSetting, options_of

_LOG: Final = ""
"""Name of the settings of the log of a command that has no parameter for them."""


class Only(NamedTuple):
    """Fields that a command takes, with blanks between them; `without_flag`: only from environment and waku.toml."""

    fields: str
    without_flag: str = ""


class _Taken(NamedTuple):
    role: type[msgspec.Struct]
    flags: list[str]
    fields: list[str]


def with_settings(function: Callable[..., int]) -> Callable[..., int]:
    """The command with one flag per setting, for cyclopts. It logs warnings."""
    return _command(function, quiet=True)


def server(function: Callable[..., int]) -> Callable[..., int]:
    """`with_settings` for a command that serves: its log has what happens."""
    return _command(function, quiet=False)


def _command(function: Callable[..., int], *, quiet: bool) -> Callable[..., int]:
    parameters: list[inspect.Parameter] = []
    taken: dict[str, _Taken] = {}
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        role, *notes = get_args(hints[name]) if get_origin(hints[name]) is Annotated else (hints[name],)
        if not (isinstance(role, type) and issubclass(role, msgspec.Struct)):
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        options = options_of(role)
        without = " ".join(name for name, option in options.items() if option.setting.no_flag)
        with_flag = " ".join(name for name in options if name not in without.split())
        only = next((note for note in notes if isinstance(note, Only)), Only(with_flag, without))
        flags = only.fields.split()
        taken[name] = _Taken(role, flags, [*flags, *only.without_flag.split()])
        parameters += [_parameter(options[field]) for field in flags]
    if not any(issubclass(each.role, LogSettings) for each in taken.values()):
        options = options_of(LogSettings)
        taken[_LOG] = _Taken(LogSettings, list(options), list(options))
        parameters += map(_parameter, options.values())

    def command(*args: Any, **said: Any) -> int:
        values: dict[str, msgspec.Struct] = {}
        for name, (role, flags, fields) in taken.items():
            values[name] = load(role, {field: said.pop(field, None) for field in flags}, fields)
        for value in values.values():
            if isinstance(value, LogSettings):
                logs.start(value, quiet=quiet)
        return function(*args, **said, **{name: value for name, value in values.items() if name != _LOG})

    command.__doc__, command.__name__, command.__module__ = function.__doc__, function.__name__, function.__module__
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _parameter(option: RoleSetting) -> inspect.Parameter:
    repeated = bool(option.setting.joined)
    kind: Any = tuple[str, ...] if repeated else (str if option.setting.off else option.kind) | None
    if option.choices:
        kind = Literal[option.choices] | None
    more: dict[str, Any] = {"consume_multiple": False} if repeated else {}
    names = [option.flag, option.setting.short] if option.setting.short else option.flag
    shown = Parameter(name=names, help=option.help, negative="", show_default=False, **more)
    return inspect.Parameter(
        option.field,
        inspect.Parameter.KEYWORD_ONLY,
        default=() if repeated else None,
        annotation=Annotated[kind, shown],
    )
