"""Which workers are there, and which of them takes the next job of this subject?

Workers that share a pattern stand in one pool, and a subject is served by the pools whose patterns match it: so a
thousand workers on `job.assign.>` are one pool, and a join costs one entry in the prefix tree. A pool finds its best
worker by a heap of ranks with lazy entries: an entry counts only while it equals its worker's present rank. Whoever
changes a worker says so (`changed`), and before the next assignment it is ranked anew, once, whatever happened to it.

Those that take simple jobs only stand in pools of their own, beside the others: a job that is not simple never meets
them, and is found a worker as if they were not there.

A leader that ranks by more than one rule has more than one rank per worker and more than one heap per pool: the first
rule, of which there is always one, has its own fields, and the others share a list (`more`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final

from wakugumi.core.backoff import NUMBER_MASK, TURN_STRIDE, Ranking, most_credit, round_robin, score
from wakugumi.core.ids import ConnId, JobId, WorkerId
from wakugumi.core.leader.broadcast import own_subject, owner_of
from wakugumi.core.leader.scheduling.waiting_line import Line
from wakugumi.core.requirements import Wants
from wakugumi.core.subject import PATTERN_TOKENS_PER_WORKER_MAX, Pattern, PatternTree, Subject, is_address, tokens_of
from wakugumi.limits.leader import GONE_WORKERS_MAX, RESTING_PATIENCE_S
from wakugumi.limits.scheduling import CREDIT_MAX, PATTERN_TOKENS_FEW_MAX, PATTERN_TOKENS_MAX
from wakugumi.limits.wire import GIVEN_BYTES_MAX

if TYPE_CHECKING:
    from wakugumi.core.leader.scheduling.lanes import Lane, Turn

_NOTHING: Final = Wants()


class Pool:
    """The workers that subscribe to one pattern."""

    __slots__ = ("clock", "heap", "is_address", "members", "more", "parked", "pattern", "simple_only")

    def __init__(self, pattern: Pattern, rankings: int = 1, *, simple_only: bool = False) -> None:
        self.pattern = pattern
        self.simple_only = simple_only
        """All its members are."""
        self.is_address = False
        """It means one machine: subjects that it matches are served by no others while it is there (SPEC S4)."""
        self.members: dict[int, Worker] = {}
        self.clock = 0
        """Whose turn it was last, where workers take turns."""
        self.heap: list[int] = []
        self.more: list[list[int]] = [[] for _ in range(1, rankings)]
        self.parked: Line[Lane] = Line()
        """Subjects with work that wait for credit here."""


class Worker:
    """A worker as its leader knows it. It outlives its connection by the time it has to come back."""

    __slots__ = (
        "as_root",
        "away_until",
        "blobs",
        "blocked",
        "cancels",
        "conn",
        "cpu",
        "credit",
        "draining",
        "env",
        "fault",
        "heartbeats",
        "held_by",
        "id",
        "jobs",
        "joined_at",
        "kept_for",
        "label",
        "leaving",
        "lent",
        "load",
        "loading",
        "more",
        "name",
        "number",
        "parallel",
        "patterns",
        "pools",
        "rank",
        "reattach",
        "receipts",
        "resend",
        "rests",
        "runs_unnamed",
        "seen_at",
        "settled",
        "simple_only",
        "slots",
        "slots_said",
        "spent_at",
        "stride",
        "timer_at",
        "turn",
        "unpaid",
        "unpaid_since",
        "unwritten_bytes",
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
        self.parallel = 0
        """How many jobs it takes at once: its first credit over this connection."""
        self.unpaid = 0
        """Empty acks since its credit and its jobs were as many as that: maybe of duplicates, for which a worker of the
        nine types offers no credit."""
        self.unpaid_since = 0.0
        self.lent = 0
        """Credit that it was given back for them: less is taken of what it offers, if that would be too much."""
        self.jobs: dict[JobId, None] = {}
        """What it was given and has not answered, as far as the leader knows."""
        self.rank = -1
        """Below 0: it may be given nothing now."""
        self.more: list[int] = []
        """Its ranks by the other rules in use."""
        self.turn = 0
        self.stride = TURN_STRIDE
        """When it is its turn, and how far that is put off by a job: the less, the larger its weight."""
        self.slots = self.slots_said = 0
        """How many it has in all; 0 if it did not say so, and then it is given no job that needs several."""
        self.kept_for: Turn | None = None
        """It is given nothing but the large job of that turn, once it has room for it."""
        self.receipts = self.heartbeats = self.reattach = self.cancels = False
        self.blobs = False
        """It fetches what a job names and does not bring along."""
        self.runs_unnamed = self.simple_only = False
        self.resend = False
        """It is sent once more what it says it holds."""
        self.env = False
        """It gives programs the variables that a job sets."""
        self.as_root = False
        """Programs have the rights of root there."""
        self.rests = ""
        """Why it is out of order; empty if it is not."""
        self.fault = ""
        """Why it could not start a job, the last time that it could not."""
        self.settled = True
        """It has said what it holds, or never will: it may be given work."""
        self.draining = False
        self.leaving = False
        self.blocked = False
        """It does not read what it is sent."""
        self.unwritten_bytes = 0
        """Requests that it was given since the last ones were written. From GIVEN_BYTES_MAX on it is given no more."""
        self.loading = 0
        """Those of its jobs whose requests are being read from the journal."""
        self.away_until: float | None = None
        self.timer_at: float | None = None
        """When it is looked whether it is still away."""
        self.seen_at = self.joined_at = 0.0
        self.cpu = 0.0
        self.held_by = 0.0
        """Of its CPU, 0 to 1, others used so much that it held credit back (W2); 0 if it did not."""
        self.load = 0
        """The same in percent, if anyone ranks by it."""
        self.spent_at = 0.0
        """When its last credit was used, or lost."""

    @property
    def usable_credit(self) -> int:
        if self.draining or self.leaving or self.blocked or not self.settled or self.conn is None:
            return 0
        return self.credit if self.unwritten_bytes < GIVEN_BYTES_MAX else 0  # As `is_written_to` says.

    @property
    def is_written_to(self) -> bool:
        """It has still to read what it was given, and is given nothing more before."""
        return self.blocked or self.unwritten_bytes >= GIVEN_BYTES_MAX

    @property
    def serves(self) -> bool:
        """It takes jobs, now or when it has credit again."""
        return not (self.conn is None or self.draining or self.leaving or self.rests)

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
        if self.rests:
            return "resting"
        if self.usable_credit:
            return "ready"
        if self.credit and self.is_written_to:
            return "sending"
        return "held back" if self.held_by and len(self.jobs) < self.slots else "busy"


class Roster:
    """All workers of one leader."""

    def __init__(self, *rankings: Ranking) -> None:
        """The rules in use; most credit if none is named. What they are told apart by is their place here."""
        self._ranking, *others = rankings or (most_credit,)
        self._more: list[Ranking] = others
        self.by_load = score in rankings
        """Somebody's rank depends on the CPU use that workers report."""
        self.by_turns = round_robin in rankings
        self._tree: PatternTree[Pool] = PatternTree()
        self._simple_tree: PatternTree[Pool] = PatternTree()
        """Pools of those that take simple jobs only."""
        self.tokens_max = PATTERN_TOKENS_MAX
        """Less where memory is limited."""
        self._numbers = 0
        self._turns = 0
        """The latest of all turns."""
        self._changed: dict[Worker, None] = {}
        self.to_write: dict[Worker, None] = {}
        """Those that are given no more before what they were given is written, and nobody was asked yet to tell when
        that is."""
        self.by_id: dict[WorkerId, Worker] = {}
        self.by_conn: dict[ConnId, Worker] = {}
        self.now = 0.0
        """When this step happens."""
        self.gone: OrderedDict[WorkerId, Worker] = OrderedDict()
        """Workers that left less than RESTING_PATIENCE_S ago and are not back, the last one last: `spent_at` says
        when."""
        self.era = 0
        """Grows whenever other workers serve than before."""

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

    def has_room_for(self, patterns: tuple[Pattern, ...]) -> bool:
        """May a worker have these? What others have as well takes no more room, and few always have room: a few
        greedy workers shut nobody out."""
        known = self._tree.tokens + self._simple_tree.tokens
        if known + PATTERN_TOKENS_PER_WORKER_MAX <= self.tokens_max:
            return True
        new = sum(tokens_of(pattern) for pattern in patterns if pattern not in self._tree)
        return new <= max(PATTERN_TOKENS_FEW_MAX, self.tokens_max - known)

    def shared(self, patterns: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
        """The same, as one copy of the text for all workers that have a pattern."""
        pools = ((pattern, self._tree.get(pattern)) for pattern in patterns)
        return tuple(pattern if pool is None else pool.pattern for pattern, pool in pools)

    def connect(self, worker: Worker, conn: ConnId, patterns: tuple[Pattern, ...]) -> list[Pool]:
        """Put it into the pools of its patterns. Returns the pools that are new, or have become an
        address: subjects may have waited for them."""
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
        born = []
        tree = self._tree_of(worker)
        for pattern in patterns:
            pool = tree.get(pattern)
            addressed = is_address(pattern, worker.name)
            if pool is None:
                pool = tree[pattern] = Pool(pattern, 1 + len(self._more), simple_only=worker.simple_only)
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

    def remove(self, worker: Worker) -> None:
        assert worker.conn is None
        assert not worker.jobs
        del self.by_id[worker.id]
        worker.away_until = None
        self.era += 1

    def pools_for(self, subject: Subject) -> list[Pool]:
        """Those whose patterns match; of these only the addresses, if there are any. Those of simple jobs only are
        among them."""
        owner = owner_of(subject)
        if owner is not None:
            worker = self.by_id.get(owner)
            return [] if worker is None or worker.conn is None else [self._own_pool(worker)]
        matching = self._tree.match(subject)
        if len(self._simple_tree):
            matching += self._simple_tree.match(subject)
        return [pool for pool in matching if pool.is_address] or matching

    def audience(self, subject: Subject, wants: Wants | None = None) -> list[Worker]:
        """All who would take a job of this subject if they had a slot for it, in the order in which they came."""
        members = {worker.number: worker for pool in self.pools_for(subject) for worker in pool.members.values()}
        return [worker for _, worker in sorted(members.items()) if worker.serves and can_run(worker, wants or _NOTHING)]

    def _remember_gone(self, worker: Worker) -> None:
        gone = self.gone
        gone[worker.id] = worker
        while len(gone) > GONE_WORKERS_MAX or next(iter(gone.values())).spent_at + RESTING_PATIENCE_S <= self.now:
            gone.popitem(last=False)

    def _tree_of(self, worker: Worker) -> PatternTree[Pool]:
        return self._simple_tree if worker.simple_only else self._tree

    def _own_pool(self, worker: Worker) -> Pool:
        """The pool in which it is alone. It has one from the first time that something is meant for it alone."""
        pattern = own_subject(worker.id)
        tree = self._tree_of(worker)
        pool = tree.get(pattern)
        if pool is None:
            pool = tree[pattern] = Pool(pattern, 1 + len(self._more), simple_only=worker.simple_only)
            pool.is_address = True
            pool.members[worker.number] = worker
            worker.pools.append(pool)
            # It is ranked anew before the next assignment, here as in its other pools.
            worker.rank = -1
            self._changed[worker] = None
        return pool

    def changed(self, worker: Worker) -> None:
        """Its credit, its readiness or what it runs is not what it was."""
        self._changed[worker] = None

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def loaded(self, worker: Worker, cpu: float) -> None:
        """It said how busy its CPU is."""
        load = round(100 * cpu)
        if load != worker.load:
            worker.load = load
            self._changed[worker] = None

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

    def best(self, pools: list[Pool], order: int = 0) -> Worker | None:
        """Of all members with credit the one to take the next job, by the rule at this place."""
        if order:
            return self._best_by(pools, order - 1)
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

    def roomy(self, pools: list[Pool], order: int, wants: Wants) -> Worker | None:
        """The best of those that can run it and have so many slots free. It looks at all of them, unless the first one
        says no for all: few jobs ask for this."""
        slots = wants.slots
        if not order and self._ranking is most_credit:
            first = self.best(pools)
            if first is None or first.credit < slots:
                return None
        able = [worker for worker in members_of(pools) if has_room(worker, slots) and can_run(worker, wants)]
        return min(able, key=lambda worker: rank_of(worker, order), default=None)

    def take_turn(self, worker: Worker, pools: list[Pool]) -> None:
        """It is given a job of a subject that these pools serve. Each pool has a clock of its own, which only its own
        jobs move: who had no credit for a while does not make up for that, and what others do takes no turn away."""
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
        """All clocks are set alike: who is ahead because of what it did elsewhere is so by one turn at most."""
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

    def assign(self, worker: Worker, job_id: JobId, slots: int = 1, size: int = 0) -> None:
        """Take the credit for this job, whose request has so many bytes."""
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

    def keep_free(self, worker: Worker, turn: Turn) -> None:
        """From now on it is given nothing else."""
        assert worker.kept_for is None
        worker.kept_for = turn
        worker.rank = -1

    def let_go(self, worker: Worker) -> None:
        """It may be given anything again."""
        worker.kept_for = None
        if worker.conn is not None:
            self._changed[worker] = None

    def _rank_more(self, worker: Worker) -> None:
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

    def _best_by(self, pools: list[Pool], at: int) -> Worker | None:
        best: Worker | None = None
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

    def find(self, text: str) -> Worker | None:
        """By name, or by id as it is shown: whole, or its first eight digits."""
        wanted = text.lower().replace("-", "")
        for worker in self.by_id.values():
            if worker.name == text or wanted in {_digits(worker.id), _digits(worker.id)[:8]}:
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
                assert worker.loading, "nobody is asked to tell when it is written"
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


def can_run(worker: Worker, wants: Wants) -> bool:
    """Is it able to, whatever else it does now?"""
    return (
        (worker.runs_unnamed or not wants.unnamed)
        and (worker.env or not wants.env)
        and (wants.simple or not worker.simple_only)
        and worker.id not in wants.shuns
    )


def has_room(worker: Worker, slots: int) -> bool:
    """May it be given a job of so many slots now?"""
    return worker.rank >= 0 and worker.credit >= slots and (slots == 1 or worker.slots >= slots)


def rank_of(worker: Worker, order: int) -> int:
    """By the rule at this place; the lowest goes first."""
    return worker.more[order - 1] if order else worker.rank


def members_of(pools: list[Pool]) -> list[Worker]:
    """Each once, however many of its patterns match."""
    if len(pools) == 1:
        return list(pools[0].members.values())
    return list({number: worker for pool in pools for number, worker in pool.members.items()}.values())


def ready_in(pools: list[Pool]) -> Iterator[Worker]:
    """Those that may be given something now, the best of each pool among the first; some of them twice."""
    for pool in pools:
        members = pool.members
        for rank in pool.heap:
            worker = members.get(rank & NUMBER_MASK)
            if worker is not None and worker.rank == rank:
                yield worker


def _enter(pool: Pool, rank: int) -> None:
    """A new entry; where old ones have piled up, the heap is made anew from what counts."""
    if len(pool.heap) > 4 * len(pool.members) + 64:
        pool.heap = [member.rank for member in pool.members.values() if member.rank >= 0]
        heapify(pool.heap)
    else:
        heappush(pool.heap, rank)


def _digits(worker_id: WorkerId) -> str:
    return (worker_id[3::-1] + worker_id[5:3:-1] + worker_id[7:5:-1] + worker_id[8:]).hex()
