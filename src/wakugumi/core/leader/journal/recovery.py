"""How is a whole job written to the journal, and how are all jobs read from it? (SPEC L4, L7)

Leaves are read in the order in which they were written. Each record changes the state that the earlier ones describe;
records of unknown or forgotten jobs are skipped. Then every job gets its place:

    result               waits for its client, or answers repeated requests
    running attempt      the worker is away, and has RECOVERY_GRACE_S to come back and report the job as held
    last attempt failed  backs off, beginning now
    otherwise            queued, in the order of submits

The clock may have been set meanwhile, so no decision depends on how long the leader was away: all timeouts begin anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import TypeAlias, TypeVar

from wakugumi.core.ids import Attempt, ClientId, JobId, Tried, Verdict, WorkerId
from wakugumi.core.leader.jobs.attempts import LEADER_LOST, outputs_of, strip_old_output
from wakugumi.core.leader.jobs.dead_letters import is_dead
from wakugumi.core.leader.jobs.lifecycle import JobLifecycle
from wakugumi.core.leader.jobs.not_started import tried_again, tried_too
from wakugumi.core.leader.jobs.results import bytes_of
from wakugumi.core.leader.jobs.same_request import digest_of
from wakugumi.core.leader.jobs.states import DONE, LIMBO, RUNNING
from wakugumi.core.leader.journal.entries import (
    DropLeaves,
    ForgetClaim,
    ForgetJob,
    ForgetWorkerKey,
    KeepAttempt,
    KeepClaim,
    KeepDeadline,
    KeepDeclined,
    KeepDelivered,
    KeepJob,
    KeepOutcome,
    KeepResult,
    KeepWhole,
    KeepWorkerKey,
    LeaderKeep,
)
from wakugumi.core.leader.records import CRC_BITS, ClientRecord, JobRecord
from wakugumi.core.leader.state import LeaderState
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.core.requirements import Requirements, without_shuns
from wakugumi.core.subject import Pattern, Subject
from wakugumi.limits.leader import RECOVERY_GRACE_S

T = TypeVar("T", str, float)

Leaf: TypeAlias = tuple[int, float, Sequence[LeaderKeep]]
"""Number of a leaf, its age in seconds (by a clock that may be wrong), and its records."""


def keep_whole(job: JobRecord, out: StepBuilder, lifecycle: JobLifecycle, now: float) -> None:
    """Write all about a job to this step's leaf, so that older leaves about it may be dropped."""
    running = None
    if job.worker is not None:
        running = Attempt(job.attempts, job.worker.id, job.worker.label, job.since - now, 0.0, "ok")
    payload: bytes | int | None = job.payload
    if payload is None and (job.state is not DONE or is_dead(job.result)):
        payload = job.leaf
    out.keep.append(
        KeepWhole(
            job.id,
            job.client.id,
            job.client.cap,
            job.subject,
            job.program,
            job.timeout_s,
            job.retries,
            job.submitted_at - now,
            tuple(_moved(attempt, -now) for attempt in job.history),
            running,
            job.checksum,
            payload,
            job.ok,
            job.result,
            job.delivered,
            job.requeued,
            without_shuns(job.requirements),
            lifecycle.file_references.blobs_of(job.id),
            lifecycle.tried.get(job.id),
            job.request,
        )
    )
    if (due := lifecycle.deadlines.by_job.get(job.id)) is not None:
        out.keep.append(KeepDeadline(job.id, due - now))
    out.leaves.release(job.leaf)
    size = (job.size if payload is not None else 0) + bytes_of(job.result) + outputs_of(job)
    job.leaf = out.leaves.hold(job.id, size)


