"""Which of a client's jobs with requirements goes next, and to which worker? (SPEC L1, L2)

In a turn without such jobs the first job goes to the best worker. Otherwise the first job in order goes that can:

    priority    a step is worth PRIORITY_AGE_S of waiting. So the order of two jobs never changes, and no job starves
    key         to its home, if that has credit; else other jobs pass. The first job that waits so waits at most
                STICKY_PATIENCE_S, and none waits for a home that has offered nothing for that long
    slots       to a worker with so many free; else other jobs pass. After SLOTS_PATIENCE_S one worker per turn is kept
                free: it gets nothing else until there is room. Never are all workers of a lane kept free
    files       to the worker with room that holds most of them, without waiting. But blobs go to no worker that does
                not know them while one serves that does
    env         only to workers that pass variables to programs
    unnamed     only to workers with a program for such jobs; simple jobs also to workers that take no others
    shuns       to no worker that could not start it. If many jobs in front fit no worker with room, each kind of job
                gets a queue of its own (`turn_jobs`)

A turn in which no job can go is aside (`lanes`) until new credit, a new job, or the time that is set here.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from typing import Final

from wakugumi.core.leader.jobs.states import QUEUED
from wakugumi.core.leader.records import JobRecord, Kind, Lane, Row, Turn, TurnNeeds, WorkerRecord
from wakugumi.core.leader.scheduling import turn_jobs
from wakugumi.core.leader.scheduling.locality import Holders, nearest, no_holders
from wakugumi.core.leader.scheduling.roster import Roster, can_run, has_room, members_of, rank_of
from wakugumi.core.leader.scheduling.sticky_keys import StickyKeys
from wakugumi.core.leader.scheduling.turn_jobs import is_picky, slots_of
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Subject
from wakugumi.limits.scheduling import (
    BLOBS_PATIENCE_S,
    HOMES_SUBJECTS_MAX,
    LOOK_AHEAD_MAX,
    SLOTS_DOUBT_S,
    SLOTS_PATIENCE_S,
    SLOTS_STUCK_S,
    STICKY_PATIENCE_S,
)

_NEVER: Final = float("inf")
_NOTHING: Final = Requirements()


class Picker:
    def __init__(self, roster: Roster, holders: Holders = no_holders) -> None:
        self._roster = roster
        self._holders = holders
        self._sticky_keys: OrderedDict[Subject, tuple[StickyKeys, int]] = OrderedDict()
        """Keys of each sticky subject, and the era of their workers; the last used subject last."""
        self._timers: list[tuple[float, int, Turn]] = []
        self._timer_count = 0

    def wake_at(self) -> float | None:
        return self._timers[0][0] if self._timers else None

    def due(self, now: float) -> list[Turn]:
        """Turns whose time has come, to be retried if they are aside."""
        found = []
        while self._timers and self._timers[0][0] <= now:
            at, _, turn = heappop(self._timers)
            needs = turn.needs
            if needs is not None and needs.wake_at == at:
                needs.wake_at = _NEVER
                needs.homes = None
                found.append(turn)
                self._review_kept(turn)
        return found

    def pick(self, turn: Turn) -> tuple[JobRecord, WorkerRecord] | None:
        """The job of this turn that goes now, and its worker."""
        needs, lane, roster = turn.needs, turn.lane, self._roster
        assert needs is not None
        kept = self._review_kept(turn)
        if kept is not None:
            return kept
        best = roster.best(lane.pools, lane.order)
        if best is None and not (lane.simple and roster.best(lane.simple_pools, lane.order)):
            return None
        if needs.homes is not None:
            if needs.seen == (turn_jobs.size(turn), roster.era) and all(home.rank < 0 for home in needs.homes):
                return None
            needs.homes = None
        turn_jobs.prune(turn)
        return self._first_that_can_go(turn, needs, best)

    def _first_that_can_go(
        self, turn: Turn, needs: TurnNeeds, best: WorkerRecord | None
    ) -> tuple[JobRecord, WorkerRecord] | None:
        """The first job that can go now; without one, note what the jobs wait for."""
        lane, roster = turn.lane, self._roster
        now, by_id = roster.now, roster.by_id
        keys = self._homes_in(lane)
        homes: dict[WorkerRecord, None] = {}
        """Homes that jobs wait for."""
        late: JobRecord | None = None
        wake_at = too_large = _NEVER
        skip: set[Row] = set()
        looked = 0
        no_room = False
        """A job needs more slots than any worker has free."""
        no_blobs = False
        """A job needs a worker that knows blobs, and these have no room."""
        unable: set[Kind] = set()
        """Kinds that no worker with room can run."""
        shunned = False
        """A job with several slots shuns workers that have them."""
        for job in turn_jobs.in_order(turn, skip):
            requirements = job.requirements or _NOTHING
            at = keys.home_of(requirements.key) if keys is not None and requirements.key else None
            home = None if at is None else by_id[at]
            if home is not None and ((requirements.blobs and not home.blobs) or not can_run(home, requirements)):
                home = None
            if home is not None and has_room(home, requirements.slots):
                return job, home
            if requirements.slots > 1:
                roomy = (
                    roster.best_with_room(lane.pools, lane.order, requirements)
                    if requirements.slots < too_large
                    else None
                )
                if roomy is not None and (to := self._nearest(lane, job, roomy)) is not None:
                    return job, to
                if requirements.shuns:  # Other jobs of its size may go to the workers that it shuns.
                    shunned = True
                    looked += 1
                else:
                    too_large = min(too_large, requirements.slots)
                if turn.is_split or not requirements.shuns:
                    skip.add(turn_jobs.row_of(turn, requirements))
                if not no_room:
                    no_room = True
                    wake_at = min(wake_at, self._wait_for_room(turn, needs, job, home))
                    best = roster.best(lane.pools, lane.order)
                    if best is None and not lane.simple:
                        late = None
                        break
            elif (kind := turn_jobs.kind_of(requirements)) in unable or (
                able := self._best_able(lane, requirements, best)
            ) is None:
                unable.add(kind)
                if turn.is_split:
                    skip.add(turn_jobs.row_of(turn, requirements))
                    continue
            elif no_blobs and requirements.blobs:
                pass
            elif (to := self._nearest(lane, job, able)) is None:
                no_blobs = True
            elif home is None:
                return job, to
            else:
                if not homes:
                    if needs.first is not job:
                        needs.first, needs.first_at = job, now
                    if needs.first_at + STICKY_PATIENCE_S <= now:
                        return job, to
                    wake_at = min(wake_at, needs.first_at + STICKY_PATIENCE_S)
                homes[home] = None
                given_up_at = max(home.spent_at, home.joined_at) + STICKY_PATIENCE_S
                if given_up_at > now:
                    wake_at = min(wake_at, given_up_at)
                elif late is None:
                    late = job
            looked += requirements.slots == 1  # The rest of a larger job's row is skipped.
            if looked >= LOOK_AHEAD_MAX:
                if (unable or shunned) and not turn.is_split:
                    turn_jobs.split_by_kind(turn)
                    return self._first_that_can_go(turn, needs, best)
                break
        if late is not None and (able := self._best_able(lane, late.requirements or _NOTHING, best)) is not None:
            to = self._nearest(lane, late, able)
            if to is not None:
                return late, to
        if no_blobs:  # Workers that know blobs may leave, which wakes no turn.
            wake_at = min(wake_at, now + BLOBS_PATIENCE_S)
        self._wake(turn, needs, wake_at)
        if not (no_room or no_blobs or unable):
            needs.homes, needs.seen = list(homes), (turn_jobs.size(turn), roster.era)
        return None

    def _best_able(self, lane: Lane, requirements: Requirements, best: WorkerRecord | None) -> WorkerRecord | None:
        """The best worker with room that can run the job; `best` is the best one of `lane.pools`."""
        if requirements.simple and lane.simple_pools:
            best = self._roster.best(lane.all_pools, lane.order)
        if best is None or can_run(best, requirements):
            return best
        able = [it for it in members_of(lane.pools_of(requirements)) if has_room(it, 1) and can_run(it, requirements)]
        return min(able, key=lambda worker: rank_of(worker, lane.order), default=None)

    def _nearest(self, lane: Lane, job: JobRecord, best: WorkerRecord) -> WorkerRecord | None:
        requirements = job.requirements
        return (
            nearest(lane, requirements, best, self._roster, self._holders)
            if requirements is not None and requirements.files
            else best
        )

    def home_of(self, lane: Lane, job: JobRecord) -> WorkerRecord | None:
        """Home of the job's key, if it has one. The worker may be away."""
        keys = self._homes_in(lane)
        if keys is None or job.requirements is None or not job.requirements.key:
            return None
        home = keys.home_of(job.requirements.key)
        return None if home is None else self._roster.by_id[home]

    def known_home(self, lane: Lane, job: JobRecord) -> WorkerRecord | None:
        """The remembered home of the job's key. Changes nothing."""
        known = self._sticky_keys.get(lane.subject)
        if known is None or not lane.sticky or job.requirements is None or not job.requirements.key:
            return None
        home = known[0].known(job.requirements.key)
        return None if home is None else self._roster.by_id.get(home)

    def forget(self, turn: Turn, job: JobRecord) -> None:
        """The job was cancelled, or runs: the turn stops waiting for it."""
        needs = turn.needs
        if needs is not None:
            needs.homes = None
            if needs.large is job:
                self.let_go(turn)
                needs.large = None
            if needs.first is job:
                needs.first = None

    def let_go(self, turn: Turn) -> None:
        """Stop keeping a worker free for this turn."""
        needs = turn.needs
        if needs is not None and needs.kept is not None:
            self._roster.let_go(needs.kept)
            needs.kept = None
            needs.keep_at = self._roster.now

    def check(self, turn: Turn) -> None:
        needs = turn.needs
        if needs is None:
            assert all(job.requirements is None for job in turn.jobs)
            return
        jobs = [*turn.jobs, *(job for queue in needs.queues.values() for job in queue)]
        assert needs.count == sum(job.requirements is not None for job in jobs) > 0
        assert needs.picky == sum(is_picky(job, turn.lane) for job in jobs)
        for row, queue in needs.queues.items():
            assert queue
            assert all(job.requirements is not None for job in queue)
            assert all(turn_jobs.row_of(turn, job.requirements) == row for job in queue if job.requirements)
        order = list(turn_jobs.in_order(turn))
        assert sorted(map(id, order)) == sorted(id(job) for job in jobs if job.state is QUEUED)
        for waiting in (needs.first, needs.large):
            assert waiting is None or any(job is waiting for job in order), (
                "a turn waits for a job that it does not hold"
            )
        if needs.kept is not None:
            assert needs.kept.kept_for is turn
            assert needs.large is not None
            assert needs.large.state is QUEUED
            assert needs.wake_at < _NEVER, "a worker is kept free without a timer"

    def _homes_in(self, lane: Lane) -> StickyKeys | None:
        """Homes of this lane's keys among its serving workers; None if the lane is not sticky."""
        if not lane.sticky:
            return None
        sticky_keys, era = self._sticky_keys.get(lane.subject) or (StickyKeys(), -1)
        if era != self._roster.era:
            self._settle(lane, sticky_keys)
        self._sticky_keys.move_to_end(lane.subject)
        return sticky_keys

    def _settle(self, lane: Lane, sticky_keys: StickyKeys) -> None:
        """Set the workers of a lane's keys, as others serve than before. A worker that is away and may come back keeps
        its keys."""
        by_id = self._roster.by_id
        members = [worker.id for worker in members_of(lane.all_pools) if worker.serves]
        away = [it for it in sticky_keys.workers if (known := by_id.get(it)) is not None and known.conn is None]
        sticky_keys.settle([*members, *away])
        self._sticky_keys[lane.subject] = sticky_keys, self._roster.era
        if len(self._sticky_keys) > HOMES_SUBJECTS_MAX:
            self._sticky_keys.popitem(last=False)

    def _wait_for_room(self, turn: Turn, needs: TurnNeeds, job: JobRecord, home: WorkerRecord | None) -> float:
        """No worker has so many slots free: keep one free, if the time has come. Returns the time of the next try."""
        now = self._roster.now
        if needs.large is not job:
            self.let_go(turn)
            needs.large, needs.keep_at = job, now + SLOTS_PATIENCE_S
        if needs.keep_at > now:
            return needs.keep_at
        needs.keep_at = now + SLOTS_PATIENCE_S
        serving = [worker for worker in members_of(turn.lane.pools) if worker.serves]
        requirements = job.requirements or _NOTHING
        fit = [worker for worker in serving if worker.slots >= requirements.slots and can_run(worker, requirements)]
        if requirements.blobs and any(worker.blobs for worker in serving):
            fit = [worker for worker in fit if worker.blobs]
        if not fit:
            return _NEVER  # Until a larger worker joins, whose credit wakes the turn.
        free = [worker for worker in serving if worker.kept_for is None]
        fit = [worker for worker in fit if worker.kept_for is None]
        if needs.kept is None and fit and len(free) >= min(2, len(serving)):
            needs.kept = max(
                fit,
                key=lambda worker: (worker is not needs.stuck, worker is home, worker.usable_credit, -worker.number),
            )
            needs.idle_at = _NEVER
            needs.kept_credit, needs.grew_at = needs.kept.credit, now
            self._roster.keep_free(needs.kept, turn)
            self._wake(turn, needs, needs.keep_at)
        return needs.keep_at

    def _review_kept(self, turn: Turn) -> tuple[JobRecord, WorkerRecord] | None:
        """Release the worker that is kept free, if it should not be. Returns it with its job, if it has room by now."""
        needs, now = turn.needs, self._roster.now
        assert needs is not None
        worker = needs.kept
        if worker is None:
            return None
        assert needs.large is not None
        slots = slots_of(needs.large)
        needs.idle_at = _NEVER if worker.jobs or worker.credit >= slots else min(needs.idle_at, now)
        if needs.idle_at + SLOTS_DOUBT_S <= now:
            worker.slots = worker.credit
        if worker.credit > needs.kept_credit:
            needs.kept_credit, needs.grew_at, needs.stuck = worker.credit, now, None
        is_stuck = bool(worker.jobs) and needs.grew_at + SLOTS_STUCK_S <= now
        if is_stuck:
            needs.stuck = worker  # Its jobs take long: another worker may have room sooner.
        serving = [member for member in members_of(turn.lane.pools) if member.serves]
        nobody_else = len(serving) > 1 and all(member.kept_for is not None for member in serving)
        if worker.slots < slots or worker not in serving or nobody_else or (is_stuck and worker.credit < slots):
            self.let_go(turn)
            return None
        self._wake(turn, needs, now + SLOTS_PATIENCE_S)
        return (needs.large, worker) if worker.usable_credit >= slots else None

    def _wake(self, turn: Turn, needs: TurnNeeds, at: float) -> None:
        if at < needs.wake_at:
            needs.wake_at = at
            self._timer_count += 1
            heappush(self._timers, (at, self._timer_count, turn))
