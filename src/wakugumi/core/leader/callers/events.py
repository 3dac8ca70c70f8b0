"""Which events does the machine of callers by HTTP take, and which effects does it return? (`core/step.py`)

A request has a number. The leader's effects for the sessions of callers are events here, and events for the leader's
machine are effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from wakugumi.core.access.identity import Sight
from wakugumi.core.ids import ClientId, ConnId, JobId
from wakugumi.core.leader import events as ev

# Events.


class JobWanted(msgspec.Struct, frozen=True, gc=False):
    """A request wants the result of a job."""

    request: int
    client: ClientId
    job: JobId
    event: ev.Submitted | ev.Claimed
    """The event for the leader's machine, with any `conn`: it submits the job, or claims its result."""
    sight: Sight | None = None
    """Clients whose jobs the caller may see; None: all."""


class HttpCallerGone(msgspec.Struct, frozen=True, gc=False):
    """The caller of this request has disconnected."""

    request: int


class CallersSeen(msgspec.Struct, frozen=True, gc=False):
    """The answer to `LookAtCallers`."""

    gone: Sequence[int]
    is_stopping: bool
    """The leader is shutting down."""


class AnswerWritten(msgspec.Struct, frozen=True, gc=False):
    """The answer with the result was written, or it is an error."""

    request: int


class ResultsAdopted(msgspec.Struct, frozen=True, gc=False):
    """The callers of these jobs waited before this leader was started."""

    by_client: Mapping[ClientId, Sequence[JobId]]


class CallersClosed(msgspec.Struct, frozen=True, gc=False):
    """The leader takes no more requests, and answers none."""


CallersEvent: TypeAlias = (
    JobWanted | HttpCallerGone | CallersSeen | AnswerWritten | ResultsAdopted | CallersClosed | ev.LeaderDo
)

# Effects.


class SessionOpened(msgspec.Struct, frozen=True, gc=False):
    """From now on, effects of the leader's machine for this connection are events here."""

    conn: ConnId


class SessionClosed(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class TellLeader(msgspec.Struct, frozen=True, gc=False):
    """An event for the leader's machine."""

    event: ev.LeaderEvent


class GiveResult(msgspec.Struct, frozen=True, gc=False):
    """Answer the request with this result. The request is kept until `ReleaseRequest`."""

    request: int
    result: ev.SendResult


class RefuseRequest(msgspec.Struct, frozen=True, gc=False):
    request: int
    code: str
    text: str


class DropRequest(msgspec.Struct, frozen=True, gc=False):
    """The caller of this request has disconnected: end the request without an answer."""

    request: int


class ReleaseRequest(msgspec.Struct, frozen=True, gc=False):
    """Forget this request: its result is confirmed."""

    request: int


class LookAtCallers(msgspec.Struct, frozen=True, gc=False):
    """Which of the callers of these requests are gone?"""

    requests: Sequence[int]


class WarnOfCaller(msgspec.Struct, frozen=True, gc=False):
    """Log a complaint of the leader's machine."""

    text: str


CallersDo: TypeAlias = (
    SessionOpened
    | SessionClosed
    | TellLeader
    | GiveResult
    | RefuseRequest
    | DropRequest
    | ReleaseRequest
    | LookAtCallers
    | WarnOfCaller
)
