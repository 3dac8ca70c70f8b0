"""Which worker first, and how long until the next try?

A ranking turns what is known of a worker into one integer, the smallest first, so that a heap of plain integers finds
the best of any number of workers. The worker's number is its lowest bits: a rank names its worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from wakugumi.limits import (
    BACKOFF_FIRST_S,
    BACKOFF_MAX_S,
    CREDIT_MAX,
    JITTER_SHARE,
    RECONNECT_MAX_S,
    WORKER_PATIENCE_S,
    WORKER_RECONNECT_SOON_S,
)

NUMBER_BITS: Final = 30
NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1
_RUNNING_BITS: Final = 17
_RUNNING_MAX: Final = (1 << _RUNNING_BITS) - 1
# With the 13 bits of CREDIT_MAX these are 60: integers of two digits, which Python handles fastest after those of one.

Ranking: TypeAlias = Callable[[int, int, int, int], int]
"""(credit, running, turn, number) -> rank, where `turn` grows with every assignment the leader makes."""


def most_credit(credit: int, running: int, _turn: int, number: int) -> int:
    """Most free credit, then least running (SPEC L2, the default)."""
    if running > _RUNNING_MAX:  # min() would cost more than all the rest
        running = _RUNNING_MAX
    return ((CREDIT_MAX - credit) << _RUNNING_BITS | running) << NUMBER_BITS | number


def round_robin(_credit: int, _running: int, turn: int, number: int) -> int:
    """Whoever waited longest since its last assignment."""
    return turn << NUMBER_BITS | number


RANKINGS: Final[dict[str, Ranking]] = {"most-credit": most_credit, "round-robin": round_robin}


def backoff_s(failures: int, chance: float) -> float:
    """1 s after the first failure, doubling to 60 s, ± 20 % by `chance` in [0, 1) (SPEC L3)."""
    assert failures >= 1
    # The exponent is bounded before the power: 2 ** 10 000 is a number of 3 000 digits.
    plain = min(BACKOFF_FIRST_S * 2 ** min(failures - 1, 16), BACKOFF_MAX_S)
    return with_jitter(plain, chance)


def next_redial_s(pause_s: float, away_s: float) -> float:
    """A worker's pause after this one, if no leader has served it for so long."""
    return min(2 * pause_s, WORKER_RECONNECT_SOON_S if away_s < WORKER_PATIENCE_S else RECONNECT_MAX_S)


def with_jitter(seconds: float, chance: float) -> float:
    return seconds * (1 + JITTER_SHARE * (2 * chance - 1))
