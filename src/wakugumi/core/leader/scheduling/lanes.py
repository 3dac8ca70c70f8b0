"""Which job is next? (SPEC L1, L5, L9)

    Lanes ──► Lane, one per subject ──► Turn, one per client in it ──► its jobs, first in first out

Subjects that can be served take turns, and inside one subject its clients do. Whatever cannot be served stands aside,
so that nobody looks at it again before something has changed: a lane without credit is *parked* with the pools it waits
for, a client at its cap is parked with all its turns. A lane takes a *place* when it begins to wait, and gives it up
when it is served; of all lanes that can use the credit there is, whichever pools they wait for, the lowest place is
served next. So between two jobs of one subject every other one that its worker hears and that waited has its turn. A
job that was cancelled stays in its deque and is skipped there: its state says so.

Jobs that ask for something (`wants`) are chosen in `picking`. A turn that can use none of the credit there is stands
aside, so that the others of its lane go on. So do jobs that are not simple, where only workers have credit that take
no others.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heapreplace
from itertools import islice
from typing import Final

from wakugumi.core.backoff import Policies
from wakugumi.core.ids import JobId
from wakugumi.core.leader.jobs.broadcast import own_subject, owner_of
from wakugumi.core.leader.jobs.states import DONE, QUEUED, RUNNING
from wakugumi.core.leader.records import DIGEST_BITS, ClientRecord, JobRecord, Lane, PatternPool, Turn, WorkerRecord
from wakugumi.core.leader.scheduling import turn_jobs
from wakugumi.core.leader.scheduling.locality import Holders, nobody
from wakugumi.core.leader.scheduling.picking import Picker
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.leader.scheduling.turn_jobs import is_simple, slots_of
from wakugumi.core.leader.waiting_line import WaitingLine
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Pattern, PatternTree, Subject
from wakugumi.limits.leader import LANES_IDLE_MAX, UNDELIVERED_BYTES_PER_CLIENT_MAX
from wakugumi.limits.scheduling import LOOK_AHEAD_MAX

_GONE_KEPT: Final = 64
"""Cancelled jobs that may stay in a deque, however short it is: fewer are not worth a new one."""


class Lanes:
    """All queues of one leader."""

    def __init__(self, roster: Roster, policies: Policies, holders: Holders = nobody) -> None:
        """The roster ranks by the policies' rules; `holders` tells who holds a file."""
        self._roster = roster
        self._policies = policies
        self.picker = Picker(roster, holders)
        self._round = 0
        self._refused: list[Lane] = []
        """In this round."""
        self._lanes: dict[Subject, Lane] = {}
        self._tree: PatternTree[Lane] = PatternTree()
        self._idle: dict[Lane, None] = {}
        self._places = 0
        """The last one taken."""
        self._ready: WaitingLine[Lane] = WaitingLine()
        self._pools_with_news: dict[PatternPool, None] = {}
        """Someone waits there, and there may be credit."""
        self._news: list[tuple[int, int, PatternPool]] = []
        """The same while lanes are served, as a heap: the lowest place of those that wait there, a number, the pool."""
        self._able: list[WorkerRecord] = []
        """Whose credit is the news."""
        self._clients_with_news: dict[ClientRecord, None] = {}
        self.queued = 0

    def push(self, job: JobRecord, *, first: bool = False) -> None:
        """Queue a job; one that comes back goes to the head of its client's turn."""
        lane = self._lanes.get(job.subject)
        if lane is None:
            lane = self._open(job.subject)
        elif not lane.queued:
            self._idle.pop(lane, None)
        client = job.client
        turn = lane.by_client.get(client.id)
        if turn is None:
            turn = lane.by_client[client.id] = Turn(lane, client)
            if client.parked:
                client.parked[turn] = None
            else:
                lane.ring.append(turn)
        if job.wants is not None:
            turn_jobs.add(turn, job, first=first)
            if job.wants.simple:
                self._count_simple(lane)
        elif first:
            turn.jobs.appendleft(job)
        else:
            turn.jobs.append(job)
        lane.queued += 1
        self.queued += 1
        if lane.aside is not None:
            self._stir(turn)
        elif not lane.ready and not lane.parked:
            self._wake(lane)

    def dropped(self, job: JobRecord) -> None:
        """A queued job was cancelled or finished: it no longer counts, and is skipped when its turn comes."""
        assert job.state is DONE
        lane = self._lanes[job.subject]
        turn = lane.by_client[job.client.id]
        turn.gone += 1
        if turn.needs is not None:
            self.picker.forget(turn, job)
            lane.simple -= is_simple(job)
            held = turn_jobs.size(turn)
        else:
            held = len(turn.jobs)
        if turn.gone == held:
            self._drop(turn)
        elif turn.gone > _GONE_KEPT and 2 * turn.gone > held:
            # Its turn may be long in coming: who submits and cancels in a circle must not fill the memory.
            if turn.needs is not None:
                turn_jobs.purge(turn)
            else:
                turn.jobs = deque(other for other in turn.jobs if other.state is QUEUED)
                turn.gone = 0
        self._uncount(lane)

    def taken(self, job: JobRecord) -> None:
        """A queued job turned out to run already. It may come back, so it must not stay behind in its deque."""
        lane = self._lanes[job.subject]
        turn = lane.by_client[job.client.id]
        self.picker.forget(turn, job)
        turn_jobs.remove(turn, job)
        lane.simple -= is_simple(job)
        if turn.gone == turn_jobs.size(turn):
            self._drop(turn)
        self._uncount(lane)

    def ask_anew(self, jobs: list[JobRecord], wants: Requirements | None) -> None:
        """These queued jobs of one subject, which asked for the same, ask for this from now on. They go to the head of
        their clients' turns, in the order in which they stood."""
        turns: dict[Turn, dict[JobId, JobRecord]] = {}
        for job in jobs:
            turn = self._lanes[job.subject].by_client[job.client.id]
            turns.setdefault(turn, {})[job.id] = job
            self.picker.forget(turn, job)
        for turn, theirs in turns.items():
            lane, pulled = turn.lane, turn_jobs.pull(turn, theirs)
            lane.simple -= sum(map(is_simple, pulled))
            lane.queued -= len(pulled)
            self.queued -= len(pulled)
            for job in reversed(pulled):
                job.wants = wants
                self.push(job, first=True)

    def assign(self) -> list[JobRecord]:
        """Hand out whatever can be handed out now. Each of these jobs is RUNNING and has its worker, whose credit is
        taken, and its place under its client's cap."""
        assigned: list[JobRecord] = []
        while True:
            self._round += 1
            # Where other pools serve a lane than before, the credit may be anybody's.
            self._able = list(self._roster.by_conn.values()) if self._pools_with_news else []
            for able in self._roster.rank_changed():
                self._able.append(able)
                if able.kept_for is not None:
                    self._come_forward(able.kept_for)
                    continue
                for pool in able.pools:
                    if pool.parked.at:
                        self._pools_with_news[pool] = None
            self._serve(assigned)
            if self._refused:
                self._park_refused()
            # To choose may set someone free who was kept for a large job.
            if not self._roster.has_changes:
                return assigned

    def tick(self, now: float) -> None:
        """Whoever waits for a time is looked at by the next `assign`, if there is credit."""
        for turn in self.picker.due(now):
            if turn.lane.aside is not None:
                self._stir(turn)

    def wake_at(self) -> float | None:
        return self.picker.wake_at()

    def leaves(self, worker: WorkerRecord) -> None:
        """It serves nobody any more: who had it kept free looks for another."""
        turn = worker.kept_for
        if turn is not None:
            self.picker.let_go(turn)
            if turn.lane.aside is not None:
                self._stir(turn)

    def room_came(self, client: ClientRecord) -> None:
        """A client fell below its cap, or took its results."""
        if client.parked and client.may_run:
            self._clients_with_news[client] = None

    def pools_came(self, pools: list[PatternPool]) -> None:
        """Patterns nobody had before: the subjects they match have one more pool."""
        for pool in pools:
            for lane in self._tree.overlapping(pool.pattern):
                if pool.is_address or any(
                    known[:1] and known[0].is_address for known in (lane.pools, lane.simple_pools)
                ):
                    self._find_pools(lane)
                elif owner_of(lane.subject) is None:
                    (lane.simple_pools if pool.simple_only else lane.pools).append(pool)
                    if lane.parked and (lane.simple or not pool.simple_only):
                        pool.parked.add(lane.place, lane)

    def worker_came(self, worker: WorkerRecord) -> None:
        """What is meant for it alone may have waited for it."""
        lane = self._lanes.get(own_subject(worker.id))
        if lane is not None:
            self._find_pools(lane)

    def pools_went(self, pools: list[PatternPool]) -> None:
        """Patterns nobody has any more."""
        for pool in pools:
            pool.parked.at.clear()
            self._pools_with_news.pop(pool, None)
            for lane in self._tree.overlapping(pool.pattern):
                if pool.is_address:
                    self._find_pools(lane)
                elif pool in lane.pools:
                    lane.pools.remove(pool)
                elif pool in lane.simple_pools:
                    lane.simple_pools.remove(pool)

    def lane(self, subject: Subject) -> Lane | None:
        return self._lanes.get(subject)

    def busy_lanes(self) -> list[Lane]:
        return [lane for lane in self._lanes.values() if lane.queued]

    def check(self) -> None:
        """Holds between two calls of `assign`, which leaves nothing ready behind."""
        total = 0
        assert not self._refused
        for worker in self._roster:
            if worker.kept_for is not None:
                assert worker.kept_for.needs is not None
                assert worker.kept_for.needs.kept is worker, "a worker is kept free for nobody"
                assert worker.kept_for.lane.by_client[worker.kept_for.client.id] is worker.kept_for
                if not self._ready.at and not self._roster.has_changes:
                    large = worker.kept_for.needs.large
                    assert large is not None
                    assert worker.usable_credit < slots_of(large), "it has room, and is still kept free"
        for subject, lane in self._lanes.items():
            turns = list(lane.by_client.values())
            aside = lane.aside or {}
            live = [job for turn in turns for job in turn_jobs.in_order(turn)]
            assert lane.subject == subject
            assert lane.queued == len(live) == len({job.id for job in live}), (subject, lane.queued, len(live))
            assert lane.simple == sum(map(is_simple, live))
            for turn in turns:
                held = turn_jobs.size(turn)
                assert turn.gone == held - sum(1 for _ in turn_jobs.in_order(turn)) < held
                self.picker.check(turn)
                if turn in turn.client.parked:
                    assert not turn.client.may_run or turn.client in self._clients_with_news
                    assert turn not in lane.ring
                    assert turn.needs is None or turn.needs.kept is None
                elif turn in aside:
                    assert turn not in lane.ring
                else:
                    assert turn in lane.ring
            assert len(lane.ring) + len(aside) <= len(turns)
            assert lane.aside != {}
            assert not lane.refused or (lane.parked and aside)
            assert (lane.queued == 0) == (lane in self._idle)
            assert set(lane.all_pools) == set(self._roster.pools_for(subject))
            assert not any(pool.simple_only for pool in lane.pools)
            assert all(pool.simple_only for pool in lane.simple_pools)
            assert all((pool.parked.at.get(lane.place) is lane) == lane.parked for pool in lane.pools)
            assert all(
                lane.parked if pool.parked.at.get(lane.place) is lane else not lane.parked or not lane.simple
                for pool in lane.simple_pools
            )
            assert not lane.parked or (lane.queued and not lane.ready)
            assert lane.ready == (self._ready.at.get(lane.place) is lane)
            assert lane.place <= self._places
            assert lane.place or not (lane.ready or lane.parked)
            assert lane.queued or not lane.place
            if lane.queued and any(turn.client.may_run for turn in lane.ring):
                assert lane.ready or lane.parked, subject
            if lane.parked and not self._ready.at and not self._roster.has_changes:
                best = self._roster.best(lane.pools, lane.order)
                assert best is None or (lane.refused and not lane.ring), f"{subject} waits although there is credit"
                if self._roster.best(lane.simple_pools, lane.order) is not None:
                    may_go = [turn for turn in (*lane.ring, *aside) if turn.client.may_run]
                    seen = [job for turn in may_go for job in islice(turn_jobs.in_order(turn), LOOK_AHEAD_MAX)]
                    assert not any(is_simple(job) and not turn_jobs.is_picky(job, lane) for job in seen), subject
            if aside and not lane.ready and not self._roster.has_changes:
                assert lane.parked
                if self._roster.best(lane.pools, lane.order) is not None:
                    seen = [job for turn in aside for job in islice(turn_jobs.in_order(turn), LOOK_AHEAD_MAX)]
                    assert all(turn_jobs.is_picky(job, lane) for job in seen), "one stands aside that could go"
            total += lane.queued
        assert total == self.queued
        assert len(self._idle) <= LANES_IDLE_MAX
        assert not self._news
        self._ready.check()
        for pool in {pool for worker in self._roster for pool in worker.pools}:
            pool.parked.check()

    def _open(self, subject: Subject) -> Lane:
        policy = self._policies.of(subject)
        order = self._policies.rankings.index(policy.ranking)
        lane = Lane(subject, self._roster.pools_for(subject), order, sticky=policy.sticky)
        self._lanes[subject] = self._tree[_as_pattern(subject)] = lane
        return lane

    def _find_pools(self, lane: Lane) -> None:
        """An address came or went: others serve this subject now than before."""
        pools = self._roster.pools_for(lane.subject)
        if lane.parked:
            for pool in lane.all_pools:
                pool.parked.at.pop(lane.place, None)
            for pool in pools:
                if lane.simple or not pool.simple_only:
                    pool.parked.add(lane.place, lane)
                    self._pools_with_news[pool] = None
        lane.served_by(pools)

    def _wake(self, lane: Lane) -> None:
        if not lane.place:
            self._places += 1
            lane.place = self._places
        lane.ready = True
        self._ready.add(lane.place, lane)

    def _park(self, lane: Lane) -> None:
        if not lane.place:
            self._places += 1
            lane.place = self._places
        lane.parked = True
        for pool in lane.all_pools if lane.simple else lane.pools:
            pool.parked.add(lane.place, lane)

    def _unpark(self, lane: Lane) -> None:
        lane.parked = lane.refused = False
        for pool in lane.pools:
            del pool.parked.at[lane.place]
        for pool in lane.simple_pools:
            pool.parked.at.pop(lane.place, None)

    def _unwake(self, lane: Lane) -> None:
        lane.ready = False
        del self._ready.at[lane.place]

    def _count_simple(self, lane: Lane) -> None:
        """One more of its jobs is simple. If it is the first, those that take no others have not been asked yet."""
        lane.simple += 1
        if lane.simple == 1 and lane.parked and lane.simple_pools:
            self._unpark(lane)
            self._wake(lane)

    def _uncount(self, lane: Lane) -> None:
        self.queued -= 1
        lane.queued -= 1
        if not lane.queued:
            if lane.parked:
                self._unpark(lane)
            elif lane.ready:
                self._unwake(lane)
            lane.place = 0
            self._idle[lane] = None
            if len(self._idle) > LANES_IDLE_MAX:
                # Many at once: a dict finds its first key by stepping over all that were deleted before it.
                for oldest in list(islice(self._idle, LANES_IDLE_MAX // 8)):
                    self._forget(oldest)

    def _forget(self, lane: Lane) -> None:
        del self._idle[lane]
        del self._lanes[lane.subject]
        del self._tree[_as_pattern(lane.subject)]

    def _drop(self, turn: Turn) -> None:
        """Nothing is queued here for this client any more."""
        lane = turn.lane
        del lane.by_client[turn.client.id]
        turn.needs = None
        ring = lane.ring
        if ring and ring[0] is turn:
            ring.popleft()
        elif turn in turn.client.parked:
            del turn.client.parked[turn]
        elif lane.aside is not None and turn in lane.aside:
            self._return(turn, lane.aside)
        else:
            ring.remove(turn)

    def _serve(self, assigned: list[JobRecord]) -> None:
        best = self._roster.best
        if self._pools_with_news:
            self._hear_news()
        while (lane := self._next()) is not None:
            if lane.aside is not None and lane.looked != self._round:
                self._bring_back(lane)
            while (turn := self._turn(lane)) is not None:
                if turn.needs is None:
                    worker = best(lane.pools, lane.order)
                    if worker is None:
                        if lane.simple and best(lane.simple_pools, lane.order) is not None:
                            self._step_aside(turn)
                            continue
                        self._park(lane)
                        break
                    assigned.append(self._hand_out(turn, worker))
                elif (picked := self.picker.pick(turn)) is not None:
                    assigned.append(self._hand_out_picked(turn, *picked))
                elif best(lane.all_pools if lane.simple else lane.pools, lane.order) is None:
                    self._park(lane)
                    break
                else:
                    self._step_aside(turn)
                    continue
                if not lane.queued:
                    break
                if self._ready.at or self._news:
                    self._wake(lane)
                    break
            else:
                if lane.aside is not None:
                    self._refused.append(lane)

    def _hand_out(self, turn: Turn, worker: WorkerRecord) -> JobRecord:
        lane, jobs = turn.lane, turn.jobs
        job = jobs.popleft()
        job.enter(RUNNING)
        job.worker = worker
        lane.place = 0
        turn.client.in_flight += 1
        if self._roster.by_turns:
            self._roster.take_turn(worker, lane.simple_pools if worker.simple_only else lane.pools)
        self._roster.assign(worker, job.id, 1, job.digest >> DIGEST_BITS)
        if len(jobs) == turn.gone:
            self._drop(turn)
        elif len(lane.ring) > 1:
            lane.ring.rotate(-1)
        self._uncount(lane)
        return job

    def _hand_out_picked(self, turn: Turn, job: JobRecord, worker: WorkerRecord) -> JobRecord:
        lane = turn.lane
        was_kept = worker.kept_for is turn
        self.picker.forget(turn, job)
        turn_jobs.remove(turn, job)
        job.enter(RUNNING)
        job.worker = worker
        lane.place = 0
        turn.client.in_flight += 1
        lane.simple -= is_simple(job)
        if self._roster.by_turns:
            self._roster.take_turn(worker, lane.simple_pools if worker.simple_only else lane.pools)
        self._roster.assign(worker, job.id, slots_of(job), job.size)
        if was_kept:
            self._hear_of(worker)
        if turn_jobs.size(turn) == turn.gone:
            self._drop(turn)
        elif len(lane.ring) > 1:
            lane.ring.rotate(-1)
        self._uncount(lane)
        return job

    # Who stands aside, and who comes back.

    def _step_aside(self, turn: Turn) -> None:
        """It stands first, and can use none of the credit there is."""
        lane = turn.lane
        lane.ring.popleft()
        if lane.aside is None:
            lane.aside = {}
        lane.aside[turn] = None
        lane.looked = self._round

    def _bring_back(self, lane: Lane) -> None:
        """Something has changed since they stood aside. They go before whoever came later."""
        assert lane.aside is not None
        lane.ring.extendleft(reversed(lane.aside))
        lane.aside = None

    def _return(self, turn: Turn, aside: dict[Turn, None]) -> None:
        del aside[turn]
        if not aside:
            turn.lane.aside = None
            if turn.lane.refused and not turn.lane.ring:
                self._unpark(turn.lane)

    def _stir(self, turn: Turn) -> None:
        """There is something new about this turn, in a lane of which some stand aside."""
        lane = turn.lane
        if lane.aside is not None and turn in lane.aside:
            if lane.refused:
                self._unpark(lane)
            self._return(turn, lane.aside)
            lane.ring.appendleft(turn)
        if lane.refused:
            self._unpark(lane)
        if not lane.ready and not lane.parked:
            self._wake(lane)

    def _come_forward(self, turn: Turn) -> None:
        """The worker that is kept free for this turn has credit: if that is enough, it is served at once."""
        assert turn.needs is not None
        worker, job = turn.needs.kept, turn.needs.large
        assert worker is not None
        assert job is not None
        if worker.usable_credit < slots_of(job):
            return
        lane = turn.lane
        if lane.parked:
            self._unpark(lane)
        if lane.aside is not None:
            self._bring_back(lane)
        lane.ring.remove(turn)
        lane.ring.appendleft(turn)
        if not lane.ready:
            self._wake(lane)

    def _park_refused(self) -> None:
        """They had their choice, and keep their place for when there is other credit."""
        for lane in self._refused:
            if lane.aside is not None and not lane.ready and not lane.parked:
                self._park(lane)
                lane.refused = True
        self._refused.clear()

    def _hear_news(self) -> None:
        self._news = [(pool.parked.first(), at, pool) for at, pool in enumerate(self._pools_with_news)]
        heapify(self._news)
        self._pools_with_news.clear()

    def _hear_of(self, worker: WorkerRecord) -> None:
        """It was kept for a large job, which it now has: lanes that waited before may use the rest of its credit."""
        pools = [*(pool for _, _, pool in self._news), *(pool for pool in worker.pools if pool.parked.at)]
        self._pools_with_news = dict.fromkeys(pools)
        self._able.append(worker)
        self._hear_news()

    def _is_credit_left(self) -> bool:
        able = self._able
        while able and able[-1].rank < 0:
            able.pop()
        return bool(able)

    def _next(self) -> Lane | None:
        """Of the lanes for which there may be something, the one with the lowest place."""
        news, ready = self._news, self._ready
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
                self._unpark(lane)
                return lane
        if ready.at or self._let_in():
            lane = ready.take_first()
            lane.ready = False
            return lane
        return None

    def _let_in(self) -> bool:
        """Nothing is ready: let in one turn of each client that may run more, until a lane is. To let in all of them
        for each place that comes free would cost as much as the client has subjects."""
        while self._clients_with_news and not self._ready.at:
            for client in list(self._clients_with_news):
                if not client.parked or not client.may_run:
                    del self._clients_with_news[client]
                    continue
                turn, _ = client.parked.popitem(last=False)
                lane = turn.lane
                lane.ring.append(turn)
                if lane.aside is not None:
                    self._stir(turn)
                elif not lane.ready and not lane.parked:
                    self._wake(lane)
        return bool(self._ready.at)

    def _turn(self, lane: Lane) -> Turn | None:
        """The turn whose first job is next, if any client here may run one."""
        ring = lane.ring
        while ring:
            turn = ring[0]
            client = turn.client
            # What `may_run` says, in full: this is asked for every job.
            if client.in_flight < client.cap and client.undelivered_bytes < UNDELIVERED_BYTES_PER_CLIENT_MAX:
                if turn.needs is not None:
                    return turn
                jobs = turn.jobs
                while jobs[0].state is not QUEUED:
                    jobs.popleft()
                    turn.gone -= 1
                return turn
            ring.popleft()
            client.parked[turn] = None
            if turn.needs is not None:
                self.picker.let_go(turn)
        return None


def _as_pattern(subject: Subject) -> Pattern:
    """A subject is a pattern without wildcards."""
    return Pattern(subject)
