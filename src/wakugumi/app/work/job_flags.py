"""Which flags does a job have on the command line? They are made from the table of options (`wire/job_options.py`).

waku run, submit, map    JobFlags            flags of every option
waku broadcast           BroadcastFlags      without flags that only a queued job has
waku client, clientx     SampleFlags         subject and timeout
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import make_dataclass
from typing import Annotated, Any, Final, TypeVar, cast

from cyclopts import Parameter, validators

from wakugumi.app.client_settings import ClientSettings
from wakugumi.app.settings import load
from wakugumi.app.work.one_job import named_files
from wakugumi.core.environment import check_env
from wakugumi.core.setting import options_of
from wakugumi.errors import ConfigError, Refused
from wakugumi.roles.client.job_spec import BroadcastOptions, MapOptions
from wakugumi.wire.job_options import OPTIONS, EachOptions, Option

_TIMEOUT: Final = "timeout_s"
"""The only option that the environment or waku.toml may set too."""
_ENV: Final = "write --env NAME=VALUE, once for each variable"
_WORDS: Final[dict[str, Any]] = {"negative": "", "consume_multiple": False, "show_default": False}

_File = Annotated[
    tuple[str, ...],
    Parameter(
        name=["--file", "-f"],
        help="A file of any size for the job's directory, under its own name or, with NAME=PATH, under NAME. May be "
        "repeated.",
        **_WORDS,
    ),
]
_Cached = Annotated[
    tuple[str, ...],
    Parameter(
        name="--cached",
        help="ID/NAME: a file of a cache that the workers have (see `waku caches put`). May be repeated.",
        **_WORDS,
    ),
]


T = TypeVar("T", bound="_Flags")


class _Flags:
    """The flags of a job."""

    file: tuple[str, ...]
    cached: tuple[str, ...] = ()

    def given(self, args: Sequence[str]) -> dict[str, Any]:
        """The options of a call. Raises ConfigError."""
        given: dict[str, Any] = {"args": args, "files": named_files(self.file, self.cached)}
        for name, option in OPTIONS.items():
            if option.flag and hasattr(self, _field(option)):
                said = getattr(self, _field(option))
                if name == _TIMEOUT:
                    said = load(ClientSettings, {name: said}, [name]).timeout_s
                given[name] = variables(said) if option.kind is Mapping else said
        return given


def _field(option: Option) -> str:
    return option.flag.removeprefix("--").replace("-", "_")


def _parameter(option: Option) -> tuple[str, Any, object]:
    """The field of a dataclass: its name, its type for cyclopts, its default."""
    text = options_of(ClientSettings)[_TIMEOUT].help if option.name == _TIMEOUT else option.help_with_default
    if option.kind is Mapping:
        words = Parameter(name=option.flag, help=f"NAME=VALUE: {text} May be repeated.", **_WORDS)
        return _field(option), Annotated[tuple[str, ...], words], ()
    bounds = validators.Number(gte=option.least, lte=option.most) if option.kind is int else None
    said = Parameter(name=option.flag, help=text, validator=bounds)
    return _field(option), Annotated[option.kind | None, said], None


def _with(options: Iterable[str], *, cached: bool = True) -> Callable[[type[T]], type[T]]:
    """A class with one field per flag of these options, and the flags of files."""
    files = [("file", _File, ()), *([("cached", _Cached, ())] if cached else [])]
    fields = [*files, *(_parameter(OPTIONS[name]) for name in options if OPTIONS[name].flag)]

    def make(cls: type[T]) -> type[T]:
        here = {"__module__": __name__}  # Cyclopts takes no class of a standard module for a record.
        return Parameter(name="*")(make_dataclass(cls.__name__, fields, bases=(cls,), frozen=True, namespace=here))

    return make


@_with(OPTIONS)
class JobFlags(_Flags):
    """Of `waku run`, `submit` and `map`."""

    def options(self, args: Sequence[str] = ()) -> MapOptions:
        return cast(MapOptions, self.given(args))


@_with(("subject", "timeout_s"), cached=False)
class SampleFlags(_Flags):
    """Of `waku client` and `clientx`."""

    def options(self) -> MapOptions:
        return cast(MapOptions, self.given(()))


@_with(EachOptions.__annotations__)
class BroadcastFlags(_Flags):
    """Of `waku broadcast`."""

    def options(self, args: Sequence[str]) -> BroadcastOptions:
        return cast(BroadcastOptions, self.given(args))


JOB: Final = JobFlags()
SAMPLE: Final = SampleFlags()
BROADCAST: Final = BroadcastFlags()
"""The defaults."""


def variables(words: tuple[str, ...]) -> dict[str, str]:
    """The variables of --env. Raises ConfigError."""
    env: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name in env:
            raise ConfigError(
                f"--env {word[:80]}: " + ("this name is given twice" if equals else "there is no ="), _ENV
            )
        env[name] = value
    try:
        check_env(env)
    except Refused as no:
        raise ConfigError(f"--env: {no.message}", _ENV) from None
    return env
