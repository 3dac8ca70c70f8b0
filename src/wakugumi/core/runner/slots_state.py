"""What does the runner's state machine know? Its parts, and the invariants between them."""

from __future__ import annotations

from wakugumi.core.ids import JobId
from wakugumi.core.runner.answers import Answers
from wakugumi.core.runner.callers import Callers
from wakugumi.core.runner.cpu_watch import CpuWatch
from wakugumi.core.runner.credit import Credit
from wakugumi.core.runner.events import SlotsDo
from wakugumi.core.runner.finished import FinishedJobs
from wakugumi.core.runner.health import MachineHealth
from wakugumi.core.runner.jobs_here import JobsHere
from wakugumi.core.runner.leader_line import LineToLeader


class SlotsState:
    __slots__ = ("answers", "callers", "cpu", "credit", "do", "health", "jobs", "kept", "line")

    def __init__(self, slots: int, cpu_cap: float, done_ttl_s: float) -> None:
        self.do: list[SlotsDo] = []
        """Effects of this step, added by the parts."""
        self.line = LineToLeader()
        self.credit = Credit(slots)
        self.jobs = JobsHere()
        self.callers = Callers(self.do)
        self.kept = FinishedJobs(done_ttl_s)
        self.answers = Answers(self.line, self.kept, self._is_theirs, self.do)
        self.health = MachineHealth(self.line, self.credit, self.do)
        self.cpu = CpuWatch(cpu_cap)

    def has(self, job: JobId) -> bool:
        """Does the job run, or is it about to run?"""
        return self.jobs.has(job) or job in self.callers.asked

    def unused(self) -> int:
        """Slots in which no job runs, offered or not."""
        return self.credit.slots - self.jobs.taken()

    def free(self) -> int:
        """Number of slots that a caller of this machine can have now."""
        return 0 if self.line.leaving or self.jobs.due or self.jobs.waiting else self.unused()

    def is_done(self) -> bool:
        """No job runs, and no result is awaited."""
        jobs = self.jobs
        if jobs.running or jobs.looking or jobs.waiting or jobs.due or self.callers.asked or self.kept.owed_count:
            return False
        return not self.answers.again.is_promised

    def take_steps(self) -> list[SlotsDo]:
        """Take the effects of this step; the next step begins without any."""
        do = self.do.copy()
        self.do.clear()
        return do

    def check(self) -> None:
        jobs, line, again = self.jobs, self.line, self.answers.again
        self.credit.check(jobs.taken(), jobs.due_slots(), listening=line.listens, offering=line.is_offered)
        assert self.credit.offered == 0 or again.is_full
        assert not self.do
        if not line.listens:
            assert not any((jobs.looking, jobs.waiting, jobs.due))
            assert again.is_idle
        assert self.callers.ours <= jobs.running.keys()
        assert all(self.has(job) for job in self.callers.waiting), "a caller waits for nothing"
        assert not any(job in jobs.running for job in self.kept.owed), "a result that is owed is of a job that runs"
        assert not any(job in jobs.running for job in self.kept.earlier), "a job runs, and its old result is offered"
        jobs.check(self.credit.slots)
        line.check()
        self.health.check()
        self.kept.check()
        again.check()

    def _is_theirs(self, job: JobId) -> bool:
        """The job is here, and the leader gets its answer when it ends, even if only callers wanted it until now."""
        self.callers.ours.discard(job)
        return self.jobs.has(job)
