"""How does every worker get the same job? (SPEC S5)

A broadcast is one submit that becomes a job for each worker that matches at that moment, its *parts*:

    broadcast ──► its result, at once: the list of its parts
        ├─ part for worker A   a job like any other: queued, capped, redelivered, kept, confirmed
        └─ part for worker B   … but only its worker can serve it, and it has a deadline

A part's subject belongs to one worker, so a part waits for a worker that is away until the deadline; then the worker
counts as silent. The client that reads the list waits for the parts as it waits for other jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID, uuid5

import msgspec

from wakugumi.core.ids import JobId, Verdict, WorkerId
from wakugumi.core.subject import Pattern, Subject

PARTS: Final = "parts"
"""Code of a broadcast's result, a verdict that is OK: its text is the list of parts."""
SILENT: Final = "silent"

_OWN: Final = "_worker."
"""Prefix of a worker's own subject. Clients cannot submit such subjects: theirs begin with `job.assign`."""


class BroadcastPart(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One worker's share of a broadcast."""

    job: str
    """Id of the part as 32 hexadecimal digits, in the byte order of a frame."""
    worker: str
    """Label of the worker."""


def own_subject(worker: WorkerId) -> Subject:
    return Subject(Pattern(_OWN + worker.hex()))


def owner_of(subject: str) -> WorkerId | None:
    """The worker that owns this subject; None for other subjects."""
    return WorkerId(bytes.fromhex(subject[len(_OWN) :])) if subject.startswith(_OWN) else None


def part_id(broadcast: JobId, worker: WorkerId) -> JobId:
    """Always the same id: a repeated broadcast finds its parts."""
    return JobId(uuid5(UUID(bytes=broadcast), worker.hex()).bytes)


def list_of(parts: Sequence[BroadcastPart]) -> Verdict:
    return Verdict(PARTS, msgspec.json.encode(parts).decode())


def read_list(text: str) -> list[BroadcastPart]:
    """Read the text of `list_of`. `wire/messages/job.py` reads lists from connections."""
    return msgspec.json.decode(text, type=list[BroadcastPart])
