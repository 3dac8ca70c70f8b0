"""Where content comes from, and one fetch of it: a source may lie, be slow, cut at any byte, be full, or die.

Bytes that came stay where they are, also wrong ones: the next fetch goes on behind them. What is wrong shows at the
end; then all of it is fetched again from the same source, if some of it came from another
(`roles/runner/files/transfer`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from wakugumi.core.transfers.fetch_events import FetchBlob, InVain
from wakugumi.errors import Refused

if TYPE_CHECKING:
    from tests.sim.fetching.worker import FetchingProcess
    from tests.sim.fetching.world import FetchWorld

SPEED: Final = 10_000_000.0
"""Bytes a second."""
STALL_S: Final = 10.0
SLOW_S: Final = 30.0
"""A source that sends next to nothing for this long is given up."""


class Partial(NamedTuple):
    """Bytes of a content that came."""

    at: int
    is_wrong: bool


class ContentSource:
    """The door at which one worker, or one leader, serves content."""

    def __init__(self, world: FetchWorld, name: str, serving_max: int) -> None:
        self.world = world
        self.name = name
        self.contents: set[str] = set()
        self.is_open = True
        self.lies = self.is_slow = self.is_full = False
        self.cuts = 0.0
        self.serving: set[SimFetch] = set()
        self._serving_max = serving_max

    @property
    def has_room(self) -> bool:
        return not self.is_full and len(self.serving) < self._serving_max

    def heal(self) -> None:
        self.lies = self.is_slow = self.is_full = False
        self.cuts = 0.0

    def close(self) -> None:
        """All that fetch from here find their connections cut."""
        self.is_open = False
        for fetch in sorted(self.serving, key=lambda fetch: fetch.made):
            fetch.cut()


class SimFetch:
    """One fetch under way. `answer` is called once, with None or an error, unless it is stopped."""

    def __init__(
        self,
        worker: FetchingProcess,
        act: FetchBlob,
        source: ContentSource | None,
        answer: Callable[[Exception | None], None],
    ) -> None:
        self.worker = worker
        self.act = act
        self._world = worker.here
        self._source = source
        self._answer = answer
        self._is_over = False
        self._began_at = 0.0
        self._from = 0
        self._is_mixed = False
        self.made = self._world.next_number()
        self._after(0.1 * self._world.random.random(), self._begin)

    def stop(self) -> None:
        """Its worker ends: what has come stays on the disk."""
        if not self._is_over:
            self._keep()
            self._is_over = True
            self._leave()

    def cut(self) -> None:
        """The source ends."""
        self._keep()
        self._leave()
        self._after(STALL_S * self._world.random.random(), lambda: self._end(InVain("dead", "cut off")))

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self._world.clock.after(seconds, lambda: None if self._is_over else call())

    def _leave(self) -> None:
        if self._source is not None:
            self._source.serving.discard(self)

    def _end(self, error: Exception | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._leave()
            self._answer(error)

    def _begin(self) -> None:
        source, sha256 = self._source, self.act.sha256
        if self.worker.is_full:
            self._end(Refused("disk", "no room"))
        elif source is None or not source.is_open:
            self._after(STALL_S * self._world.random.random(), lambda: self._end(InVain("dead", "nobody listens")))
        elif not source.has_room:
            self._end(InVain("busy", "full"))
        elif sha256 not in source.contents:
            self._end(InVain("dead", "not here"))
        else:
            self._from = self.worker.partials.get(sha256, Partial(0, False)).at
            self._is_mixed = self._from > 0
            source.serving.add(self)
            self._world.judge.serves(source, self.worker)
            self._move()

    def _move(self) -> None:
        source = self._source
        assert source is not None
        self._began_at = self._world.clock.now
        whole_s = (self.act.size - self._from) / SPEED
        if source.is_slow:
            self._after(SLOW_S, self._too_slow)
        elif self._world.faults.random() < source.cuts:
            self._after(whole_s * self._world.faults.random(), self.cut)
        else:
            self._after(whole_s, self._finish)

    def _keep(self) -> None:
        """Bytes until now are on the disk."""
        source = self._source
        if source is None or self not in source.serving:
            return
        moved = int((self._world.clock.now - self._began_at) * SPEED) // (1_000 if source.is_slow else 1)
        self._came(min(self._from + moved, self.act.size))

    def _came(self, at: int) -> None:
        assert self._source is not None
        before = self.worker.partials.get(self.act.sha256, Partial(0, False)) if self._from else Partial(0, False)
        self._world.judge.came(self.worker, self.act.sha256, at - self._from)
        is_wrong = before.is_wrong or (self._source.lies and at > self._from)
        self.worker.partials[self.act.sha256] = Partial(at, is_wrong)
        self._from = at
        self._began_at = self._world.clock.now

    def _too_slow(self) -> None:
        self._keep()
        self._end(InVain("slow", "next to nothing came"))

    def _finish(self) -> None:
        self._came(self.act.size)
        if not self.worker.partials.pop(self.act.sha256).is_wrong:
            self.worker.disk.add(self.act.sha256)
            self._end(None)
        elif self._is_mixed:
            self._is_mixed, self._from = False, 0
            self._world.judge.counts["fetched again, for the sources were mixed"] += 1
            self._move()
        else:
            self._world.judge.lied(self._source)
            self._end(InVain("lied", "wrong content"))
