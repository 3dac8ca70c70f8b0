"""Which lane is served next: one that is ready, or one that waits for credit? (SPEC L1)

A lane without credit is *parked* with its pools. A lane takes a *place* when it begins to wait, and gives it up when it
is served; of all lanes that can use the available credit, in any pool, the lowest place is served next. So between two
jobs of one subject, every other waiting subject of the same worker has its turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace

from wakugumi.core.leader.records import Lane, PatternPool, Turn, WorkerRecord
from wakugumi.core.leader.scheduling.lane_states import NOWHERE, PARKED, READY, LaneState
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.leader.waiting_line import WaitingLine


class Parking:
    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._places = 0
        """The last place taken."""
        self.ready: WaitingLine[Lane] = WaitingLine()
        self._pools_to_serve: dict[PatternPool, None] = {}
        """Pools with parked lanes, for which there may be credit."""
        self.candidates: list[tuple[int, int, PatternPool]] = []
        """Heap of pools with parked lanes while lanes are served: lowest place in the pool, a number, the pool."""
        self._able: list[WorkerRecord] = []
        """Workers with new credit."""

    def wake(self, lane: Lane) -> None:
        """Put a lane into the line of lanes to be served."""
        if not lane.place:
            self._places += 1
            lane.place = self._places
        lane.waits_in = READY
        self.ready.add(lane.place, lane)

    def park(self, lane: Lane, state: LaneState = PARKED) -> None:
        if not lane.place:
            self._places += 1
            lane.place = self._places
        lane.waits_in = state
        for pool in lane.all_pools if lane.simple else lane.pools:
            pool.parked.add(lane.place, lane)

    def unpark(self, lane: Lane) -> None:
        lane.waits_in = NOWHERE
        for pool in lane.pools:
            del pool.parked.at[lane.place]
        for pool in lane.simple_pools:
            pool.parked.at.pop(lane.place, None)

    def leave(self, lane: Lane) -> None:
        """Take a lane out of its line."""
        if lane.waits_in is READY:
            lane.waits_in = NOWHERE
            del self.ready.at[lane.place]
        elif lane.waits_in is not NOWHERE:
            self.unpark(lane)

    # Changes of pools.

    def pool_added(self, lane: Lane, pool: PatternPool) -> None:
        """One more pool serves this lane."""
        if lane.is_parked and (lane.simple or not pool.simple_only):
            pool.parked.add(lane.place, lane)

    def pool_removed(self, pool: PatternPool) -> None:
        pool.parked.at.clear()
        self._pools_to_serve.pop(pool, None)

    def pools_changed(self, lane: Lane, pools: list[PatternPool]) -> None:
        """These pools serve the lane from now on, in place of its present ones."""
        if lane.is_parked:
            for pool in lane.all_pools:
                pool.parked.at.pop(lane.place, None)
            for pool in pools:
                if lane.simple or not pool.simple_only:
                    pool.parked.add(lane.place, lane)
                    self._pools_to_serve[pool] = None

    # Service.

    def collect_credit(self) -> Iterator[Turn]:
        """Rank changed workers and note their pools. Yields turns for which such a worker is kept free."""
        # If other pools serve a lane than before, any worker's credit may be new to it.
        self._able = list(self._roster.by_conn.values()) if self._pools_to_serve else []
        for able in self._roster.rank_changed():
            self._able.append(able)
            if able.kept_for is not None:
                yield able.kept_for
                continue
            for pool in able.pools:
                if pool.parked.at:
                    self._pools_to_serve[pool] = None

    def begin_service(self) -> None:
        """Begin to serve the noted pools."""
        if self._pools_to_serve:
            self.candidates = [(pool.parked.first(), at, pool) for at, pool in enumerate(self._pools_to_serve)]
            heapify(self.candidates)
            self._pools_to_serve.clear()

    def offer_rest_of(self, worker: WorkerRecord) -> None:
        """A worker that was kept free has its large job: parked lanes may use the rest of its credit."""
        pools = [*(pool for _, _, pool in self.candidates), *(pool for pool in worker.pools if pool.parked.at)]
        self._pools_to_serve = dict.fromkeys(pools)
        self._able.append(worker)
        self.begin_service()

    def next(self) -> Lane | None:
        """Remove and return the lane with the lowest place that may have credit."""
        candidates, ready = self.candidates, self.ready
        while candidates:
            known, at, pool = candidates[0]
            place = pool.parked.first()
            if not place:
                heappop(candidates)
            elif self._roster.best_of(pool) is None:
                heappop(candidates)
                if candidates and not self._is_credit_left():
                    candidates.clear()
            elif place != known and len(candidates) > 1:
                heapreplace(candidates, (place, at, pool))
            elif ready.at and ready.first() < place:
                break
            else:
                lane = pool.parked.at[place]
                self.unpark(lane)
                return lane
        if ready.at:
            lane = ready.take_first()
            lane.waits_in = NOWHERE
            return lane
        return None

    def _is_credit_left(self) -> bool:
        able = self._able
        while able and able[-1].rank < 0:
            able.pop()
        return bool(able)

    def check(self, lanes: Iterable[Lane]) -> None:
        """Holds between two rounds of service. `lanes` are all lanes."""
        assert not self.candidates
        self.ready.check()
        for pool in {pool for worker in self._roster for pool in worker.pools}:
            pool.parked.check()
        for lane in lanes:
            parked = lane.is_parked
            assert all((pool.parked.at.get(lane.place) is lane) == parked for pool in lane.pools)
            assert all(
                parked if pool.parked.at.get(lane.place) is lane else not parked or not lane.simple
                for pool in lane.simple_pools
            )
            assert (lane.waits_in is READY) == (self.ready.at.get(lane.place) is lane)
            assert lane.waits_in is NOWHERE or (lane.queued and lane.place)
            assert lane.place <= self._places
            assert lane.queued or not lane.place
