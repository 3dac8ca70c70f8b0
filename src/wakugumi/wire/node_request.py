"""How is a job sent to a node, and which jobs can be? (SPEC N2)

    POST /run/<job>?program=pricer&arg=--fast&arg=in.csv&env=SEED=7&timeout=60      and its one file as a form

A node gets no other fields: a job with other files, a limit or several slots cannot be sent to one. Options of the
leader, such as retries, are not needed there. `why_not_simple` explains why a job cannot be sent to a node.

A node replaces `{input}` by the file's name. An argument that contains `{input}` literally can be sent only if that is
part of the file's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from wakugumi.core.names import INPUT
from wakugumi.core.requirements import Requirements
from wakugumi.limits.node import RUN_QUERY_BYTES_MAX
from wakugumi.wire.job_options import OPTIONS
from wakugumi.wire.messages.envelope import json_of
from wakugumi.wire.messages.job import JobRequest
from wakugumi.wire.percent import percent_encoded
from wakugumi.wire.untrusted_json import JsonReader, Unreadable

_NOTHING: Final = Requirements()
_SIMPLE: Final = Requirements(simple=True)
_NOT_GIVEN: Final = (b"", b"null", b'""', b"0", b"false")


class _RequestFile(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    name: str = ""
    cache_id: str | None = None


class _NodeQuery(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """Fields that decide whether a job can be sent to a node."""

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
"""Options that a node would need and does not get."""
_AllFields: Final[type[_NodeQuery]] = msgspec.defstruct(  # type: ignore[assignment]
    "_AllFields",
    [(name, msgspec.Raw, msgspec.Raw()) for name in _OTHERS],
    bases=(_NodeQuery,),
    frozen=True,
    gc=False,
    rename="pascal",
)
_query_reader: Final = JsonReader(_AllFields)


def marked(wants: Requirements | None, payload: bytes) -> Requirements | None:
    """The requirements of a job by frames, with whether it could be sent to a node. A simple job that names no program
    goes only to workers and nodes that have one for it."""
    try:
        return _marked(wants, _query_reader.read(json_of(payload)), by_http=False)
    except Unreadable:
        return wants  # The worker will report that the request cannot be read.


def marked_by_http(wants: Requirements | None, request: JobRequest) -> Requirements | None:
    """As `marked`, for a job by HTTP, simple or not."""
    return _marked(msgspec.structs.replace(wants or _NOTHING, by_http=True), request, by_http=True)


def _marked(wants: Requirements | None, query: _NodeQuery | JobRequest, *, by_http: bool) -> Requirements | None:
    simple = not _why_not(query)
    unnamed = not query.exec_name and (simple or by_http)
    if query.env:
        wants = msgspec.structs.replace(wants or _NOTHING, env=True)
    if not (simple or unnamed):
        return wants
    if wants is None and not unnamed:
        return _SIMPLE
    return msgspec.structs.replace(wants or _NOTHING, simple=simple, unnamed=unnamed)


def why_not_simple(payload: bytes) -> str:
    """Why this job cannot be sent to a node; empty if it can, or if it cannot be read."""
    try:
        return _why_not(_query_reader.read(json_of(payload)))
    except Unreadable:
        return ""


def run_query(request: JobRequest) -> str:
    """The query with its question mark; empty if there are no parameters."""
    args: list[str] = request.args
    if request.exec_name and request.files:
        name = request.files[0].name
        args = [arg if (changed := _arg_for_node(arg, name)) is None else changed for arg in args]
    words = _words(request.exec_name, args, request.env)
    if request.timeout_s is not None:
        words.append(f"timeout={max(request.timeout_s, 1e-6):.6f}")
    return f"?{'&'.join(words)}" if words else ""


def _why_not(query: _NodeQuery | JobRequest) -> str:
    files = query.files or ()
    if len(files) != 1:
        return f"it has {len(files)} files, and a node is sent one"
    if files[0].cache_id:
        return "its file is one of a cache"
    if query.slots != 1:
        return f"it needs {query.slots} slots"
    if query.broadcast_s:
        return "it is a broadcast"
    for name in _OTHERS:
        value = getattr(query, name)
        if bytes(value) not in _NOT_GIVEN if isinstance(value, msgspec.Raw) else value:
            return f"it has {name}"
    args: list[str] = query.args
    if query.exec_name:
        if not args:
            return "it has no arguments, and a node would give its program the name of the input"
        if any(INPUT in arg for arg in args):
            own = [_arg_for_node(arg, files[0].name) for arg in args]
            args = [arg for arg in own if arg is not None]
            if len(args) < len(own):
                return f"an argument holds {INPUT}, where a node would put the name of the input"
    # Counting is cheaper than encoding, and nearly always enough.
    env = query.env or {}
    if env or 3 * (sum(map(len, args)) + len(query.exec_name)) + 5 * len(args) > RUN_QUERY_BYTES_MAX // 4:
        size = len("&".join(_words(query.exec_name, args, env)))
        if size > RUN_QUERY_BYTES_MAX:
            what = "arguments and variables" if env else "arguments"
            return f"its {what} take {size} bytes in a URL, and a node takes at most {RUN_QUERY_BYTES_MAX}"
    return ""


def _arg_for_node(arg: str, name: str) -> str | None:
    """The text from which a node makes this argument, if its file has this name; None if there is none."""
    if INPUT not in arg:
        return arg
    path = f"./{name}" if name.startswith("-") else name
    text = arg.replace(path, INPUT) if INPUT in path else arg
    return text if text.replace(INPUT, path) == arg else None


def _words(program: str, args: list[str], env: Mapping[str, str]) -> list[str]:
    words = [f"program={percent_encoded(program)}"] if program else []
    words += [f"arg={percent_encoded(arg)}" for arg in args]
    return words + [f"env={percent_encoded(f'{name}={value}')}" for name, value in env.items()]
