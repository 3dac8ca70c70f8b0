"""Which workers are there, and which of them takes the next job of this subject?

Workers that share a pattern are one pool, and the pools whose patterns match a subject serve it: a thousand workers on
`job.assign.>` are one pool, and a join costs one entry in the prefix tree. A pool finds its best worker by a heap of
ranks with lazy entries: an entry counts only while it equals the present rank of its worker. Each change of a worker is
reported by `changed`, and the worker is ranked once before the next assignment.

Workers that take simple jobs only have pools of their own: other jobs never meet them.

A leader with several rules has several ranks per worker and heaps per pool: the first rule has its own fields, the
others share a list (`more`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from wakugumi.core.backoff import NUMBER_MASK, TURN_STRIDE, Ranking, most_credit, round_robin, score
from wakugumi.core.ids import ConnId, JobId, WorkerId
from wakugumi.core.leader.jobs.broadcast import own_subject, owner_of
from wakugumi.core.leader.records import PatternPool, Turn, WorkerRecord, digits_of
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import PATTERN_TOKENS_PER_WORKER_MAX, Pattern, PatternTree, Subject, is_address, tokens_of
from wakugumi.limits.leader import GONE_WORKERS_MAX, RESTING_PATIENCE_S
from wakugumi.limits.scheduling import CREDIT_MAX, PATTERN_TOKENS_FEW_MAX, PATTERN_TOKENS_MAX
from wakugumi.limits.wire import GIVEN_BYTES_MAX

_NOTHING: Final = Requirements()


class Roster:
    def __init__(self, *rankings: Ranking) -> None:
        """`rankings` are the rules in use, identified by their index. No rule: most credit."""
        self._ranking, *others = rankings or (most_credit,)
        self._more: list[Ranking] = others
        self.by_load = score in rankings
        """A rule uses the CPU use that workers report."""
        self.by_turns = round_robin in rankings
        self._tree: PatternTree[PatternPool] = PatternTree()
        self._simple_tree: PatternTree[PatternPool] = PatternTree()
        """Pools of workers that take simple jobs only."""
        self.tokens_max = PATTERN_TOKENS_MAX
        """Limit of the tokens of all patterns; less where memory is limited."""
        self._numbers = 0
        self._turns = 0
        """Highest turn of all workers."""
        self._changed: dict[WorkerRecord, None] = {}
        self.to_write: dict[WorkerRecord, None] = {}
        """Workers with too many unwritten bytes, for which `TellWhenPeerWritten` is still to be requested."""
        self.by_id: dict[WorkerId, WorkerRecord] = {}
        self.by_conn: dict[ConnId, WorkerRecord] = {}
        self.now = 0.0
        """Time of this step."""
        self.gone: OrderedDict[WorkerId, WorkerRecord] = OrderedDict()
        """Workers that left less than RESTING_PATIENCE_S ago and are not back, the latest last; `spent_at` is when they
        left."""
        self.era = 0
        """Number that grows whenever the set of serving workers changes."""

    def __len__(self) -> int:
        return len(self.by_conn)

    def __iter__(self) -> Iterator[WorkerRecord]:
        return iter(self.by_id.values())

    def add(self, worker_id: WorkerId) -> WorkerRecord:
        """Add an unknown worker. It is in no pool until `connect`."""
        assert worker_id not in self.by_id
        self._numbers += 1
        worker = WorkerRecord(worker_id, self._numbers & NUMBER_MASK)
        self.by_id[worker_id] = worker
        return worker

    def has_room_for(self, patterns: tuple[Pattern, ...]) -> bool:
        """May a worker have these patterns? Known patterns cost nothing, and a few new ones are always allowed: a few
        greedy workers shut no others out."""
        known = self._tree.tokens + self._simple_tree.tokens
        if known + PATTERN_TOKENS_PER_WORKER_MAX <= self.tokens_max:
            return True
        new = sum(tokens_of(pattern) for pattern in patterns if pattern not in self._tree)
        return new <= max(PATTERN_TOKENS_FEW_MAX, self.tokens_max - known)

    def shared(self, patterns: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
        """These patterns, with one copy of each text for all workers."""
        pools = ((pattern, self._tree.get(pattern)) for pattern in patterns)
        return tuple(pattern if pool is None else pool.pattern for pattern, pool in pools)

    def connect(self, worker: WorkerRecord, conn: ConnId, patterns: tuple[Pattern, ...]) -> list[PatternPool]:
        """Put a worker into the pools of its patterns. Returns the pools that are new or have become an address: lanes
        may wait for them."""
        assert worker.conn is None
        worker.conn = conn
        worker.credit = worker.parallel = worker.unpaid = worker.lent = 0
        worker.unwritten_bytes = 0
        worker.patterns = patterns
        if worker.turn < self._turns:
            worker.turn = self._turns
        self.by_conn[conn] = worker
        self.gone.pop(worker.id, None)
        self.era += 1
        new_pools = []
        tree = self._tree_of(worker)
        for pattern in patterns:
            pool = tree.get(pattern)
            addressed = is_address(pattern, worker.name)
            if pool is None:
                pool = tree[pattern] = PatternPool(pattern, 1 + len(self._more), simple_only=worker.simple_only)
                new_pools.append(pool)
            elif addressed and not pool.is_address:
                new_pools.append(pool)
            pool.is_address |= addressed
            pool.members[worker.number] = worker
            worker.pools.append(pool)
        return new_pools

    def disconnect(self, worker: WorkerRecord) -> list[PatternPool]:
        """Take a worker out of its pools; its credit ends with the connection (F7). Returns the pools that lost their
        last member."""
        assert worker.conn is not None
        del self.by_conn[worker.conn]
        worker.conn = None
        worker.credit = 0
        worker.rank = -1
        worker.spent_at = self.now
        self._remember_gone(worker)
        self.era += 1
        self._changed.pop(worker, None)
        self.to_write.pop(worker, None)
        emptied = []
        tree = self._tree_of(worker)
        for pool in worker.pools:
            del pool.members[worker.number]
            if not pool.members:
                del tree[pool.pattern]
                emptied.append(pool)
        worker.pools = []
        return emptied

    def remove(self, worker: WorkerRecord) -> None:
        assert worker.conn is None
        assert not worker.jobs
        del self.by_id[worker.id]
        worker.away_until = None
        self.era += 1

    def pools_for(self, subject: Subject) -> list[PatternPool]:
        """Pools whose patterns match, including those for simple jobs; only the addresses, if there are any."""
        owner = owner_of(subject)
        if owner is not None:
            worker = self.by_id.get(owner)
            return [] if worker is None or worker.conn is None else [self._own_pool(worker)]
        matching = self._tree.match(subject)
        if len(self._simple_tree):
            matching += self._simple_tree.match(subject)
        return [pool for pool in matching if pool.is_address] or matching

    def audience(self, subject: Subject, requirements: Requirements | None = None) -> list[WorkerRecord]:
        """Workers that would take a job of this subject if they had a free slot, in the order in which they were
        added."""
        members = {worker.number: worker for pool in self.pools_for(subject) for worker in pool.members.values()}
        return [
            worker
            for _, worker in sorted(members.items())
            if worker.serves and can_run(worker, requirements or _NOTHING)
        ]

    def _remember_gone(self, worker: WorkerRecord) -> None:
        gone = self.gone
        gone[worker.id] = worker
        while len(gone) > GONE_WORKERS_MAX or next(iter(gone.values())).spent_at + RESTING_PATIENCE_S <= self.now:
            gone.popitem(last=False)

    def _tree_of(self, worker: WorkerRecord) -> PatternTree[PatternPool]:
        return self._simple_tree if worker.simple_only else self._tree

    def _own_pool(self, worker: WorkerRecord) -> PatternPool:
        """The pool of this worker alone, made when the first job is for it alone."""
        pattern = own_subject(worker.id)
        tree = self._tree_of(worker)
        pool = tree.get(pattern)
        if pool is None:
            pool = tree[pattern] = PatternPool(pattern, 1 + len(self._more), simple_only=worker.simple_only)
            pool.is_address = True
            pool.members[worker.number] = worker
            worker.pools.append(pool)
            # The next ranking enters it here as in its other pools.
            worker.rank = -1
            self._changed[worker] = None
        return pool

    def changed(self, worker: WorkerRecord) -> None:
        """Credit, readiness or jobs of the worker have changed."""
        self._changed[worker] = None

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def loaded(self, worker: WorkerRecord, cpu: float) -> None:
        """The worker reported its CPU use."""
        load = round(100 * cpu)
        if load != worker.load:
            worker.load = load
            self._changed[worker] = None

    def rank_changed(self) -> list[WorkerRecord]:
        """Rank the changed workers. Returns those with usable credit: lanes may wait for them."""
        if not self._changed:
            return []
        able = []
        for worker in self._changed:
            credit = worker.usable_credit
            if not credit:
                worker.rank = -1
                continue
            able.append(worker)
            if worker.kept_for is not None:
                worker.rank = -1
                continue
            rank = self._ranking(credit, len(worker.jobs), worker.turn, worker.number, worker.load)
            if rank != worker.rank:
                worker.rank = rank
                for pool in worker.pools:
                    _enter(pool, rank)
            if self._more:
                self._rank_more(worker)
        self._changed.clear()
        return able

    def best(self, pools: list[PatternPool], order: int = 0) -> WorkerRecord | None:
        """The best worker with credit, by the rule at this index."""
        if order:
            return self._best_by(pools, order - 1)
        if len(pools) == 1:
            return self.best_of(pools[0])
        best: WorkerRecord | None = None
        for pool in pools:
            worker = self.best_of(pool)
            if worker is not None and (best is None or worker.rank < best.rank):
                best = worker
        return best

    def best_of(self, pool: PatternPool) -> WorkerRecord | None:
        heap, members = pool.heap, pool.members
        while heap:
            worker = members.get(heap[0] & NUMBER_MASK)
            if worker is not None and worker.rank == heap[0]:
                return worker
            heappop(heap)
        return None

    def best_with_room(self, pools: list[PatternPool], order: int, requirements: Requirements) -> WorkerRecord | None:
        """The best worker that can run the job and has its slots free. The search covers all members, unless the best
        one shows that none has room: few jobs need this."""
        slots = requirements.slots
        if not order and self._ranking is most_credit:
            first = self.best(pools)
            if first is None or first.credit < slots:
                return None
        able = [worker for worker in members_of(pools) if has_room(worker, slots) and can_run(worker, requirements)]
        return min(able, key=lambda worker: rank_of(worker, order), default=None)

    def take_turn(self, worker: WorkerRecord, pools: list[PatternPool]) -> None:
        """Move the turn of a worker that gets a job of these pools. Each pool has a clock that only its own jobs move:
        a worker without credit does not catch up later, and jobs of other pools take no turn away."""
        turn = worker.turn
        mine = pools if len(pools) == 1 else [pool for pool in pools if worker.number in pool.members]
        for pool in mine:
            if turn <= pool.clock:
                turn = pool.clock + 1
        for pool in mine:
            pool.clock = turn
        worker.turn = turn + worker.stride
        if turn > self._turns:
            self._turns = turn

    def forget_turns(self) -> None:
        """Reset all clocks. A lead from jobs elsewhere shrinks to one turn at most."""
        if not self._turns:
            return
        for worker in self.by_conn.values():
            clock = max(pool.clock for pool in worker.pools) if worker.pools else 0
            worker.turn = max(0, TURN_STRIDE + min(worker.turn - clock, worker.stride))
            self._changed[worker] = None
        for worker in self.by_conn.values():
            for pool in worker.pools:
                pool.clock = TURN_STRIDE
        self._turns = 0

    def assign(self, worker: WorkerRecord, job_id: JobId, slots: int = 1, size: int = 0) -> None:
        """Assign a job: take its slots from the credit, and count the bytes of its request."""
        assert worker.credit >= slots
        worker.credit -= slots
        worker.jobs[job_id] = None
        worker.unwritten_bytes += size
        old = worker.rank
        if not worker.credit:
            worker.rank = -1
            worker.spent_at = self.now
        if worker.unwritten_bytes >= GIVEN_BYTES_MAX:
            worker.rank = -1
            self.to_write[worker] = None
            return
        if not worker.credit:
            return
        worker.rank = rank = self._ranking(worker.credit, len(worker.jobs), worker.turn, worker.number, worker.load)
        for pool in worker.pools:
            if pool.heap and pool.heap[0] == old:
                heapreplace(pool.heap, rank)
            else:
                _enter(pool, rank)
        if self._more:
            self._rank_more(worker)

    def keep_free(self, worker: WorkerRecord, turn: Turn) -> None:
        """Keep a worker free for the large job of this turn."""
        assert worker.kept_for is None
        worker.kept_for = turn
        worker.rank = -1

    def let_go(self, worker: WorkerRecord) -> None:
        """Stop keeping a worker free."""
        worker.kept_for = None
        if worker.conn is not None:
            self._changed[worker] = None

    def _rank_more(self, worker: WorkerRecord) -> None:
        args = worker.credit, len(worker.jobs), worker.turn, worker.number, worker.load
        worker.more = ranks = [ranking(*args) for ranking in self._more]
        for pool in worker.pools:
            for at, rank in enumerate(ranks):
                heap = pool.more[at]
                if len(heap) > 4 * len(pool.members) + 64:
                    pool.more[at] = [member.more[at] for member in pool.members.values() if member.rank >= 0]
                    heapify(pool.more[at])
                else:
                    heappush(heap, rank)

    def _best_by(self, pools: list[PatternPool], at: int) -> WorkerRecord | None:
        best: WorkerRecord | None = None
        for pool in pools:
            heap, members = pool.more[at], pool.members
            while heap:
                worker = members.get(heap[0] & NUMBER_MASK)
                if worker is not None and worker.rank >= 0 and worker.more[at] == heap[0]:
                    if best is None or worker.more[at] < best.more[at]:
                        best = worker
                    break
                heappop(heap)
        return best

    def find(self, text: str) -> WorkerRecord | None:
        """Find a worker by name, or by id as it is shown: whole, or the first eight digits."""
        wanted = text.lower().replace("-", "")
        for worker in self.by_id.values():
            if worker.name == text or wanted in {digits_of(worker.id), digits_of(worker.id)[:8]}:
                return worker
        return None

    def check(self) -> None:
        assert all(worker.conn is None for worker in self.gone.values())
        assert len(self.gone) <= GONE_WORKERS_MAX
        for conn, worker in self.by_conn.items():
            assert worker.conn == conn
            assert self.by_id[worker.id] is worker
        for worker in self.by_id.values():
            assert 0 <= worker.credit <= CREDIT_MAX
            assert 0 <= worker.lent <= worker.parallel <= CREDIT_MAX
            assert worker.loading >= 0
            if worker in self.to_write:
                assert worker.unwritten_bytes >= GIVEN_BYTES_MAX
                assert worker.loading, "`TellWhenPeerWritten` is missing"
            assert (worker.conn is None) == (not worker.pools)
            assert worker.conn is not None or worker.away_until is not None
            if worker not in self._changed:
                args = worker.usable_credit, len(worker.jobs), worker.turn, worker.number, worker.load
                if worker.usable_credit and worker.kept_for is None:
                    assert worker.rank == self._ranking(*args)
                    assert worker.more == [ranking(*args) for ranking in self._more]
                else:
                    assert worker.rank == -1
            for pool in worker.pools:
                assert pool.members[worker.number] is worker
                assert self._tree_of(worker)[pool.pattern] is pool
                assert pool.simple_only == worker.simple_only
                assert worker.rank < 0 or worker.rank in pool.heap
                assert worker.rank < 0 or all(rank in pool.more[at] for at, rank in enumerate(worker.more))
            assert worker.kept_for is None or worker.conn is not None
            assert not (worker.rests and worker.credit)


def can_run(worker: WorkerRecord, requirements: Requirements) -> bool:
    """Is the worker able to run such a job, whatever it does now?"""
    return (
        (worker.runs_unnamed or not requirements.unnamed)
        and (worker.env or not requirements.env)
        and (requirements.simple or not worker.simple_only)
        and worker.id not in requirements.shuns
    )


def has_room(worker: WorkerRecord, slots: int) -> bool:
    """May the worker get a job of so many slots now?"""
    return worker.rank >= 0 and worker.credit >= slots and (slots == 1 or worker.slots >= slots)


def rank_of(worker: WorkerRecord, order: int) -> int:
    """Rank by the rule at this index; the lowest goes first."""
    return worker.more[order - 1] if order else worker.rank


def members_of(pools: list[PatternPool]) -> list[WorkerRecord]:
    """Members of these pools, each once."""
    if len(pools) == 1:
        return list(pools[0].members.values())
    return list({number: worker for pool in pools for number, worker in pool.members.items()}.values())


def ready_in(pools: list[PatternPool]) -> Iterator[WorkerRecord]:
    """Members that may get a job now, the best of each pool among the first; some appear twice."""
    for pool in pools:
        members = pool.members
        for rank in pool.heap:
            worker = members.get(rank & NUMBER_MASK)
            if worker is not None and worker.rank == rank:
                yield worker


def _enter(pool: PatternPool, rank: int) -> None:
    """Add a rank; a heap with too many old entries is rebuilt."""
    if len(pool.heap) > 4 * len(pool.members) + 64:
        pool.heap = [member.rank for member in pool.members.values() if member.rank >= 0]
        heapify(pool.heap)
    else:
        heappush(pool.heap, rank)