def recover(leader: LeaderState, leaves: Iterable[Leaf], now: float) -> None:
    """Fill a leader that has done nothing yet."""
    fold = _RecoveryFold(leader)
    last, at = 0, -inf
    for number, age_s, records in leaves:
        at = max(at, now - max(0.0, age_s))  # A later leaf was written later, even if the clock was set back.
        fold.leaf(number, at, records)
        last = number
    if last:
        leader.leaves.next_leaf()
    leader.lifecycle.tried.update(fold.tried)
    leader.not_started.recovered(now)
    leader.jobs.put_in_order()
    for job in list(leader.jobs.values()):
        if job.state is DONE:
            _take_back_result(leader, job, fold.blobs.get(job.id, ()), now)
            continue
        leader.lifecycle.file_references.begin(job)
        job.client.open_jobs += 1
        leader.lifecycle.open_bytes += job.size
        leader.lifecycle.output_bytes += outputs_of(job)
        if (within_s := fold.deadlines.get(job.id)) is not None:
            leader.lifecycle.deadlines.add(job.id, now + within_s)
        attempt = fold.running.get(job.id)
        if attempt is not None:
            _expect_back(leader, job, attempt, now)
        elif job.history and job.history[-1].outcome not in {"worker-lost", LEADER_LOST}:
            leader.lifecycle.back_off(job, now)
        else:
            job.since = now
            leader.lifecycle.queue(job)
    for answers in fold.orphans.values():
        for claim, leaf in answers.values():
            leader.orphans.recovered(claim, leaf, now)
    for worker in leader.roster:
        leader.workers.expect(worker, now + RECOVERY_GRACE_S)
    leader.clients.push_out_letters()
    leader.clients.forget_too_much()
    leader.clients.forget_idle()


class _RecoveryFold:
    """State after the leaves that were read so far."""

    def __init__(self, leader: LeaderState) -> None:
        self._jobs = leader.jobs
        self._leaves = leader.leaves
        self._dead = leader.clients.dead
        self._worker_keys = leader.worker_keys
        self._client_of = leader.clients.get_or_add
        self._clients: dict[ClientId, ClientRecord] = {}
        self._same: dict[str | float, str | float] = {}
        self._wants: dict[Requirements, Requirements] = {}
        self.running: dict[JobId, Attempt] = {}
        self.deadlines: dict[JobId, float] = {}
        self.blobs: dict[JobId, tuple[str, ...]] = {}
        """Blobs of results that have some."""
        self.tried: dict[JobId, Tried] = {}
        self.orphans: dict[JobId, dict[WorkerId, tuple[KeepClaim, int]]] = {}
        """Orphan answers by job and worker, each with its leaf."""

    def leaf(self, number: int, at: float, records: Sequence[LeaderKeep]) -> None:
        self._leaves.recovered(number)
        for record in records:
            if isinstance(record, KeepJob):
                payload = record.payload
                digest = digest_of(len(payload), record.request, record.checksum, payload)
                self._open(record, at, digest, len(payload))
            elif isinstance(record, KeepWhole):
                self._whole(record, at)
            elif isinstance(record, KeepClaim):
                self._forget_answer(record.job, record.worker)
                leaf = self._leaves.hold(record.job, len(record.payload))
                self.orphans.setdefault(record.job, {})[record.worker] = record, leaf
            elif isinstance(record, ForgetClaim):
                for worker in [record.worker] if record.worker else list(self.orphans.get(record.job, ())):
                    self._forget_answer(record.job, worker)
            elif isinstance(record, KeepWorkerKey | ForgetWorkerKey):
                self._worker_keys.recovered(record)
            elif not isinstance(record, DropLeaves):
                job = self._jobs.get(record.job)
                if job is not None:
                    self._change(job, record, at)

    def _open(self, record: KeepJob | KeepWhole, at: float, digest: int, size: int) -> JobRecord:
        """Make a record. A million are made: equal values share one object."""
        known = self._jobs.get(record.job)
        if known is not None:
            self._forget(known)
        client = self._clients.get(record.client)
        if client is None:
            client = self._clients[record.client] = self._client_of(record.client)
        client.cap = record.cap
        job = JobRecord(
            record.job,
            client,
            Subject(Pattern(self._one(record.subject))),
            self._one(record.program),
            self._one(record.timeout_s),
            at,
            None,
            (),
            LIMBO,
            at,
            digest=digest,
            leaf=self._leaves.hold(record.job, size),
            retries=record.retries,
            requirements=None
            if record.requirements is None
            else self._wants.setdefault(record.requirements, record.requirements),
        )
        self._jobs.add(job)
        return job

    def _whole(self, record: KeepWhole, at: float) -> None:
        size = len(record.payload) if isinstance(record.payload, bytes) else 0
        size += sum(len(attempt.output) for attempt in record.history)
        digest = digest_of(record.checksum >> CRC_BITS, record.request, record.checksum)
        job = self._open(record, at, digest, size + bytes_of(record.result))
        job.requeued = record.requeued
        job.submitted_at = at + record.submitted_at
        job.history = tuple(_moved(attempt, at) for attempt in record.history)
        job.attempts = len(job.history)
        if record.tried is not None:
            self.tried[job.id] = record.tried
        if record.running is not None:
            job.attempts += 1
            self.running[job.id] = _moved(record.running, at)
        if record.result is not None:
            self._done(job, record.ok, record.result, record.blobs, at)
            job.delivered = record.delivered

    def _change(self, job: JobRecord, record: LeaderKeep, at: float) -> None:
        match record:
            case KeepAttempt(_, worker, label):
                job.attempts += 1
                self.running[job.id] = Attempt(job.attempts, worker, self._one(label), at, at, "ok")
            case KeepOutcome(_, outcome, output):
                self._leaves.add(len(output))
                running, tried = self.running.get(job.id), self.tried.get(job.id)
                if running is not None and tried is not None:
                    self.tried[job.id] = tried_again(tried, running.worker_id, outcome)
                self._end_attempt(job, outcome, output, at)
            case KeepResult(_, ok, outcome, result, blobs):
                self._end_attempt(job, outcome, "", at)
                self._leaves.add(bytes_of(result))
                self._done(job, ok, result, blobs, at)
            case KeepDelivered():
                job.delivered = True
            case ForgetJob():
                self._forget(job)
            case KeepDeadline(_, within_s):
                self.deadlines[job.id] = within_s
            case KeepDeclined(_, worker, lacks):
                if self.running.pop(job.id, None) is not None:
                    job.attempts -= 1
                if worker:
                    self.tried[job.id] = tried_too(self.tried.get(job.id), worker, lacks=lacks)
            case _:
                raise AssertionError("`leaf` handles these records")

    def _end_attempt(self, job: JobRecord, outcome: str, output: str, at: float) -> None:
        attempt = self.running.pop(job.id, None)
        if attempt is not None:
            ended = Attempt(
                attempt.number, attempt.worker_id, attempt.worker, attempt.started_at, at, self._one(outcome), output
            )
            job.history = (*job.history, ended)
            strip_old_output(job)

    def _done(self, job: JobRecord, ok: bool, result: bytes | Verdict, blobs: tuple[str, ...], at: float) -> None:
        if job.state is not DONE:  # The leaf where it was submitted again may be lost.
            job.enter(DONE)
        job.ok = ok
        job.result = result
        job.since = at
        self.tried.pop(job.id, None)
        if blobs:
            self.blobs[job.id] = blobs
        if is_dead(result):
            self._dead.add(job)

    def _forget(self, job: JobRecord) -> None:
        self._jobs.remove(job)
        self.running.pop(job.id, None)
        self.deadlines.pop(job.id, None)
        self.blobs.pop(job.id, None)
        self.tried.pop(job.id, None)
        if job in self._dead:
            self._dead.remove(job)
        self._leaves.release(job.leaf)

    def _forget_answer(self, job_id: JobId, worker: WorkerId) -> None:
        answers = self.orphans.get(job_id, {})
        if (known := answers.pop(worker, None)) is not None:
            self._leaves.release(known[1])
        if not answers:
            self.orphans.pop(job_id, None)

    def _one(self, value: T) -> T:
        return self._same.setdefault(value, value)  # type: ignore[return-value]


