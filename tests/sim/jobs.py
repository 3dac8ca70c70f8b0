"""What do users want, and what became of it? The records that outlive every process of the world."""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b
from typing import Final

import msgspec

from wakugumi.core.ids import JobId
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Subject

FIRST_STRANGER: Final = 1_000_000
"""From here on connections are those of strangers; others have the numbers of the network's links."""
BLOBS: Final = tuple(digit * 64 for digit in "0123")
FILES: Final = ((), (BLOBS[0],), ("cache:a",), (BLOBS[1], BLOBS[2], "cache:b"), ())
"""What jobs that ask for something name."""


def digest_of(payload: bytes) -> bytes:
    """Which request it is: here, its bytes."""
    return blake2b(payload, digest_size=16).digest()


class Request(msgspec.Struct, frozen=True, eq=False):
    """A job as its user thought of it."""

    number: int
    job: JobId
    client: str
    subject: Subject
    program: str
    timeout_s: float
    retries: int
    payload: bytes
    takes_s: float
    """A program of this job takes about this long."""
    endless: bool
    """It would run for ever, and its user will cancel it."""
    wants: Requirements | None = None
    hangs: bool = False
    """It does nothing until its timeout ends it."""
    poison: bool = False
    """Its program begins, and breaks the machine."""
    too_large: bool = False
    """It can be started nowhere."""

    @property
    def frame(self) -> bytes:
        """What asks for it."""
        return self.job + self.payload


class Status(Enum):
    NEW = "not handed in yet"
    ASKED = "handed in, and no end seen"
    LATER = "handed in by an earlier life, and to be asked for again soon"
    DONE = "has its result"
    CANCELLED = "was cancelled"


OPEN: Final = frozenset({Status.NEW, Status.ASKED, Status.LATER})


class Want(msgspec.Struct, eq=False):
    """A job in the eyes of its user, who writes down what happened and survives the client's process."""

    request: Request
    status: Status = Status.NEW
    life: int = 0
    """The client's life in which it was handed in."""
    claimed: bool = False
    """It was handed in as a claim."""
    given: bool = False
    """It was handed in under an id that its user had written down before."""
    accepted: bool = False
    """A receipt was seen since it was submitted last."""
    asked_at: float = 0.0
    """When it was handed in last."""
    submitted_at: float = 0.0
    submitted_by: int = 0
    """How many connections the client had lost when it submitted this."""
    fresh_from: float = 0.0
    """The leader took a submit of this time, surely: a failure of an earlier execution is not its answer."""
    resubmits: int = 0
    """How often a FAILED result will be answered by a new submit."""
    cancelled: bool = False
    told: bool = False
    """The leader itself said that it is cancelled."""
    results: list[bytes] = []
    wish: int = 1
    """How often its user has wanted it from the beginning: a FAILED result may be answered by a new submit."""
    accepted_by: dict[str, float] = {}
    """The leaders whose receipts came since then, and when."""


class Execution(msgspec.Struct, eq=False):
    """A program that ran, or runs."""

    number: int
    job: JobId
    worker: str
    leader: str
    wish: int
    """Which of its user's wishes it serves."""
    opened: int
    """Which opening of the job at that leader it belongs to: a FAILED job that is submitted again is opened again."""
    opened_at: float
    started_at: float
    takes_s: float
    reason: str
    """Why it will fail, if it will."""
    payload: bytes
    """What was asked for."""
    killed: str = ""
    ended_at: float | None = None
    outcome: str = ""

    def end(self, now: float, outcome: str) -> None:
        self.ended_at = now
        self.outcome = outcome
