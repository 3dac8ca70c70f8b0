"""The words of a node's machine: events that it hears, acts that its flows await (`core/flows.py`), effects.

The machine stands between the leader's machine and a node: it hears the effects `SendAssign` and `SendCancel` of the
leader, and returns the leader's events of a worker.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec

from wakugumi.core.flows import Act, FlowDo, FlowEvent
from wakugumi.core.ids import ConnId, JobId
from wakugumi.core.leader.events import LeaderEvent, SendAssign, SendCancel
from wakugumi.core.step import LogLine

# Events.


class NodeStarts(msgspec.Struct, frozen=True):
    """The first event."""

    conn: ConnId
    held: tuple[JobId, ...]
    """Jobs that the node got from an earlier life of the leader."""


class NodeClosed(msgspec.Struct, frozen=True):
    """The leader closed the node's connection; the next one has the number `conn`."""

    conn: ConnId


class AnswerBegan(msgspec.Struct, frozen=True):
    """The head of an answer was received."""

    exchange: int


class AnswersSeen(msgspec.Struct, frozen=True):
    """How far answers have come."""

    received: dict[int, int]
    """Bytes of each answer that waits for the node, by exchange. One that waits for the leader's disk is not there."""


NodeEvent: TypeAlias = NodeStarts | NodeClosed | AnswerBegan | AnswersSeen | SendAssign | SendCancel | FlowEvent

# Acts.


class NodeAnswered(NamedTuple):
    """The node ended the job."""

    ok: bool
    reason: str
    payload: bytes
    output: str
    """The end of the job's output, unless ok."""
    blobs: tuple[str, ...] = ()


class NodeReply(NamedTuple):
    """A node's answer without a result."""

    status: int
    code: str
    text: str
    retry_after_s: float | None
    takes_envelopes: bool = False
    """The answer itself says so: the envelope was read, and refused for what is in it."""


class AskNode(Act[NodeAnswered | NodeReply], frozen=True):
    """Send the request of this exchange. Fails with Lost if the connection ended, with PeerError if the node answered
    what no healthy node does, and with Refused if the leader cannot send the job or keep its result."""

    exchange: int
    job: JobId
    is_bare: bool
    """Without the input: only a question for a job that the node may know."""
    as_form: bool = False
    """Not in an envelope."""


class NodeReport(NamedTuple):
    """A node's capacity, and what jobs it takes."""

    running: int
    limit: int
    as_root: bool = False
    env: bool = False
    takes_envelopes: bool = False


class PollNode(Act[NodeReport], frozen=True):
    """Fails with Lost or PeerError."""


class CancelAtNode(Act[int], frozen=True):
    """The status of the answer. Fails with Lost."""

    job: JobId


# Effects.


class OpenExchange(msgspec.Struct, frozen=True):
    """A job is about to be sent to the node."""

    exchange: int
    assigned: SendAssign


class CloseExchange(msgspec.Struct, frozen=True):
    exchange: int


class LookAtAnswers(msgspec.Struct, frozen=True):
    """Post `AnswersSeen` for these exchanges."""

    exchanges: tuple[int, ...]


class FailAttempt(msgspec.Struct, frozen=True):
    """Post `Acked` for an attempt without a result of the node."""

    conn: ConnId
    exchange: int
    """0: none was opened."""
    job: JobId
    code: str
    text: str


NodeDo: TypeAlias = FlowDo | LeaderEvent | OpenExchange | CloseExchange | LookAtAnswers | FailAttempt | LogLine
