"""Which requests are only in the journal, and which leaves may be dropped? (SPEC L7)

Requests beyond a limit of memory are read back when their jobs are assigned. Until then the job counts as RUNNING, and
the credit of its worker is taken. As only the oldest leaves can be dropped, old jobs are written again at the end, a
few at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wakugumi.core.ids import JobId, Verdict
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.clients import Clients
from wakugumi.core.leader.jobs.lifecycle import JobLifecycle
from wakugumi.core.leader.jobs.orphans import OrphanJobs
from wakugumi.core.leader.journal.entries import DropLeaves
from wakugumi.core.leader.journal.recovery import keep_whole
from wakugumi.core.leader.records import JobRecord
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.core.leader.worker_keys import WorkerKeys
from wakugumi.limits.journal import JOURNAL_MOVED_BYTES_MAX


class OffloadedRequests:
    def __init__(
        self,
        out: StepBuilder,
        lifecycle: JobLifecycle,
        clients: Clients,
        jobs: Mapping[JobId, JobRecord],
        orphans: OrphanJobs,
        worker_keys: WorkerKeys,
    ) -> None:
        self._out = out
        self._leaves = out.leaves
        self._lifecycle = lifecycle
        self._clients = clients
        self._jobs = jobs
        self._orphans = orphans
        self._worker_keys = worker_keys

    def load(self, jobs: Sequence[JobRecord]) -> None:
        """Read the requests of these assigned jobs; each is sent when it has been read."""
        by_leaf: dict[int, list[JobId]] = {}
        for job in jobs:
            assert job.worker is not None
            assert job.worker.conn is not None
            if job.id not in self._lifecycle.loading:
                job.worker.loading += 1
            self._lifecycle.loading[job.id] = job.worker.conn
            by_leaf.setdefault(job.leaf, []).append(job.id)
        self._out.do += [ev.LoadPayloads(leaf, ids) for leaf, ids in by_leaf.items()]

    def load_again(self, jobs: Sequence[JobRecord]) -> None:
        """Read the requests of jobs that their workers hold already: they take no credit."""
        self._lifecycle.unpaid.update(job.id for job in jobs)
        self.load(jobs)

    def loaded(self, event: ev.PayloadsLoaded, now: float) -> None:
        again: list[JobRecord] = []
        for job_id in event.asked:
            conn = self._lifecycle.loading.get(job_id)
            if conn is None:
                continue
            job = self._jobs[job_id]
            assert job.worker is not None
            if job.worker.conn != conn:  # The worker is away and never got the job.
                self._sent(job)
                continue
            payload = event.payloads.get(job_id)
            if job.leaf != event.leaf:  # The job was moved, or submitted again, while its old leaf was read.
                again.append(job)
            elif payload is None:
                text = "the leader's journal could not read the request"
                self._lifecycle.finish(job, False, Verdict("input-lost", text), now)
            else:
                self._sent(job)
                self._out.do.append(ev.SendAssign(conn, job_id, job.subject, payload))
        if again:
            self.load(again)

    def _sent(self, job: JobRecord) -> None:
        assert job.worker is not None
        job.worker.loading -= 1
        del self._lifecycle.loading[job.id]
        self._lifecycle.unpaid.discard(job.id)

    def tidy(self, now: float) -> None:
        """Move the jobs of the oldest leaves to the end, and drop leaves that are not needed."""
        results = self._clients.results
        live_bytes = (
            self._lifecycle.open_bytes + self._lifecycle.output_bytes + results.stored_bytes + self._clients.dead.bytes
        ) + self._orphans.bytes
        written = self._leaves.written_bytes
        records = len(self._jobs) + self._orphans.answers + len(self._worker_keys)
        for job_id in self._leaves.stragglers(records, live_bytes):
            job = self._jobs.get(job_id)
            if job is not None and self._leaves.is_in_oldest(job.leaf):
                keep_whole(job, self._out, self._lifecycle, now)
            self._orphans.move(job_id)
            self._worker_keys.move(job_id)
            if self._leaves.written_bytes - written >= JOURNAL_MOVED_BYTES_MAX:
                break  # The other jobs stay the oldest, and are next.
        before = self._leaves.droppable()
        if before is not None:
            self._out.keep.append(DropLeaves(before))
