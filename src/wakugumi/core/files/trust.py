"""Which workers gave wrong content, and who may say so?

After a few lies, told by more than one, nobody fetches from a worker for a while, also when it comes back. Whoever says
of too many others that they lied is not believed: it is more likely broken itself, and could otherwise bring all
spreading to an end. All is forgotten in time: a disk may have been mended.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeVar

from wakugumi.core.ids import WorkerId
from wakugumi.limits.files import ACCUSED_MAX, ACCUSERS_MIN, LIE_TTL_S, LIES_MAX

K = TypeVar("K")
V = TypeVar("V")

_WORKERS_MAX: Final = 10_000
"""Workers whose lies or accusations are remembered; those whose first one is longest ago are forgotten first."""
_LIES_KEPT_MAX: Final = 100
"""Of one worker; the oldest are forgotten first."""


class AccusationOutcome(Enum):
    """What follows from an accusation."""

    BELIEVED = "it does not serve this content any more"
    BARRED = "it serves nothing any more"
    NOT_BELIEVED = "the accuser is not believed"


class Trust:
    def __init__(self) -> None:
        self._lies: dict[WorkerId, dict[tuple[str, WorkerId], float]] = {}
        """By who lied: about what, who said so, and when. The oldest first."""
        self._accused: dict[WorkerId, dict[WorkerId, float]] = {}
        """By who accuses: whom, and when first. It stays so when it comes back."""

    def is_barred(self, worker: WorkerId, now: float) -> bool:
        return _bars(self._lies_of(worker, now))

    def may_serve(self, worker: WorkerId, sha256: str, now: float) -> bool:
        if worker not in self._lies:
            return True
        lies = self._lies_of(worker, now)
        return not _bars(lies) and all(about != sha256 for about, _ in lies)

    def accuse(self, liar: WorkerId, sha256: str, accuser: WorkerId, now: float) -> AccusationOutcome:
        accused = self._accused.setdefault(accuser, {})
        _forget_old(accused, now)
        accused.setdefault(liar, now)
        _bound(self._accused, _WORKERS_MAX)
        if len(accused) > ACCUSED_MAX:
            return AccusationOutcome.NOT_BELIEVED
        was_barred = self.is_barred(liar, now)
        lies = self._lies.setdefault(liar, {})
        if not was_barred:
            lies.setdefault((sha256, accuser), now)
            _bound(lies, _LIES_KEPT_MAX)
        _bound(self._lies, _WORKERS_MAX)
        return AccusationOutcome.BARRED if not was_barred and _bars(lies) else AccusationOutcome.BELIEVED

    def _lies_of(self, worker: WorkerId, now: float) -> dict[tuple[str, WorkerId], float]:
        """Those that still count."""
        lies = self._lies.get(worker)
        if lies is None:
            return {}
        _forget_old(lies, now)
        if not lies:
            del self._lies[worker]
        return lies


def _bars(lies: dict[tuple[str, WorkerId], float]) -> bool:
    return len(lies) >= LIES_MAX and len({accuser for _, accuser in lies}) >= ACCUSERS_MIN


def _forget_old(of: dict[K, float], now: float) -> None:
    while of and next(iter(of.values())) + LIE_TTL_S <= now:
        del of[next(iter(of))]


def _bound(of: dict[K, V], most: int) -> None:
    while len(of) > most:
        del of[next(iter(of))]
