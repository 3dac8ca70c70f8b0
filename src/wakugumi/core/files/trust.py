"""Which workers served wrong content, and whose reports count?

After a few reports by more than one worker, no worker fetches from the source for a while, also after a reconnect.
Reports of a worker that accuses too many others are ignored: the accuser is more likely broken, and could otherwise
stop all distribution. All reports expire: a disk may have been repaired.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeVar

from wakugumi.core.ids import WorkerId
from wakugumi.limits.files import ACCUSED_MAX, ACCUSERS_MIN, LIE_TTL_S, LIES_MAX

K = TypeVar("K")
V = TypeVar("V")

_WORKERS_MAX: Final = 10_000
"""Workers whose reports are remembered; the one with the oldest first report is forgotten first."""
_LIES_KEPT_MAX: Final = 100
"""Reports about one worker; the oldest are forgotten first."""


class AccusationOutcome(Enum):
    """Consequence of a report."""

    BELIEVED = "it does not serve this content any more"
    BARRED = "it serves nothing any more"
    NOT_BELIEVED = "the accuser is not believed"


class Trust:
    def __init__(self) -> None:
        self._lies: dict[WorkerId, dict[tuple[str, WorkerId], float]] = {}
        """By source: content, accuser and time, the oldest first."""
        self._accused: dict[WorkerId, dict[WorkerId, float]] = {}
        """By accuser: source and time of the first report. Kept after a reconnect."""

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
        """Reports that still count."""
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
