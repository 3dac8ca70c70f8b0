"""What does a state machine hear, and what does it ask for? Read this first.

Every state machine (the leader's machine, `slots`, `failover`) is a plain class with the same four doors:

    handle(events, now) -> Step    these things happened: a batch, in order
    tick(now)           -> Step    the time it asked for has come
    wake_at()           -> float | None     after tick(now), always later than now
    check()                        asserts all that must always hold

It never touches the world: a Step names what must be on disk first (`keep`) and what is to be done then (`do`, in this
order). `adapters/loop/drive.py` is the only caller. This file holds Step and the leader's words; the worker's stand in
`slots_events`, the client's in `failover_events`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from wakugumi.core.ids import Attempt, ClientId, ConnId, Fate, JobId, Tried, Verdict, WorkerId
from wakugumi.core.leader.admin.questions import Answer, Question
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Pattern, Subject

Event = TypeVar("Event", contravariant=True)
Keep = TypeVar("Keep", covariant=True)
Do = TypeVar("Do", covariant=True)


class Step(Generic[Keep, Do]):
    """What a state machine wants after a batch: first these on disk, then these done, in this order.

    `at_once` is for what depends on nothing that was ever kept, such as a sign of life: it is done without waiting for
    the disk, for a disk that takes its time must not make living peers seem dead. If the step is `patient`, nobody is
    held up by its `do` coming a moment later, together with that of the next one: each commit costs the disk a flush.
    """

    __slots__ = ("at_once", "do", "keep", "patient")

    def __init__(
        self,
        keep: Sequence[Keep] = (),
        do: Sequence[Do] = (),
        at_once: Sequence[Do] = (),
        *,
        patient: bool = False,
    ) -> None:
        self.keep = keep
        self.do = do
        self.at_once = at_once
        self.patient = patient


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
    slots: int = 0
    """How many it has in all: it may be given jobs that need several. An old worker does not say."""
    blobs: bool = False
    """It fetches what a job names and does not bring along."""
    runs_unnamed: bool = False
    """It has a program for jobs that name none."""
    simple_only: bool = False
    """It takes simple jobs and no others (`wants`): it stands for a node, which cannot be told more."""
    weight: int = 1
    """Where workers take turns, it has so many of them for each one of a worker of weight 1."""
    resend: bool = False
    """What it says it holds is sent to it once more: it knows the jobs by their ids alone."""
    as_root: bool = False
    """Programs have the rights of root there."""
    env: bool = False
    """It gives programs the variables that a job sets."""


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
    retries: int = 0
    """How often a program that ends with a non-zero exit or takes too long is run again before that is its answer."""
    wants: Requirements | None = None
    broadcast_s: float = 0.0
    """It is for every worker that matches, and each has so many seconds for it (S5); 0: it is for one of them."""
    checksum: int = 0
    """Of a payload that is packed: its size, and the checksum of what it is unpacked. 0 for all others."""
    request: bytes = b""
    """The digest of what decides its answer, if somebody made one."""


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
    output: str = ""
    """The end of what it printed, if it is not OK: for the story of its attempts."""
    blobs: tuple[str, ...] = ()
    """What of the result did not fit, and is in the leader's place."""
    begun: bool = True
    """False if the worker says that it could not even start the program."""
    request: bytes = b""
    """The digest of the request that was run, if the worker says so."""


class WorkerHolds(msgspec.Struct, frozen=True, gc=False):
    """What a worker says it runs and has, before its first credit (L4)."""

    conn: ConnId
    running: tuple[JobId, ...]
    finished: tuple[JobId, ...]
    """Their results will follow by themselves."""
    kept: tuple[JobId, ...] = ()
    """Results of an earlier life of this worker, confirmed or not: they follow if they are fetched."""


class Declined(msgspec.Struct, frozen=True, gc=False):
    """A worker gives back a job that it has not begun: that is no attempt. The credit for it is spent all the same."""

    conn: ConnId
    job: JobId


class Described(msgspec.Struct, frozen=True, gc=False):
    """What was found out about a worker that could not say it when it joined, as it stands for a node."""

    conn: ConnId
    as_root: bool
    env: bool


class Rested(msgspec.Struct, frozen=True, gc=False):
    """A worker is out of order, and why: what credit it has is void, and nobody waits for it. With nothing to say, or
    credit to offer, it is in order again."""

    conn: ConnId
    why: str


