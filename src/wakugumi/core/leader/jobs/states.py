"""Which states does a job have, and which changes of them are allowed?

    LIMBO ─► QUEUED ──► RUNNING ──► DONE     BACKOFF: an attempt was lost, and the next one is delayed
                ▲  ▲        │                DONE: there is one accepted result, OK or FAILED. A FAILED job that is
                │  └─ BACKOFF ◄┘                   submitted again gets a new record (L6)
                └───────────┘                LIMBO: a new record, or one whose last attempt was lost

`JobRecord.enter` consults this table, and nothing else changes a job's state.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class JobState(IntEnum):
    """State of a job. An IntEnum because a million of them are held and compared."""

    QUEUED = 0
    BACKOFF = 1
    RUNNING = 2
    DONE = 3
    LIMBO = 4
    """In no queue and on no worker, within one step only: another state follows."""


QUEUED: Final = JobState.QUEUED
BACKOFF: Final = JobState.BACKOFF
RUNNING: Final = JobState.RUNNING
DONE: Final = JobState.DONE
LIMBO: Final = JobState.LIMBO
"""Members of JobState as module names, compared by `is` ten times per job: a lookup in the enum costs twenty times as
much."""

TRANSITIONS: Final[dict[JobState, frozenset[JobState]]] = {
    LIMBO: frozenset({QUEUED, BACKOFF, RUNNING, DONE}),
    QUEUED: frozenset({RUNNING, DONE}),
    BACKOFF: frozenset({QUEUED, RUNNING, DONE}),
    RUNNING: frozenset({QUEUED, BACKOFF, DONE, LIMBO}),
    DONE: frozenset(),
}
"""QUEUED and BACKOFF change to RUNNING also without an assignment: a worker came back and still runs the job."""
