"""Which events does a client's state machine take, and which effects does it ask for? The vocabulary of `failover`.

`keep` is always empty: unfinished jobs are gone with the client's process, unless the user chose their ids and submits
them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType, TypeAlias

import msgspec

from wakugumi.core.ids import ConnId, Fate, JobId
from wakugumi.core.step import Step

LeaderNo = NewType("LeaderNo", int)
"""Number of one of a client's leaders, from 1 on; the owner of the addresses chooses it."""
ANY_LEADER = LeaderNo(0)

# Events: first from the user, then from connections.


class ClientEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that the machine takes."""


class LeaderAdded(ClientEvent, frozen=True, gc=False):
    """A new leader, or a removed one that still has jobs and gets new ones again. `name` is the same in every life of
    the client."""

    leader: LeaderNo
    name: str = ""


class LeaderRemoved(ClientEvent, frozen=True, gc=False):
    """The leader gets no further jobs; `Parted` follows when it has none left."""

    leader: LeaderNo


class Submit(ClientEvent, frozen=True, gc=False):
    """A new job. `frame` is kept and sent again as the same bytes. A job for one leader `only` goes to no other, and is
    given up when that one is lost for longer than the grace. A leader may know a job whose id was `given` by the user,
    from an earlier life of this client: see `job_search`."""

    job: JobId
    frame: bytes
    only: LeaderNo = ANY_LEADER
    given: bool = False


class ClaimJob(ClientEvent, frozen=True, gc=False):
    """Wait for the result of a job that was submitted before, to an unknown leader. If one leader `only` has it, wait
    for that one, however long it is away."""

    job: JobId
    only: LeaderNo = ANY_LEADER


class Cancel(ClientEvent, frozen=True, gc=False):
    jobs: Sequence[JobId]


class Ask(ClientEvent, frozen=True, gc=False):
    """A question. Every question may be asked twice, so a lost answer is asked for again."""

    ask: bytes
    frame: bytes
    leader: LeaderNo = ANY_LEADER
    """The leader to ask; any that serves if not given."""


class Forget(ClientEvent, frozen=True, gc=False):
    """The end of this claim, or the answer to this question, is no longer awaited."""

    id: bytes


class Connected(ClientEvent, frozen=True, gc=False):
    """The connection is established, and the hello is on its way."""

    conn: ConnId
    secured: bool = False
    """The leader has proven who it is: if it is silent, it is no old leader."""


class Disconnected(ClientEvent, frozen=True, gc=False):
    """The connection could not be made, or is gone, closed by either side."""

    conn: ConnId
    why: str


class Welcomed(ClientEvent, frozen=True, gc=False):
    conn: ConnId
    takes_cap: bool = False
    """The leader takes changes of the cap of the hello."""
    takes_blobs: bool = False
    """The leader takes jobs whose files do not fit a frame."""
    finds: bool = False
    """The leader answers which jobs it knows."""
    takes_env: bool = False
    """The leader takes jobs that set variables."""


class HelloRefused(ClientEvent, frozen=True, gc=False):
    """The leader does not let this client in."""

    conn: ConnId
    code: str
    text: str


class HeartbeatReceived(ClientEvent, frozen=True, gc=False):
    """A sign of life without other content."""

    conn: ConnId


class LeaderBlocked(ClientEvent, frozen=True, gc=False):
    """The leader does not read what we write (`on`), or reads again."""

    conn: ConnId
    on: bool


class LeaderWritten(ClientEvent, frozen=True, gc=False):
    """All that was sent before `TellWhenLeaderWritten` is written, except for the contents of a buffer."""

    conn: ConnId


class Receipts(ClientEvent, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class JobsFound(ClientEvent, frozen=True, gc=False):
    """The leader's answer about jobs that it was asked for."""

    conn: ConnId
    fate: Fate
    jobs: Sequence[JobId]