class Confirmed(msgspec.Struct, frozen=True, gc=False):
    """A client has these results for good; for an old one, which cannot say so, they were written (F9)."""

    conn: ConnId
    jobs: Sequence[JobId]


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A client waits for these jobs, whoever submitted them."""

    conn: ConnId
    jobs: Sequence[JobId]


class Sought(msgspec.Struct, frozen=True, gc=False):
    """A client of several leaders asks which of these jobs are known here, before it submits them (SPEC K8)."""

    conn: ConnId
    jobs: Sequence[JobId]


class CapChanged(msgspec.Struct, frozen=True, gc=False):
    """A client declares another cap than in its hello: it has divided its own over several leaders, and anew."""

    conn: ConnId
    cap: int


class CancelWanted(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class PeerHeard(msgspec.Struct, frozen=True, gc=False):
    """A sign of life: a heartbeat, or some bytes of a frame that takes long to arrive."""

    conn: ConnId
    cpu: float | None = None
    """How busy the peer's CPU is, if it said so."""
    held_by: float = 0.0
    """A worker held credit back because others used so much of its CPU, 0 to 1 (W2)."""


class Leaving(msgspec.Struct, frozen=True, gc=False):
    """A worker finishes what it has and takes nothing new."""

    conn: ConnId


class PeerBlocked(msgspec.Struct, frozen=True, gc=False):
    """The peer does not read: what was written to it has piled up."""

    conn: ConnId


