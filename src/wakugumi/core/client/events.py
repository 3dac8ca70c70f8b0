"""What does a client's state machine hear, and what does it ask for? The words of `failover`.

Nothing is kept (`keep` is always empty): what a client has not seen the end of is gone with its process, and whoever
wants it to outlive that gives it an id of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType, TypeAlias

import msgspec

from wakugumi.core.ids import ConnId, Fate, JobId
from wakugumi.core.step import Step

LeaderNo = NewType("LeaderNo", int)
"""Which of a client's leaders: a number from 1 on, of whoever knows the addresses."""
ANY_LEADER = LeaderNo(0)

# What a client hears: first from its user, then from the world.


class LeaderAdded(msgspec.Struct, frozen=True, gc=False):
    """One more leader, or one that was to be removed and still has jobs: it gets new ones again. Its `name` is the same
    in every life of the client."""

    leader: LeaderNo
    name: str = ""


class LeaderRemoved(msgspec.Struct, frozen=True, gc=False):
    """It gets no further jobs; `Parted` follows when it has none left."""

    leader: LeaderNo


class Submit(msgspec.Struct, frozen=True, gc=False):
    """A new job. `frame` is what asks for it, kept to be sent again: the same bytes each time. What is meant for one
    leader `only` is never given to another, and is given up when that one is lost for longer than the grace. An id that
    was `given` by the user may be known to a leader, from an earlier life of this client: see `job_search`."""

    job: JobId
    frame: bytes
    only: LeaderNo = ANY_LEADER
    given: bool = False


class ClaimJob(msgspec.Struct, frozen=True, gc=False):
    """Someone submitted this job before, nobody says to which leader; we wait for its result. If it is known to be with
    one leader `only`, that one is waited for, however long it is away."""

    job: JobId
    only: LeaderNo = ANY_LEADER


class Cancel(msgspec.Struct, frozen=True, gc=False):
    jobs: Sequence[JobId]


class Ask(msgspec.Struct, frozen=True, gc=False):
    """A question. All of them may be asked twice, so a lost answer is asked for again."""

    ask: bytes
    frame: bytes
    leader: LeaderNo = ANY_LEADER
    """Whom to ask; whoever serves if none is named."""


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
    takes_cap: bool = False
    """It may be told another cap than the one of the hello."""
    takes_blobs: bool = False
    """It takes jobs whose files do not fit a frame."""
    finds: bool = False
    """It says which jobs it knows."""
    takes_env: bool = False
    """It takes jobs that set variables."""


class Heard(msgspec.Struct, frozen=True, gc=False):
    """A sign of life that says nothing else."""

    conn: ConnId


class LeaderBlocked(msgspec.Struct, frozen=True, gc=False):
    """The leader does not read what we write (`on`), or reads again."""

    conn: ConnId
    on: bool


class LeaderWritten(msgspec.Struct, frozen=True, gc=False):
    """What the leader was sent before `TellWhenWritten` has left, but for what a buffer may hold."""

    conn: ConnId


class Receipts(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    jobs: Sequence[JobId]


class JobsFound(msgspec.Struct, frozen=True, gc=False):
    """What the leader says of jobs that it was asked for."""

    conn: ConnId
    fate: Fate
    jobs: Sequence[JobId]


class JobRefused(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    code: str
    text: str


class Unfit(msgspec.Struct, frozen=True, gc=False):
    """The job's files do not fit a frame, or it sets variables, and this leader takes no such job. One that does may
    have it."""

    conn: ConnId
    job: JobId
    code: str
    text: str
    env: bool = False
    """It is the variables."""


class FilesWanted(msgspec.Struct, frozen=True, gc=False):
    """The leader takes this job once it has the files: it is neither accepted nor refused, and will be sent there
    again."""

    conn: ConnId
    job: JobId


class ResultCame(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    job: JobId
    payload: bytes


class QuestionAnswered(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    ask: bytes
    refused: bool
    payload: bytes


ClientEvent: TypeAlias = (
    LeaderAdded
    | LeaderRemoved
    | Submit
    | ClaimJob
    | Cancel
    | Ask
    | Forget
    | Connected
    | Disconnected
    | Welcomed
    | Heard
    | LeaderBlocked
    | LeaderWritten
    | Receipts
    | JobsFound
    | JobRefused
    | Unfit
    | FilesWanted
    | ResultCame
    | QuestionAnswered
)

# What a client does: first to the world, then for its user.


class Dial(msgspec.Struct, frozen=True, gc=False):
    """Connect, say hello with this cap, and report as Connected or Disconnected under this number."""

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
    """`Written` follows, once the leader has been sent its frames: until then it is given no more jobs."""

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
    """The client's cap at this leader is another one from now on."""

    conn: ConnId
    cap: int


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """A leader has these for good."""

    jobs: Sequence[JobId]


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """The results of these jobs, each of them once."""

    results: Sequence[ResultCame]


class GiveUp(msgspec.Struct, frozen=True, gc=False):
    """This job will have no result, and why."""

    job: JobId
    code: str
    text: str


class AnswerQuestion(msgspec.Struct, frozen=True, gc=False):
    """What the leader said to a question; `payload` is its answer, or its refusal."""

    ask: bytes
    refused: bool
    payload: bytes


class NoAnswer(msgspec.Struct, frozen=True, gc=False):
    ask: bytes
    code: str
    text: str


class Ready(msgspec.Struct, frozen=True, gc=False):
    """This leader serves us. An `old` one gives no receipts and answers no questions."""

    leader: LeaderNo
    conn: ConnId
    old: bool


class Away(msgspec.Struct, frozen=True, gc=False):
    """This leader does not serve us, and why; it is dialled again in so many seconds."""

    leader: LeaderNo
    why: str
    retry_in_s: float


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """This leader takes no jobs now, and why: what it refused is offered to others, and to it again."""

    leader: LeaderNo
    code: str
    text: str


class WaitingOver(msgspec.Struct, frozen=True, gc=False):
    """It has `taken` all that it was offered; or nothing is left to offer, and it may be as full as before."""

    leader: LeaderNo
    taken: bool


class Parted(msgspec.Struct, frozen=True, gc=False):
    """A removed leader has none of our jobs any more: say what is still to be said to it, and hang up. Its number is
    nobody's from now on."""

    leader: LeaderNo
    conn: ConnId
    """0 if there is no connection."""


class SubmitGate(msgspec.Struct, frozen=True, gc=False):
    """May further jobs be handed in? Not while no leader serves, or all that do are full or do not read."""

    open: bool


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
    | SubmitGate
)

ClientStep: TypeAlias = Step[object, ClientDo]
