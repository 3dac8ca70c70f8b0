"""Which workers are there, and which of them takes the next job of this subject?

Workers that share a pattern stand in one pool, and a subject is served by the pools whose patterns match it: so a
thousand workers on `job.assign.>` are one pool, and a join costs one entry in the prefix tree. A pool finds its best
worker by a heap of ranks with lazy entries: an entry counts only while it equals its worker's present rank. Whoever
changes a worker says so (`changed`), and before the next assignment it is ranked anew, once, whatever happened to it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from wakugumi.core.broadcast import own_subject, owner_of
from wakugumi.core.job import ConnId, JobId, WorkerId
from wakugumi.core.policy import NUMBER_MASK, Ranking, most_credit
from wakugumi.core.subject import Pattern, PatternTree, Subject, is_address

if TYPE_CHECKING:
    from wakugumi.core.queues import Lane


class Pool:
    """The workers that subscribe to one pattern."""

    __slots__ = ("heap", "is_address", "members", "parked", "pattern")

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.is_address = False
        """It means one machine: subjects that it matches are served by no others while it is there (SPEC S4)."""
        self.members: dict[int, Worker] = {}
        self.heap: list[int] = []
        self.parked: OrderedDict[Lane, None] = OrderedDict()
        """Subjects with work that wait for credit here, in the order in which they began to wait. A plain dict finds
        its first key by stepping over all that were deleted before it."""


class Worker:
    """A worker as its leader knows it. It outlives its connection by the time it has to come back."""

    __slots__ = (
        "away_until",
        "blocked",
        "cancels",
        "conn",
        "cpu",
        "credit",
        "draining",
        "heartbeats",
        "id",
        "jobs",
        "joined_at",
        "label",
        "leaving",
        "name",
        "number",
        "patterns",
        "pools",
        "rank",
        "reattach",
        "receipts",
        "seen_at",
        "settled",
        "turn",
    )

    def __init__(self, worker_id: WorkerId, number: int) -> None:
        self.id = worker_id
        self.number = number
        self.name = ""
        self.label = _digits(worker_id)[:8]
        """What people call it."""
        self.conn: ConnId | None = None
        self.patterns: tuple[Pattern, ...] = ()
        self.pools: list[Pool] = []
        self.credit = 0
        self.jobs: dict[JobId, None] = {}
        """What it was given and has not answered, as far as the leader knows."""
        self.rank = -1
        self.turn = 0
        self.receipts = self.heartbeats = self.reattach = self.cancels = False
        self.settled = True
        """It has said what it holds, or never will: it may be given work."""
        self.draining = False
        self.leaving = False
        self.blocked = False
        """It does not read what it is sent."""
        self.away_until: float | None = None
        self.seen_at = self.joined_at = 0.0
        self.cpu = 0.0

    @property
    def usable_credit(self) -> int:
        if self.draining or self.leaving or self.blocked or not self.settled or self.conn is None:
            return 0
        return self.credit

    def call(self, name: str) -> None:
        self.name = name
        self.label = name or _digits(self.id)[:8]

    @property
    def state(self) -> str:
        if self.conn is None:
            return "away"
        if self.leaving:
            return "leaving"
        if self.draining:
            return "draining"
        return "ready" if self.usable_credit else "busy"


class Roster:
    """All workers of one leader."""

    def __init__(self, ranking: Ranking = most_credit) -> None:
        self._ranking = ranking
        self._tree: PatternTree[Pool] = PatternTree()
        self._numbers = 0
        self._turns = 0
        self._changed: dict[Worker, None] = {}
        self.by_id: dict[WorkerId, Worker] = {}
        self.by_conn: dict[ConnId, Worker] = {}

    def __len__(self) -> int:
        return len(self.by_conn)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self.by_id.values())

    def add(self, worker_id: WorkerId) -> Worker:
        """A worker never seen before. It is nobody's member until `connect`."""
        assert worker_id not in self.by_id
        self._numbers += 1
        worker = Worker(worker_id, self._numbers & NUMBER_MASK)
        self.by_id[worker_id] = worker
        return worker

    def connect(self, worker: Worker, conn: ConnId, patterns: tuple[Pattern, ...]) -> list[Pool]:
        """Put it into the pools of its patterns. Returns the pools that are new, or have become an
        address: subjects may have waited for them."""
        assert worker.conn is None
        worker.conn = conn
        worker.credit = 0
        worker.patterns = patterns
        self.by_conn[conn] = worker
        born = []
        for pattern in patterns:
            pool = self._tree.get(pattern)
            addressed = is_address(pattern, worker.name)
            if pool is None:
                pool = self._tree[pattern] = Pool(pattern)
                born.append(pool)
            elif addressed and not pool.is_address:
                born.append(pool)
            pool.is_address |= addressed
            pool.members[worker.number] = worker
            worker.pools.append(pool)
        return born

    def disconnect(self, worker: Worker) -> list[Pool]:
        """Its credit is gone with the connection (F7). Returns the pools that lost their last member."""
        assert worker.conn is not None
        del self.by_conn[worker.conn]
        worker.conn = None
        worker.credit = 0
        worker.rank = -1
        self._changed.pop(worker, None)
        emptied = []
        for pool in worker.pools:
            del pool.members[worker.number]
            if not pool.members:
                del self._tree[pool.pattern]
                emptied.append(pool)
        worker.pools = []
        return emptied

    def remove(self, worker: Worker) -> None:
        assert worker.conn is None
        assert not worker.jobs
        del self.by_id[worker.id]
        worker.away_until = None

    def pools_for(self, subject: Subject) -> list[Pool]:
        """Those whose patterns match; of these only the addresses, if there are any."""
        owner = owner_of(subject)
        if owner is not None:
            worker = self.by_id.get(owner)
            return [] if worker is None or worker.conn is None else [self._own_pool(worker)]
        matching = self._tree.match(subject)
        return [pool for pool in matching if pool.is_address] or matching

    def audience(self, subject: Subject) -> list[Worker]:
        """All who would take a job of this subject if they had a slot for it, in the order in which they came."""
        members = {worker.number: worker for pool in self.pools_for(subject) for worker in pool.members.values()}
        return [worker for _, worker in sorted(members.items()) if not (worker.draining or worker.leaving)]

    def _own_pool(self, worker: Worker) -> Pool:
        """The pool in which it is alone. It has one from the first time that something is meant for it alone."""
        pattern = own_subject(worker.id)
        pool = self._tree.get(pattern)
        if pool is None:
            pool = self._tree[pattern] = Pool(pattern)
            pool.is_address = True
            pool.members[worker.number] = worker
            worker.pools.append(pool)
            if worker.rank >= 0:
                _enter(pool, worker.rank)
        return pool

    def changed(self, worker: Worker) -> None:
        """Its credit, its readiness or what it runs is not what it was."""
        self._changed[worker] = None

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def rank_changed(self) -> list[Worker]:
        """Rank anew whoever changed. Returns those of them that may be given work: someone may wait for them."""
        if not self._changed:
            return []
        able = []
        for worker in self._changed:
            credit = worker.usable_credit
            if not credit:
                worker.rank = -1
                continue
            able.append(worker)
            rank = self._ranking(credit, len(worker.jobs), worker.turn, worker.number)
            if rank != worker.rank:
                worker.rank = rank
                for pool in worker.pools:
                    _enter(pool, rank)
        self._changed.clear()
        return able

    def best(self, pools: list[Pool]) -> Worker | None:
        """Of all members with credit the one to take the next job."""
        if len(pools) == 1:
            return self.best_of(pools[0])
        best: Worker | None = None
        for pool in pools:
            worker = self.best_of(pool)
            if worker is not None and (best is None or worker.rank < best.rank):
                best = worker
        return best

    def best_of(self, pool: Pool) -> Worker | None:
        heap, members = pool.heap, pool.members
        while heap:
            worker = members.get(heap[0] & NUMBER_MASK)
            if worker is not None and worker.rank == heap[0]:
                return worker
            heappop(heap)
        return None

    def assign(self, worker: Worker, job_id: JobId) -> None:
        """Take one credit for this job."""
        assert worker.credit > 0
        self._turns += 1
        worker.turn = self._turns
        worker.credit -= 1
        worker.jobs[job_id] = None
        old = worker.rank
        if not worker.credit:
            worker.rank = -1
            return
        worker.rank = rank = self._ranking(worker.credit, len(worker.jobs), worker.turn, worker.number)
        for pool in worker.pools:
            if pool.heap and pool.heap[0] == old:
                heapreplace(pool.heap, rank)
            else:
                _enter(pool, rank)

    def find(self, text: str) -> Worker | None:
        """By name, or by id as it is shown: whole, or its first eight digits."""
        wanted = text.lower().replace("-", "")
        for worker in self.by_id.values():
            if worker.name == text or wanted in {_digits(worker.id), _digits(worker.id)[:8]}:
                return worker
        return None

    def check(self) -> None:
        for conn, worker in self.by_conn.items():
            assert worker.conn == conn
            assert self.by_id[worker.id] is worker
        for worker in self.by_id.values():
            assert worker.credit >= 0
            assert (worker.conn is None) == (not worker.pools)
            assert worker.conn is not None or worker.away_until is not None
            if worker not in self._changed:
                credit, running = worker.usable_credit, len(worker.jobs)
                rank = self._ranking(credit, running, worker.turn, worker.number)
                assert worker.rank == (rank if credit else -1)
            for pool in worker.pools:
                assert pool.members[worker.number] is worker
                assert self._tree[pool.pattern] is pool
                assert worker.rank < 0 or worker.rank in pool.heap


def _enter(pool: Pool, rank: int) -> None:
    """A new entry; where old ones have piled up, the heap is made anew from what counts."""
    if len(pool.heap) > 4 * len(pool.members) + 64:
        pool.heap = [member.rank for member in pool.members.values() if member.rank >= 0]
        heapify(pool.heap)
    else:
        heappush(pool.heap, rank)


def _digits(worker_id: WorkerId) -> str:
    return (worker_id[3::-1] + worker_id[5:3:-1] + worker_id[7:5:-1] + worker_id[8:]).hex()
