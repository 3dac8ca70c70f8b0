"""How did an attempt end, and is that its job's answer? (SPEC L3, W6)

Attempts that the grid lost count towards ATTEMPTS_MAX, those that the program ended itself towards its `retries`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wakugumi.core.leader.events import Acked
from wakugumi.core.leader.records import JobRecord
from wakugumi.errors import CODES

LEADER_LOST: Final = "leader-lost"
"""The attempt was given out by a leader that died since, and its worker came back without it, or not at all: it may
never have heard of it."""
LEADER_LOST_PER_ATTEMPT: Final = 4
"""So many of them count as one attempt: a leader that dies again and again does not kill what it holds, and a job that
takes leader and worker with it each time is dead in the end."""
EXIT: Final = "exit"
PROGRAM_ENDS: Final = frozenset({EXIT, "timeout"})
"""Ends of an attempt that are the program's own doing: the job's answer, or one of its `retries` (SPEC W6)."""
OUTPUTS_KEPT: Final = 3
"""Attempts of a job whose output is kept, the last ones."""


def is_retried(job: JobRecord, event: Acked) -> bool:
    """The program failed by itself or took too long, and the job asked for that not to be its answer yet."""
    return (event.reason or EXIT) in PROGRAM_ENDS and retries_used(job) < job.retries


def is_final(event: Acked) -> bool:
    """Is it the job's answer, or does it only end this attempt? An old worker gives no reason: its FAILED is an
    answer, and so is a timeout (SPEC W6). A worker that was told to cancel says so, and that was answered then."""
    if event.ok:
        return True
    code = CODES.get(event.reason)
    return event.reason != "cancelled" and (code is None or not code.retry)


def attempts_used(job: JobRecord) -> int:
    """Attempts that the grid lost. Those that the program ended itself are counted by its `retries`."""
    with_leader = sum(attempt.outcome == LEADER_LOST for attempt in job.history)
    return len(job.history) - retries_used(job) - with_leader + with_leader // LEADER_LOST_PER_ATTEMPT


def outputs_of(job: JobRecord) -> int:
    """How much of what its attempts printed is kept."""
    return sum(len(attempt.output) for attempt in job.history)


def retries_used(job: JobRecord) -> int:
    """Attempts that the program ended by itself, or that took too long."""
    return sum(attempt.outcome in PROGRAM_ENDS for attempt in job.history)


def strip_old_output(job: JobRecord) -> int:
    """Only the last attempts keep what they printed. Returns how much that sets free."""
    if len(job.history) <= OUTPUTS_KEPT:
        return 0
    old = job.history[-OUTPUTS_KEPT - 1]
    if not old.output:
        return 0
    bare = msgspec.structs.replace(old, output="")
    job.history = tuple(bare if attempt is old else attempt for attempt in job.history)
    return len(old.output)
