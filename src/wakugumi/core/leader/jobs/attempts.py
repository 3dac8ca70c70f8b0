"""How did an attempt end, and is that its job's answer? (SPEC L3, W6)

Attempts that the grid lost count towards ATTEMPTS_MAX, attempts that the program ended towards the job's `retries`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wakugumi.core.leader.events import Acked
from wakugumi.core.leader.records import JobRecord
from wakugumi.errors import CODES

LEADER_LOST: Final = "leader-lost"
"""Outcome of an attempt of an earlier leader, whose worker came back without the job or not at all: the assignment may
never have reached it."""
LEADER_LOST_PER_ATTEMPT: Final = 4
"""So many attempts with LEADER_LOST count as one: a leader that dies often does not kill its jobs, but a job that kills
leader and worker each time is dead in the end."""
EXIT: Final = "exit"
PROGRAM_ENDS: Final = frozenset({EXIT, "timeout"})
"""Outcomes that the program caused: the job's answer, or one of its `retries` (SPEC W6)."""
OUTPUTS_KEPT: Final = 3
"""Number of attempts, the last ones, whose output is kept."""


def is_retried(job: JobRecord, event: Acked) -> bool:
    """The program failed or timed out, and the job has retries left."""
    return (event.reason or EXIT) in PROGRAM_ENDS and retries_used(job) < job.retries


def is_final(event: Acked) -> bool:
    """Is this the job's answer, or only the end of an attempt? A timeout and a FAILED without a reason, from an old
    worker, are answers (SPEC W6). "cancelled" is none: the cancel has answered already."""
    if event.ok:
        return True
    code = CODES.get(event.reason)
    return event.reason != "cancelled" and (code is None or not code.retry)


def attempts_used(job: JobRecord) -> int:
    """Number of attempts that the grid lost."""
    with_leader = sum(attempt.outcome == LEADER_LOST for attempt in job.history)
    return len(job.history) - retries_used(job) - with_leader + with_leader // LEADER_LOST_PER_ATTEMPT


def outputs_of(job: JobRecord) -> int:
    """Bytes of kept output of all attempts."""
    return sum(len(attempt.output) for attempt in job.history)


def retries_used(job: JobRecord) -> int:
    """Number of attempts that the program ended, or that timed out."""
    return sum(attempt.outcome in PROGRAM_ENDS for attempt in job.history)


def strip_old_output(job: JobRecord) -> int:
    """Drop the output of all but the last attempts. Returns the freed bytes."""
    if len(job.history) <= OUTPUTS_KEPT:
        return 0
    old = job.history[-OUTPUTS_KEPT - 1]
    if not old.output:
        return 0
    bare = msgspec.structs.replace(old, output="")
    job.history = tuple(bare if attempt is old else attempt for attempt in job.history)
    return len(old.output)
