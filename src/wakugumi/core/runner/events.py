"""What does a runner's state machine hear, and what does it ask for? The words of `slots`.

Nothing is kept (`keep` is always empty): what must outlive the process, a job's result, is on the disk before `Ended`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from wakugumi.core.ids import JobId
from wakugumi.core.step import Step

# What it hears.


class Recovered(msgspec.Struct, frozen=True, gc=False):
    """What an earlier life left on the disk: finished jobs and their ages in seconds. It comes first or not at all."""

    done: Sequence[tuple[JobId, float]]


class Opened(msgspec.Struct, frozen=True, gc=False):
    """A connection is there and the hello was sent."""


class LeaderWelcomed(msgspec.Struct, frozen=True, gc=False):
    """The leader speaks our own types."""

    rests: bool = False
    """It takes it that a worker is out of order, and that a job could not be started."""


class LinkLost(msgspec.Struct, frozen=True, gc=False):
    """The connection is gone, whoever ended it."""


class Assigned(msgspec.Struct, frozen=True, gc=False):
    job: JobId
    payload: bytes
    slots: int = 1
    """How many it takes, and how much credit the leader took for it."""


class ResultsConfirmed(msgspec.Struct, frozen=True, gc=False):
    """These results are safe with the leader."""

    jobs: Sequence[JobId]


class Fetched(msgspec.Struct, frozen=True, gc=False):
    """The leader waits for the results of these, which it was told of as kept."""

    jobs: Sequence[JobId]


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    jobs: Sequence[JobId]


class LeaderHeard(msgspec.Struct, frozen=True, gc=False):
    """The leader lives."""


class ResultsWritten(msgspec.Struct, frozen=True, gc=False):
    """What the leader was sent before `TellWhenWritten` has left, but for what a buffer may hold."""


class ProgramEnded(msgspec.Struct, frozen=True, gc=False):
    """A program that was started is done, whatever came of it; its result is on the disk."""

    job: JobId
    ok: bool
    reason: str
    payload: bytes
    ran_s: float = 0.0
    """How long the program ran."""
    fault: str = ""
    """What is wrong with this machine, if that is why: whether or not the program had begun."""
    request: bytes = b""
    """The digest of the request that was run; empty if it is not known."""


class ResultLoaded(msgspec.Struct, frozen=True, gc=False):
    """What the disk has of a job; None if nothing."""

    job: JobId
    ok: bool
    payload: bytes | None
    reason: str = ""
    """Why it failed."""
    request: bytes = b""
    """The digest of the request that was run; empty if it is not known."""


class CpuMeasured(msgspec.Struct, frozen=True, gc=False):
    others: float
    """The share of the machine's CPU that others than our jobs used of late, 0 to 1."""


class Probed(msgspec.Struct, frozen=True, gc=False):
    """What `Probe` found: why no program can be started here; empty if one was."""

    why: str


class RestKnown(msgspec.Struct, frozen=True, gc=False):
    """The leader knows that this machine is out of order: what credit it had is void, and what it assigned for it came
    before this."""


class CallerWants(msgspec.Struct, frozen=True, gc=False):
    """A caller of this machine wants a job's result; `AnswerCaller` or `RefuseCaller` follows. Nobody has to wait for
    it: the job goes on without."""

    job: JobId
    payload: bytes
    slots: int = 1


class CallerCancels(msgspec.Struct, frozen=True, gc=False):
    """A caller of this machine wants a job to end, whoever it is for."""

    job: JobId


class StopAsked(msgspec.Struct, frozen=True, gc=False):
    """Finish what runs and stop; asked again, stop now."""


