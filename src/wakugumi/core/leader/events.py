"""Which events does the leader's machine take, and which effects does it return? (`core/step.py`)

The records that it keeps before it acts are in `journal/entries.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from wakugumi.core.access.identity import Sight
from wakugumi.core.ids import ClientId, ConnId, Fate, JobId, Verdict, WorkerId
from wakugumi.core.leader.answer_records import Answer
from wakugumi.core.leader.questions import Question
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Pattern, Subject

# Events.


class LeaderEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that the machine takes."""


class ClientJoined(LeaderEvent, frozen=True, gc=False):
    conn: ConnId
    client: ClientId
    cap: int
    receipts: bool
    """The client speaks our own types: it gets receipts and refusals, and confirms results."""
    heartbeats: bool
    sight: Sight | None = None
    """Clients whose jobs the connection may see; None: all."""


class WorkerJoined(LeaderEvent, frozen=True, gc=False):
    conn: ConnId
    worker: WorkerId
    name: str
    patterns: tuple[Pattern, ...]
    receipts: bool
    heartbeats: bool
    reattach: bool
    """The worker reports what it holds before its first credit, and keeps jobs over a reconnect."""
    cancels: bool
    slots: int = 0
    """Number of all slots, needed for jobs that take several. 0: an old worker, which does not declare them."""
    blobs: bool = False
    """The worker fetches blobs that a job names."""
    runs_unnamed: bool = False
    """The worker has a program for jobs that name none."""
    simple_only: bool = False
    """The worker stands for a node, which can run simple jobs only (`Requirements.simple`)."""
    weight: int = 1
    """Number of turns for each turn of a worker of weight 1, where workers take turns."""
    resend: bool = False
    """The leader sends held jobs once more: the worker knows them by their ids alone."""
    as_root: bool = False
    """Programs of this worker run as root."""
    env: bool = False
    """The worker passes the variables that a job sets to its program."""
    key: str = ""
    """Name of the key that the worker has shown, or of its user. Empty: the leader asks for no proof, or the worker is
    its own."""


class KeyEnded(LeaderEvent, frozen=True, gc=False):
    """A key was revoked or has expired: worker ids that belonged to it are free."""

    key: str


class Left(LeaderEvent, frozen=True, gc=False):
    """The connection is closed, by either side."""

    conn: ConnId


