"""Which limit counts for a job, the one that it asked for or its machine's? The lower one. (SPEC W8, O1)"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

Number = TypeVar("Number", int, float)


class OperatorLimits(NamedTuple):
    """Limits of a machine's operator for each job there. None: no limit."""

    memory_bytes: int | None = None
    processes: int | None = None
    cpu_s: float | None = None


NO_LIMITS: Final = OperatorLimits()
ASKED: Final = "the limit that it asked for"


def lower(asked: Number | None, operators: Number | None, flag: str) -> tuple[Number | None, str]:
    """The limit that counts, and words for whose it is. `flag` sets the operator's."""
    if operators is None or (asked is not None and asked <= operators):
        return asked, ASKED
    return operators, f"this machine's limit for every job ({flag})"
