"""Why did another role refuse an HTTP request? The fields of its `application/problem+json` that we use."""

from __future__ import annotations

import msgspec

from wakugumi.wire.untrusted_json import Unreadable, read_json


class PeerProblem(msgspec.Struct, frozen=True):
    code: str = ""
    detail: str = ""
    hint: str = ""


def read_problem(body: bytes) -> PeerProblem:
    """An empty one if the body is no such document."""
    try:
        return read_json(body, PeerProblem)
    except Unreadable:
        return PeerProblem()
