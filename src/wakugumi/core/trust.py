"""Which workers gave wrong content, and who may say so?

After a few lies nobody fetches from a worker any more, also when it comes back. Whoever says of too many others that
they lied is not believed: it is more likely broken itself, and could otherwise bring all spreading to an end.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from wakugumi.core.job import WorkerId
from wakugumi.limits import ACCUSED_MAX, LIES_MAX

_LIARS_MAX: Final = 10_000
"""Workers whose lies are remembered; those whose first lie is longest ago are forgotten first."""


class Verdict(Enum):
    """What follows from an accusation."""

    BELIEVED = "it does not serve this content any more"
    BARRED = "it serves nothing any more"
    NOT_BELIEVED = "the accuser is not believed"


class Trust:
    def __init__(self) -> None:
        self._lies: dict[WorkerId, set[tuple[str, WorkerId]]] = {}
        """By who lied: about what, and who said so."""
        self._accused: dict[WorkerId, set[WorkerId]] = {}
        """By who accuses: whom, on this connection."""

    def is_barred(self, worker: WorkerId) -> bool:
        return len(self._lies.get(worker, ())) >= LIES_MAX

    def may_serve(self, worker: WorkerId, sha256: str) -> bool:
        lies = self._lies.get(worker)
        return lies is None or (len(lies) < LIES_MAX and all(about != sha256 for about, _ in lies))

    def accuse(self, liar: WorkerId, sha256: str, accuser: WorkerId) -> Verdict:
        accused = self._accused.setdefault(accuser, set())
        accused.add(liar)
        if len(accused) > ACCUSED_MAX:
            return Verdict.NOT_BELIEVED
        lies = self._lies.setdefault(liar, set())
        was_barred = len(lies) >= LIES_MAX
        if not was_barred:
            lies.add((sha256, accuser))
        while len(self._lies) > _LIARS_MAX:
            del self._lies[next(iter(self._lies))]
        return Verdict.BARRED if len(lies) >= LIES_MAX and not was_barred else Verdict.BELIEVED

    def went(self, worker: WorkerId) -> None:
        """What it said of others is not held against it when it comes back; what it did is."""
        self._accused.pop(worker, None)
