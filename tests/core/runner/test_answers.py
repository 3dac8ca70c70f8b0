"""Which results does the leader get now, and which are read from the disk first?"""

from __future__ import annotations

from wakugumi.core.ids import JobId
from wakugumi.core.runner.answers import Answers
from wakugumi.core.runner.events import (
    ForgetResult,
    LoadResult,
    ResultLoaded,
    SendAck,
    SendFailure,
    SlotsDo,
    TellWhenResultsWritten,
)
from wakugumi.core.runner.finished import OWED_BYTES_MAX, FinishedJobs
from wakugumi.core.runner.leader_line import LineToLeader
from wakugumi.limits.wire import GIVEN_BYTES_MAX

A, B = (JobId(number.to_bytes(16, "little")) for number in (1, 2))
NOW = 1_000.0


class Machine:
    """A leader of our own, or an old one, and what it is told."""

    def __init__(self, *, old: bool = False) -> None:
        self.do: list[SlotsDo] = []
        self.here: set[JobId] = set()
        self.kept = FinishedJobs()
        line = LineToLeader()
        self.answers = Answers(line, self.kept, self.here.__contains__, self.do)
        line.opened(NOW)
        if old:
            line.taken_as_old()
        else:
            line.welcomed(NOW)

    def said(self) -> list[SlotsDo]:
        self.kept.check()
        self.answers.again.check()
        said = self.do.copy()
        self.do.clear()
        return said


def test_a_leader_that_comes_gets_what_it_is_owed_from_memory_or_the_disk() -> None:
    machine = Machine()
    machine.kept.finish(A, "", b"result", NOW, b"digest")
    machine.kept.finish(B, "", bytes(OWED_BYTES_MAX), NOW)
    machine.answers.begin()
    machine.answers.begin()
    assert machine.said() == [SendAck(A, b"result", b"digest"), LoadResult(B)]
    machine.answers.loaded(ResultLoaded(B, True, b"from disk"))
    assert machine.said() == [SendAck(B, b"from disk", b"")]


def test_a_confirmed_failure_is_forgotten_and_a_result_stays() -> None:
    machine = Machine()
    machine.kept.finish(A, "", b"result", NOW)
    machine.kept.finish(B, "exit", b"failure", NOW)
    machine.answers.confirm((A, B))
    assert machine.said() == [ForgetResult(B)]


def test_results_beyond_what_may_be_on_its_way_wait_until_the_line_is_written() -> None:
    machine = Machine()
    machine.answers.begin()
    large = bytes(GIVEN_BYTES_MAX)
    machine.kept.finish(A, "", large, NOW)
    machine.answers.answer(A, large, b"")
    machine.kept.finish(B, "", b"result", NOW)
    machine.answers.answer(B, b"result", b"")
    assert machine.said() == [SendAck(A, large, b""), TellWhenResultsWritten()]
    machine.answers.written()
    assert machine.said() == [SendAck(B, b"result", b"")]


def test_an_old_leader_that_was_told_is_owed_nothing() -> None:
    machine = Machine(old=True)
    machine.answers.begin()
    machine.kept.finish(A, "", b"result", NOW)
    machine.answers.answer(A, b"result", b"")
    assert machine.said() == [SendAck(A, b"result", b"")]
    assert machine.kept.owed_count == 0
    machine.answers.fetch((A,))
    assert machine.said() == [], "an old leader fetches nothing"


def test_a_result_that_the_disk_has_lost_is_a_failure() -> None:
    machine = Machine()
    machine.answers.begin()
    machine.kept.find([(A, 1.0)], NOW)
    machine.answers.fetch((A,))
    assert machine.said() == [LoadResult(A)]
    machine.answers.loaded(ResultLoaded(A, False, None))
    [failure] = machine.said()
    assert isinstance(failure, SendFailure)
    assert failure.job == A


def test_a_job_that_was_assigned_anew_is_answered_when_it_is_done() -> None:
    machine = Machine()
    machine.answers.begin()
    machine.kept.find([(A, 1.0)], NOW)
    machine.answers.fetch((A,))
    machine.here.add(A)
    machine.said()
    machine.answers.loaded(ResultLoaded(A, True, b"result"))
    assert machine.said() == []
    machine.answers.end()
    assert not machine.answers.sends_results
    assert machine.answers.again.is_idle
