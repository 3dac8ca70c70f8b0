"""Where does an accepted job go: into its queue, or to a worker that runs it already? (SPEC L4)"""

from __future__ import annotations

from wakugumi.core.leader.jobs.attempts import is_final
from wakugumi.core.leader.jobs.broadcast import owner_of
from wakugumi.core.leader.jobs.lifecycle import JobLifecycle
from wakugumi.core.leader.jobs.orphans import Claimant, OrphanClaim, OrphanJobs
from wakugumi.core.leader.jobs.same_request import is_of_another, is_proven
from wakugumi.core.leader.records import JobRecord
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.core.leader.workers import foreign_claim_text
from wakugumi.core.subject import hears


class JobPlacement:
    def __init__(self, out: StepBuilder, roster: Roster, lifecycle: JobLifecycle, orphans: OrphanJobs) -> None:
        self._out = out
        self._roster = roster
        self._lifecycle = lifecycle
        self._orphans = orphans

    def place(self, job: JobRecord, now: float, *, is_guarded: bool = False) -> None:
        """`is_guarded`: the client may not see all jobs, so an answer must prove that it is one to this request."""
        if (claim := self._orphans.take(job.id)) is not None:
            self._take_claim(job, claim, now, is_guarded=is_guarded)
        else:
            self._lifecycle.queue(job)

    def _take_claim(self, job: JobRecord, claim: OrphanClaim, now: float, *, is_guarded: bool) -> None:
        """A worker that outlived the last leader runs the job already, or has its result."""
        for answer in claim.answers:
            ack = answer.ack
            is_same = is_proven(job, ack.request) if is_guarded else not is_of_another(job, ack.request)
            if self._may_take(job, answer.claimant) and is_final(ack) and is_same:
                self._lifecycle.finish(job, ack.ok, ack.payload, now, blobs=ack.blobs)
                return
        runs_on = None
        for claimant in claim.claimants:
            worker = self._roster.by_id.get(claimant.worker)
            if worker is not None and claimant.since >= worker.joined_at and self._may_take(job, claimant):
                runs_on = worker
        if runs_on is not None:
            self._lifecycle.run_on(job, runs_on, now)
        else:
            self._lifecycle.queue(job)

    def _may_take(self, job: JobRecord, claimant: Claimant) -> bool:
        """Could this worker have been assigned the job? If not, its claim is ignored and logged."""
        patterns = claimant.patterns
        if not patterns or owner_of(job.subject) == claimant.worker or hears(patterns, job.subject):
            return True
        worker = self._roster.by_id.get(claimant.worker)
        if worker is not None and worker.conn is not None:
            self._out.complain(worker.conn, foreign_claim_text(worker, 1))
        return False