class Submitted(LeaderEvent, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    subject: Subject
    program: str
    timeout_s: float
    payload: bytes
    retries: int = 0
    """Number of non-zero exits or timeouts after which the job runs again."""
    requirements: Requirements | None = None
    broadcast_s: float = 0.0
    """Seconds that each worker has for its part of a broadcast (S5); 0: the job is for one worker."""
    checksum: int = 0
    """Size and CRC-32 of the unpacked payload, if the payload is packed; else 0."""
    request: bytes = b""
    """Digest of all that decides the answer; empty if unknown."""


class SubmitRefused(LeaderEvent, frozen=True, gc=False):
    """A submit could not be read; its sender must get a refusal (F11)."""

    conn: ConnId
    job: JobId
    code: str
    text: str


class Credited(LeaderEvent, frozen=True, gc=False):
    conn: ConnId
    amount: int
    most: int = 0
    """Credit and jobs together, as a node's machine counts them: a job on its way there counts for the leader alone. 0:
    not counted."""


class Acked(LeaderEvent, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    ok: bool
    reason: str
    """Code of the failure; empty if `ok`, or from an old worker."""
    payload: bytes
    output: str = ""
    """End of the program's output if not `ok`, for the history of attempts."""
    blobs: tuple[str, ...] = ()
    """Blobs of the result that did not fit into the frame; the leader's store has them."""
    begun: bool = True
    """False if the worker reports that it could not start the program."""
    request: bytes = b""
    """Digest of the request that was run; empty if the worker sends none."""


class WorkerHolds(LeaderEvent, frozen=True, gc=False):
    """Jobs that a worker runs or has finished, reported before its first credit (L4)."""

    conn: ConnId
    running: tuple[JobId, ...]
    finished: tuple[JobId, ...]
    """Finished jobs, whose results follow unasked."""
    kept: tuple[JobId, ...] = ()
    """Jobs with results of an earlier process of this worker, confirmed or not: sent only after `SendFetch`."""


class Declined(LeaderEvent, frozen=True, gc=False):
    """A worker returns a job that it has not begun: no attempt is counted, but the credit is used."""

    conn: ConnId
    job: JobId


class Described(LeaderEvent, frozen=True, gc=False):
    """Properties of a worker that stands for a node, found out after it joined."""

    conn: ConnId
    as_root: bool
    env: bool


class Rested(LeaderEvent, frozen=True, gc=False):
    """A worker is out of order, and why: its credit is void, and no job waits for it. An empty reason, or new credit,
    ends this."""

    conn: ConnId
    why: str


class Confirmed(LeaderEvent, frozen=True, gc=False):
    """A client has stored these results; those of an old client, which cannot confirm, were written (F9)."""

    conn: ConnId
    jobs: Sequence[JobId]


class Claimed(LeaderEvent, frozen=True, gc=False):
    """A client waits for these jobs, submitted by any client that it may see."""

    conn: ConnId
    jobs: Sequence[JobId]


class Sought(LeaderEvent, frozen=True, gc=False):
    """A client of several leaders asks which of these jobs are known here, before it submits them (SPEC K8)."""

    conn: ConnId
    jobs: Sequence[JobId]


class CapChanged(LeaderEvent, frozen=True, gc=False):
    """A client of several leaders divides its cap anew, and declares this leader's new share."""

    conn: ConnId
    cap: int


class CancelWanted(LeaderEvent, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class PeerHeard(LeaderEvent, frozen=True, gc=False):
    """A sign of life: a heartbeat, or some bytes of a frame that takes long to arrive."""

    conn: ConnId
    cpu: float | None = None
    """CPU use of the peer, if reported."""
    held_by: float = 0.0
    """Share of the CPU, 0 to 1, that other programs used when the worker held credit back (W2)."""
    moving: tuple[JobId, ...] = ()
    """Jobs whose results are on their way: they are not late, however long that takes."""


class Leaving(LeaderEvent, frozen=True, gc=False):
    """A worker finishes its jobs and takes no new ones."""

    conn: ConnId


class PeerBlocked(LeaderEvent, frozen=True, gc=False):
    """The peer does not read, and unsent bytes have piled up."""

    conn: ConnId


class PeerUnblocked(LeaderEvent, frozen=True, gc=False):
    conn: ConnId


class PeerWritten(LeaderEvent, frozen=True, gc=False):
    """All that was queued before `TellWhenPeerWritten` is sent, except for what a buffer holds."""

    conn: ConnId


class QuestionAsked(LeaderEvent, frozen=True, gc=False):
    conn: ConnId
    ask_id: bytes
    question: Question
    sight: Sight | None = None
    """Clients whose jobs the asking peer may see; None: all."""


class PayloadsLoaded(LeaderEvent, frozen=True, gc=False):
    """Answer to `LoadPayloads`; a job that the journal could not read is missing."""

    leaf: int
    asked: Sequence[JobId]
    payloads: dict[JobId, bytes]


class DiskLow(LeaderEvent, frozen=True, gc=False):
    """The disk is nearly full (`low`), or has room again."""

    low: bool


class ReadingStopped(LeaderEvent, frozen=True, gc=False):
    """The disk is too slow and most peers are not read from (`stopped`), or all are again."""

    stopped: bool


class CommitsStalled(LeaderEvent, frozen=True, gc=False):
    """The journal committed nothing for some seconds, and why; empty: commits go on."""

    why: str


class StopWanted(LeaderEvent, frozen=True, gc=False):
    """Finish running jobs, assign none, and then report `LeaderStopped`."""


# Effects.


class LeaderDo(msgspec.Struct, frozen=True, gc=False):
    """An effect that the machine returns."""


class SendWelcome(LeaderDo, frozen=True, gc=False):
    conn: ConnId


class SendReceipts(LeaderDo, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class SendFound(LeaderDo, frozen=True, gc=False):
    """Jobs that share one fate here."""

    conn: ConnId
    fate: Fate
    jobs: Sequence[JobId]


class SendRefusal(LeaderDo, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    code: str
    text: str


class SendAssign(LeaderDo, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    subject: Subject
    payload: bytes
    request: bytes = b""
    """Digest of the request, for a node; empty if unknown."""


class SendResult(LeaderDo, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    program: str
    result: bytes | Verdict
    is_refusal: bool = False
    """The result stands for a refusal, which an old client has no message for (F11)."""


class LoadPayloads(LeaderDo, frozen=True, gc=False):
    """Read these requests from a leaf of the journal; `PayloadsLoaded` follows."""

    leaf: int
    jobs: Sequence[JobId]


class SendFetch(LeaderDo, frozen=True, gc=False):
    """Ask a worker for results of its earlier process."""

    conn: ConnId
    jobs: Sequence[JobId]


class SendWorkerConfirms(LeaderDo, frozen=True, gc=False):
    """Tell a worker that the leader has stored these results."""

    conn: ConnId
    jobs: Sequence[JobId]


class SendCancel(LeaderDo, frozen=True, gc=False):
    """Tell a worker to stop this job."""

    conn: ConnId
    job: JobId


class SendRested(LeaderDo, frozen=True, gc=False):
    """Confirm to a worker that it is out of order and its credit void. Assignments for that credit were sent before."""

    conn: ConnId


class SendPeerHeartbeat(LeaderDo, frozen=True, gc=False):
    conn: ConnId


class SendAnswer(LeaderDo, frozen=True, gc=False):
    conn: ConnId
    ask_id: bytes
    answer: Answer


class SendNo(LeaderDo, frozen=True, gc=False):
    """The question is refused, and why."""

    conn: ConnId
    ask_id: bytes
    code: str
    text: str


class TellWhenPeerWritten(LeaderDo, frozen=True, gc=False):
    """`PeerWritten` follows when all that was queued for the peer is sent; the peer gets no more until then."""

    conn: ConnId


class PauseReading(LeaderDo, frozen=True, gc=False):
    """Stop reading from an old client, which has no message for "full" (F11)."""

    conn: ConnId


class ResumeReading(LeaderDo, frozen=True, gc=False):
    conn: ConnId


class Complain(LeaderDo, frozen=True, gc=False):
    """A peer broke the protocol: one log line, and the message is ignored."""

    conn: ConnId
    text: str


class Close(LeaderDo, frozen=True, gc=False):
    conn: ConnId
    why: str


class BlobsFreed(LeaderDo, frozen=True, gc=False):
    """These blobs belonged to forgotten results, and no other job needs them."""

    blobs: Sequence[str]


class LeaderStopped(LeaderDo, frozen=True, gc=False):
    """No job runs, and no connected client waits for a result."""
