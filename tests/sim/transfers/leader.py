"""A leader as senders see it: it asks for blobs that its place lacks, and takes a job or a result when all are there.

It may ask twice, ask for content that no sender has, lose its connections, come back with another place, say its
Welcome late, or be an old one that takes no blobs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wakugumi.core.ids import JobId
from wakugumi.core.transfers import deliveries as dv
from wakugumi.core.transfers import upload_events as up

if TYPE_CHECKING:
    from tests.sim.transfers.client import SimJob, UploadingClient
    from tests.sim.transfers.place import Place
    from tests.sim.transfers.sender import Line
    from tests.sim.transfers.worker import DeliveringWorker
    from tests.sim.transfers.world import TransferWorld

NEVER_BROUGHT = "never brought"


class AskingLeader:
    """One leader, over all its lives."""

    def __init__(self, world: TransferWorld, number: int, place: Place, *, is_old: bool) -> None:
        self.world = world
        self.name = f"leader{number}"
        self.place = place
        self.is_old = is_old
        self.is_alive = True
        self.welcome_s = 0.1
        self.twice = self.raves = 0.0
        """Chances to ask twice, and for content that no sender has."""
        self.lines: set[Line] = set()

    def heal(self) -> None:
        self.is_alive = True
        self.welcome_s = 0.1
        self.twice = self.raves = 0.0

    def cut_all(self) -> None:
        for line in sorted(self.lines, key=lambda line: line.conn):
            line.cut()

    def _missing(self, named: list[str]) -> list[str]:
        missing = [sha256 for sha256 in named if sha256 not in self.place.blobs]
        if missing and self.world.faults.random() < self.raves:
            self.world.judge.caused("leader raves")
            missing.append(NEVER_BROUGHT)
        return missing

    def _times(self) -> int:
        return self.world.faults.randint(2, 7) if self.world.faults.random() < self.twice else 1

    def _ask(self, line: Line, ask: Callable[[], None]) -> None:
        """The other times a while later."""
        line.to_sender(ask)
        for _ in range(1, self._times()):
            self.world.clock.after(8.0 * self.world.faults.random(), lambda: line.to_sender(ask))

    def submitted(self, line: Line, client: UploadingClient, job: SimJob, frame: bytes) -> None:
        is_whole = frame.startswith(b"inlined")
        if self.is_old and not is_whole and job.blobs:
            self.world.judge.broken(f"{self.name} is old and gets {job} with references")
        missing = [] if is_whole else self._missing(list(job.blobs))
        if not missing:
            line.to_sender(lambda: client.accepted(job))
            return
        at = self.world.clock.now
        self._ask(line, lambda: client.asks(up.BlobsAsked(line.conn, job.about, missing), at))

    def acked(self, line: Line, worker: DeliveringWorker, job: JobId, parts: list[str]) -> None:
        missing = self._missing(parts)
        if not missing:
            line.to_sender(lambda: worker.settled(job, "done"))
            return
        at = self.world.clock.now
        self._ask(line, lambda: worker.asks(dv.PartsAsked(job, missing), at))
