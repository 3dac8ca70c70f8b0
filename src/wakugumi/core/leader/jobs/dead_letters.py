"""Which jobs used up their attempts and wait for an operator? (SPEC L3)

A dead job has a FAILED result like any other. As a dead letter its request and history stay too, even after the result
was delivered, until an operator requeues or drops the letter, or newer letters push it out.
"""

from __future__ import annotations

from typing import Final

from wakugumi.core.ids import JobId, Verdict
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.records import JobRecord
from wakugumi.limits.leader import DEAD_BYTES_MAX, DEAD_MAX

DEAD: Final = "dead"
"""Code of a dead job's result."""


def is_dead(result: bytes | Verdict | None) -> bool:
    return isinstance(result, Verdict) and result.code == DEAD


def last_outcome(job: JobRecord) -> str:
    """Outcome of the last attempt: why the job is dead."""
    return job.history[-1].outcome if job.history else ""


class DeadLetters:
    """The dead letters of one leader, the oldest first."""

    def __init__(self) -> None:
        self.letters: dict[JobId, JobRecord] = {}
        self.bytes = 0
        self.bytes_max = DEAD_BYTES_MAX
        """Limit of `bytes`; less where memory is limited."""

    def __contains__(self, job: JobRecord) -> bool:
        return self.letters.get(job.id) is job

    def add(self, job: JobRecord) -> None:
        self.letters[job.id] = job
        self.bytes += _weight(job)

    def remove(self, job: JobRecord) -> None:
        del self.letters[job.id]
        self.bytes -= _weight(job)

    def too_many(self) -> JobRecord | None:
        """The oldest letter, if there are too many."""
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
    """Bytes of the request and of the output of all attempts."""
    return job.size + sum(len(attempt.output) for attempt in job.history)
