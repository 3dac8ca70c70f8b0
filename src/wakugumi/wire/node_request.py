"""How is a job told to a node, and which jobs can be? (SPEC N2)

    POST /run/<job>?program=pricer&arg=--fast&arg=in.csv&env=SEED=7&timeout=60      and its one file as a form

A node is told no more than that: a job with other files, a limit or several slots is none that it could be given. What
concerns the leader, such as retries, it need not know. Why a job is not of this kind is told to whoever asks
(`why_not_simple`).

A node puts the file's name where `{input}` stands. So an argument that holds just this as its own text can be told only
where it is part of the file's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from wakugumi.core.names import INPUT
from wakugumi.core.requirements import Requirements
from wakugumi.limits.node import RUN_QUERY_BYTES_MAX
from wakugumi.wire.job_options import OPTIONS
from wakugumi.wire.messages.job import JobRequest
from wakugumi.wire.percent import percent_encoded
from wakugumi.wire.untrusted_json import JsonReader, Unreadable

_NOTHING: Final = Requirements()
_SIMPLE: Final = Requirements(simple=True)
_NOTHING_SAID: Final = (b"", b"null", b'""', b"0", b"false")


class _RequestFile(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    name: str = ""
    cache_id: str | None = None


class _NodeQuery(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """What decides whether it can be told to a node."""

    exec_name: str = ""
    args: list[str] = []
    files: tuple[_RequestFile, ...] | None = None
    slots: int = 1
    broadcast_s: float | None = None
    env: dict[str, str] | None = None


_OTHERS: Final = [
    name
    for name, option in OPTIONS.items()
    if not (option.for_leader or name == "timeout_s" or name in _NodeQuery.__struct_fields__)
]
"""Options that a node is not told, and has to know."""
_AllTold: Final[type[_NodeQuery]] = msgspec.defstruct(  # type: ignore[assignment]
    "_AllTold",
    [(name, msgspec.Raw, msgspec.Raw()) for name in _OTHERS],
    bases=(_NodeQuery,),
    frozen=True,
    gc=False,
    rename="pascal",
)
_told: Final = JsonReader(_AllTold)


def marked(wants: Requirements | None, payload: bytes, *, by_http: bool = False) -> Requirements | None:
    """What a job asks for, and whether a node could be told all of it. One that came by HTTP and names no program is
    only for those that have one for it; by frames, it is an error that whoever gets it tells."""
    if by_http:
        wants = msgspec.structs.replace(wants or _NOTHING, by_http=True)
    try:
        told = _told.read(payload)
    except Unreadable:
        return wants  # It will fail as what it is, a request that cannot be read.
    simple = not _why_not(told)
    unnamed = not told.exec_name and (simple or by_http)
    if told.env:
        wants = msgspec.structs.replace(wants or _NOTHING, env=True)
    if not (simple or unnamed):
        return wants
    if wants is None and not unnamed:
        return _SIMPLE
    return msgspec.structs.replace(wants or _NOTHING, simple=simple, unnamed=unnamed)


def why_not_simple(payload: bytes) -> str:
    """Why no node could be told this job; empty if one could, or if it cannot be read."""
    try:
        return _why_not(_told.read(payload))
    except Unreadable:
        return ""


def run_query(request: JobRequest) -> str:
    """What stands behind the question mark; with it, if there is anything."""
    args: list[str] = request.args
    if request.exec_name and request.files:
        name = request.files[0].name
        args = [arg if (told := _told_arg(arg, name)) is None else told for arg in args]
    words = _words(request.exec_name, args, request.env)
    if request.timeout_s is not None:
        words.append(f"timeout={max(request.timeout_s, 1e-6):.6f}")
    return f"?{'&'.join(words)}" if words else ""


def _why_not(told: _NodeQuery) -> str:
    files = told.files or ()
    if len(files) != 1:
        return f"it has {len(files)} files, and a node is sent one"
    if files[0].cache_id:
        return "its file is one of a cache"
    if told.slots != 1:
        return f"it needs {told.slots} slots"
    if told.broadcast_s:
        return "it is a broadcast"
    for name in _OTHERS:
        if bytes(getattr(told, name)) not in _NOTHING_SAID:
            return f"it has {name}"
    args: list[str] = told.args
    if told.exec_name:
        if not args:
            return "it has no arguments, and a node would give its program the name of the input"
        if any(INPUT in arg for arg in args):
            own = [_told_arg(arg, files[0].name) for arg in args]
            args = [arg for arg in own if arg is not None]
            if len(args) < len(own):
                return f"an argument holds {INPUT}, where a node would put the name of the input"
    # To count is cheaper than to encode, and says nearly always enough.
    env = told.env or {}
    if env or 3 * (sum(map(len, args)) + len(told.exec_name)) + 5 * len(args) > RUN_QUERY_BYTES_MAX // 4:
        size = len("&".join(_words(told.exec_name, args, env)))
        if size > RUN_QUERY_BYTES_MAX:
            what = "arguments and variables" if env else "arguments"
            return f"its {what} take {size} bytes in a URL, and a node is told at most {RUN_QUERY_BYTES_MAX}"
    return ""


def _told_arg(arg: str, name: str) -> str | None:
    """What a node makes this argument of, if its file has this name; None if there is no such thing."""
    if INPUT not in arg:
        return arg
    path = f"./{name}" if name.startswith("-") else name
    told = arg.replace(path, INPUT) if INPUT in path else arg
    return told if told.replace(INPUT, path) == arg else None


def _words(program: str, args: list[str], env: Mapping[str, str]) -> list[str]:
    words = [f"program={percent_encoded(program)}"] if program else []
    words += [f"arg={percent_encoded(arg)}" for arg in args]
    return words + [f"env={percent_encoded(f'{name}={value}')}" for name, value in env.items()]
