"""Which subjects have a lane, and which pools of workers serve it?

The first job of a subject opens its lane. Lanes without queued jobs are kept for a while, as another job of the subject
is likely; the oldest of them are forgotten.
"""

from __future__ import annotations

from itertools import islice

from wakugumi.core.backoff import Policies
from wakugumi.core.leader.jobs.broadcast import own_subject, owner_of
from wakugumi.core.leader.records import Lane, PatternPool, WorkerRecord
from wakugumi.core.leader.scheduling.parking import Parking
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.subject import Pattern, PatternTree, Subject
from wakugumi.limits.leader import LANES_IDLE_MAX


class LaneTable:
    def __init__(self, roster: Roster, policies: Policies, parking: Parking) -> None:
        self._roster = roster
        self._policies = policies
        self._parking = parking
        self.by_subject: dict[Subject, Lane] = {}
        self._tree: PatternTree[Lane] = PatternTree()
        self.idle: dict[Lane, None] = {}
        """Lanes without queued jobs, the oldest first."""

    def open(self, subject: Subject) -> Lane:
        policy = self._policies.of(subject)
        order = self._policies.rankings.index(policy.ranking)
        lane = Lane(subject, self._roster.pools_for(subject), order, sticky=policy.sticky)
        self.by_subject[subject] = self._tree[_as_pattern(subject)] = lane
        return lane

    def forget_oldest(self) -> None:
        """Forget many idle lanes at once: a dict finds its first key by stepping over all deleted ones."""
        for lane in list(islice(self.idle, LANES_IDLE_MAX // 8)):
            del self.idle[lane]
            del self.by_subject[lane.subject]
            del self._tree[_as_pattern(lane.subject)]

    def pools_added(self, pools: list[PatternPool]) -> None:
        """Add new pools to the lanes that they match."""
        for pool in pools:
            for lane in self._tree.overlapping(pool.pattern):
                if pool.is_address or any(
                    known[:1] and known[0].is_address for known in (lane.pools, lane.simple_pools)
                ):
                    self._find_pools(lane)
                elif owner_of(lane.subject) is None:
                    (lane.simple_pools if pool.simple_only else lane.pools).append(pool)
                    self._parking.pool_added(lane, pool)

    def worker_connected(self, worker: WorkerRecord) -> None:
        """A lane for this worker alone may have waited for it."""
        lane = self.by_subject.get(own_subject(worker.id))
        if lane is not None:
            self._find_pools(lane)

    def pools_removed(self, pools: list[PatternPool]) -> None:
        """Remove empty pools from their lanes."""
        for pool in pools:
            self._parking.pool_removed(pool)
            for lane in self._tree.overlapping(pool.pattern):
                if pool.is_address:
                    self._find_pools(lane)
                elif pool in lane.pools:
                    lane.pools.remove(pool)
                elif pool in lane.simple_pools:
                    lane.simple_pools.remove(pool)

    def check(self) -> None:
        assert len(self.idle) <= LANES_IDLE_MAX
        for subject, lane in self.by_subject.items():
            assert lane.subject == subject
            assert (lane.queued == 0) == (lane in self.idle)
            assert set(lane.all_pools) == set(self._roster.pools_for(subject))
            assert not any(pool.simple_only for pool in lane.pools)
            assert all(pool.simple_only for pool in lane.simple_pools)

    def _find_pools(self, lane: Lane) -> None:
        """Find the pools of a lane anew, as an address was added or removed."""
        pools = self._roster.pools_for(lane.subject)
        self._parking.pools_changed(lane, pools)
        lane.served_by(pools)


def _as_pattern(subject: Subject) -> Pattern:
    """A subject is a pattern without wildcards."""
    return Pattern(subject)
