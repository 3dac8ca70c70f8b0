"""What may happen to a job, from queued to done?

                    ┌── run on ──► RUNNING ── finish ──► DONE      the first result is the accepted one
    accept ─► QUEUED┤                 │
                 ▲  └── (cancel) ─────┼───────────────► DONE
                 ├── at once / after BACKOFF ◄── lost             up to ATTEMPTS_MAX times, then the job is dead
                 └── given back ◄─────┘                           the attempt never began, and does not count

`states.TRANSITIONS` has the allowed changes. `lanes` makes assignments, from QUEUED to RUNNING.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

import msgspec

from wakugumi.core.backoff import backoff_s
from wakugumi.core.ids import Attempt, ConnId, JobId, Tried, Verdict
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.clients import Clients
from wakugumi.core.leader.jobs.attempts import EXIT, attempts_used, outputs_of, strip_old_output
from wakugumi.core.leader.jobs.broadcast import SILENT
from wakugumi.core.leader.jobs.dead_letters import DEAD, is_dead
from wakugumi.core.leader.jobs.deadlines import Deadlines
from wakugumi.core.leader.jobs.file_references import FileReferences
from wakugumi.core.leader.jobs.job_table import JobTable
from wakugumi.core.leader.jobs.results import AROUND_BYTES, ClientConnection, bytes_of
from wakugumi.core.leader.jobs.same_request import digest_of
from wakugumi.core.leader.jobs.states import BACKOFF, DONE, LIMBO, QUEUED, RUNNING
from wakugumi.core.leader.journal.entries import KeepAttempt, KeepDeclined, KeepJob, KeepOutcome, KeepResult
from wakugumi.core.leader.records import DIGEST_BITS, ClientRecord, JobRecord, WorkerRecord
from wakugumi.core.leader.scheduling.lanes import Lanes
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.leader.scheduling.turn_jobs import slots_of
from wakugumi.core.leader.stats import Cell, Failure, Stats
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.core.requirements import without_shuns
from wakugumi.errors import CODES
from wakugumi.limits.journal import OUTPUT_MEMORY_BYTES
from wakugumi.limits.scheduling import CREDIT_MAX


class Counts(msgspec.Struct):
    """Counters since the leader began."""

    submitted: int = 0
    finished_ok: int = 0
    finished_failed: int = 0
    redelivered: int = 0
    dead: int = 0
    declined: int = 0
    """Jobs that a worker gave back: it could not start them, or a node had no room."""
    rests: int = 0
    """Number of times that a worker went out of order."""


class JobLifecycle:
    def __init__(
        self,
        out: StepBuilder,
        roster: Roster,
        lanes: Lanes,
        clients: Clients,
        jobs: JobTable,
        stats: Stats,
        file_references: FileReferences,
        *,
        chance: Callable[[], float],
        attempts_max: int,
        payload_memory_bytes: int,
    ) -> None:
        self._out = out
        self._roster = roster
        self._lanes = lanes
        self._clients = clients
        self._chance = chance
        self._attempts_max = attempts_max
        self._payload_memory_bytes = payload_memory_bytes
        self._timers: list[tuple[float, int, JobRecord]] = []
        self._timer_count = 0
        self.jobs = jobs
        self.stats = stats
        self.file_references = file_references
        self.counts = Counts()
        self.deadlines = Deadlines()
        self.open_bytes = 0
        """Payload bytes of jobs that are not done."""
        self.memory_bytes = 0
        """Payload bytes of open jobs that are held in memory."""
        self.backing_off = 0
        self.output_bytes = 0
        """Bytes of output of failed attempts of open jobs."""
        self.inherited: dict[JobId, None] = {}
        """Jobs that ran when the last leader died, and still run as far as this one knows."""
        self.loading: dict[JobId, ConnId] = {}
        """RUNNING jobs whose requests are being read from the journal, and the connection that will get them."""
        self.delays: dict[JobId, float] = {}
        """Dispatch delays of jobs that are with a node: counted when the node turns out to have kept the job."""
        self.unpaid: set[JobId] = set()
        """Jobs in `loading` that are sent once more, and take no credit."""
        self.tried: dict[JobId, Tried] = {}
        """Workers that could not start a job, by job (`not_started`)."""

    def wake_at(self) -> float | None:
        backoff = self._timers[0][0] if self._timers else None
        deadline = self.deadlines.wake_at()
        return backoff if deadline is None else deadline if backoff is None else min(backoff, deadline)

    def tick(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            due, _, job = heappop(self._timers)
            if job.state is BACKOFF and job.since == due:
                job.enter(QUEUED)
                self.backing_off -= 1
                self._lanes.push(job, first=True)
        for job_id in self.deadlines.passed(now):
            job = self.jobs[job_id]
            text = f"the worker did not answer within {now - job.submitted_at:.0f} s"
            self.finish(job, False, Verdict(SILENT, text), now)

    def accept(self, connection: ClientConnection, event: ev.Submitted, now: float) -> JobRecord:
        """Make a new record, in LIMBO: the caller queues it, or finds that it runs already, or is done."""
        client = connection.client
        job_id, subject, program, requirements = event.job, event.subject, event.program, event.requirements
        payload, request, size = event.payload, event.request, len(event.payload)
        if request:  # `digest_of` inlined: nearly all jobs have a digest.
            digest = size << DIGEST_BITS | int.from_bytes(request, "little")
        else:
            digest = digest_of(size, request, event.checksum, payload)
        job = JobRecord(
            job_id,
            client,
            subject,
            program,
            event.timeout_s,
            now,
            payload,
            connection.as_waiters,
            LIMBO,
            now,
            digest=digest,
            retries=event.retries,
            requirements=requirements,
        )
        self.jobs.add(job)
        if requirements is not None:
            self.file_references.begin(job)
        client.open_jobs += 1
        self.open_bytes += size
        self.counts.submitted += 1
        self.stats.accepted(subject)
        if self._out.keeps:
            job.leaf = self._out.leaves.hold(job_id, size)
            self._out.keep.append(
                KeepJob(
                    job_id,
                    client.id,
                    client.cap,
                    subject,
                    program,
                    event.timeout_s,
                    event.retries,
                    payload,
                    requirements,
                    event.checksum,
                    request,
                )
            )
            if self.memory_bytes + size > self._payload_memory_bytes:
                job.payload = None
                return job
        self.memory_bytes += size
        return job

    def reopen(self, dead: JobRecord, client: ClientRecord, now: float) -> JobRecord:
        """Make a new record for a dead job that is tried again, from its request."""
        job = JobRecord(
            dead.id,
            client,
            dead.subject,
            dead.program,
            dead.timeout_s,
            now,
            dead.payload,
            (),
            LIMBO,
            now,
            digest=dead.digest,
            leaf=dead.leaf,
            retries=dead.retries,
            requeued=True,
            requirements=without_shuns(dead.requirements),
        )
        self.jobs.add(job)
        self.file_references.begin(job)
        client.open_jobs += 1
        self.open_bytes += job.size
        if job.payload is not None:
            self.memory_bytes += job.size
        self.counts.submitted += 1
        self.stats.accepted(job.subject)
        return job

    def queue(self, job: JobRecord) -> None:
        job.enter(QUEUED)
        self._lanes.push(job)

    def run_on(self, job: JobRecord, worker: WorkerRecord, now: float) -> None:
        """The worker runs this job already: no assignment, no credit."""
        if job.state is QUEUED:
            self._lanes.taken(job)
        elif job.state is BACKOFF:
            self.backing_off -= 1
        job.enter(RUNNING)
        job.worker = worker
        job.client.in_flight += 1
        worker.jobs[job.id] = None
        self._roster.changed(worker)
        job.cell = self.stats.held(worker.patterns, job.subject)
        self.attempt_began(job, worker, now)

    def attempt_began(self, job: JobRecord, worker: WorkerRecord, now: float) -> None:
        job.attempts += 1
        job.since = now
        if self._out.keeps:
            self._out.keep.append(KeepAttempt(job.id, worker.id, worker.label))

    def attempt_lost(self, job: JobRecord, code: str, now: float, *, at_once: bool, output: str = "") -> None:
        """End an attempt without an answer. The job runs again, at once or after a delay, or is dead (SPEC L3, L4)."""
        if self.output_bytes + len(output) > OUTPUT_MEMORY_BYTES:
            output = ""
        attempt = self._end_attempt(job, code, now, output)
        cell = job.cell
        assert cell is not None
        self.output_bytes += len(output) - strip_old_output(job)
        if self._out.keeps:
            self._out.leaves.add(len(output))
            self._out.keep.append(KeepOutcome(job.id, code, output))
        if attempts_used(job) >= self._attempts_max:
            self.counts.dead += 1
            cell.dead += 1
            text = f"dead: {job.attempts} attempts failed, the last one on {attempt.worker} by {code}"
            job.enter(LIMBO)
            self.finish(job, False, Verdict(DEAD, text), now)
            return
        self.counts.redelivered += 1
        self.stats.lost(cell)
        job.cell = None
        if at_once:
            job.enter(QUEUED)
            job.since = now
            self._lanes.push(job, first=True)
        else:
            self.back_off(job, now)

    def give_back(self, job: JobRecord, now: float, *, by: WorkerRecord | None = None, lacks: bool = False) -> None:
        """Undo the assignment of a job that its worker has not begun. `by`: the worker, if it could not start the job;
        `lacks`: because it does not have the program."""
        cell = job.cell
        assert cell is not None
        self._end_attempt(job, "", now)
        job.history = job.history[:-1]
        job.attempts -= 1
        self.stats.given_back(cell)
        job.cell = None
        if self._out.keeps:
            self._out.keep.append(KeepDeclined(job.id) if by is None else KeepDeclined(job.id, by.id, lacks))
        job.enter(QUEUED)
        job.since = now if job.attempts else job.submitted_at
        self._lanes.push(job, first=True)

    def back_off(self, job: JobRecord, now: float) -> None:
        job.enter(BACKOFF)
        self.backing_off += 1
        job.since = now + backoff_s(job.attempts, self._chance())
        self._timer_count += 1
        heappush(self._timers, (job.since, self._timer_count, job))

    def finish(
        self,
        job: JobRecord,
        ok: bool,
        result: bytes | Verdict,
        now: float,
        by: WorkerRecord | None = None,
        why: str = "",
        blobs: tuple[str, ...] = (),
    ) -> None:
        """Accept the one result of this job. Other workers that run it may stop (SPEC L3)."""
        before = job.state
        job.enter(DONE)
        ran_s = None
        outcome = "ok" if ok else why if why in CODES else EXIT
        if job.former_workers or job.worker is not by:
            self._call_off(job)
        if before is RUNNING:
            if job.worker is not by:
                outcome = "cancelled"
            else:
                ran_s = now - job.since
            self._end_attempt(job, outcome, now)
        elif before is QUEUED:
            self._lanes.dropped(job)
        elif before is BACKOFF:
            self.backing_off -= 1
        request_size = job.digest >> DIGEST_BITS
        self.open_bytes -= request_size
        if job.payload is not None:
            self.memory_bytes -= request_size
        if self.deadlines.by_job:
            self.deadlines.by_job.pop(job.id, None)
        if self.tried:
            self.tried.pop(job.id, None)
        if self.output_bytes:
            self.output_bytes -= outputs_of(job)
        out = self._out
        if out.keeps:
            out.leaves.add(len(result) + AROUND_BYTES if type(result) is bytes else bytes_of(result))
            out.keep.append(KeepResult(job.id, ok, outcome, result, blobs))
        dead = type(result) is not bytes and is_dead(result)
        if job.leaf or not dead:
            job.payload = None
        if job.requirements is not None and not dead:
            self.file_references.end(job)
        if blobs:
            self.file_references.keep(job.id, blobs, job.client.id)
        job.since = now
        job.ok = ok
        job.result = result
        self.stats.ended(job.cell, job.subject, ok, ran_s)
        job.cell = None
        if ok:
            self.counts.finished_ok += 1
        else:
            self.counts.finished_failed += 1
            self._note_failure(job, result.code if isinstance(result, Verdict) else outcome, now)
        if dead:
            self._clients.bury(job)
        self._clients.deliver(job)

    def _note_failure(self, job: JobRecord, reason: str, now: float) -> None:
        if reason != "cancelled":
            worker = job.history[-1].worker if job.history else ""
            self.stats.failures.append(Failure(job.id, job.program, job.subject, worker, reason, now))

    def cancel(self, job: JobRecord, now: float) -> bool:
        """Cancel a job. False if it was done: its result stays."""
        if job.state is DONE:
            return False
        self.finish(job, False, Verdict("cancelled", "the job was cancelled"), now)
        return True

    def check(self, claimed: Iterable[int] = ()) -> None:
        """`claimed` are the leaves of orphan answers."""
        running: dict[ClientRecord, int] = {}
        cells: dict[Cell, int] = {}
        opened: dict[ClientRecord, int] = {}
        leaves: dict[int, int] = Counter(claimed)
        open_bytes = memory_bytes = backing_off = 0
        clients, undelivered = self._clients.by_id, self._clients.results.undelivered
        for job_id, job in self.jobs.items():
            assert job.id == job_id
            assert job.state is not LIMBO
            assert (job.state is RUNNING) == (job.worker is not None)
            assert (job.state is RUNNING) == (job.cell is not None)
            if job.cell is not None:
                cells[job.cell] = cells.get(job.cell, 0) + 1
            assert (job.state is DONE) == (job.result is not None)
            assert job.payload is None or len(job.payload) == job.size
            assert job.payload is not None or job.leaf or job.state is DONE
            assert self._out.keeps == bool(job.leaf)
            leaves[job.leaf] = leaves.get(job.leaf, 0) + 1
            assert (job.state is DONE and not job.delivered) == (job_id in undelivered)
            if not job.delivered:
                opened[job.client] = opened.get(job.client, 0) + 1
                assert clients[job.client.id] is job.client
            if job.worker is not None:
                running[job.client] = running.get(job.client, 0) + 1
                assert job_id in job.worker.jobs
                assert self._roster.by_id[job.worker.id] is job.worker
            if job.state is not DONE:
                open_bytes += job.size
                memory_bytes += len(job.payload or b"")
            backing_off += job.state is BACKOFF
        if self._out.keeps:
            self._out.leaves.check(leaves)
        for job_id in (*self.loading, *self.inherited, *self.delays):
            assert self.jobs[job_id].worker is not None
        assert self.unpaid <= self.loading.keys()
        loading = Counter(self.jobs[job_id].worker for job_id in self.loading)
        assert all(worker.loading == loading[worker] for worker in self._roster)
        self.deadlines.check()
        assert all(self.jobs[job_id].state is not DONE for job_id in self.deadlines.by_job)
        assert self.output_bytes == sum(outputs_of(job) for job in self.jobs.values() if job.state is not DONE)
        assert open_bytes == self.open_bytes
        assert memory_bytes == self.memory_bytes
        assert backing_off == self.backing_off
        self.stats.check(cells)
        counts = self.counts
        counted = (counts.submitted, counts.finished_ok, counts.finished_failed, counts.redelivered, counts.dead)
        assert self.stats.total() == counted
        for client in clients.values():
            assert client.in_flight == running.get(client, 0)
            assert client.open_jobs == opened.get(client, 0)

    def _end_attempt(self, job: JobRecord, outcome: str, now: float, output: str = "") -> Attempt:
        worker, client = job.worker, job.client
        assert worker is not None
        attempt = Attempt(job.attempts, worker.id, worker.label, job.since, now, outcome, output)
        job.history = (*job.history, attempt) if job.history else (attempt,)
        job.worker = None
        if self.delays:
            waited_s = self.delays.pop(job.id, None)
            if waited_s is not None and outcome and job.cell is not None:
                self.stats.waited(job.cell, waited_s)
        if self.inherited:
            self.inherited.pop(job.id, None)
        if self.loading:
            self._unload(job, worker)
        client.in_flight -= 1
        if client.parked:
            self._lanes.room_freed(client)
        return attempt

    def _unload(self, job: JobRecord, worker: WorkerRecord) -> None:
        """A job that was never sent gives its credit back to the worker."""
        conn = self.loading.pop(job.id, None)
        if conn is not None:
            worker.loading -= 1
        if conn is not None and worker.conn == conn:
            if job.id in self.unpaid:
                self.unpaid.discard(job.id)
                return
            worker.jobs.pop(job.id, None)
            if not worker.rests:
                # The worker may have offered CREDIT_MAX meanwhile, and a rank has no room for more.
                worker.credit = min(CREDIT_MAX, worker.credit + slots_of(job))
            self._roster.changed(worker)
        self.unpaid.discard(job.id)

    def _call_off(self, job: JobRecord) -> None:
        """Send a cancel to all workers that hold the job and have not answered."""
        for worker in dict.fromkeys((job.worker, *job.former_workers)):
            if worker is not None and worker.conn is not None and worker.cancels and job.id in worker.jobs:
                self._out.do.append(ev.SendCancel(worker.conn, job.id))
        job.former_workers = ()