def _take_back_result(leader: LeaderState, job: JobRecord, blobs: tuple[str, ...], now: float) -> None:
    results = leader.clients.results
    if job in leader.clients.dead:
        leader.lifecycle.file_references.begin(job)
    if blobs:
        leader.lifecycle.file_references.keep(job.id, blobs, job.client.id)
    job.since = now
    if job.delivered:
        results.keep(job, now)
    else:
        job.client.open_jobs += 1
        results.finished(job)


def _expect_back(leader: LeaderState, job: JobRecord, attempt: Attempt, now: float) -> None:
    worker = leader.roster.by_id.get(attempt.worker_id)
    if worker is None:
        worker = leader.roster.add(WorkerId(attempt.worker_id))
        worker.set_name(attempt.worker)
        worker.reattach = True
        worker.seen_at = now
    job.enter(RUNNING)
    job.worker = worker
    job.since = attempt.started_at
    job.client.in_flight += 1
    worker.jobs[job.id] = None
    leader.lifecycle.inherited[job.id] = None
    job.cell = leader.lifecycle.stats.held(worker.patterns, job.subject)


def _moved(attempt: Attempt, by_s: float) -> Attempt:
    return Attempt(
        attempt.number,
        attempt.worker_id,
        attempt.worker,
        attempt.started_at + by_s,
        attempt.ended_at + by_s,
        attempt.outcome,
        attempt.output,
    )
