"""What does a leader do about each event, from the submit of a job to its confirmed result?

    clients ◄─► Submits, Clients ──► JobLifecycle ◄── Acks, Workers ◄─► workers    each change of a job's state
                       └─────► Lanes, Roster ◄──────────┘                          which worker gets which job next

A job id has one accepted result, whichever peer dies: the first one wins, later ones are confirmed and dropped. The
machine hands each event to the part that it concerns, and jobs to workers at the end of each step. `admin` answers
questions about all this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from wakugumi.core.access.identity import Sight
from wakugumi.core.backoff import EVERYWHERE, Policies
from wakugumi.core.ids import ClientId, JobId, Verdict
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.acks import Acks
from wakugumi.core.leader.admin.actions import AdminActions
from wakugumi.core.leader.events import LeaderDo, LeaderEvent
from wakugumi.core.leader.journal.entries import KeepAttempt, LeaderKeep
from wakugumi.core.leader.journal.offload import OffloadedRequests
from wakugumi.core.leader.journal.recovery import Leaf, recover
from wakugumi.core.leader.records import JobRecord
from wakugumi.core.leader.scheduling.locality import Holders, no_holders
from wakugumi.core.leader.state import LeaderState
from wakugumi.core.leader.submits import Submits
from wakugumi.core.memory_budget import Budget
from wakugumi.core.step import Step
from wakugumi.limits.journal import PAYLOAD_MEMORY_BYTES
from wakugumi.limits.leader import (
    ASLEEP_S,
    ATTEMPTS_MAX,
    QUEUE_BYTES_MAX,
    QUEUE_JOBS_MAX,
    SWEEP_S,
)
from wakugumi.limits.wire import HEARTBEAT_S


class LeaderMachine(LeaderState):
    """The leader. See `core/step.py` for the four doors."""

    def __init__(
        self,
        chance: Callable[[], float],
        *,
        now: float = 0.0,
        policies: Policies = EVERYWHERE,
        queue_jobs_max: int = QUEUE_JOBS_MAX,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        attempts_max: int = ATTEMPTS_MAX,
        keeps: bool = True,
        payload_memory_bytes: int = PAYLOAD_MEMORY_BYTES,
        holders: Holders = no_holders,
        why_not_simple: Callable[[bytes], str] = lambda _: "",
    ) -> None:
        super().__init__(
            chance,
            now=now,
            policies=policies,
            queue_jobs_max=queue_jobs_max,
            queue_bytes_max=queue_bytes_max,
            attempts_max=attempts_max,
            keeps=keeps,
            payload_memory_bytes=payload_memory_bytes,
            holders=holders,
            why_not_simple=why_not_simple,
        )
        self._stopped = False
        self._beat_at = now + HEARTBEAT_S
        self._sweep_at = now + SWEEP_S
        self._is_reading_stopped = False
        self._awake_at = now
        self._offloaded = OffloadedRequests(
            self._out, self.lifecycle, self.clients, self.jobs, self.orphans, self.worker_keys
        )
        self._submits = Submits(
            self._out, self.roster, self.jobs, self.clients, self.lifecycle, self.orphans, self.admission
        )
        acks = Acks(self._out, self.roster, self.jobs, self.lifecycle, self.not_started, self.orphans, self.workers)
        self._connections = self.clients.connections
        self._workers = self.roster.by_conn
        self._on: dict[type[object], Callable[[Any, float], None]] = {
            ev.ClientJoined: self.clients.joined,
            ev.WorkerJoined: self.workers.joined,
            ev.KeyEnded: self.worker_keys.ended,
            ev.Left: self._left,
            ev.Submitted: self._submits.submitted,
            ev.SubmitRefused: self._submits.refused,
            ev.Credited: self.workers.credited,
            ev.Acked: acks.acked,
            ev.WorkerHolds: self.workers.held,
            ev.Declined: self.workers.declined,
            ev.Described: self.workers.described,
            ev.Rested: self.workers.rested,
            ev.Confirmed: self.clients.confirmed,
            ev.Claimed: self.clients.claimed,
            ev.Sought: self._submits.sought,
            ev.CapChanged: self.clients.cap_changed,
            ev.CancelWanted: self._submits.cancel_wanted,
            ev.PeerHeard: self._heard,
            ev.Leaving: self.workers.leaving,
            ev.PeerBlocked: self._blocked,
            ev.PeerUnblocked: self._unblocked,
            ev.PeerWritten: self._written,
            ev.QuestionAsked: AdminActions(self, self._out).asked,
            ev.PayloadsLoaded: self._offloaded.loaded,
            ev.DiskLow: self.admission.disk_changed,
            ev.ReadingStopped: self._reading_stopped,
            ev.CommitsStalled: self._commits_stalled,
            ev.StopWanted: self._stop_wanted,
        }

    def knows(self, job_id: JobId) -> bool:
        """The job runs or is OK: another submit of this id runs nothing."""
        return self.jobs.knows(job_id)

    def owner(self, job_id: JobId) -> ClientId | None:
        """The client of a known job."""
        job = self.jobs.get(job_id)
        return None if job is None else job.client.id

    def why_not(self, job_id: JobId) -> Verdict | None:
        """Why a job with this id would be refused now; None if it would be accepted."""
        return self._submits.why_not(job_id)

    def may_read(self, blob: str, sight: Sight | None) -> bool:
        """Does a job or a result of a client in sight name the blob? Files of caches are for all: see
        `FileDistribution.pins`."""
        return sight is None or sight.sees_all or any(map(sight.sees, self.file_references.clients_of(blob)))

    def unclaimed(self, client: ClientId) -> dict[ClientId, list[JobId]]:
        """Jobs that came by HTTP, and all jobs of `client`, whose results are not delivered; by client."""
        found: dict[ClientId, list[JobId]] = {}
        for job in self.jobs.values():
            if not job.delivered and (
                job.client.id == client or (job.requirements is not None and job.requirements.by_http)
            ):
                found.setdefault(job.client.id, []).append(job.id)
        return found

    def recover(self, leaves: Iterable[Leaf], now: float) -> None:
        """Go on where the leader that wrote these leaves ended. Once, and first of all."""
        assert self.durable
        assert not self.jobs
        recover(self, leaves, now)

    def bound_by(self, budget: Budget) -> None:
        """Limit the memory of results and patterns. The constructor limits the queue."""
        self.clients.undelivered_bytes_max = budget.undelivered_bytes
        self.clients.results.kept_bytes_max = budget.kept_bytes
        self.clients.dead.bytes_max = budget.dead_bytes
        self.roster.tokens_max = budget.pattern_tokens

    # The four doors.

    def handle(self, events: Sequence[LeaderEvent], now: float) -> Step[LeaderKeep, LeaderDo]:
        if now - self._awake_at > ASLEEP_S:
            self._reset_silence(now)
        self._awake_at = self.roster.now = now
        on = self._on
        for event in events:
            on[type(event)](event, now)
        return self._step(now)

    def tick(self, now: float) -> Step[LeaderKeep, LeaderDo]:
        if self._is_reading_stopped or self.stalled or now - self._awake_at > ASLEEP_S:
            self._reset_silence(now)
        self._awake_at = self.roster.now = now
        self.workers.tick(now)
        self.lifecycle.tick(now)
        self.lanes.tick(now)
        if self._beat_at <= now:
            self._beat_at = now + HEARTBEAT_S
            self.clients.beat(now)
            self.workers.beat(now)
        if self._sweep_at <= now:
            self._sweep_at = now + SWEEP_S
            self.clients.sweep(now)
            self.orphans.sweep(self.roster.by_id, now)
            self.lifecycle.stats.add_mark(now)
            self.roster.forget_turns()
            if self.durable:
                self._offloaded.tidy(now)
        return self._step(now)

    def wake_at(self) -> float | None:
        at = min(self._beat_at, self._sweep_at, self.not_started.review_at)
        for earlier in (self.workers.wake_at(), self.lifecycle.wake_at(), self.lanes.wake_at()):
            if earlier is not None and earlier < at:
                at = earlier
        return at

    def check(self) -> None:
        self.roster.check()
        self.lanes.check()
        self.orphans.check()
        self.clients.check()
        self.jobs.check()
        self.worker_keys.check()
        self.lifecycle.check([*self.orphans.leaves(), *self.worker_keys.leaves()])
        self.not_started.check()
        self.file_references.check(self.jobs.values(), self.clients.dead, self.orphans.blobs())
        self._out.check()

    # From either kind of peer.

    def _left(self, event: ev.Left, now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            self.clients.left(connection)
        elif (worker := self._workers.get(event.conn)) is not None:
            self.workers.left(worker, now)

    def _heard(self, event: ev.PeerHeard, now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            connection.seen_at = now
        elif (worker := self._workers.get(event.conn)) is not None:
            worker.moved_at.update((job, now) for job in event.moving if job in worker.jobs)
            worker.seen_at = now
            if event.cpu is not None:
                worker.cpu, worker.held_by = event.cpu, event.held_by
                if self.roster.by_load:
                    self.roster.loaded(worker, event.cpu)

    def _blocked(self, event: ev.PeerBlocked, _now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            connection.blocked = True
        elif (worker := self._workers.get(event.conn)) is not None:
            self.workers.blocked(worker, True)

    def _unblocked(self, event: ev.PeerUnblocked, _now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            self.clients.unblocked(connection)
        elif (worker := self._workers.get(event.conn)) is not None:
            self.workers.blocked(worker, False)

    def _written(self, event: ev.PeerWritten, _now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            self.clients.written(connection)
        elif (worker := self._workers.get(event.conn)) is not None:
            self.workers.written(worker)

    # Jobs go out.

    def _step(self, now: float) -> Step[LeaderKeep, LeaderDo]:
        out = self._out
        do = out.do
        if self.workers.to_resend:
            self._send_again()
        if self.not_started.groups:
            self.not_started.review(now)
        absent: list[JobRecord] = []
        counted = self.lifecycle.stats.assigned
        for job in self.lanes.assign() if self._may_assign() else ():
            worker = job.worker
            assert worker is not None
            assert worker.conn is not None
            job.attempts += 1
            if worker.simple_only:  # A node may give the job back.
                job.cell = self.lifecycle.stats.held(worker.patterns, job.subject)
                self.lifecycle.delays[job.id] = now - job.since
            else:
                job.cell = counted(worker.patterns, job.subject, now - job.since)
            job.since = now
            if out.keeps:
                out.keep.append(KeepAttempt(job.id, worker.id, worker.label))
                if job.payload is None:
                    absent.append(job)
                    continue
            assert job.payload is not None
            request = job.request if worker.simple_only else b""
            do.append(ev.SendAssign(worker.conn, job.id, job.subject, job.payload, request))
        if absent:
            self._offloaded.load(absent)
        if self.roster.to_write:
            self.workers.tell_when_written()
        self.admission.update()
        if self.admission.stopping and not self._stopped and self._is_quiet():
            self._stopped = True
            do.append(ev.LeaderStopped())
        if out.keeps and out.leaves.take_completed():
            self._offloaded.tidy(now)
        return out.step(self.file_references.take_freed())

    def _send_again(self) -> None:
        """Send held jobs once more to workers that know them by their ids alone. No attempt, no credit."""
        held = [
            job
            for job_id, worker in self.workers.to_resend
            if (job := self.jobs.get(job_id)) is not None and job.worker is worker and worker.conn is not None
        ]
        self.workers.to_resend.clear()
        self._offloaded.load_again([job for job in held if job.payload is None])
        for job in held:
            if job.payload is not None:
                assert job.worker is not None
                assert job.worker.conn is not None
                self._out.do.append(ev.SendAssign(job.worker.conn, job.id, job.subject, job.payload))

    def _may_assign(self) -> bool:
        return not (self.stopping or self.clients.is_swamped())

    def _stop_wanted(self, _event: ev.StopWanted, _now: float) -> None:
        """Running jobs may finish; queued jobs stay in the journal, or with their clients, for the next leader."""
        self.admission.stopping = True

    def _is_quiet(self) -> bool:
        if any(client.in_flight for client in self.clients.by_id.values()):
            return False
        return not self.clients.is_client_waiting()

    def _reading_stopped(self, event: ev.ReadingStopped, now: float) -> None:
        self._is_reading_stopped = event.stopped
        self._reset_silence(now)

    def _commits_stalled(self, event: ev.CommitsStalled, now: float) -> None:
        """Peers whose window is full are not read from, so their silence has no meaning."""
        self.admission.stalled = event.why
        self._reset_silence(now)

    def _reset_silence(self, now: float) -> None:
        """The leader could not read, so the silence of peers has no meaning: their time begins anew."""
        self.clients.reset_silence(now)
        self.workers.reset_silence(now)
