"""A runner's slots and their clock: a test reads as a script of events and what the machine does."""

from __future__ import annotations

from collections.abc import Sequence

from wakugumi.core.greeting import WELCOME_WITHIN_S
from wakugumi.core.ids import JobId
from wakugumi.core.runner.events import (
    Assigned,
    CpuMeasured,
    HealthChanged,
    LeaderWelcomed,
    MeasureCpu,
    Opened,
    ProgramEnded,
    Recovered,
    ResultsWritten,
    SendHolding,
    SendRunnerHeartbeat,
    SlotsDo,
    SlotsEvent,
    TellWhenResultsWritten,
)
from wakugumi.core.runner.finished import OWED_BYTES_MAX
from wakugumi.core.runner.slots import Slots

CAP = 0.75
BUSY, QUIET = CpuMeasured(0.9), CpuMeasured(0.1)
REQUEST, RESULT, FAILURE = b"request", b"result", b"failure"
HUGE = bytes(OWED_BYTES_MAX + 1)
"""A result that is not held in memory: only the disk has it."""


def job(number: int) -> JobId:
    return JobId(number.to_bytes(16, "little"))


A, B, C, D = (job(number) for number in range(1, 5))


def assigned(*jobs: JobId) -> list[Assigned]:
    return [Assigned(each, REQUEST) for each in jobs]


def ended(which: JobId) -> ProgramEnded:
    return ProgramEnded(which, True, "", RESULT, ran_s=60.0)


def ended_huge(which: JobId) -> ProgramEnded:
    return ProgramEnded(which, True, "", HUGE)


def failed(which: JobId, reason: str = "exit") -> ProgramEnded:
    return ProgramEnded(which, False, reason, FAILURE, ran_s=60.0)


class SlotsScript:
    """A machine and its clock. Looks at the CPU, and that credit is held back because of it, are left out of what is
    said, unless asked for."""

    def __init__(self, slots: int = 2, *, old_leader: bool = True) -> None:
        self.slots = Slots(slots, CAP, digest=lambda payload: payload[:16].ljust(16, b"."), old_leader=old_leader)
        self.now = 1_000.0
        self.looks: list[SlotsDo] = []
        self.told: list[SlotsDo] = []
        self.slow = False
        """What is said to the leader is not written at once."""
        self.tick()

    def hear(self, *events: SlotsEvent) -> list[SlotsDo]:
        return self._heed(self.slots.handle(events, self.now).do)

    def tick(self, after_s: float = 0.0) -> list[SlotsDo]:
        self.now += after_s
        said = self._heed(self.slots.tick(self.now).do)
        wake_at = self.slots.wake_at()
        assert wake_at is None or wake_at > self.now
        return said

    def _heed(self, do: Sequence[SlotsDo]) -> list[SlotsDo]:
        self.slots.check()
        self.looks += [each for each in do if isinstance(each, MeasureCpu)]
        self.told += [each for each in do if isinstance(each, SendRunnerHeartbeat) and each.held_by]
        unsaid = MeasureCpu | HealthChanged | TellWhenResultsWritten
        said = [each for each in do if not isinstance(each, unsaid) and each not in self.told]
        if any(isinstance(each, TellWhenResultsWritten) for each in do) and not self.slow:
            said += self.hear(ResultsWritten())
        return said


def with_own_leader(slots: int = 2) -> SlotsScript:
    script = SlotsScript(slots)
    script.hear(Opened(), LeaderWelcomed())
    return script


def with_old_leader(slots: int = 2) -> SlotsScript:
    script = SlotsScript(slots)
    script.hear(Opened())
    script.tick(WELCOME_WITHIN_S)
    return script


def with_earlier_life(*jobs: JobId, slots: int = 2) -> SlotsScript:
    """It has finished these before, the oldest first, and an own leader has heard so."""
    script = SlotsScript(slots)
    script.hear(Recovered([(each, 1_000.0 - at) for at, each in enumerate(jobs)]))
    assert script.hear(Opened(), LeaderWelcomed())[0] == SendHolding((), (), jobs[::-1])
    return script
