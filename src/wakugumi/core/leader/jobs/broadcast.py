"""How does every worker get the same job? (SPEC S5)

A broadcast is one submit that becomes a job for each worker that matches at that moment, its *parts*:

    broadcast ──► the list of its parts, which is its result, at once
        ├─ part for worker A   a job like any other: queued, capped, redelivered, kept, confirmed
        └─ part for worker B   … but only its worker can serve it, and it has a deadline

A part's subject is its worker's own and nobody else's, so a part waits for a worker that is away until its deadline is
over; then the worker counts as silent. The client that reads the list waits for the parts as it waits for other jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID, uuid5

import msgspec

from wakugumi.core.ids import JobId, Verdict, WorkerId
from wakugumi.core.subject import Pattern, Subject

PARTS: Final = "parts"
"""The code of the verdict that is a broadcast's result: it is OK, and its text is the list."""
SILENT: Final = "silent"

_OWN: Final = "_worker."
"""No subject that can be submitted begins like this: they are all under `job.assign`."""


class BroadcastPart(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One worker's share of a broadcast."""

    job: str
    """Its id as 32 hexadecimal digits, in the order in which it stands in a frame."""
    worker: str
    """What people call it."""


def own_subject(worker: WorkerId) -> Subject:
    return Subject(Pattern(_OWN + worker.hex()))


def owner_of(subject: str) -> WorkerId | None:
    """Whose subject this is, if it is one worker's alone."""
    return WorkerId(bytes.fromhex(subject[len(_OWN) :])) if subject.startswith(_OWN) else None


def part_id(broadcast: JobId, worker: WorkerId) -> JobId:
    """The same each time: a broadcast that is submitted again finds its parts."""
    return JobId(uuid5(UUID(bytes=broadcast), worker.hex()).bytes)


def list_of(parts: Sequence[BroadcastPart]) -> Verdict:
    return Verdict(PARTS, msgspec.json.encode(parts).decode())


def read_list(text: str) -> list[BroadcastPart]:
    """What `list_of` wrote. A list that came over a connection is read by `wire/messages/job.py`."""
    return msgspec.json.decode(text, type=list[BroadcastPart])
