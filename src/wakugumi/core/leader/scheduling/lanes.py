"""Which job is next? (SPEC L1, L5, L9)

    Lanes ──► Lane, one per subject ──► Turn, one per client in it ──► its jobs, first in first out

Subjects that can be served take turns, and so do the clients of one subject. Lanes and clients that cannot be served
are parked, so that they cost nothing until something changes: a lane without credit (`parking`), a client at its cap
with all its turns. A cancelled job stays in its deque and is skipped there by its state.

`picking` chooses among jobs with requirements. A turn that can use none of the available credit steps aside, so that
the other turns of its lane go on; also a turn without simple jobs, where only workers for simple jobs have credit.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from wakugumi.core.backoff import Policies
from wakugumi.core.ids import JobId
from wakugumi.core.leader.jobs.states import DONE, QUEUED, RUNNING
from wakugumi.core.leader.records import DIGEST_BITS, ClientRecord, JobRecord, Lane, Turn, WorkerRecord
from wakugumi.core.leader.scheduling import turn_jobs
from wakugumi.core.leader.scheduling.lane_states import NOWHERE, READY, REFUSED
from wakugumi.core.leader.scheduling.lane_table import LaneTable
from wakugumi.core.leader.scheduling.locality import Holders, no_holders
from wakugumi.core.leader.scheduling.parking import Parking
from wakugumi.core.leader.scheduling.picking import Picker
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.leader.scheduling.turn_jobs import is_simple, slots_of
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Subject
from wakugumi.limits.leader import LANES_IDLE_MAX, UNDELIVERED_BYTES_PER_CLIENT_MAX
from wakugumi.limits.scheduling import LOOK_AHEAD_MAX

_GONE_KEPT: Final = 64
"""Number of cancelled jobs that may stay in a deque, however short it is: fewer are not worth a new one."""


class Lanes:
    def __init__(self, roster: Roster, policies: Policies, holders: Holders = no_holders) -> None:
        """The roster ranks by the policies' rules; `holders` returns the workers that hold a file."""
        self._roster = roster
        self._parking = Parking(roster)
        self.table = LaneTable(roster, policies, self._parking)
        self._by_subject, self._idle = self.table.by_subject, self.table.idle
        self.picker = Picker(roster, holders)
        self._round = 0
        self._refused: list[Lane] = []
        """Lanes of this round with turns aside and none that may run."""
        self._clients_with_room: dict[ClientRecord, None] = {}
        self.queued = 0

    def push(self, job: JobRecord, *, first: bool = False) -> None:
        """Queue a job. With `first` it goes to the head of its client's turn."""
        lane = self._by_subject.get(job.subject)
        if lane is None:
            lane = self.table.open(job.subject)
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
        if job.requirements is not None:
            turn_jobs.add(turn, job, first=first)
            if job.requirements.simple:
                self._count_simple(lane)
        elif first:
            turn.jobs.appendleft(job)
        else:
            turn.jobs.append(job)
        lane.queued += 1
        self.queued += 1
        if lane.aside is not None:
            self._retry(turn)
        elif lane.waits_in is NOWHERE:
            self._parking.wake(lane)

    def dropped(self, job: JobRecord) -> None:
        """A queued job was cancelled or finished: it no longer counts, and is skipped later."""
        assert job.state is DONE
        lane = self._by_subject[job.subject]
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
            # A client that submits and cancels repeatedly must not fill the memory while its turn waits.
            if turn.needs is not None:
                turn_jobs.purge(turn)
            else:
                turn.jobs = deque(other for other in turn.jobs if other.state is QUEUED)
                turn.gone = 0
        self._uncount(lane)

    def taken(self, job: JobRecord) -> None:
        """Remove a queued job that a worker runs already. It may be queued again, so it must not stay in its deque."""
        lane = self._by_subject[job.subject]
        turn = lane.by_client[job.client.id]
        self.picker.forget(turn, job)
        turn_jobs.remove(turn, job)
        lane.simple -= is_simple(job)
        if turn.gone == turn_jobs.size(turn):
            self._drop(turn)
        self._uncount(lane)

    def change_requirements(self, jobs: list[JobRecord], requirements: Requirements | None) -> None:
        """Change the requirements of these queued jobs of one subject, which had the same ones. They go to the head of
        their clients' turns, in their order."""
        turns: dict[Turn, dict[JobId, JobRecord]] = {}
        for job in jobs:
            turn = self._by_subject[job.subject].by_client[job.client.id]
            turns.setdefault(turn, {})[job.id] = job
            self.picker.forget(turn, job)
        for turn, theirs in turns.items():
            lane, pulled = turn.lane, turn_jobs.pull(turn, theirs)
            lane.simple -= sum(map(is_simple, pulled))
            lane.queued -= len(pulled)
            self.queued -= len(pulled)
            for job in reversed(pulled):
                job.requirements = requirements
                self.push(job, first=True)

    def assign(self) -> list[JobRecord]:
        """Assign all jobs that can go now. Each is then RUNNING with its worker, the credit is taken, and the client's
        cap counts it."""
        assigned: list[JobRecord] = []
        while True:
            self._round += 1
            for turn in self._parking.collect_credit():
                self._come_forward(turn)
            self._serve(assigned)
            if self._refused:
                self._park_refused()
            # The choice may have released a worker that was kept free.
            if not self._roster.has_changes:
                return assigned

    def tick(self, now: float) -> None:
        """Let the next `assign` retry turns whose waiting time is over."""
        for turn in self.picker.due(now):
            if turn.lane.aside is not None:
                self._retry(turn)

    def wake_at(self) -> float | None:
        return self.picker.wake_at()

    def worker_leaves(self, worker: WorkerRecord) -> None:
        """This worker stops serving: the turn that keeps it free must find another."""
        turn = worker.kept_for
        if turn is not None:
            self.picker.let_go(turn)
            if turn.lane.aside is not None:
                self._retry(turn)

    def room_freed(self, client: ClientRecord) -> None:
        """The client may have room for more: a job ended, its cap grew, or it took results."""
        if client.parked and client.may_run:
            self._clients_with_room[client] = None

    def lane(self, subject: Subject) -> Lane | None:
        return self._by_subject.get(subject)

    def busy_lanes(self) -> list[Lane]:
        return [lane for lane in self._by_subject.values() if lane.queued]

    def check(self) -> None:
        """Holds between two calls of `assign`, which leaves no lane ready."""
        total = 0
        assert not self._refused
        for worker in self._roster:
            if worker.kept_for is not None:
                assert worker.kept_for.needs is not None
                assert worker.kept_for.needs.kept is worker, "a worker is kept free for no turn"
                assert worker.kept_for.lane.by_client[worker.kept_for.client.id] is worker.kept_for
                if not self._parking.ready.at and not self._roster.has_changes:
                    large = worker.kept_for.needs.large
                    assert large is not None
                    assert worker.usable_credit < slots_of(large), "a worker has room and is still kept free"
        for subject, lane in self._by_subject.items():
            turns = list(lane.by_client.values())
            aside = lane.aside or {}
            live = [job for turn in turns for job in turn_jobs.in_order(turn)]
            assert lane.queued == len(live) == len({job.id for job in live}), (subject, lane.queued, len(live))
            assert lane.simple == sum(map(is_simple, live))
            for turn in turns:
                held = turn_jobs.size(turn)
                assert turn.gone == held - sum(1 for _ in turn_jobs.in_order(turn)) < held
                self.picker.check(turn)
                if turn in turn.client.parked:
                    assert not turn.client.may_run or turn.client in self._clients_with_room
                    assert turn not in lane.ring
                    assert turn.needs is None or turn.needs.kept is None
                elif turn in aside:
                    assert turn not in lane.ring
                else:
                    assert turn in lane.ring
            assert len(lane.ring) + len(aside) <= len(turns)
            assert lane.aside != {}
            assert lane.waits_in is not REFUSED or aside
            if lane.queued and any(turn.client.may_run for turn in lane.ring):
                assert lane.waits_in is not NOWHERE, subject
            if lane.is_parked and not self._parking.ready.at and not self._roster.has_changes:
                best = self._roster.best(lane.pools, lane.order)
                assert best is None or (lane.waits_in is REFUSED and not lane.ring), (
                    f"{subject} waits although there is credit"
                )
                if self._roster.best(lane.simple_pools, lane.order) is not None:
                    may_go = [turn for turn in (*lane.ring, *aside) if turn.client.may_run]
                    seen = [job for turn in may_go for job in islice(turn_jobs.in_order(turn), LOOK_AHEAD_MAX)]
                    assert not any(is_simple(job) and not turn_jobs.is_picky(job, lane) for job in seen), subject
            if aside and lane.waits_in is not READY and not self._roster.has_changes:
                assert lane.is_parked
                if self._roster.best(lane.pools, lane.order) is not None:
                    seen = [job for turn in aside for job in islice(turn_jobs.in_order(turn), LOOK_AHEAD_MAX)]
                    assert all(turn_jobs.is_picky(job, lane) for job in seen), "a turn is aside that could go"
            total += lane.queued
        assert total == self.queued
        self.table.check()
        self._parking.check(self._by_subject.values())

    def _count_simple(self, lane: Lane) -> None:
        """Count one more simple job. The first one unparks the lane: workers for simple jobs were not asked yet."""
        lane.simple += 1
        if lane.simple == 1 and lane.is_parked and lane.simple_pools:
            self._parking.unpark(lane)
            self._parking.wake(lane)

    def _uncount(self, lane: Lane) -> None:
        self.queued -= 1
        lane.queued -= 1
        if not lane.queued:
            if lane.waits_in is not NOWHERE:
                self._parking.leave(lane)
            lane.place = 0
            self._idle[lane] = None
            if len(self._idle) > LANES_IDLE_MAX:
                self.table.forget_oldest()

    def _drop(self, turn: Turn) -> None:
        """Remove a turn without queued jobs."""
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
        best, parking = self._roster.best, self._parking
        parking.begin_service()
        while (lane := parking.next()) is not None or (self._unpark_clients() and (lane := parking.next()) is not None):
            if lane.aside is not None and lane.aside_round != self._round:
                self._bring_back(lane)
            while (turn := self._next_turn(lane)) is not None:
                if turn.needs is None:
                    worker = best(lane.pools, lane.order)
                    if worker is None:
                        if lane.simple and best(lane.simple_pools, lane.order) is not None:
                            self._step_aside(turn)
                            continue
                        self._parking.park(lane)
                        break
                    assigned.append(self._hand_out(turn, worker))
                elif (picked := self.picker.pick(turn)) is not None:
                    assigned.append(self._hand_out_picked(turn, *picked))
                elif best(lane.all_pools if lane.simple else lane.pools, lane.order) is None:
                    self._parking.park(lane)
                    break
                else:
                    self._step_aside(turn)
                    continue
                if not lane.queued:
                    break
                if parking.ready.at or parking.candidates:
                    self._parking.wake(lane)
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
            self._parking.offer_rest_of(worker)
        if turn_jobs.size(turn) == turn.gone:
            self._drop(turn)
        elif len(lane.ring) > 1:
            lane.ring.rotate(-1)
        self._uncount(lane)
        return job

    # Turns step aside and return.

    def _step_aside(self, turn: Turn) -> None:
        """Move the first turn aside: it can use none of the available credit."""
        lane = turn.lane
        lane.ring.popleft()
        if lane.aside is None:
            lane.aside = {}
        lane.aside[turn] = None
        lane.aside_round = self._round

    def _bring_back(self, lane: Lane) -> None:
        """Return all turns from aside to the head of the ring, as something has changed."""
        assert lane.aside is not None
        lane.ring.extendleft(reversed(lane.aside))
        lane.aside = None

    def _return(self, turn: Turn, aside: dict[Turn, None]) -> None:
        del aside[turn]
        if not aside:
            turn.lane.aside = None
            if turn.lane.waits_in is REFUSED and not turn.lane.ring:
                self._parking.unpark(turn.lane)

    def _retry(self, turn: Turn) -> None:
        """Retry this turn, in a lane with turns aside."""
        lane = turn.lane
        if lane.aside is not None and turn in lane.aside:
            if lane.waits_in is REFUSED:
                self._parking.unpark(lane)
            self._return(turn, lane.aside)
            lane.ring.appendleft(turn)
        if lane.waits_in is REFUSED:
            self._parking.unpark(lane)
        if lane.waits_in is NOWHERE:
            self._parking.wake(lane)

    def _come_forward(self, turn: Turn) -> None:
        """If the worker that is kept free for this turn has enough credit, serve the turn next."""
        assert turn.needs is not None
        worker, job = turn.needs.kept, turn.needs.large
        assert worker is not None
        assert job is not None
        if worker.usable_credit < slots_of(job):
            return
        lane = turn.lane
        if lane.is_parked:
            self._parking.unpark(lane)
        if lane.aside is not None:
            self._bring_back(lane)
        lane.ring.remove(turn)
        lane.ring.appendleft(turn)
        if lane.waits_in is not READY:
            self._parking.wake(lane)

    def _park_refused(self) -> None:
        """Park the refused lanes. They keep their places."""
        for lane in self._refused:
            if lane.aside is not None and lane.waits_in is NOWHERE:
                self._parking.park(lane, REFUSED)
        self._refused.clear()

    def _unpark_clients(self) -> bool:
        """No lane is ready: return one parked turn of each client that may run more, until a lane is ready. All turns
        at once would cost as much as the client has subjects, for each job that ends."""
        while self._clients_with_room and not self._parking.ready.at:
            for client in list(self._clients_with_room):
                if not client.parked or not client.may_run:
                    del self._clients_with_room[client]
                    continue
                turn, _ = client.parked.popitem(last=False)
                lane = turn.lane
                lane.ring.append(turn)
                if lane.aside is not None:
                    self._retry(turn)
                elif lane.waits_in is NOWHERE:
                    self._parking.wake(lane)
        return bool(self._parking.ready.at)

    def _next_turn(self, lane: Lane) -> Turn | None:
        """The next turn whose client may run a job. Other turns are parked."""
        ring = lane.ring
        while ring:
            turn = ring[0]
            client = turn.client
            # `may_run` inlined: this runs for every job.
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
