"""Which workers serve, what do they hold, and which of them is lost? (SPEC L3, L4)

A worker that loses its connection has some time to come back. It keeps the jobs that it then reports as held; the
others go back to the head of the queue.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Sequence
from heapq import heappop, heappush

from wakugumi.core.backoff import TURN_STRIDE
from wakugumi.core.ids import JobId, WorkerId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.jobs.attempts import LEADER_LOST
from wakugumi.core.leader.jobs.broadcast import owner_of
from wakugumi.core.leader.jobs.lifecycle import JobLifecycle
from wakugumi.core.leader.jobs.not_started import was_tried
from wakugumi.core.leader.jobs.orphans import OrphanJobs
from wakugumi.core.leader.jobs.states import DONE, RUNNING
from wakugumi.core.leader.records import JobRecord, WorkerRecord
from wakugumi.core.leader.scheduling.lanes import Lanes
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.core.leader.worker_keys import WorkerKeys
from wakugumi.core.subject import hears
from wakugumi.limits.leader import ACK_MARGIN_S, DRAINED_MAX, REATTACH_GRACE_S
from wakugumi.limits.scheduling import CREDIT_BACK_S, CREDIT_MAX
from wakugumi.limits.wire import HELLO_DEADLINE_S, SILENCE_MAX_S


class Workers:
    def __init__(
        self,
        out: StepBuilder,
        roster: Roster,
        lanes: Lanes,
        lifecycle: JobLifecycle,
        orphans: OrphanJobs,
        keys: WorkerKeys,
    ) -> None:
        self._out = out
        self._roster = roster
        self._lanes = lanes
        self._lifecycle = lifecycle
        self._orphans = orphans
        self._keys = keys
        self._drained: OrderedDict[WorkerId, None] = OrderedDict()
        self._timers: list[tuple[float, int, WorkerRecord]] = []
        self._timer_count = 0
        self._by_conn = roster.by_conn
        self.to_resend: list[tuple[JobId, WorkerRecord]] = []
        """Jobs to send once more at the end of this step, and their workers."""

    @property
    def timers(self) -> int:
        """Number of timers that are set, or were set and are void by now."""
        return len(self._timers)

    def is_drained(self, worker: WorkerId) -> bool:
        """Does this worker get no job, even when it returns?"""
        return worker in self._drained

    def wake_at(self) -> float | None:
        return self._timers[0][0] if self._timers else None

    def tick(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            due, _, worker = heappop(self._timers)
            if worker.timer_at != due:
                continue
            worker.timer_at = None
            if worker.conn is None and worker.away_until is not None:
                if worker.away_until <= now:
                    self._give_up_on(worker, now)
                else:
                    self.expect(worker, worker.away_until)

    # Connections.

    def joined(self, event: ev.WorkerJoined, now: float) -> None:
        if not self._roster.has_room_for(event.patterns):
            most = self._roster.tokens_max
            why = f"full: all workers together have patterns of {most} tokens; hint: use fewer or wider patterns"
            self._out.do.append(ev.Close(event.conn, why))
            return
        worker = self._roster.by_id.get(event.worker)
        if why := self._keys.why_not(event.worker, worker, event.key):
            self._out.do.append(ev.Close(event.conn, why))
            return
        self._keys.bind(event.worker, event.key)
        if worker is None:
            worker = self._roster.add(event.worker)
            worker.draining = event.worker in self._drained
        elif worker.conn is not None:
            # The old connection is half open, or an id was copied: the newer connection wins.
            self._out.do.append(ev.Close(worker.conn, "the same worker connected anew"))
            self._disconnect(worker, now)
        if not event.reattach:
            self._lose_all(worker, now)
            worker.away_until = None
        worker.key = event.key
        worker.set_name(event.name)
        worker.receipts, worker.heartbeats = event.receipts, event.heartbeats
        worker.reattach, worker.cancels = event.reattach, event.cancels
        worker.settled = not event.reattach
        worker.slots = worker.slots_declared = event.slots
        worker.blobs = event.blobs
        worker.runs_unnamed, worker.simple_only = event.runs_unnamed, event.simple_only
        worker.stride = TURN_STRIDE // event.weight
        worker.resend = event.resend
        worker.as_root, worker.env = event.as_root, event.env
        worker.rests = worker.fault = ""
        worker.held_by = 0.0
        worker.leaving = worker.blocked = False
        worker.seen_at = worker.joined_at = now
        self._lanes.table.pools_added(self._roster.connect(worker, event.conn, event.patterns))
        self._lanes.table.worker_connected(worker)
        if event.receipts or event.heartbeats or event.reattach or event.cancels:
            self._out.at_once.append(ev.SendWelcome(event.conn))

    def left(self, worker: WorkerRecord, now: float) -> None:
        self._disconnect(worker, now)
        assert worker.away_until is not None
        if worker.jobs and worker.away_until > now:
            self.expect(worker, worker.away_until)
        else:
            self._give_up_on(worker, now)

    def expect(self, worker: WorkerRecord, until: float) -> None:
        """Wait until then for a worker that is away."""
        worker.away_until = until
        if worker.timer_at is None or until < worker.timer_at:
            worker.timer_at = until
            self._timer_count += 1
            heappush(self._timers, (until, self._timer_count, worker))

    def held(self, event: ev.WorkerHolds, now: float) -> None:
        worker = self._by_conn.get(event.conn)
        if worker is not None:
            if not worker.settled:
                self._settle(worker, event, now)
            if worker.resend:
                self.to_resend += [(job_id, worker) for job_id in worker.jobs]

    def _settle(self, worker: WorkerRecord, event: ev.WorkerHolds, now: float) -> None:
        """A worker reports what it holds, after a reconnect or to a new leader: it keeps these jobs and loses the
        others (SPEC L4)."""
        running = dict.fromkeys(event.running)
        fetched = self._wanted_of(worker, event.kept)
        held = running | dict.fromkeys(event.finished) | fetched
        self._lose_all(worker, now, keeps=held)
        refused = 0
        for job_id in held:
            job = self._lifecycle.jobs.get(job_id)
            if job is None and job_id not in worker.jobs:
                self._orphans.hold(job_id, worker.id, worker.patterns, now)
                continue
            if job is not None and job_id not in worker.jobs and not may_claim(job, worker):
                refused += 1
                continue
            worker.jobs[job_id] = None
            if job is None or job.state is DONE:
                if worker.cancels and job_id in running:
                    self._out.do.append(ev.SendCancel(event.conn, job_id))
            elif job.state is not RUNNING:
                if job_id in running or not was_tried(self._lifecycle.tried.get(job_id), worker):
                    self._lifecycle.run_on(job, worker, now)
            elif job.worker is worker:
                assert job.cell is not None
                job.cell = self._lifecycle.stats.reattached(job.cell, worker.patterns, job.subject)
            elif job_id in self._lifecycle.loading:
                # Assigned to another worker since, but not yet sent: the request is still being read.
                self._lifecycle.give_back(job, now)
                self._lifecycle.run_on(job, worker, now)
            elif worker not in job.former_workers:
                job.former_workers = (*job.former_workers, worker)
        if refused:
            self._out.complain(event.conn, foreign_claim_text(worker, refused))
        if fetched:
            self._out.do.append(ev.SendFetch(event.conn, list(fetched)))
        worker.settled = True
        worker.away_until = None
        self._roster.changed(worker)

    def _wanted_of(self, worker: WorkerRecord, kept: Sequence[JobId]) -> dict[JobId, None]:
        """Kept results of an earlier process that answer an attempt assigned to this worker."""
        jobs = self._lifecycle.jobs
        return {
            job_id: None
            for job_id in kept
            if (job := jobs.get(job_id)) is not None and job.state is not DONE and was_assigned(job, worker)
        }

    def declined(self, event: ev.Declined, now: float) -> None:
        """The worker has not begun the job, and will not."""
        worker = self._by_conn.get(event.conn)
        if worker is None or event.job not in worker.jobs:
            return
        del worker.jobs[event.job]
        self._roster.changed(worker)
        job = self._lifecycle.jobs.get(event.job)
        if job is not None and job.worker is worker:
            self._lifecycle.counts.declined += 1
            self._lifecycle.give_back(job, now)

    def described(self, event: ev.Described, _now: float) -> None:
        worker = self._by_conn.get(event.conn)
        if worker is not None:
            worker.as_root, worker.env = event.as_root, event.env
            self._roster.era += 1
            self._roster.changed(worker)

    def rested(self, event: ev.Rested, now: float) -> None:
        """The worker is out of order until it reports otherwise: no job waits for it."""
        worker, why = self._by_conn.get(event.conn), event.why
        if worker is None:
            return
        worker.seen_at = now
        if bool(worker.rests) != bool(why):
            self._roster.era += 1
            self._lifecycle.counts.rests += bool(why)
        worker.rests = why
        if why:
            worker.credit = 0
            worker.spent_at = now
            self._lanes.worker_leaves(worker)
            self._keep_from(worker, now)
            if not worker.simple_only:
                assert worker.conn is not None
                self._out.do.append(ev.SendRested(worker.conn))
        self._roster.changed(worker)

    def _keep_from(self, worker: WorkerRecord, now: float) -> None:
        """Give assigned jobs that were not yet sent, because their requests are still being read, to other workers."""
        lifecycle = self._lifecycle
        unsent = [job for job, conn in lifecycle.loading.items() if conn == worker.conn and job not in lifecycle.unpaid]
        for job_id in reversed(unsent):
            lifecycle.give_back(lifecycle.jobs[job_id], now)

    def drain(self, worker: WorkerRecord, draining: bool) -> None:
        """Start or stop draining. A worker stays drained over a reconnect: maintenance of its machine goes on."""
        worker.draining = draining
        self._roster.era += 1
        if draining:
            self._lanes.worker_leaves(worker)
        if draining:
            self._drained[worker.id] = None
            if len(self._drained) > DRAINED_MAX:
                del self._drained[next(iter(self._drained))]
        else:
            self._drained.pop(worker.id, None)
        self._roster.changed(worker)

    def leaving(self, event: ev.Leaving, _now: float) -> None:
        worker = self._by_conn.get(event.conn)
        if worker is None:
            return
        worker.leaving = True
        self._roster.era += 1
        self._lanes.worker_leaves(worker)
        self._roster.changed(worker)

    def credited(self, event: ev.Credited, now: float) -> None:
        worker = self._by_conn.get(event.conn)
        if worker is None:
            return
        back = 0
        if worker.lent:
            over = worker.credit + len(worker.jobs) + event.amount - worker.parallel
            back = max(0, min(worker.lent, event.amount, over))
        amount = event.amount - back
        if event.amount <= 0 or worker.credit + amount > CREDIT_MAX:
            text = f"a credit of {event.amount} to {worker.credit} is refused: 1 to {CREDIT_MAX}"
            self._out.complain(event.conn, text)
            return
        if event.most:
            amount = max(0, min(amount, event.most - worker.credit - len(worker.jobs)))
        worker.seen_at = now
        if worker.rests:
            worker.rests = ""
            self._roster.era += 1
        worker.credit += amount
        worker.lent -= back
        if not worker.parallel:
            worker.parallel = amount
        if worker.unpaid and worker.credit + len(worker.jobs) >= worker.parallel:
            worker.unpaid = 0
        if worker.slots < worker.slots_declared:  # The declared number was in doubt, but the credit shows it.
            worker.slots = max(worker.slots, min(worker.credit, worker.slots_declared))
        self._roster.changed(worker)

    def acked_empty(self, worker: WorkerRecord, now: float) -> None:
        """Note an empty ack. A worker of the nine types answers a duplicate with one, and may offer no credit for
        it."""
        assert not worker.receipts
        if worker.heartbeats or worker.reattach or worker.cancels:
            return
        if not worker.unpaid:
            worker.unpaid_since = now
        worker.unpaid += 1

    def _give_credit_back(self, worker: WorkerRecord, now: float) -> None:
        """Add the credit that a duplicate assignment used (SPEC F7), up to `parallel`. If the worker offers that credit
        later, it is not added again."""
        if not worker.unpaid or now - worker.unpaid_since < CREDIT_BACK_S:
            return
        missing = max(0, worker.parallel - worker.credit - len(worker.jobs))
        back = min(worker.unpaid, missing)
        worker.unpaid = 0
        worker.lent = min(worker.parallel, worker.lent + back)
        worker.credit += back
        self._roster.changed(worker)

    def blocked(self, worker: WorkerRecord, blocked: bool) -> None:
        worker.blocked = blocked
        self._roster.changed(worker)

    def written(self, worker: WorkerRecord) -> None:
        """The worker took all jobs so far, and may get more."""
        worker.unwritten_bytes = 0
        self._roster.changed(worker)

    def tell_when_written(self) -> None:
        """At the end of a step: request `PeerWritten` for workers that have enough unsent bytes, none of them still
        being read."""
        for worker in list(self._roster.to_write):
            if not worker.loading:
                assert worker.conn is not None
                del self._roster.to_write[worker]
                self._out.do.append(ev.TellWhenPeerWritten(worker.conn))

    def beat(self, now: float) -> None:
        """Send heartbeats, and find workers that are lost (SPEC L3)."""
        for worker in list(self._roster.by_conn.values()):
            assert worker.conn is not None
            if worker.heartbeats and now - worker.seen_at > SILENCE_MAX_S:
                self._hang_up(worker, f"no sign of life for {SILENCE_MAX_S:.0f} s")
            elif not worker.settled and now - worker.joined_at > HELLO_DEADLINE_S:
                self._hang_up(worker, "a re-attaching worker did not report what it holds")
            elif worker.heartbeats:
                self._out.at_once.append(ev.SendPeerHeartbeat(worker.conn))
            else:
                self._lose_late_attempts(worker, now)
                self._give_credit_back(worker, now)

    def reset_silence(self, now: float) -> None:
        """The leader could not read: the silence of workers has no meaning, and workers that are away had no chance to
        come back."""
        for worker in self._roster:
            worker.seen_at = now
            if worker.conn is None:
                assert worker.away_until is not None
                self.expect(worker, max(worker.away_until, now + REATTACH_GRACE_S))
            elif not worker.settled:
                worker.joined_at = now

    def _disconnect(self, worker: WorkerRecord, now: float) -> None:
        """The worker has its time to come back from now on, if it can reattach. A worker that left again before it
        reported what it holds gets no more time."""
        if worker.settled and worker.reattach:
            worker.away_until = now + REATTACH_GRACE_S
        elif worker.away_until is None:
            worker.away_until = now
        self._lanes.worker_leaves(worker)
        self._lanes.table.pools_removed(self._roster.disconnect(worker))

    def _give_up_on(self, worker: WorkerRecord, now: float) -> None:
        """The worker is lost: its jobs go back to the head of the queue (SPEC L4)."""
        self._lose_all(worker, now)
        self._roster.remove(worker)

    def _lose_all(self, worker: WorkerRecord, now: float, keeps: Container[JobId] = ()) -> None:
        # The last job first: each goes to the head of its queue, so the order stays.
        for job_id in reversed([job_id for job_id in worker.jobs if job_id not in keeps]):
            del worker.jobs[job_id]
            job = self._lifecycle.jobs.get(job_id)
            if job is not None and job.worker is worker:
                code = LEADER_LOST if job_id in self._lifecycle.inherited else "worker-lost"
                self._lifecycle.attempt_lost(job, code, now, at_once=True)

    def _lose_late_attempts(self, worker: WorkerRecord, now: float) -> None:
        """A late job may still be answered, so the worker continues to hold it (SPEC L3)."""
        worker.moved_at = {job_id: at for job_id, at in worker.moved_at.items() if job_id in worker.jobs}
        for job_id in list(worker.jobs):
            job = self._lifecycle.jobs.get(job_id)
            if job is None:
                del worker.jobs[job_id]
                continue
            moved_at = worker.moved_at.get(job_id, 0.0) - job.timeout_s
            since = max(job.since, worker.joined_at, moved_at)
            if job.worker is worker and now - since > job.timeout_s + ACK_MARGIN_S:
                if worker not in job.former_workers:
                    job.former_workers = (*job.former_workers, worker)
                self._lifecycle.attempt_lost(job, "ack-late", now, at_once=False)
        self._roster.changed(worker)

    def _hang_up(self, worker: WorkerRecord, why: str) -> None:
        assert worker.conn is not None
        worker.leaving = True
        self._roster.changed(worker)
        self._out.do.append(ev.Close(worker.conn, why))


def may_claim(job: JobRecord, worker: WorkerRecord) -> bool:
    """May this worker have the job? Only if the job was assigned to it, or its patterns match. The id alone proves
    nothing."""
    return was_assigned(job, worker) or owner_of(job.subject) == worker.id or hears(worker.patterns, job.subject)


def foreign_claim_text(worker: WorkerRecord, jobs: int) -> str:
    return f"{worker.label} claims {jobs} job{'s' if jobs > 1 else ''} outside its patterns, which it was never given"


def was_assigned(job: JobRecord, worker: WorkerRecord) -> bool:
    """The worker has the job now, or had it in an attempt that ended."""
    return job.worker is worker or any(attempt.worker_id == worker.id for attempt in job.history)
