"""Which jobs used up their attempts and wait for a person to look at them? (SPEC L3)

A dead job has its FAILED result like any other; what makes it a letter is that its request and its story stay here,
whoever has taken the result, until someone requeues or drops it, or newer ones push it out.
"""

from __future__ import annotations

from typing import Final

from wakugumi.core.ids import JobId, Verdict
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.records import JobRecord
from wakugumi.limits.leader import DEAD_BYTES_MAX, DEAD_MAX

DEAD: Final = "dead"
"""The code of the result that a dead job has."""


def is_dead(result: bytes | Verdict | None) -> bool:
    return isinstance(result, Verdict) and result.code == DEAD


def last_outcome(job: JobRecord) -> str:
    """Why it is dead: how its last attempt ended."""
    return job.history[-1].outcome if job.history else ""


class DeadLetters:
    """The dead letters of one leader, the oldest first."""

    def __init__(self) -> None:
        self.letters: dict[JobId, JobRecord] = {}
        self.bytes = 0
        self.bytes_max = DEAD_BYTES_MAX
        """Less where memory is limited."""

    def __contains__(self, job: JobRecord) -> bool:
        return self.letters.get(job.id) is job

    def add(self, job: JobRecord) -> None:
        self.letters[job.id] = job
        self.bytes += _weight(job)

    def remove(self, job: JobRecord) -> None:
        del self.letters[job.id]
        self.bytes -= _weight(job)

    def too_many(self) -> JobRecord | None:
        """The oldest, if it has to go."""
        if len(self.letters) > DEAD_MAX or self.bytes > self.bytes_max:
            return next(iter(self.letters.values()))
        return None

    def check(self) -> None:
        assert self.bytes == sum(_weight(job) for job in self.letters.values())
        assert self.too_many() is None
        for job_id, job in self.letters.items():
            assert job.id == job_id
            assert job.state is DONE
            assert is_dead(job.result)
            assert job.leaf or job.payload is not None, "a letter without its request cannot be requeued"


def _weight(job: JobRecord) -> int:
    """Its request, and what its attempts printed."""
    return job.size + sum(len(attempt.output) for attempt in job.history)
