"""What does a leader hear, and what does it do? The words of its machine (`core/step.py`).

What it keeps before it acts stands in `journal/entries.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from wakugumi.core.ids import ClientId, ConnId, Fate, JobId, Verdict, WorkerId
from wakugumi.core.leader.admin.questions import Answer, Question
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Pattern, Subject

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
