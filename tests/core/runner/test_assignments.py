"""What becomes of a job that was given to this machine, and who gets its slots when it has ended?"""

from __future__ import annotations

from wakugumi.core.ids import JobId
from wakugumi.core.runner.assignments import Assignments
from wakugumi.core.runner.events import (
    CallerWants,
    KillProgram,
    MeasureCpu,
    ProgramEnded,
    ResultLoaded,
    SendAck,
    SendFailure,
    SlotsDo,
    StartProgram,
)
from wakugumi.core.runner.slots_state import SlotsState

A, B, C = (JobId(number.to_bytes(16, "little")) for number in range(1, 4))
NOW = 1_000.0


class Machine:
    """Slots that a leader of our own was offered. Looks at the CPU are left out of what is said."""

    def __init__(self, slots: int) -> None:
        self.state = SlotsState(slots, 0.75, 600.0)
        self.assignments = Assignments(self.state, lambda payload: payload, rests=True)
        self.state.line.opened(NOW)
        self.state.line.welcomed(NOW)
        self.state.health.welcomed(rests=True)
        self.state.answers.begin()
        self.state.credit.offer(slots)
        self.said()

    def said(self) -> list[SlotsDo]:
        self.state.credit.take_offered()
        said = [each for each in self.state.take_steps() if not isinstance(each, MeasureCpu)]
        self.state.check()
        return said

    def assigned(self, job: JobId, slots: int = 1, payload: bytes = b"request") -> list[SlotsDo]:
        self.assignments.assign(job, payload, slots, NOW)
        return self.said()

    def called(self, job: JobId, slots: int = 1) -> list[SlotsDo]:
        """A caller wants a job that the disk does not have."""
        self.state.callers.want(CallerWants(job, b"request", slots), here=False, leaving=False, slots=9)
        self.assignments.loaded(ResultLoaded(job, False, None), NOW)
        return self.said()[1:]

    def ended(self, job: JobId, *, ok: bool = True) -> list[SlotsDo]:
        self.assignments.ended(ProgramEnded(job, ok, "" if ok else "exit", b"result", request=b"request"), NOW)
        return self.said()


def test_a_job_takes_its_slots_and_gives_them_back() -> None:
    machine = Machine(3)
    assert machine.assigned(A, 2) == [StartProgram(A, b"request")]
    assert machine.state.credit.credit == 1
    assert machine.ended(A) == [SendAck(A, b"result", b"request")]
    assert machine.state.credit.credit == 3


def test_what_callers_have_borrowed_is_due_to_the_leader_first() -> None:
    machine = Machine(1)
    assert machine.called(A) == [StartProgram(A, b"request")]
    assert machine.assigned(B) == []
    assert list(machine.state.jobs.due) == [B]
    assert StartProgram(B, b"request") in machine.ended(A)
    assert machine.state.credit.borrowed == 0


def test_another_request_under_the_id_of_a_job_that_runs_is_run_after_it() -> None:
    machine = Machine(2)
    machine.assigned(A)
    assert machine.assigned(A, payload=b"another") == []
    assert machine.ended(A) == [StartProgram(A, b"another")]


def test_a_job_that_is_cancelled_is_killed_or_never_started() -> None:
    machine = Machine(1)
    machine.called(A)
    machine.assigned(B)
    machine.assignments.cancel(B, NOW)
    [failure] = machine.said()
    assert isinstance(failure, SendFailure)
    machine.assignments.cancel(A, NOW)
    machine.assignments.cancel(A, NOW)
    assert machine.said() == [KillProgram(A, "cancelled")]


def test_a_sick_machine_gives_back_what_has_not_begun() -> None:
    machine = Machine(1)
    machine.called(A)
    machine.assigned(B)
    machine.assignments.fall_sick("disk", "full", NOW)
    given_back = [each for each in machine.said() if isinstance(each, SendFailure)]
    assert [(each.job, each.begun) for each in given_back] == [(B, False)]
    machine.assignments.rest_known(NOW)
    machine.said()
    assert (machine.state.credit.credit, machine.state.credit.kept) == (0, 0), "a caller has the only slot"
    machine.ended(A)
    assert machine.state.credit.kept == 1


def test_without_its_leader_what_was_not_started_is_forgotten() -> None:
    machine = Machine(1)
    machine.called(A)
    machine.assigned(B)
    machine.state.line.lost()
    machine.state.credit.withdraw()
    machine.state.health.unlinked()
    machine.assignments.leave_unstarted()
    machine.state.answers.end()
    assert machine.said() == []
    assert not machine.state.has(B)
    assert machine.state.has(A)
