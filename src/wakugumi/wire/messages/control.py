"""Which messages report a worker's state or ask a leader? Heartbeats, rests, held jobs, questions."""

from __future__ import annotations

from typing import Final

import msgspec

from wakugumi.core.leader.questions import Question
from wakugumi.errors import PeerError, Refused
from wakugumi.wire.messages.payload import TEXT_CHARS_MAX, read_payload
from wakugumi.wire.untrusted_json import JsonReader, Unreadable


class Load(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """A worker's heartbeat: the machine's CPU use, 0 to 1."""

    cpu: float = 0.0
    held_by: float = 0.0
    """CPU use of other programs for which credit was held back."""


class Rest(msgspec.Struct, frozen=True, rename="pascal"):
    """Why a worker's machine is out of order; empty if it is in order again."""

    why: str


class Holding(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """Jobs and results of a worker that has connected (SPEC L4)."""

    running: list[bytes] = []
    finished: list[bytes] = []
    """Unconfirmed results, which follow unasked."""
    kept: list[bytes] = []
    """Results of an earlier life of this worker, which follow if fetched."""


_question: Final[JsonReader[Question]] = JsonReader(Question)  # type: ignore[arg-type]


def read_load(payload: bytes) -> Load:
    """The load, limited to 0 to 1."""
    load = read_payload(Load, payload, "Heartbeat") if payload else Load()
    return Load(min(max(load.cpu, 0.0), 1.0), min(max(load.held_by, 0.0), 1.0))


def read_rest(payload: bytes) -> str:
    """Why a worker rests, cut to a length that a list can show. Raises PeerError."""
    return read_payload(Rest, payload, "Resting").why[:TEXT_CHARS_MAX]


def read_holding(payload: bytes) -> Holding:
    """Raises PeerError, also for ids that are not 16 bytes."""
    holding = read_payload(Holding, payload, "Holding")
    if any(len(job_id) != 16 for ids in (holding.running, holding.finished, holding.kept) for job_id in ids):
        raise PeerError("the payload of Holding has an id that is not 16 bytes")
    return holding


def read_question(payload: bytes) -> Question:
    """Raises Refused: a question of another version must not end the connection."""
    try:
        return _question.read(payload)
    except Unreadable as error:
        raise Refused("unknown-question", f"the leader does not know this question: {error}") from None