SlotsEvent: TypeAlias = (
    Recovered
    | Opened
    | LeaderWelcomed
    | LinkLost
    | Assigned
    | ResultsConfirmed
    | Fetched
    | Cancelled
    | LeaderHeard
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

# What it does.


class StartProgram(msgspec.Struct, frozen=True, gc=False):
    job: JobId
    payload: bytes


class KillProgram(msgspec.Struct, frozen=True, gc=False):
    """End it; `Ended` follows, with this code as its reason."""

    job: JobId
    code: str


class LoadResult(msgspec.Struct, frozen=True, gc=False):
    """Read it from the disk; `ResultLoaded` follows."""

    job: JobId


class ForgetResult(msgspec.Struct, frozen=True, gc=False):
    """The leader has this failure for good: from the disk it must not answer for a later attempt, in no later life."""

    job: JobId


class SendHolding(msgspec.Struct, frozen=True, gc=False):
    running: tuple[JobId, ...]
    finished: tuple[JobId, ...]
    """Not yet confirmed: their acks follow."""
    kept: tuple[JobId, ...] = ()
    """Of an earlier life, confirmed or not: they follow if they are fetched."""


class SendAck(msgspec.Struct, frozen=True, gc=False):
    job: JobId
    payload: bytes
    request: bytes = b""
    """The digest of the request that was run; empty if it is not known."""


class TellWhenResultsWritten(msgspec.Struct, frozen=True, gc=False):
    """`Written` follows, once the leader has been sent what was said: until then it is told no more results."""


class SendFailure(msgspec.Struct, frozen=True, gc=False):
    """An ack for a job that was never started here or whose result is gone, and why: the worker's word."""

    job: JobId
    code: str
    text: str
    begun: bool = True
    """False if it may well be started by another worker."""


class SendCredit(msgspec.Struct, frozen=True, gc=False):
    amount: int


class SendLeaving(msgspec.Struct, frozen=True, gc=False):
    pass


class SendResting(msgspec.Struct, frozen=True, gc=False):
    """This machine is out of order, and why; `RestKnown` follows. With nothing to say, it is in order again."""

    why: str


class SendRunnerHeartbeat(msgspec.Struct, frozen=True, gc=False):
    held_by: float = 0.0
    """Since the last one, credit was held back because others used so much of the CPU, 0 to 1."""


class AnswerCaller(msgspec.Struct, frozen=True, gc=False):
    """Those of this machine who wait for the job get its result: it has just ended, or was kept."""

    job: JobId
    payload: bytes
    request: bytes = b""
    """The digest of the request that was run; empty if it is not known."""
    kept: bool = False


class RefuseCaller(msgspec.Struct, frozen=True, gc=False):
    """They get none: a code of the error table, and words."""

    job: JobId
    code: str
    text: str


class MeasureCpu(msgspec.Struct, frozen=True, gc=False):
    """`CpuMeasured` follows."""


class Probe(msgspec.Struct, frozen=True, gc=False):
    """Try whether a program can be started here; `Probed` follows."""


class HealthChanged(msgspec.Struct, frozen=True, gc=False):
    """This machine is out of order, and why; or in order again. For the log."""

    why: str


class ComplainAboutLeader(msgspec.Struct, frozen=True, gc=False):
    """The leader did what it must not: one log line per connection."""

    text: str


class HangUpOnLeader(msgspec.Struct, frozen=True, gc=False):
    why: str


class RunnerStopped(msgspec.Struct, frozen=True, gc=False):
    """All is told, or there is no time left: end what still runs, close, go. Nothing follows."""


SlotsDo: TypeAlias = (
    StartProgram
    | KillProgram
    | LoadResult
    | ForgetResult
    | SendHolding
    | SendAck
    | TellWhenResultsWritten
    | SendFailure
    | SendCredit
    | SendLeaving
    | SendResting
    | SendRunnerHeartbeat
    | AnswerCaller
    | RefuseCaller
    | MeasureCpu
    | Probe
    | HealthChanged
    | ComplainAboutLeader
    | HangUpOnLeader
    | RunnerStopped
)

SlotsStep: TypeAlias = Step[None, SlotsDo]
