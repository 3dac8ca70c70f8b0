"""What does a worker's answer mean for its job? (SPEC L3, L4, L6, W6, W9)

The first accepted result is the job's. An answer may also be a failure of the program, which may be retried, the end of
one attempt only, or about a job that the worker was never assigned.
"""

from __future__ import annotations

from wakugumi.core.leader.events import Acked
from wakugumi.core.leader.jobs.attempts import EXIT, is_final, is_retried
from wakugumi.core.leader.jobs.job_table import JobTable
from wakugumi.core.leader.jobs.lifecycle import JobLifecycle
from wakugumi.core.leader.jobs.not_started import NotStarted, never_began
from wakugumi.core.leader.jobs.orphans import OrphanJobs
from wakugumi.core.leader.jobs.same_request import is_of_another
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.core.leader.workers import Workers, was_assigned


class Acks:
    def __init__(
        self,
        out: StepBuilder,
        roster: Roster,
        jobs: JobTable,
        lifecycle: JobLifecycle,
        not_started: NotStarted,
        orphans: OrphanJobs,
        workers: Workers,
    ) -> None:
        self._out = out
        self._roster = roster
        self._by_conn = roster.by_conn
        self._jobs = jobs
        self._lifecycle = lifecycle
        self._not_started = not_started
        self._orphans = orphans
        self._workers = workers

    def acked(self, event: Acked, now: float) -> None:
        job_id = event.job
        worker = self._by_conn.get(event.conn)
        if worker is None:
            self._out.complain(event.conn, "only workers ack jobs")
            return
        worker.seen_at = now
        if worker.receipts:
            self._out.confirm(event.conn, job_id)
        elif not event.payload:
            self._workers.acked_empty(worker, now)
        given = job_id in worker.jobs
        if given:
            del worker.jobs[job_id]
            self._roster.changed(worker)
        job = self._jobs.get(job_id)
        if job is None:
            if not self._orphans.answer(event, worker.id) and not given:
                self._out.complain(event.conn, f"{worker.label} acked a job that nobody submitted")
        elif not given and not was_assigned(job, worker):
            self._out.complain(event.conn, f"{worker.label} acked a job that it was never given")
        elif job.state is DONE:
            return
        elif event.request and is_of_another(job, event.request):
            # The result belongs to another job of this id: forgotten here, or assigned by another leader (SPEC L6).
            if job.worker is worker:
                self._lifecycle.attempt_lost(job, "conflict", now, at_once=True)
        elif event.ok:
            self._lifecycle.finish(job, True, event.payload, now, worker, "", event.blobs)
        elif never_began(event):
            if job.worker is worker:
                self._not_started.could_not_start(worker, job, event, now)
        elif is_retried(job, event):
            if job.worker is worker:
                self._lifecycle.attempt_lost(job, event.reason or EXIT, now, at_once=False, output=event.output)
        elif is_final(event):
            self._lifecycle.finish(job, False, event.payload, now, by=worker, why=event.reason, blobs=event.blobs)
        elif job.worker is worker:
            # "cancelled" answers a cancel from before the job was submitted again, and "worker-lost" is reported
            # for another worker (SPEC L4): neither is a fault of the job.
            at_once = event.reason in {"cancelled", "worker-lost"}
            self._not_started.attempt_fails(worker, job, event.reason, now)
            self._lifecycle.attempt_lost(job, event.reason, now, at_once=at_once, output=event.output)
