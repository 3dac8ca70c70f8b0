"""What is one job, as a program asks for it? A JobSpec: the program's name, and the options that were given.

    submit("calcA", priority=7)  ─► JobSpec ─► Request (`request`)        options: `wire/job_options.py`
    map("calcA", items, …)       ─► JobSpec, and that of each item over it (`over`)

Public calls take `**options: Unpack[SubmitOptions]`: type checkers read the TypedDict, `help` shows what `takes` adds.
"""

# No `from __future__ import annotations`: the options are read from the annotations without an `eval`.
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from inspect import Parameter, cleandoc, signature
from typing import Annotated, Any, Final, TypeAlias, TypedDict, TypeVar, Unpack
from uuid import UUID

from wakugumi.roles.client.files.inputs import Content
from wakugumi.wire.job_options import EachOptions, JobOptions, Option, rows

Arg: TypeAlias = str | int | float | os.PathLike[str]
"""One argument of a program; a number or a path stands for its text."""

JobName: TypeAlias = str | UUID
"""A job's id as users give it: a UUID, its text, or another name (SPEC section 1)."""


class _Args(TypedDict, total=False):
    args: Annotated[Sequence[Arg], Option("The program's arguments: text, numbers, paths.")]


class _Files(TypedDict, total=False):
    files: Annotated[
        Mapping[str, Content] | None,
        Option("Files for the program's directory, by name: bytes, text, or the Path of a file to send along."),
    ]


class _Id(TypedDict, total=False):
    job_id: Annotated[
        JobName | None,
        Option("An id of your own, a UUID or a name: handed in again with the same request, it is the same job."),
    ]


class MapOptions(_Args, _Files, JobOptions):
    """Options that all jobs of a map may share."""


class SubmitOptions(MapOptions, _Id):
    """All options of one job."""


class BroadcastOptions(_Args, _Files, _Id, EachOptions):
    """Options of a broadcast."""


class FutureOptions(_Files, _Id, JobOptions):
    """Options of a job of an Executor; its arguments are positional."""


F = TypeVar("F", bound=Callable[..., Any])
_NAMES: Final = frozenset(SubmitOptions.__annotations__)
_set: Final = object.__setattr__
_NOT_GIVEN: Final = {"args": (), "subject": ""}
"""Values of options that were not given; others are None."""


def _given(options: Any, names: Collection[str]) -> Any:
    """Options without those that are None. Raises TypeError for others, as a call with named arguments does."""
    for name, value in options.items():
        if name not in names:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
        if value is None:
            return _given({name: value for name, value in options.items() if value is not None}, names)
    return options


def takes(options: type) -> Callable[[F], F]:
    """For a call with `**options: Unpack[…]`: add each option to its signature and docstring, for `help`."""
    listed = rows(options)
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=_NOT_GIVEN.get(name), annotation=hint.__origin__)
        for name, hint in options.__annotations__.items()
    ]
    about = "".join(f"\n    {name}: {option.help_with_default}" for name, option in listed.items())

    def mark(call: F) -> F:
        own = signature(call)
        before = [each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        call.__signature__ = own.replace(parameters=[*before, *named])  # type: ignore[attr-defined]
        call.__doc__ = f"{cleandoc(call.__doc__ or '')}\n\nOptions:{about}"
        return call

    return mark


class JobSpec:
    """A program and its given options, as a value. Options are also attributes."""

    __slots__ = ("given", "program")
    program: str
    given: SubmitOptions

    @takes(SubmitOptions)
    def __init__(self, program: str = "", **options: Unpack[SubmitOptions]) -> None:
        _set(self, "program", program)
        _set(self, "given", _given(options, _NAMES))

    @classmethod
    def of(cls, program: str, options: Mapping[str, object], kind: type = SubmitOptions) -> "JobSpec":
        """Spec of a call that takes the options of `kind`. Raises TypeError for others."""
        spec = object.__new__(cls)
        _set(spec, "program", program)
        _set(spec, "given", _given(options, kind.__annotations__))
        return spec

    def __getattr__(self, name: str) -> Any:
        if name not in _NAMES:
            raise AttributeError(f"{type(self).__name__} has no option {name!r}")
        return self.given.get(name, _NOT_GIVEN.get(name))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is a value: {name} stays as it is")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (other.program, other.given) == (self.program, self.given)

    def __hash__(self) -> int:
        return hash((self.program, frozenset(self.given.items())))

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.given.items())
        return f"{type(self).__name__}({self.program!r}{options})"

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), self.program, **self.given), ()

    def over(self, common: "JobSpec") -> "JobSpec":
        """This spec, with missing options from `common`. Arguments and variables of both are joined."""
        ours, theirs = self.given, common.given
        given: SubmitOptions = {**theirs, **ours}
        if "args" in theirs:
            given["args"] = [*theirs["args"], *ours.get("args", ())]
        if "env" in theirs and "env" in ours:
            given["env"] = {**(theirs["env"] or {}), **(ours["env"] or {})}
        if not ours.get("subject") and "subject" in theirs:
            given["subject"] = theirs["subject"]
        return JobSpec.of(self.program or common.program, given)


class Task(JobSpec):
    """One job of a `map`: missing options are taken from the arguments of `map`. Arguments, files and variables are
    added to those of `map`."""

    __slots__ = ()
