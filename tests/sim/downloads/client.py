"""One download of a client, in a thread of its own: the real machine, between a user and a place that both can fail.

Like `roles/client/files/downloads.py` with other hands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.downloads.place import PlaceFetch
from tests.sim.process import Process

from wakugumi.core.flows import ActFailed, Answered, Perform
from wakugumi.core.transfers.downloads import DownloadMachine

if TYPE_CHECKING:
    from tests.sim.downloads.world import DownloadWorld


class Download(Process):
    """One part of a result that its user wants."""

    kind = "download"
    machine: DownloadMachine

    def __init__(self, world: DownloadWorld, number: int, sha256: str, size: int) -> None:
        super().__init__(world, f"download{number}")  # type: ignore[arg-type]
        self.here = world
        self.sha256 = sha256
        self.size = size
        self.at = 0
        """Bytes in its file."""
        self.is_wrong = False
        """Some of them are wrong."""
        self.disk_is_full = False
        self.is_over = False
        self.fetch: PlaceFetch | None = None

    def born(self) -> None:
        self.at, self.is_wrong, self.fetch = 0, False, None
        self.here.judge.begins(self)
        self.machine = DownloadMachine(self.clock.now, self.random.random)
        self.clock.after(0.0, self._first)

    def _first(self) -> None:
        if self.alive:
            self._take(self.machine.tick(self.clock.now))

    def died(self, power: bool) -> None:
        del power
        if self.fetch is not None:
            self.fetch.stop()

    def has_work(self) -> bool:
        return self.alive and not self.is_over

    def leave(self) -> None:
        """Its user wants it no more: `on_bytes` raises."""
        if not self.is_over:
            self.is_over = True
            self.here.judge.counts["downloads left"] += 1
            if self.alive:
                self.die(power=False, why="left")

    def do(self, effect: Any) -> None:
        assert isinstance(effect, Perform), "a download abandons nothing"
        number = effect.number
        self.here.judge.tries(self)
        self.here.tell(self.name, "is at byte", self.at)

        def answer(error: Exception | None) -> None:
            self.fetch = None
            self.here.tell(self.name, "is answered", error)
            for _ in range(2 if self.here.faults.random() < 0.02 else 1):  # Some answers come twice.
                self.post(Answered(number, None) if error is None else ActFailed(number, error))
            self.here.judge.tried(self, error)

        assert self.fetch is None, "two tries at once"
        self.fetch = PlaceFetch(self.here.place, self, answer)

    def perform(self, effects: Any) -> None:
        super().perform(effects)
        if self.alive and self.machine.outcome is not None and not self.is_over:
            self.is_over = True
            self.here.judge.ended(self, self.machine.outcome)
