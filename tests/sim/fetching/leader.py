"""A leader as a simulated process: the real files machine chooses the sources.

Its place serves content. It may be an old one without blobs. It knows its caches after a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.fetching.source import ContentSource
from tests.sim.process import Process

from wakugumi.core.files import events as se
from wakugumi.core.files.machine import FileDistribution
from wakugumi.core.ids import ConnId
from wakugumi.core.transfers.fetch_events import SourceNamed
from wakugumi.limits.files import LEADER_TRANSFERS_MAX

if TYPE_CHECKING:
    from tests.sim.fetching.worker import LeaderLine
    from tests.sim.fetching.world import FetchWorld


class SourceLeader(Process):
    """One leader, over all its lives."""

    kind = "leader"
    machine: FileDistribution

    def __init__(self, world: FetchWorld, number: int, *, is_old: bool) -> None:
        super().__init__(world, f"leader{number}")  # type: ignore[arg-type]
        self.here = world
        self.is_old = is_old
        self.lines: dict[ConnId, LeaderLine] = {}
        self.door = ContentSource(world, self.name, LEADER_TRANSFERS_MAX)

    def born(self) -> None:
        self.machine = FileDistribution(lambda: self.here.next_number().to_bytes(16, "big"), now=self.clock.now)
        caches = [
            se.KeepCache(cache_id, "v", tuple(files.values()), (), True, 0.0)
            for cache_id, files in self.here.caches.items()
        ]
        self.machine.recover(caches, self.clock.now)
        self.door.is_open = True
        self.door.contents = set(self.here.kept)

    def died(self, power: bool) -> None:
        del power
        self.door.close()
        for line in list(self.lines.values()):
            line.cut()

    def has_work(self) -> bool:
        return bool(self.machine.sources.counters().fetching)

    def hear(self, line: LeaderLine, event: se.SpreadEvent) -> None:
        """A word that has come over a line."""
        if self.lines.get(line.conn) is line and self.alive:
            self.post(event)

    def went(self, line: LeaderLine) -> None:
        if self.lines.pop(line.conn, None) is not None and self.alive:
            self.post(se.WorkerWent(line.conn))

    def do(self, effect: Any) -> None:
        if isinstance(effect, se.SendSource | se.SendNoSource) and (line := self.lines.get(effect.conn)) is not None:
            want = int.from_bytes(effect.want, "big")
            if isinstance(effect, se.SendSource):
                named = SourceNamed(want, effect.sha256, effect.size, effect.url, effect.key)
            else:
                named = SourceNamed(want, code=effect.code, message=effect.text)
            line.to_worker(named)
