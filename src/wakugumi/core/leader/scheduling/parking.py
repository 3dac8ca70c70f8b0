"""Which lane is served next, of those that are ready and those that wait for credit? (SPEC L1)

A lane without credit is *parked* with the pools it waits for. It takes a *place* when it begins to wait, and gives it
up when it is served; of all lanes that can use the credit there is, whichever pools they wait for, the lowest place is
served next. So between two jobs of one subject every other one that its worker hears and that waited has its turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace

from wakugumi.core.leader.records import Lane, PatternPool, Turn, WorkerRecord
from wakugumi.core.leader.scheduling.lane_states import NOWHERE, PARKED, READY, LaneState
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.leader.waiting_line import WaitingLine


class Parking:
    """Where the lanes of one leader wait."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._places = 0
        """The last one taken."""
        self.ready: WaitingLine[Lane] = WaitingLine()
        self._pools_with_news: dict[PatternPool, None] = {}
        """Someone waits there, and there may be credit."""
        self.news: list[tuple[int, int, PatternPool]] = []
        """The same while lanes are served, as a heap: the lowest place of those that wait there, a number, the pool."""
        self._able: list[WorkerRecord] = []
        """Whose credit is the news."""

    def wake(self, lane: Lane) -> None:
        """It is to be served."""
        if not lane.place:
            self._places += 1
            lane.place = self._places
        lane.waits = READY
        self.ready.add(lane.place, lane)

    def park(self, lane: Lane, state: LaneState = PARKED) -> None:
        if not lane.place:
            self._places += 1
            lane.place = self._places
        lane.waits = state
        for pool in lane.all_pools if lane.simple else lane.pools:
            pool.parked.add(lane.place, lane)

    def unpark(self, lane: Lane) -> None:
        lane.waits = NOWHERE
        for pool in lane.pools:
            del pool.parked.at[lane.place]
        for pool in lane.simple_pools:
            pool.parked.at.pop(lane.place, None)

    def leave(self, lane: Lane) -> None:
        """It stands in no line any more."""
        if lane.waits is READY:
            lane.waits = NOWHERE
            del self.ready.at[lane.place]
        elif lane.waits is not NOWHERE:
            self.unpark(lane)

    # Pools come and go.

    def pool_came(self, lane: Lane, pool: PatternPool) -> None:
        """One more pool serves this lane."""
        if lane.is_parked and (lane.simple or not pool.simple_only):
            pool.parked.add(lane.place, lane)

    def pool_went(self, pool: PatternPool) -> None:
        pool.parked.at.clear()
        self._pools_with_news.pop(pool, None)

    def pools_changed(self, lane: Lane, pools: list[PatternPool]) -> None:
        """These serve the lane from now on, in place of those that it has."""
        if lane.is_parked:
            for pool in lane.all_pools:
                pool.parked.at.pop(lane.place, None)
            for pool in pools:
                if lane.simple or not pool.simple_only:
                    pool.parked.add(lane.place, lane)
                    self._pools_with_news[pool] = None

    # Credit comes, and lanes are served.

    def hear_credit(self) -> Iterator[Turn]:
        """Which pools have news, as the ranks of workers have changed? Yields turns for which such a worker is kept."""
        # Where other pools serve a lane than before, the credit may be anybody's.
        self._able = list(self._roster.by_conn.values()) if self._pools_with_news else []
        for able in self._roster.rank_changed():
            self._able.append(able)
            if able.kept_for is not None:
                yield able.kept_for
                continue
            for pool in able.pools:
                if pool.parked.at:
                    self._pools_with_news[pool] = None

    def hear_news(self) -> None:
        """Lanes are served from now on."""
        if self._pools_with_news:
            self.news = [(pool.parked.first(), at, pool) for at, pool in enumerate(self._pools_with_news)]
            heapify(self.news)
            self._pools_with_news.clear()

    def hear_of(self, worker: WorkerRecord) -> None:
        """It was kept for a large job, which it now has: lanes that waited before may use the rest of its credit."""
        pools = [*(pool for _, _, pool in self.news), *(pool for pool in worker.pools if pool.parked.at)]
        self._pools_with_news = dict.fromkeys(pools)
        self._able.append(worker)
        self.hear_news()

    def next(self) -> Lane | None:
        """Of the lanes for which there may be something, the one with the lowest place. It waits no longer."""
        news, ready = self.news, self.ready
        while news:
            known, at, pool = news[0]
            place = pool.parked.first()
            if not place:
                heappop(news)
            elif self._roster.best_of(pool) is None:
                heappop(news)
                if news and not self._is_credit_left():
                    news.clear()
            elif place != known and len(news) > 1:
                heapreplace(news, (place, at, pool))
            elif ready.at and ready.first() < place:
                break
            else:
                lane = pool.parked.at[place]
                self.unpark(lane)
                return lane
        if ready.at:
            lane = ready.take_first()
            lane.waits = NOWHERE
            return lane
        return None

    def _is_credit_left(self) -> bool:
        able = self._able
        while able and able[-1].rank < 0:
            able.pop()
        return bool(able)

    def check(self, lanes: Iterable[Lane]) -> None:
        """Holds for these, which are all lanes there are, between two rounds of service."""
        assert not self.news
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
            assert (lane.waits is READY) == (self.ready.at.get(lane.place) is lane)
            assert lane.waits is NOWHERE or (lane.queued and lane.place)
            assert lane.place <= self._places
            assert lane.queued or not lane.place
