"""Which events does a runner's state machine take, and which effects does it ask for? The vocabulary of `slots`.

`keep` is always empty: a job's result, which must outlive the process, is on the disk before `ProgramEnded`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from wakugumi.core.ids import JobId
from wakugumi.core.step import Step

# Events.

Ticket: TypeAlias = object
"""The role's record of a request. The machine only hands it back, and never looks inside."""


class Recovered(msgspec.Struct, frozen=True, gc=False):
    """Finished jobs that an earlier life left on the disk, and their ages in seconds. The first event, or none."""

    done: Sequence[tuple[JobId, float]]


class Opened(msgspec.Struct, frozen=True, gc=False):
    """Connected, and the hello was sent."""

    secured: bool = False
    """The leader has proven who it is: if it is silent, it is no old leader."""


class LeaderWelcomed(msgspec.Struct, frozen=True, gc=False):
    """The leader speaks our own types."""

    rests: bool = False
    """The leader understands that a worker is out of order, and that a job could not be started."""


class LinkLost(msgspec.Struct, frozen=True, gc=False):
    """The connection is gone, closed by either side."""


class Assigned(msgspec.Struct, frozen=True, gc=False):
    job: JobId
    ticket: Ticket
    slots: int = 1
    """Slots that the job takes, and credit that the leader used for it."""


class ResultsConfirmed(msgspec.Struct, frozen=True, gc=False):
    """The leader has stored these results."""

    jobs: Sequence[JobId]


class Fetched(msgspec.Struct, frozen=True, gc=False):
    """The leader waits for these results, which were offered to it as kept."""

    jobs: Sequence[JobId]


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    jobs: Sequence[JobId]


class LeaderAlive(msgspec.Struct, frozen=True, gc=False):
    """The leader is alive."""


class ResultsWritten(msgspec.Struct, frozen=True, gc=False):
    """All that was sent before `TellWhenResultsWritten` is written, except for the contents of a buffer."""


class ProgramEnded(msgspec.Struct, frozen=True, gc=False):
    """A started program has ended; its result is on the disk."""

    job: JobId
    ok: bool
    reason: str
    payload: bytes
    ran_s: float = 0.0
    fault: str = ""
    """Fault of this machine that caused the end, whether or not the program had begun."""
    request: bytes = b""
    """Digest of the request that was run; empty if unknown."""


class ResultLoaded(msgspec.Struct, frozen=True, gc=False):
    """Result of a job on the disk; no payload if there is none."""

    job: JobId
    ok: bool
    payload: bytes | None
    reason: str = ""
    """Code of the failure."""
    request: bytes = b""
    """Digest of the request that was run; empty if unknown."""


class CpuMeasured(msgspec.Struct, frozen=True, gc=False):
    others: float
    """Share of the machine's CPU that programs other than our jobs used recently, 0 to 1."""


class Probed(msgspec.Struct, frozen=True, gc=False):
    """Outcome of `Probe`: why no program can be started here; empty if one can."""

    why: str


class RestKnown(msgspec.Struct, frozen=True, gc=False):
    """The leader knows that this machine is out of order. Its credit is void; all that it assigned for it arrived
    before."""


class CallerWants(msgspec.Struct, frozen=True, gc=False):
    """A caller of this machine wants a job's result; `AnswerCaller` or `RefuseCaller` follows. The job continues if the
    caller leaves."""

    job: JobId
    ticket: Ticket
    slots: int = 1


class CallerCancels(msgspec.Struct, frozen=True, gc=False):
    """A caller of this machine cancels a job, even one of the leader."""

    job: JobId


class StopAsked(msgspec.Struct, frozen=True, gc=False):
    """Finish running jobs and stop. The second time: stop now."""


SlotsEvent: TypeAlias = (
    Recovered
    | Opened
    | LeaderWelcomed
    | LinkLost
    | Assigned
    | ResultsConfirmed
    | Fetched
    | Cancelled
    | LeaderAlive
    | ResultsWritten
    | ProgramEnded
    | ResultLoaded
    | CpuMeasured
    | Probed
    | RestKnown
    | CallerWants
    | CallerCancels
    | StopAsked
)

# Effects.


class SlotsDo(msgspec.Struct, frozen=True, gc=False):
    """An effect that the machine returns."""


class StartProgram(SlotsDo, frozen=True, gc=False):
    job: JobId
    ticket: Ticket


class KillProgram(SlotsDo, frozen=True, gc=False):
    """End the program; `ProgramEnded` follows with this code as its reason."""

    job: JobId
    code: str


class LoadResult(SlotsDo, frozen=True, gc=False):
    """Read the result from the disk; `ResultLoaded` follows."""

    job: JobId


class ForgetResult(SlotsDo, frozen=True, gc=False):
    """The leader has stored this failure: the copy on the disk must never answer a later attempt."""

    job: JobId


class SendHolding(SlotsDo, frozen=True, gc=False):
    running: tuple[JobId, ...]
    finished: tuple[JobId, ...]
    """Unconfirmed results; their acks follow."""
    kept: tuple[JobId, ...] = ()
    """Results of an earlier life, sent if the leader fetches them."""


class SendAck(SlotsDo, frozen=True, gc=False):
    job: JobId
    payload: bytes
    request: bytes = b""
    """Digest of the request that was run; empty if unknown."""


class TellWhenResultsWritten(SlotsDo, frozen=True, gc=False):
    """`ResultsWritten` follows once all sent so far is written; no more results are sent until then."""


class SendFailure(SlotsDo, frozen=True, gc=False):
    """The worker's own ack for a job that was never started here or whose result is gone, and why."""

    job: JobId
    code: str
    text: str
    begun: bool = True
    """False if another worker may well start the job."""


class SendCredit(SlotsDo, frozen=True, gc=False):
    amount: int


class SendLeaving(SlotsDo, frozen=True, gc=False):
    pass


class SendResting(SlotsDo, frozen=True, gc=False):
    """This machine is out of order, and why; `RestKnown` follows. An empty reason: it is in order again."""

    why: str


class SendRunnerHeartbeat(SlotsDo, frozen=True, gc=False):
    held_by: float = 0.0
    """CPU share of other programs, 0 to 1, if credit was held back for it since the last heartbeat."""


class AnswerCaller(SlotsDo, frozen=True, gc=False):
    """Callers that wait for the job get its result: the job has just ended, or its result was kept."""

    job: JobId
    payload: bytes
    request: bytes = b""
    """Digest of the request that was run; empty if unknown."""
    kept: bool = False


class RefuseCaller(SlotsDo, frozen=True, gc=False):
    """Callers that wait for the job get a code of the error table and a text."""

    job: JobId
    code: str
    text: str


class MeasureCpu(SlotsDo, frozen=True, gc=False):
    """`CpuMeasured` follows."""


class Probe(SlotsDo, frozen=True, gc=False):
    """Try whether a program can be started here; `Probed` follows."""


class HealthChanged(SlotsDo, frozen=True, gc=False):
    """This machine is out of order, and why; empty: in order again. For the log."""

    why: str


class ComplainAboutLeader(SlotsDo, frozen=True, gc=False):
    """The leader broke the protocol: one log line per connection."""

    text: str


class HangUpOnLeader(SlotsDo, frozen=True, gc=False):
    why: str


class RunnerStopped(SlotsDo, frozen=True, gc=False):
    """All results are sent, or the deadline is over: end running programs and close. The last effect."""


SlotsStep: TypeAlias = Step[None, SlotsDo]