class JobRefused(ClientEvent, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    code: str
    text: str


class Unfit(ClientEvent, frozen=True, gc=False):
    """The job's files do not fit a frame, or it sets variables, and this leader takes no such job. Another one may."""

    conn: ConnId
    job: JobId
    code: str
    text: str
    env: bool = False
    """The leader takes no variables."""


class FilesWanted(ClientEvent, frozen=True, gc=False):
    """The leader takes this job once it has the files. The job is neither accepted nor refused, and will be sent
    again."""

    conn: ConnId
    job: JobId


class ResultReceived(ClientEvent, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    payload: bytes


class QuestionAnswered(ClientEvent, frozen=True, gc=False):
    conn: ConnId
    ask: bytes
    refused: bool
    payload: bytes


# Effects: first on connections, then for the user.


class Dial(msgspec.Struct, frozen=True, gc=False):
    """Connect, send a hello with this cap, and report `Connected` or `Disconnected` under this number."""

    conn: ConnId
    leader: LeaderNo
    cap: int


class HangUp(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    why: str


class SendFrames(msgspec.Struct, frozen=True, gc=False):
    """Jobs and questions, as they were handed in."""

    conn: ConnId
    frames: Sequence[bytes]


class TellWhenLeaderWritten(msgspec.Struct, frozen=True, gc=False):
    """`LeaderWritten` follows once all frames sent so far are written; until then the leader gets no more jobs."""

    conn: ConnId


class SendClaims(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class SendFinds(msgspec.Struct, frozen=True, gc=False):
    """Ask which of these jobs the leader knows."""

    conn: ConnId
    jobs: Sequence[JobId]


class SendCancels(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class SendConfirms(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class SendClientHeartbeat(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class SendCap(msgspec.Struct, frozen=True, gc=False):
    """The client's cap at this leader changes."""

    conn: ConnId
    cap: int


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """A leader has stored these jobs."""

    jobs: Sequence[JobId]


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Results, each job once."""

    results: Sequence[ResultReceived]


class GiveUp(msgspec.Struct, frozen=True, gc=False):
    """This job will have no result, and why."""

    job: JobId
    code: str
    text: str


class AnswerQuestion(msgspec.Struct, frozen=True, gc=False):
    """The leader's answer or refusal of a question, in `payload`."""

    ask: bytes
    refused: bool
    payload: bytes


class NoAnswer(msgspec.Struct, frozen=True, gc=False):
    ask: bytes
    code: str
    text: str


class Ready(msgspec.Struct, frozen=True, gc=False):
    """This leader serves us. An `old` one sends no receipts and answers no questions."""

    leader: LeaderNo
    conn: ConnId
    old: bool


class Away(msgspec.Struct, frozen=True, gc=False):
    """This leader does not serve us, and why; the next attempt to connect is in `retry_in_s`."""

    leader: LeaderNo
    why: str
    retry_in_s: float


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """This leader takes no jobs now, and why: refused jobs are offered to others, and here again."""

    leader: LeaderNo
    code: str
    text: str


class WaitingOver(msgspec.Struct, frozen=True, gc=False):
    """The leader has `taken` all offered jobs; or no job is left to offer, and it may be as full as before."""

    leader: LeaderNo
    taken: bool


class Parted(msgspec.Struct, frozen=True, gc=False):
    """A removed leader has none of our jobs any more: send what is still queued for it, and hang up. Its number is free
    from now on."""

    leader: LeaderNo
    conn: ConnId
    """0 if there is no connection."""


class SubmitGate(msgspec.Struct, frozen=True, gc=False):
    """May further jobs be handed in? Not while no leader serves, or all serving ones are full or do not read."""

    open: bool


class AllRefused(msgspec.Struct, frozen=True, gc=False):
    """No leader lets this client in: this is the refusal of the last one."""

    code: str
    text: str


ClientDo: TypeAlias = (
    Dial
    | HangUp
    | SendFrames
    | TellWhenLeaderWritten
    | SendClaims
    | SendFinds
    | SendCancels
    | SendConfirms
    | SendClientHeartbeat
    | SendCap
    | Accepted
    | Deliver
    | GiveUp
    | AnswerQuestion
    | NoAnswer
    | Ready
    | Away
    | Waiting
    | WaitingOver
    | Parted
    | AllRefused
    | SubmitGate
)

ClientStep: TypeAlias = Step[object, ClientDo]
