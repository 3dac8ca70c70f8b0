"""The store and the folder that gateways share, on one disk: rows are there at once, and survive power loss once they
were flushed; a file is safe when it has its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kit.gateway_desk import GatewayRows

from wakugumi.core.gateway.rows import GatewayJob
from wakugumi.core.ids import JobId
from wakugumi.errors import Refused

if TYPE_CHECKING:
    from tests.sim.gateways.world import GatewayWorld


class SharedStore:
    """One disk."""

    def __init__(self, world: GatewayWorld) -> None:
        self._world = world
        self.rows = GatewayRows(lambda: world.clock.now)
        self.files: dict[str, bytes] = {}
        self.is_busy = self.is_full = False
        self.slow_s = 0.0
        self._flushed: dict[JobId, GatewayJob] = {}
        self._files_made = 0
        self._flushes = self._last_flush = 0
        self.are_old = False
        """All files are old enough to be removed if no row names them."""

    def check(self, *, writes: bool, ends: bool = False) -> None:
        """Raises Refused. The ends of accepted jobs have room that is kept for them."""
        if self.is_busy:
            raise Refused("busy", "the store is locked")
        if self.is_full and writes and not ends:
            raise Refused("disk-full", "no room")

    def snapshot(self) -> tuple[int, dict[JobId, GatewayJob]]:
        self._flushes += 1
        return self._flushes, dict(self.rows.rows)

    def flushed(self, snapshot: tuple[int, dict[JobId, GatewayJob]]) -> None:
        """What the disk held when the flush began is safe."""
        number, rows = snapshot
        if number > self._last_flush:
            self._last_flush, self._flushed = number, rows

    def keep(self, job: JobId, data: bytes) -> str:
        self._files_made += 1
        name = f"{job.hex()}-{self._files_made}"
        self.files[name] = data
        return name

    def lose_power(self) -> None:
        for job, row in self.rows.rows.items():
            if self._flushed.get(job) != row:
                self._world.judge.forget(row)
        self.rows.rows = dict(self._flushed)
        self.rows.leases.clear()
        self._world.judge.power_came_back()
