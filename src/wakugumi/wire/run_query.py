"""How is a job told to a node, and which jobs can be? (SPEC N2)

    POST /run/<job>?program=pricer&arg=--fast&arg=in.csv&timeout=60      and its one file as a form

A node is told no more than that: a job with other files, a limit or several slots is none that it could be given. What
concerns the leader, such as retries, it need not know. Jobs that came by HTTP are all of this kind, as `wants` says.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wakugumi.core.wants import Wants
from wakugumi.limits import RUN_QUERY_BYTES_MAX
from wakugumi.wire.message import FileHead, JobRequest
from wakugumi.wire.percent import percent_encoded

INPUT: Final = "{input}"
"""Where an argument holds this, a node puts the input's name."""
_NOTHING: Final = Wants()
_SIMPLE: Final = Wants(simple=True)
_NULL: Final = (b"", b"null")


class _Told(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """What decides whether it can be told to a node."""

    exec_name: str = ""
    args: list[str] = []
    files: tuple[FileHead, ...] | None = None
    limits: msgspec.Raw = msgspec.Raw()
    slots: int = 1
    broadcast_s: float | None = None


_decode: Final = msgspec.json.Decoder(_Told).decode


def marked(wants: Wants | None, payload: bytes, *, by_http: bool = False) -> Wants | None:
    """What a job asks for, and whether a node could be told all of it. One that came by HTTP and names no program is
    only for those that have one for it; by frames, it is an error that whoever gets it tells."""
    try:
        told = _decode(payload)
    except (ValueError, RecursionError):
        return wants  # It will fail as what it is, a request that cannot be read.
    simple = _is_simple(told)
    unnamed = not told.exec_name and (simple or by_http)
    if not (simple or unnamed):
        return wants
    if wants is None and not unnamed:
        return _SIMPLE
    return msgspec.structs.replace(wants or _NOTHING, simple=simple, unnamed=unnamed)


def run_query(request: JobRequest) -> str:
    """What stands behind the question mark; with it, if there is anything."""
    words = [f"program={percent_encoded(request.exec_name)}"] if request.exec_name else []
    words += [f"arg={percent_encoded(arg)}" for arg in request.args]
    if request.timeout_s is not None:
        words.append(f"timeout={max(request.timeout_s, 1e-6):.6f}")
    return f"?{'&'.join(words)}" if words else ""


def _is_simple(told: _Told) -> bool:
    if told.files is None or len(told.files) != 1 or told.files[0].cache_id:
        return False
    if told.slots != 1 or told.broadcast_s or bytes(told.limits) not in _NULL:
        return False
    # A node that is told a program and no arguments gives it the input's name.
    if told.exec_name and (not told.args or any(INPUT in arg for arg in told.args)):
        return False
    return 3 * sum(len(arg.encode("utf-8", "replace")) + 2 for arg in told.args) <= RUN_QUERY_BYTES_MAX
