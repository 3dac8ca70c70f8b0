"""Which states does a job have, and which changes of them are allowed?

    LIMBO ─► QUEUED ──► RUNNING ──► DONE     BACKOFF: an attempt was lost and the next one waits its time
                ▲  ▲        │                DONE: there is one accepted result, OK or FAILED. A FAILED job that is
                │  └─ BACKOFF ◄┘                   submitted again gets a new record (L6)
                └───────────┘                LIMBO: a new record, or one whose last attempt was lost

`JobRecord.enter` looks into this table, and nothing else changes a job's state.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class JobState(IntEnum):
    """Where a job is. An IntEnum because a million of them are held and compared."""

    QUEUED = 0
    BACKOFF = 1
    RUNNING = 2
    DONE = 3
    LIMBO = 4
    """In no queue and on no worker, inside one step only: it is about to become one of the others."""


QUEUED: Final = JobState.QUEUED
BACKOFF: Final = JobState.BACKOFF
RUNNING: Final = JobState.RUNNING
DONE: Final = JobState.DONE
LIMBO: Final = JobState.LIMBO
"""The same as plain names, to be compared by `is`: that happens ten times per job, and to look up a member of an enum
costs twenty times as much as a name."""

TRANSITIONS: Final[dict[JobState, frozenset[JobState]]] = {
    LIMBO: frozenset({QUEUED, BACKOFF, RUNNING, DONE}),
    QUEUED: frozenset({RUNNING, DONE}),
    BACKOFF: frozenset({QUEUED, RUNNING, DONE}),
    RUNNING: frozenset({QUEUED, BACKOFF, DONE, LIMBO}),
    DONE: frozenset(),
}
"""QUEUED and BACKOFF to RUNNING also happen without an assignment: a worker came back and still runs the job."""