class PeerUnblocked(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class PeerWritten(msgspec.Struct, frozen=True, gc=False):
    """What the peer was given before `TellWhenWritten` has left, but for what a buffer may hold."""

    conn: ConnId


class QuestionAsked(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    ask_id: bytes
    question: Question


class PayloadsLoaded(msgspec.Struct, frozen=True, gc=False):
    """What `LoadPayloads` asked for; a job that the journal could not read is missing."""

    leaf: int
    asked: Sequence[JobId]
    payloads: dict[JobId, bytes]


class DiskLow(msgspec.Struct, frozen=True, gc=False):
    """There is hardly room left for what must be kept (`low`), or there is again."""

    low: bool


class ReadingStopped(msgspec.Struct, frozen=True, gc=False):
    """The disk does not keep up, and most are not read from (`stopped`); or everybody is again."""

    stopped: bool


class CommitsStalled(msgspec.Struct, frozen=True, gc=False):
    """Nothing was committed for some seconds, and why; empty: commits go on."""

    why: str


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
    | WorkerHolds
    | Declined
    | Described
    | Rested
    | Confirmed
    | Claimed
    | Sought
    | CapChanged
    | CancelWanted
    | PeerHeard
    | Leaving
    | PeerBlocked
    | PeerUnblocked
    | PeerWritten
    | QuestionAsked
    | PayloadsLoaded
    | DiskLow
    | ReadingStopped
    | CommitsStalled
    | StopWanted
)

# What a leader must keep before it acts: what a journal needs to bring the queue back. All that one step keeps is one
# leaf of the journal; leaves are numbered from 1 on without gaps, by the core and by the journal alike.


class KeepJob(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """A job was accepted. Under an id that is known it replaces what was there: the job was opened again."""

    job: JobId
    client: ClientId
    cap: int
    """The client's, so that its jobs go on while it is away."""
    subject: Subject
    program: str
    timeout_s: float
    retries: int
    payload: bytes
    wants: Requirements | None = None
    checksum: int = 0
    """If it is not that of the payload, because that is packed."""
    request: bytes = b""
    """Its digest."""


class KeepAttempt(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """A worker was given it, or was found to hold it."""

    job: JobId
    worker: WorkerId
    label: str


class KeepOutcome(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """The attempt ended, and the job has still to be done."""

    job: JobId
    outcome: str
    output: str


class KeepResult(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=4):
    job: JobId
    ok: bool
    outcome: str
    """How its running attempt ended, if there was one."""
    result: bytes | Verdict
    blobs: tuple[str, ...] = ()


class KeepDelivered(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=5):
    """Whoever waited for the result has it."""

    job: JobId


class ForgetJob(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=6):
    job: JobId


class KeepWhole(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=7):
    """All that is known of a job, so that the leaves in which it stood need not be kept. Times are told in seconds
    from this leaf's, so they are negative."""

    job: JobId
    client: ClientId
    cap: int
    subject: Subject
    program: str
    timeout_s: float
    retries: int
    submitted_at: float
    history: tuple[Attempt, ...]
    running: Attempt | None
    """The attempt that has not ended, with `ok` as the outcome it does not have yet."""
    checksum: int
    payload: bytes | int | None
    """Its request; or the leaf from which the journal takes it; or None if nobody needs it any more."""
    ok: bool
    result: bytes | Verdict | None
    delivered: bool
    requeued: bool = False
    wants: Requirements | None = None
    blobs: tuple[str, ...] = ()
    """The result's."""
    tried: Tried | None = None
    request: bytes = b""
    """Its digest."""


class DropLeaves(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=8):
    """Nothing in the leaves before this one is needed any more."""

    before: int


class KeepDeclined(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=10):
    """The attempt that was given out never began."""

    job: JobId
    worker: WorkerId = WorkerId(b"")
    """Who could not start it; empty if it could have."""
    lacks: bool = False
    """It does not have the program."""


class KeepDeadline(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=9):
    """A job is given up if it is not done within so many seconds."""

    job: JobId
    within_s: float


class KeepClaim(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=11):
    """The answer of a job that a worker held and nobody has submitted yet."""

    job: JobId
    worker: WorkerId
    ok: bool
    reason: str
    payload: bytes
    blobs: tuple[str, ...] = ()
    begun: bool = True
    request: bytes = b""
    patterns: tuple[Pattern, ...] = ()
    """What its worker heard."""


class ForgetClaim(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=12):
    """Someone submitted the job, or nobody did in time."""

    job: JobId
    worker: WorkerId = WorkerId(b"")
    """Only the answer of this one goes, if it is named."""


LeaderKeep: TypeAlias = (
    KeepJob
    | KeepAttempt
    | KeepOutcome
    | KeepResult
    | KeepDelivered
    | ForgetJob
    | KeepWhole
    | DropLeaves
    | KeepDeadline
    | KeepDeclined
    | KeepClaim
    | ForgetClaim
)

# What a leader does.


class SendWelcome(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class SendReceipts(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class SendFound(msgspec.Struct, frozen=True, gc=False):
    """What became of these jobs here, in a word."""

    conn: ConnId
    fate: Fate
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
    is_refusal: bool = False
    """It only tells an old client, in the one way it understands, that it will not have its way (F11)."""


class LoadPayloads(msgspec.Struct, frozen=True, gc=False):
    """Read these jobs' requests from a leaf of the journal; `PayloadsLoaded` follows."""

    leaf: int
    jobs: Sequence[JobId]


class SendFetch(msgspec.Struct, frozen=True, gc=False):
    """To a worker: send the results of these, which you have from an earlier life."""

    conn: ConnId
    jobs: Sequence[JobId]


class SendWorkerConfirms(msgspec.Struct, frozen=True, gc=False):
    """To a worker: these results are safe with us."""

    conn: ConnId
    jobs: Sequence[JobId]


class SendCancel(msgspec.Struct, frozen=True, gc=False):
    """To a worker: stop this, nobody wants it any more."""

    conn: ConnId
    job: JobId


class SendRested(msgspec.Struct, frozen=True, gc=False):
    """To a worker that is out of order: we know, and what credit it had is void. What was assigned for it came
    before."""

    conn: ConnId


class SendPeerHeartbeat(msgspec.Struct, frozen=True, gc=False):
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


class TellWhenPeerWritten(msgspec.Struct, frozen=True, gc=False):
    """`Written` follows, once the peer has been sent what it was given: until then it is given nothing more."""

    conn: ConnId


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


class BlobsFreed(msgspec.Struct, frozen=True, gc=False):
    """Results that had these blobs are forgotten, and no other job needs them."""

    blobs: Sequence[str]


class LeaderStopped(msgspec.Struct, frozen=True, gc=False):
    """Nothing runs any more, and nobody who is here waits for a result."""


LeaderDo: TypeAlias = (
    SendWelcome
    | SendReceipts
    | SendFound
    | SendRefusal
    | SendAssign
    | SendResult
    | LoadPayloads
    | SendFetch
    | SendWorkerConfirms
    | SendCancel
    | SendRested
    | SendPeerHeartbeat
    | SendAnswer
    | SendNo
    | TellWhenPeerWritten
    | PauseReading
    | ResumeReading
    | Complain
    | Close
    | BlobsFreed
    | LeaderStopped
)
