"""What does a state machine hear, and what does it ask for? Read this first.

Every state machine (`dispatch`, `slots`, `failover`) is a plain class with the same four doors:

    handle(events, now) -> Step    these things happened: a batch, in order
    tick(now)           -> Step    the time it asked for has come
    wake_at()           -> float | None     after tick(now), always later than now
    check()                        asserts all that must always hold

It never touches the world: a Step names what must be on disk first (`keep`) and what is to be done then (`do`, in this
order). `adapters/drive.py` is the only caller. This file holds Step and the leader's words; the worker's stand in
`slots_events`, the client's in `failover_events`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from wakugumi.core.job import ClientId, ConnId, JobId, Verdict, WorkerId
from wakugumi.core.questions import Answer, Question
from wakugumi.core.subject import Pattern, Subject

Event = TypeVar("Event", contravariant=True)
Keep = TypeVar("Keep", covariant=True)
Do = TypeVar("Do", covariant=True)


class Step(Generic[Keep, Do]):
    """What a state machine wants after a batch: first these on disk, then these done, in this order."""

    __slots__ = ("do", "keep")

    def __init__(self, keep: Sequence[Keep] = (), do: Sequence[Do] = ()) -> None:
        self.keep = keep
        self.do = do


class Machine(Protocol[Event, Keep, Do]):
    """The four doors."""

    def handle(self, events: Sequence[Event], now: float) -> Step[Keep, Do]: ...
    def tick(self, now: float) -> Step[Keep, Do]: ...
    def wake_at(self) -> float | None: ...
    def check(self) -> None: ...


# What a leader hears.


class ClientJoined(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    client: ClientId
    cap: int
    receipts: bool
    """It speaks our own types: it gets receipts and refusals, and confirms results."""
    heartbeats: bool


class WorkerJoined(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    worker: WorkerId
    name: str
    patterns: tuple[Pattern, ...]
    receipts: bool
    heartbeats: bool
    reattach: bool
    """It will say what it holds before it offers credit, and comes back to what it runs."""
    cancels: bool


class Left(msgspec.Struct, frozen=True, gc=False):
    """The connection is gone, whoever ended it."""

    conn: ConnId


class Submitted(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    subject: Subject
    program: str
    timeout_s: float
    payload: bytes


class SubmitRefused(msgspec.Struct, frozen=True, gc=False):
    """A submit that could not even be read; the one who sent it must hear so (F11)."""

    conn: ConnId
    job: JobId
    code: str
    text: str


class Credited(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    amount: int


class Acked(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    ok: bool
    reason: str
    """Why not, as a code; empty if it is OK or an old worker did not say."""
    payload: bytes


class Held(msgspec.Struct, frozen=True, gc=False):
    """What a worker says it runs and has, before its first credit (L4)."""

    conn: ConnId
    running: tuple[JobId, ...]
    finished: tuple[JobId, ...]


class Confirmed(msgspec.Struct, frozen=True, gc=False):
    """A client has these results for good."""

    conn: ConnId
    jobs: Sequence[JobId]


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A client waits for these jobs, whoever submitted them."""

    conn: ConnId
    jobs: Sequence[JobId]


class CancelWanted(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class Heard(msgspec.Struct, frozen=True, gc=False):
    """A heartbeat."""

    conn: ConnId
    cpu: float


class Leaving(msgspec.Struct, frozen=True, gc=False):
    """A worker finishes what it has and takes nothing new."""

    conn: ConnId


class Blocked(msgspec.Struct, frozen=True, gc=False):
    """The peer does not read: what was written to it has piled up."""

    conn: ConnId


class Unblocked(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class Asked(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    ask_id: bytes
    question: Question


class StopWanted(msgspec.Struct, frozen=True, gc=False):
    """Finish what runs, assign nothing more, and say when that is done."""


LeaderEvent: TypeAlias = (
    ClientJoined
    | WorkerJoined
    | Left
    | Submitted
    | SubmitRefused
    | Credited
    | Acked
    | Held
    | Confirmed
    | Claimed
    | CancelWanted
    | Heard
    | Leaving
    | Blocked
    | Unblocked
    | Asked
    | StopWanted
)

# What a leader must keep before it acts: what a journal needs to bring the queue back.


class KeepJob(msgspec.Struct, frozen=True, gc=False):
    job: JobId
    client: ClientId
    subject: Subject
    program: str
    timeout_s: float
    payload: bytes


class KeepResult(msgspec.Struct, frozen=True, gc=False):
    job: JobId
    ok: bool
    result: bytes | Verdict


class ForgetJob(msgspec.Struct, frozen=True, gc=False):
    job: JobId


LeaderKeep: TypeAlias = KeepJob | KeepResult | ForgetJob

# What a leader does.


class SendWelcome(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class SendReceipts(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class SendRefusal(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    code: str
    text: str


class SendAssign(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    subject: Subject
    payload: bytes


class SendResult(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    program: str
    result: bytes | Verdict


class SendConfirms(msgspec.Struct, frozen=True, gc=False):
    """To a worker: these results are safe with us."""

    conn: ConnId
    jobs: Sequence[JobId]


class SendCancel(msgspec.Struct, frozen=True, gc=False):
    """To a worker: stop this, nobody wants it any more."""

    conn: ConnId
    job: JobId


class SendHeartbeat(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class SendAnswer(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    ask_id: bytes
    answer: Answer


class SendNo(msgspec.Struct, frozen=True, gc=False):
    """The question has no answer, and why."""

    conn: ConnId
    ask_id: bytes
    code: str
    text: str


class PauseReading(msgspec.Struct, frozen=True, gc=False):
    """An old client cannot be told "full", so it is not read from (F11)."""

    conn: ConnId


class ResumeReading(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class Complain(msgspec.Struct, frozen=True, gc=False):
    """A peer did what it must not; one log line, and it was ignored."""

    conn: ConnId
    text: str


class Close(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    why: str


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """Nothing runs any more, and nobody who is here waits for a result."""


LeaderDo: TypeAlias = (
    SendWelcome
    | SendReceipts
    | SendRefusal
    | SendAssign
    | SendResult
    | SendConfirms
    | SendCancel
    | SendHeartbeat
    | SendAnswer
    | SendNo
    | PauseReading
    | ResumeReading
    | Complain
    | Close
    | Stopped
)
