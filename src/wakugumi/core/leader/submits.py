"""What becomes of a job that a client submits, looks for or cancels? (SPEC F11, K8, L6)"""

from __future__ import annotations

from wakugumi.core.ids import Fate, JobId, Verdict
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.admission import Admission
from wakugumi.core.leader.clients import Clients
from wakugumi.core.leader.jobs.broadcasting import Broadcasts
from wakugumi.core.leader.jobs.job_table import JobTable
from wakugumi.core.leader.jobs.lifecycle import JobLifecycle
from wakugumi.core.leader.jobs.orphans import OrphanJobs
from wakugumi.core.leader.jobs.placing import JobPlacement
from wakugumi.core.leader.jobs.results import ClientConnection
from wakugumi.core.leader.jobs.same_request import CONFLICT, TAKEN, is_repeated, may_repeat
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.leader.step_builder import StepBuilder


class Submits:
    def __init__(
        self,
        out: StepBuilder,
        roster: Roster,
        jobs: JobTable,
        clients: Clients,
        lifecycle: JobLifecycle,
        orphans: OrphanJobs,
        admission: Admission,
    ) -> None:
        self._out = out
        self._jobs = jobs
        self._clients = clients
        self._connections = clients.connections
        self._lifecycle = lifecycle
        self._orphans = orphans
        self._admission = admission
        self._placement = JobPlacement(out, roster, lifecycle, orphans)
        self._broadcasts = Broadcasts(out, roster, jobs, clients, lifecycle, self._placement)

    def why_not(self, job_id: JobId) -> Verdict | None:
        """Why a job with this id would be refused now; None if it would be accepted."""
        if self._jobs.knows(job_id):
            return None
        if self._admission.stopping:
            return Verdict("stopping", "the leader is shutting down")
        admission = self._admission
        is_refused = (admission.full or admission.is_full()) and admission.is_new_work(job_id)
        return admission.why() if is_refused else None

    def submitted(self, event: ev.Submitted, now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is None:
            self._out.complain(event.conn, "only clients submit jobs")
            return
        connection.seen_at = now
        job, admission = self._jobs.get(event.job), self._admission
        if job is not None:
            if connection.sight is not None and not may_repeat(connection.sight, job):
                self._out.refuse(connection, event.job, *TAKEN)
                return
            if not is_repeated(job, event):
                self._out.refuse(connection, event.job, *CONFLICT)
                return
            if job.state is not DONE or job.ok:
                self._clients.attach(connection, job)
                return
        if admission.stopping:
            self._out.refuse(connection, event.job, "stopping", "the leader is shutting down")
        elif connection.receipts and (admission.full or admission.is_full()) and admission.is_new_work(event.job):
            self._refuse_full(connection, event.job)
        else:
            if job is not None:
                self._clients.reopened(job)
            if event.broadcast_s:
                self._broadcasts.submitted(connection, event, now)
            else:
                self._accept(connection, event, now)

    def _accept(self, connection: ClientConnection, event: ev.Submitted, now: float) -> None:
        job = self._lifecycle.accept(connection, event, now)
        if connection.receipts:
            self._out.receipt(connection.conn, event.job)
        if self._orphans.by_job:
            self._placement.place(job, now, is_guarded=connection.sight is not None)
        else:
            self._lifecycle.queue(job)

    def _refuse_full(self, connection: ClientConnection, job_id: JobId) -> None:
        why = self._admission.why()
        if self._admission.stalled:  # The refusal depends on no record, so it need not wait for the disk.
            self._out.at_once.append(ev.SendRefusal(connection.conn, job_id, why.code, why.text))
        else:
            self._out.refuse(connection, job_id, why.code, why.text)

    def refused(self, event: ev.SubmitRefused, _now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            self._out.refuse(connection, event.job, event.code, event.text)

    def sought(self, event: ev.Sought, now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is None:
            return
        connection.seen_at = now
        fates: dict[Fate, list[JobId]] = {}
        for job_id in event.jobs:
            fates.setdefault(self._fate(connection, job_id), []).append(job_id)
        self._out.at_once += [ev.SendFound(event.conn, fate, jobs) for fate, jobs in fates.items()]

    def _fate(self, connection: ClientConnection, job_id: JobId) -> Fate:
        if (job := self._jobs.get(job_id)) is not None and not connection.sees(job):
            return "unknown"
        if self._jobs.knows(job_id) or job_id in self._orphans.by_job:
            return "known"
        return "failed" if job_id in self._jobs else "unknown"

    def cancel_wanted(self, event: ev.CancelWanted, now: float) -> None:
        connection = self._connections.get(event.conn)
        if connection is None:
            return
        for job_id in event.jobs:
            job = self._jobs.get(job_id)
            if job is not None and job.client is connection.client:
                self._lifecycle.cancel(job, now)
