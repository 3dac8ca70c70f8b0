"""What does a client's state machine hear, and what does it ask for? The words of `failover`.

Nothing is kept (`keep` is always empty): what a client has not seen the end of is gone with its process, and whoever
wants it to outlive that gives it an id of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from wakugumi.core.events import Step
from wakugumi.core.job import ConnId, JobId

# What a client hears: first from its user, then from the world.


class Submit(msgspec.Struct, frozen=True, gc=False):
    """A new job. `frame` is what asks for it, kept to be sent again: the same bytes each time."""

    job: JobId
    frame: bytes


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Someone submitted this job before; we wait for its result."""

    job: JobId


class Cancel(msgspec.Struct, frozen=True, gc=False):
    jobs: Sequence[JobId]


class Ask(msgspec.Struct, frozen=True, gc=False):
    """A question. All of them may be asked twice, so a lost answer is asked for again."""

    ask: bytes
    frame: bytes


class Forget(msgspec.Struct, frozen=True, gc=False):
    """Nobody waits for the end of this claim, or for the answer to this question, any more."""

    id: bytes


class Connected(msgspec.Struct, frozen=True, gc=False):
    """The dialled connection stands, and the hello is on its way."""

    conn: ConnId


class Disconnected(msgspec.Struct, frozen=True, gc=False):
    """It could not be made, or it is gone, whoever ended it."""

    conn: ConnId
    why: str


class Welcomed(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class Heard(msgspec.Struct, frozen=True, gc=False):
    """A sign of life that says nothing else."""

    conn: ConnId


class Blocked(msgspec.Struct, frozen=True, gc=False):
    """The leader does not read what we write (`on`), or reads again."""

    conn: ConnId
    on: bool


class Receipts(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class Refusal(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    code: str
    text: str


class Result(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    payload: bytes


class Answered(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    ask: bytes
    refused: bool
    payload: bytes


ClientEvent: TypeAlias = (
    Submit
    | Claim
    | Cancel
    | Ask
    | Forget
    | Connected
    | Disconnected
    | Welcomed
    | Heard
    | Blocked
    | Receipts
    | Refusal
    | Result
    | Answered
)

# What a client does: first to the world, then for its user.


class Dial(msgspec.Struct, frozen=True, gc=False):
    """Connect, say hello, and report as Connected or Disconnected under this number."""

    conn: ConnId


class HangUp(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    why: str


class SendFrames(msgspec.Struct, frozen=True, gc=False):
    """Jobs and questions, as they were handed in."""

    conn: ConnId
    frames: Sequence[bytes]


class SendClaims(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class SendCancels(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class SendConfirms(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class SendHeartbeat(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The leader has these for good."""

    jobs: Sequence[JobId]


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """The results of these jobs, each of them once."""

    results: Sequence[Result]


class GiveUp(msgspec.Struct, frozen=True, gc=False):
    """This job will have no result, and why."""

    job: JobId
    code: str
    text: str


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What the leader said to a question; `payload` is its answer, or its refusal."""

    ask: bytes
    refused: bool
    payload: bytes


class NoAnswer(msgspec.Struct, frozen=True, gc=False):
    ask: bytes
    code: str
    text: str


class Ready(msgspec.Struct, frozen=True, gc=False):
    """A leader serves us. An `old` one gives no receipts and answers no questions."""

    conn: ConnId
    old: bool


class Away(msgspec.Struct, frozen=True, gc=False):
    """No leader serves us, and why; it is dialled again in so many seconds."""

    why: str
    retry_in_s: float


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """The leader takes no jobs now, and why: what it refused is offered again until it takes it."""

    code: str
    text: str


class WaitingOver(msgspec.Struct, frozen=True, gc=False):
    """The leader has `taken` all that it was offered; or nothing is left to offer, and it may be as full as before."""

    taken: bool


class Gate(msgspec.Struct, frozen=True, gc=False):
    """May further jobs be handed in? Not while there is no leader, or it is full, or it does not read."""

    open: bool


ClientDo: TypeAlias = (
    Dial
    | HangUp
    | SendFrames
    | SendClaims
    | SendCancels
    | SendConfirms
    | SendHeartbeat
    | Accepted
    | Deliver
    | GiveUp
    | Answer
    | NoAnswer
    | Ready
    | Away
    | Waiting
    | WaitingOver
    | Gate
)

ClientStep: TypeAlias = Step[object, ClientDo]
