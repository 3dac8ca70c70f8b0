"""The leader's state machine: what becomes of a job, from its submit to its confirmed result.

    clients ◄─► Clients ──► JobLifecycle ◄── Workers ◄─► workers      JobLifecycle: every change of a job's state
                   └─────► Lanes, Roster ◄─────┘                      Lanes, Roster: who gets which job next

One job id has one accepted result, whoever dies: the first one wins, later ones are confirmed and dropped. Here events
are handed to whom they concern, and jobs to workers at the end of each step. What may be asked about all this is
answered in `admin`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from wakugumi.core.backoff import EVERYWHERE, Policies
from wakugumi.core.ids import ClientId, Fate, JobId, Verdict, parse_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.admin import answers, overview
from wakugumi.core.leader.admin.questions import (
    Answer,
    AskCancel,
    AskDrain,
    AskDrop,
    AskRequeue,
    AskResume,
    CancelAnswer,
    DeadDoneAnswer,
)
from wakugumi.core.leader.events import LeaderDo, LeaderEvent
from wakugumi.core.leader.jobs.broadcast import BroadcastPart, list_of, own_subject, owner_of, part_id
from wakugumi.core.leader.jobs.lifecycle import EXIT, PROGRAM_ENDS, retries_used
from wakugumi.core.leader.jobs.not_started import never_began
from wakugumi.core.leader.jobs.orphans import Claimant, OrphanClaim
from wakugumi.core.leader.jobs.results import ClientConnection
from wakugumi.core.leader.jobs.same_request import is_of_another, is_same_request
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.journal.entries import KeepAttempt, KeepDeadline, LeaderKeep
from wakugumi.core.leader.journal.offload import OffloadedRequests
from wakugumi.core.leader.journal.recovery import Leaf, keep_whole, recover
from wakugumi.core.leader.records import JobRecord, WorkerRecord
from wakugumi.core.leader.scheduling.locality import Holders, nobody
from wakugumi.core.leader.state import LeaderState
from wakugumi.core.leader.workers import outside, was_given
from wakugumi.core.memory_budget import Budget
from wakugumi.core.step import Step
from wakugumi.core.subject import hears
from wakugumi.errors import CODES, Refused
from wakugumi.limits.journal import JOURNAL_MOVED_BYTES_MAX, PAYLOAD_MEMORY_BYTES
from wakugumi.limits.leader import (
    ASLEEP_S,
    ATTEMPTS_MAX,
    BROADCAST_BYTES_MAX,
    BROADCAST_DEADLINE_S,
    CANCELLED_AT_ONCE_MAX,
    QUEUE_BYTES_MAX,
    QUEUE_FILES_MAX,
    QUEUE_JOBS_MAX,
    QUEUE_RESUME_SHARE,
    SWEEP_S,
)
from wakugumi.limits.wire import HEARTBEAT_S


class LeaderMachine(LeaderState):
    """The leader. See `events` for the four doors."""

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
        holders: Holders = nobody,
        why_not_simple: Callable[[bytes], str] = lambda _: "",
    ) -> None:
        super().__init__(
            chance,
            now=now,
            policies=policies,
            attempts_max=attempts_max,
            keeps=keeps,
            payload_memory_bytes=payload_memory_bytes,
            holders=holders,
            why_not_simple=why_not_simple,
        )
        self._queue_jobs_max = queue_jobs_max
        self._queue_bytes_max = queue_bytes_max
        self._stopped = False
        self._beat_at = now + HEARTBEAT_S
        self._sweep_at = now + SWEEP_S
        self._deaf = False
        self._awake_at = now
        self._offloaded = OffloadedRequests(self._out, self.lifecycle, self.clients, self.jobs, self.orphans)
        self._again: list[tuple[JobId, WorkerRecord]] = []
        """What is sent once more at the end of this step, and to whom."""
        self._connections = self.clients.connections
        self._workers = self.roster.by_conn
        self._on: dict[type[object], Callable[[Any, float], None]] = {
            ev.ClientJoined: self._client_joined,
            ev.WorkerJoined: self.workers.joined,
            ev.Left: self._left,
            ev.Submitted: self._submitted,
            ev.SubmitRefused: self._submit_refused,
            ev.Credited: self._credited,
            ev.Acked: self._acked,
            ev.WorkerHolds: self._held,
            ev.Declined: self._declined,
            ev.Described: self._described,
            ev.Rested: self._rested,
            ev.Confirmed: self._confirmed,
            ev.Claimed: self._claimed,
            ev.Sought: self._sought,
            ev.CapChanged: self._cap_changed,
            ev.CancelWanted: self._cancel_wanted,
            ev.PeerHeard: self._heard,
            ev.Leaving: self._leaving,
            ev.PeerBlocked: self._blocked,
            ev.PeerUnblocked: self._unblocked,
            ev.PeerWritten: self._written,
            ev.QuestionAsked: self._asked,
            ev.PayloadsLoaded: self._offloaded.loaded,
            ev.DiskLow: self._disk_low,
            ev.ReadingStopped: self._reading_stopped,
            ev.CommitsStalled: self._commits_stalled,
            ev.StopWanted: self._stop_wanted,
        }

    def knows(self, job_id: JobId) -> bool:
        """A job that is submitted again under this id is not run for it: it runs already, or is done."""
        job = self.jobs.get(job_id)
        return job is not None and (job.state is not DONE or job.ok)

    def why_not(self, job_id: JobId) -> Verdict | None:
        """Why a job that is submitted under this id would be refused now; None if it would not."""
        if self.knows(job_id):
            return None
        if self.stopping:
            return Verdict("stopping", "the leader is shutting down")
        return self._fullness() if (self.full or self._is_full()) and self._is_new_work(job_id) else None

    def unclaimed(self, client: ClientId) -> dict[ClientId, list[JobId]]:
        """Jobs that came by HTTP, and all of this client, whose results nobody has yet; by their clients."""
        found: dict[ClientId, list[JobId]] = {}
        for job in self.jobs.values():
            if not job.delivered and (job.client.id == client or (job.wants is not None and job.wants.by_http)):
                found.setdefault(job.client.id, []).append(job.id)
        return found

    def recover(self, leaves: Iterable[Leaf], now: float) -> None:
        """Go on where the leader that wrote these leaves ended. Once, and before anything else."""
        assert self.durable
        assert not self.jobs
        recover(self, leaves, now)

    def bound_by(self, budget: Budget) -> None:
        """Memory is limited: results take no more than this. What is queued was bounded when the leader was made."""
        self.clients.undelivered_bytes_max = budget.undelivered_bytes
        self.clients.results.kept_bytes_max = budget.kept_bytes
        self.clients.dead.bytes_max = budget.dead_bytes
        self.roster.tokens_max = budget.pattern_tokens

    # The four doors.

    def handle(self, events: Sequence[LeaderEvent], now: float) -> Step[LeaderKeep, LeaderDo]:
        if now - self._awake_at > ASLEEP_S:
            self._hear_all(now)
        self._awake_at = self.roster.now = now
        on = self._on
        for event in events:
            on[type(event)](event, now)
        return self._step(now)

    def tick(self, now: float) -> Step[LeaderKeep, LeaderDo]:
        if self._deaf or self.stalled or now - self._awake_at > ASLEEP_S:
            self._hear_all(now)
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
            self.lifecycle.stats.turn(now)
            self.roster.forget_turns()
            if self.durable:
                self._offloaded.tidy(now)
        return self._step(now)

    def wake_at(self) -> float | None:
        at = min(self._beat_at, self._sweep_at, self.not_started.look_at)
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
        self.lifecycle.check(self.orphans.leaves())
        self.not_started.check()
        self.file_references.check(self.jobs.values(), self.clients.dead, self.orphans.blobs())
        self._out.check()

    # Who it is about.

    def _client_joined(self, event: ev.ClientJoined, now: float) -> None:
        self.clients.joined(event, now, paused=self.full)

    def _left(self, event: ev.Left, now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            self.clients.left(connection)
        elif (worker := self._workers.get(event.conn)) is not None:
            self.workers.left(worker, now)

    def _held(self, event: ev.WorkerHolds, now: float) -> None:
        worker = self._workers.get(event.conn)
        if worker is not None:
            self.workers.held(worker, event, now)
            if worker.resend:
                self._again += [(job_id, worker) for job_id in worker.jobs]

    def _declined(self, event: ev.Declined, now: float) -> None:
        worker = self._workers.get(event.conn)
        if worker is not None:
            self.workers.declined(worker, event.job, now)

    def _described(self, event: ev.Described, _now: float) -> None:
        worker = self._workers.get(event.conn)
        if worker is not None:
            worker.as_root, worker.env = event.as_root, event.env
            self.roster.era += 1
            self.roster.changed(worker)

    def _rested(self, event: ev.Rested, now: float) -> None:
        worker = self._workers.get(event.conn)
        if worker is not None:
            worker.seen_at = now
            self.workers.rested(worker, event.why, now)

    def _leaving(self, event: ev.Leaving, _now: float) -> None:
        worker = self._workers.get(event.conn)
        if worker is not None:
            self.workers.leaving(worker)

    def _credited(self, event: ev.Credited, now: float) -> None:
        worker = self._workers.get(event.conn)
        if worker is not None:
            self.workers.credited(worker, event, now)

    def _heard(self, event: ev.PeerHeard, now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            connection.seen_at = now
        elif (worker := self._workers.get(event.conn)) is not None:
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

    # A job comes in.

    def _submitted(self, event: ev.Submitted, now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is None:
            self._out.complain(event.conn, "only clients submit jobs")
            return
        connection.seen_at = now
        job = self.jobs.get(event.job)
        if job is not None:
            if not _is_repeated(job, event):
                self._refuse_conflict(connection, event.job)
                return
            if job.state is not DONE or job.ok:
                self.clients.attach(connection, job)
                return
        if self.stopping:
            self._out.refuse(connection, event.job, "stopping", "the leader is shutting down")
        elif connection.receipts and (self.full or self._is_full()) and self._is_new_work(event.job):
            self._refuse_full(connection, event.job)
        else:
            if job is not None:
                self.clients.reopened(job)
            if event.broadcast_s:
                self._broadcast(connection, event, now)
            else:
                self._accept(connection, event, now)

    def _accept(self, connection: ClientConnection, event: ev.Submitted, now: float) -> None:
        job = self.lifecycle.accept(connection, event, now)
        if connection.receipts:
            self._out.receipt(connection.conn, event.job)
        if self.orphans.by_job:
            self._place(job, now)
        else:
            self.lifecycle.queue(job)

    def _place(self, job: JobRecord, now: float) -> None:
        if (claim := self.orphans.take(job.id)) is not None:
            self._take_claim(job, claim, now)
        else:
            self.lifecycle.queue(job)

    def _broadcast(self, connection: ClientConnection, event: ev.Submitted, now: float) -> None:
        """A part for every worker that matches now; which they are is the answer (SPEC S5). Nobody waits for a part
        before its client has read that and asks for it: it could not know the part's result for what it is."""
        workers = self.roster.audience(event.subject, event.wants)
        size = len(event.payload)
        if not connection.receipts:
            self._out.refuse(
                connection, event.job, "not-supported", "an old client cannot tell the parts of a broadcast"
            )
            return
        if len(workers) * size > BROADCAST_BYTES_MAX:
            text = f"{size} bytes for each of {len(workers)} workers are too many: {BROADCAST_BYTES_MAX} in all"
            self._out.refuse(connection, event.job, "too-big", text)
            return
        part_events = [
            msgspec.structs.replace(
                event, job=part_id(event.job, worker.id), subject=own_subject(worker.id), broadcast_s=0.0
            )
            for worker in workers
        ]
        if any((part := self.jobs.get(one.job)) is not None and not _is_repeated(part, one) for one in part_events):
            # Of an earlier one, which is forgotten, a part is still known.
            self._refuse_conflict(connection, event.job)
            return
        broadcast = self.lifecycle.accept(connection, event, now)
        self._out.receipt(connection.conn, event.job)
        parts: list[BroadcastPart] = []
        for worker, part_event in zip(workers, part_events, strict=True):
            parts.append(BroadcastPart(part_event.job.hex(), worker.label))
            known = self.jobs.get(part_event.job)
            if known is not None:
                if known.state is not DONE or known.ok:
                    continue
                self.clients.reopened(known)
            part = self.lifecycle.accept(connection, part_event, now)
            part.waiters = ()
            self.lifecycle.must_be_done(part, event.broadcast_s, now)
            if self.durable:
                self._out.keep.append(KeepDeadline(part.id, event.broadcast_s))
            if event.wants is not None and event.wants.slots > max(1, worker.slots):
                text = f"it needs {event.wants.slots} slots, and this worker has {max(1, worker.slots)}"
                self.lifecycle.finish(part, False, Verdict("bad-request", text), now)
            else:
                self._place(part, now)
        self.lifecycle.finish(broadcast, True, list_of(parts), now)

    def _take_claim(self, job: JobRecord, claim: OrphanClaim, now: float) -> None:
        """A worker that was there before this leader runs the job already, or has its result."""
        for answer in claim.answers:
            said = answer.said
            if self._may_take(job, answer.by) and _is_final(said) and not is_of_another(job, said.request):
                self.lifecycle.finish(job, said.ok, said.payload, now, blobs=said.blobs)
                return
        runs_on = None
        for claimant in claim.claimants:
            worker = self.roster.by_id.get(claimant.worker)
            if worker is not None and claimant.since >= worker.joined_at and self._may_take(job, claimant):
                runs_on = worker
        if runs_on is not None:
            self.lifecycle.run_on(job, runs_on, now)
        else:
            self.lifecycle.queue(job)

    def _may_take(self, job: JobRecord, claimant: Claimant) -> bool:
        """Could it have been given this job? If not, its claim means nothing, and that is told."""
        patterns = claimant.patterns
        if not patterns or owner_of(job.subject) == claimant.worker or hears(patterns, job.subject):
            return True
        worker = self.roster.by_id.get(claimant.worker)
        if worker is not None and worker.conn is not None:
            self._out.complain(worker.conn, outside(worker, 1))
        return False

    def _refuse_conflict(self, connection: ClientConnection, job_id: JobId) -> None:
        self._out.refuse(connection, job_id, "conflict", "this job id was used for another request")

    def _refuse_full(self, connection: ClientConnection, job_id: JobId) -> None:
        why = self._fullness()
        if self.stalled:  # Nothing was kept for it, so it need not wait for the disk.
            self._out.at_once.append(ev.SendRefusal(connection.conn, job_id, why.code, why.text))
        else:
            self._out.refuse(connection, job_id, why.code, why.text)

    def _is_new_work(self, job_id: JobId) -> bool:
        """A job that a worker runs already, or has done, needs no place in a full queue: a client that was refused
        would run it once more at another leader (SPEC K8). It has to be written down, which a full disk forbids."""
        return self.disk_low or job_id not in self.orphans.by_job

    def _fullness(self) -> Verdict:
        if self.disk_low:
            return Verdict("disk-full", "the leader's disk is nearly full")
        return Verdict("full", f"{self.lanes.queued} jobs are queued, {self.lifecycle.open_bytes} bytes in all")

    def _claimed(self, event: ev.Claimed, _now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            self.clients.claimed(connection, event)

    def _sought(self, event: ev.Sought, now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is None:
            return
        connection.seen_at = now
        fates: dict[Fate, list[JobId]] = {}
        for job_id in event.jobs:
            fates.setdefault(self._fate(job_id), []).append(job_id)
        self._out.at_once += [ev.SendFound(event.conn, fate, jobs) for fate, jobs in fates.items()]

    def _fate(self, job_id: JobId) -> Fate:
        if self.knows(job_id) or job_id in self.orphans.by_job:
            return "known"
        return "failed" if job_id in self.jobs else "unknown"

    def _cap_changed(self, event: ev.CapChanged, now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            connection.seen_at = now
            self.clients.cap_changed(connection, event.cap)

    def _confirmed(self, event: ev.Confirmed, now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            connection.seen_at = now
            self.clients.confirmed(connection, event, now)

    def _submit_refused(self, event: ev.SubmitRefused, _now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            self._out.refuse(connection, event.job, event.code, event.text)

    # A job goes out, and its answer comes back.

    def _step(self, now: float) -> Step[LeaderKeep, LeaderDo]:
        out = self._out
        do = out.do
        if self._again:
            self._send_again()
        if self.not_started.alike:
            self.not_started.look(now)
        absent: list[JobRecord] = []
        counted = self.lifecycle.stats.assigned
        for job in self.lanes.assign() if self._may_assign() else ():
            worker = job.worker
            assert worker is not None
            assert worker.conn is not None
            job.attempts += 1
            if worker.simple_only:  # It may give it back.
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
            do.append(ev.SendAssign(worker.conn, job.id, job.subject, job.payload))
        if absent:
            self._offloaded.load(absent)
        if self.roster.to_write:
            self.workers.tell_when_written()
        if self.full or self._is_full():
            self._update_full()
        if self.stopping and not self._stopped and self._is_quiet():
            self._stopped = True
            do.append(ev.LeaderStopped())
        if out.keeps and out.leaves.take_turned():
            self._offloaded.tidy(now)
        return out.step(self.file_references.take_freed())

    def _send_again(self) -> None:
        """To workers that know what they hold by the ids alone. No attempt and no credit: they have these already."""
        again = [(job, worker) for job_id, worker in self._again if (job := self.jobs.get(job_id)) is not None]
        self._again.clear()
        held = [job for job, worker in again if job.worker is worker and worker.conn is not None]
        self._offloaded.load_again([job for job in held if job.payload is None])
        for job in held:
            if job.payload is not None:
                assert job.worker is not None
                assert job.worker.conn is not None
                self._out.do.append(ev.SendAssign(job.worker.conn, job.id, job.subject, job.payload))

    def _may_assign(self) -> bool:
        return not (self.stopping or self.clients.is_swamped())

    def _acked(self, event: ev.Acked, now: float) -> None:
        worker = self._workers.get(event.conn)
        if worker is None:
            self._out.complain(event.conn, "only workers ack jobs")
            return
        worker.seen_at = now
        if worker.receipts:
            self._out.confirm(event.conn, event.job)
        elif not event.payload:
            self.workers.acked_empty(worker, now)
        given = event.job in worker.jobs
        if given:
            del worker.jobs[event.job]
            self.roster.changed(worker)
        job = self.jobs.get(event.job)
        if job is None:
            if not self.orphans.answer(event, worker.id) and not given:
                self._out.complain(event.conn, f"{worker.label} acked a job that nobody submitted")
        elif not given and not was_given(job, worker):
            self._out.complain(event.conn, f"{worker.label} acked a job that it was never given")
        elif job.state is DONE:
            return
        elif event.request and is_of_another(job, event.request):
            # It has the result of a job that this leader has forgotten, or that another one gave out (SPEC L6).
            if job.worker is worker:
                self.lifecycle.attempt_lost(job, "conflict", now, at_once=True)
        elif event.ok:
            self.lifecycle.finish(job, True, event.payload, now, worker, "", event.blobs)
        elif never_began(event):
            if job.worker is worker:
                self.not_started.by(worker, job, event, now)
        elif _is_retried(job, event):
            if job.worker is worker:
                self.lifecycle.attempt_lost(job, event.reason or EXIT, now, at_once=False, output=event.output)
        elif _is_final(event):
            self.lifecycle.finish(job, False, event.payload, now, by=worker, why=event.reason, blobs=event.blobs)
        elif job.worker is worker:
            # "cancelled" is the echo of a cancel, under an id that was opened again since: nothing is wrong with it.
            # And who says that a worker is lost stands for that worker (SPEC L4).
            at_once = event.reason in {"cancelled", "worker-lost"}
            self.not_started.attempt_fails(worker, job, event.reason, now)
            self.lifecycle.attempt_lost(job, event.reason, now, at_once=at_once, output=event.output)

    # Cancel, drain, and whatever else is asked.

    def _cancel_wanted(self, event: ev.CancelWanted, now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is None:
            return
        for job_id in event.jobs:
            job = self.jobs.get(job_id)
            if job is not None and job.client is connection.client:
                self.lifecycle.cancel(job, now)

    def _asked(self, event: ev.QuestionAsked, now: float) -> None:
        """An answer about what is leaves at once: nobody must wait for the disk to hear what is wrong with it."""
        question = event.question
        out = self._out.do if isinstance(question, AskCancel | AskRequeue | AskDrop) else self._out.at_once
        try:
            if isinstance(question, AskCancel):
                answer: Answer = self._cancel_all(question, now)
            elif isinstance(question, AskRequeue | AskDrop):
                answer = self._settle_dead(question, now)
            elif isinstance(question, AskDrain | AskResume):
                worker = answers.worker_called(self, question.worker)
                self.workers.drain(worker, isinstance(question, AskDrain))
                answer = overview.worker_row(worker, now)
            else:
                answer = answers.answer(self, question, now)
        except Refused as no:
            out.append(ev.SendNo(event.conn, event.ask_id, no.code, no.message))
        else:
            out.append(ev.SendAnswer(event.conn, event.ask_id, answer))

    def _cancel_all(self, question: AskCancel, now: float) -> CancelAnswer:
        unknown: list[str] = []
        wanted = answers.parse_wanted(question.pattern)
        if question.jobs:
            named: dict[JobId, JobRecord] = {}
            for text in question.jobs:
                try:
                    job = self.jobs.get(parse_job_id(text))
                except ValueError:
                    job = None
                if job is None:
                    unknown.append(text)
                else:
                    named[job.id] = job
            matching = [job for job in named.values() if answers.is_wanted(job, question.client, wanted)]
        elif question.client or question.pattern:
            goes = self.clients.is_forgettable
            found = self.jobs.oldest_first(question.client, wanted)
            matching = [job for job in found if job.state is not DONE or (question.forget and goes(job))]
        else:
            raise Refused("bad-request", "say which jobs: ids, a client, or a pattern")
        open_jobs = [job for job in matching if job.state is not DONE]
        todo = matching if question.forget else open_jobs
        done = todo[:CANCELLED_AT_ONCE_MAX]
        cancelled = sum(self.lifecycle.cancel(job, now) for job in done)
        forgotten = sum(self.clients.forget(job, now) for job in done) if question.forget else 0
        finished = len(done) - cancelled if question.forget else len(matching) - len(open_jobs)
        return CancelAnswer(cancelled, finished, unknown, forgotten, len(todo) - len(done))

    def _settle_dead(self, question: AskRequeue | AskDrop, now: float) -> DeadDoneAnswer:
        letters, unknown = answers.letters(self, question.jobs, question.pattern, question.reason)
        written, done = self.leaves.written_bytes, 0
        for job in letters:
            if isinstance(question, AskDrop):
                self.clients.drop_letter(job)
            else:
                self._requeue(job, now)
            done += 1
            if self.leaves.written_bytes - written >= JOURNAL_MOVED_BYTES_MAX:
                break
        return DeadDoneAnswer(done, unknown, len(letters) - done)

    def _requeue(self, dead: JobRecord, now: float) -> None:
        """The id is open again, as if it had just been submitted (SPEC L3)."""
        self.clients.withdraw(dead)
        self.clients.unbury(dead)
        client = self.clients.called(dead.client.id)
        client.cap = client.cap or dead.client.cap
        job = self.lifecycle.reopen(dead, client, now)
        if owner_of(job.subject) is not None:
            self.lifecycle.must_be_done(job, BROADCAST_DEADLINE_S, now)
        if self.durable:
            keep_whole(job, self._out, self.lifecycle, now)
        self.lifecycle.queue(job)

    def _stop_wanted(self, _event: ev.StopWanted, _now: float) -> None:
        """Running jobs may finish; what is queued stays in the journal, or with its clients, for the next leader."""
        self.stopping = True

    def _is_quiet(self) -> bool:
        if any(client.in_flight for client in self.clients.by_id.values()):
            return False
        return not self.clients.someone_waits()

    # Back pressure.

    def _disk_low(self, event: ev.DiskLow, _now: float) -> None:
        """Nothing new is accepted. What was accepted goes on, which makes room; and only what must be is kept."""
        self.disk_low = event.low
        if event.low:
            self.clients.forget_all_kept()

    def _reading_stopped(self, event: ev.ReadingStopped, now: float) -> None:
        self._deaf = event.stopped
        self._hear_all(now)

    def _commits_stalled(self, event: ev.CommitsStalled, now: float) -> None:
        """Those whose window is full are not read from, so their silence says nothing."""
        self.stalled = event.why
        self._hear_all(now)

    def _hear_all(self, now: float) -> None:
        """This process was held up, and so it heard nobody: they have as much time again."""
        self.clients.hear_all(now)
        self.workers.hear_all(now)

    def _is_full(self) -> bool:
        return (
            self.disk_low
            or self.lanes.queued >= self._queue_jobs_max
            or self.lifecycle.open_bytes >= self._queue_bytes_max
            or self.file_references.many >= QUEUE_FILES_MAX
            or self.clients.is_swamped()
        )

    def _update_full(self) -> None:
        if not self.full:
            self.full = True
            self.clients.pause_old()
        elif (
            self.lanes.queued < self._queue_jobs_max * QUEUE_RESUME_SHARE
            and self.lifecycle.open_bytes < self._queue_bytes_max * QUEUE_RESUME_SHARE
            and self.file_references.many < QUEUE_FILES_MAX * QUEUE_RESUME_SHARE
            and not self.clients.is_swamped()
            and not self.disk_low
        ):
            self.full = False
            self.clients.resume_old()


def _is_repeated(job: JobRecord, event: ev.Submitted) -> bool:
    """Does it ask for the same answer (SPEC L6)? Its subject decides none, except for a broadcast: there it says who
    answers."""
    if event.broadcast_s and job.subject != event.subject:
        return False
    return is_same_request(job, event.request, event.payload, event.checksum)


def _is_retried(job: JobRecord, event: ev.Acked) -> bool:
    """The program failed by itself or took too long, and the job asked for that not to be its answer yet."""
    return (event.reason or EXIT) in PROGRAM_ENDS and retries_used(job) < job.retries


def _is_final(event: ev.Acked) -> bool:
    """Is it the job's answer, or does it only end this attempt? An old worker gives no reason: its FAILED is an
    answer, and so is a timeout (SPEC W6). A worker that was told to cancel says so, and that was answered then."""
    if event.ok:
        return True
    code = CODES.get(event.reason)
    return event.reason != "cancelled" and (code is None or not code.retry)
