"""Which jobs do workers hold that no client has submitted here? (SPEC L4)

A new leader knows no jobs; workers that outlived the last leader report what they run and which results they have. Each
report is a claim. When a client submits the job, a valid claim spares a second run: valid if the worker could have been
assigned the job. That is known only then, so no claim displaces another. As the submit may never come, claims are
bounded by count, bytes and age, and the oldest go first. A result is confirmed to its worker, which may then forget it:
so the journal keeps it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Container, Iterable
from typing import Final, NamedTuple

import msgspec

from wakugumi.core.ids import ConnId, JobId, WorkerId
from wakugumi.core.leader.events import Acked
from wakugumi.core.leader.jobs.file_references import NOBODY, FileReferences
from wakugumi.core.leader.journal.entries import ForgetClaim, KeepClaim
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.core.subject import Pattern
from wakugumi.limits.leader import CLAIMS_MAX, KEPT_BYTES_MAX, UNDELIVERED_TTL_S

CLAIMANTS_MAX: Final = 4
"""Number of claims of one job, and of its answers: more than attempts that run at once."""


class Claimant(NamedTuple):
    """A worker that reports a job as held."""

    worker: WorkerId
    since: float
    """Time of the last report: a worker that reconnected since and did not repeat it no longer holds the job."""
    patterns: tuple[Pattern, ...]
    """Patterns of the worker then: it cannot hold other jobs. Empty if an older journal has none."""


class OrphanAnswer(msgspec.Struct, gc=False, eq=False):
    """Result of a job, from one of its claimants."""

    claimant: Claimant
    ack: Acked
    leaf: int = 0
    """Leaf of the journal with the answer; 0 without a journal."""


class OrphanClaim(msgspec.Struct, gc=False, eq=False):
    claimants: tuple[Claimant, ...]
    """Workers that have not answered yet, the latest claim last."""
    since: float
    """Time of the last claim."""
    answers: tuple[OrphanAnswer, ...] = ()
    """Answers, the first one first; at most one per worker."""


class OrphanJobs:
    """The claims of one leader, the oldest first."""

    def __init__(self, file_references: FileReferences, out: StepBuilder) -> None:
        self._file_references = file_references
        self._out = out
        self.by_job: OrderedDict[JobId, OrphanClaim] = OrderedDict()
        self.answers = 0
        """Number of answers of all claims."""
        self._bytes = 0

    def hold(self, job_id: JobId, worker: WorkerId, patterns: tuple[Pattern, ...], now: float) -> None:
        """Note that this worker holds the job, unless it has answered already."""
        claimant = Claimant(worker, now, patterns)
        known = self.by_job.get(job_id)
        if known is None:
            self.by_job[job_id] = OrphanClaim((claimant,), now)
            self._drop_too_much()
        elif not any(answer.claimant.worker == worker for answer in known.answers):
            known.since = now
            known.claimants = (*_without(known.claimants, worker), claimant)
            if len(known.claimants) > CLAIMANTS_MAX:
                known.claimants = _without(known.claimants, _least_missed(known.claimants))

    def answer(self, event: Acked, worker: WorkerId) -> bool:
        """Note the answer. False if this worker did not claim the job, or has answered before."""
        claim = self.by_job.get(event.job)
        claimants = claim.claimants if claim is not None else ()
        claimant = next((one for one in claimants if one.worker == worker), None)
        if claim is None or claimant is None:
            return False
        claim.claimants = _without(claim.claimants, worker)
        answer = OrphanAnswer(claimant, event)
        self._add(claim, answer)
        if self._out.keeps:
            self._keep(answer)
        if len(claim.answers) > CLAIMANTS_MAX:
            self._drop_answer(claim, _least_missed(answer.claimant for answer in claim.answers))
        self._drop_too_much()
        return True

    def recovered(self, record: KeepClaim, leaf: int, now: float) -> None:
        """Restore an answer that an earlier leader received."""
        nobody = ConnId(0)
        ack = Acked(
            *(nobody, record.job, record.ok, record.reason, record.payload),
            blobs=record.blobs,
            begun=record.begun,
            request=record.request,
        )
        claim = self.by_job.get(record.job)
        if claim is None:
            claim = self.by_job[record.job] = OrphanClaim((), now)
        self._add(claim, OrphanAnswer(Claimant(record.worker, now, record.patterns), ack, leaf))
        self._drop_too_much()

    def move(self, job_id: JobId) -> None:
        """Write the answers of this job to the current leaf, if they are in the oldest leaves."""
        claim = self.by_job.get(job_id)
        leaves = self._out.leaves
        for answer in claim.answers if claim is not None else ():
            if leaves.is_in_oldest(answer.leaf):
                leaves.release(answer.leaf)
                self._keep(answer)

    def take(self, job_id: JobId) -> OrphanClaim | None:
        """Remove and return the claim: a client submitted the job."""
        return self._drop(job_id) if job_id in self.by_job else None

    def sweep(self, workers: Container[WorkerId], now: float) -> None:
        """Forget claims that no client submitted in time, and claims whose workers are all gone."""
        gone = [
            job_id
            for job_id, claim in self.by_job.items()
            if claim.since + UNDELIVERED_TTL_S <= now
            or not (claim.answers or any(claimant.worker in workers for claimant in claim.claimants))
        ]
        for job_id in gone:
            self._drop(job_id)

    def blobs(self) -> list[tuple[JobId, tuple[str, ...]]]:
        """Blobs of all answers."""
        return [(_reference_of(answer), answer.ack.blobs) for answer in self._all_answers()]

    @property
    def bytes(self) -> int:
        """Bytes of all answers."""
        return self._bytes

    def leaves(self) -> list[int]:
        """Leaves of all answers."""
        return [answer.leaf for answer in self._all_answers()]

    def check(self) -> None:
        answers = self._all_answers()
        assert all(bool(leaf) == self._out.keeps for leaf in self.leaves())
        assert len(self.by_job) <= CLAIMS_MAX
        assert self.answers == len(answers)
        assert self._bytes == sum(len(answer.ack.payload) for answer in answers)
        assert self._bytes <= KEPT_BYTES_MAX
        for claim in self.by_job.values():
            assert max(len(claim.claimants), len(claim.answers)) <= CLAIMANTS_MAX
            assert claim.claimants or claim.answers
            workers = [one.worker for one in (*claim.claimants, *(answer.claimant for answer in claim.answers))]
            assert len(workers) == len(set(workers))

    def _all_answers(self) -> list[OrphanAnswer]:
        return [answer for claim in self.by_job.values() for answer in claim.answers]

    def _add(self, claim: OrphanClaim, answer: OrphanAnswer) -> None:
        claim.answers = (*claim.answers, answer)
        self.answers += 1
        self._bytes += len(answer.ack.payload)
        if answer.ack.blobs:
            self._file_references.keep(_reference_of(answer), answer.ack.blobs, NOBODY)

    def _keep(self, answer: OrphanAnswer) -> None:
        claimant, ack = answer.claimant, answer.ack
        what = (ack.ok, ack.reason, ack.payload, ack.blobs, ack.begun, ack.request)
        self._out.keep.append(KeepClaim(ack.job, claimant.worker, *what, claimant.patterns))
        answer.leaf = self._out.leaves.hold(ack.job, len(ack.payload))

    def _drop_too_much(self) -> None:
        while self._bytes > KEPT_BYTES_MAX or len(self.by_job) > CLAIMS_MAX:
            self._drop(next(iter(self.by_job)))

    def _drop_answer(self, claim: OrphanClaim, worker: WorkerId) -> None:
        gone = next(answer for answer in claim.answers if answer.claimant.worker == worker)
        claim.answers = tuple(answer for answer in claim.answers if answer is not gone)
        self._release(gone)
        if gone.leaf:
            self._out.keep.append(ForgetClaim(gone.ack.job, worker))

    def _drop(self, job_id: JobId) -> OrphanClaim:
        claim = self.by_job.pop(job_id)
        for answer in claim.answers:
            self._release(answer)
        if any(answer.leaf for answer in claim.answers):
            self._out.keep.append(ForgetClaim(job_id))
        return claim

    def _release(self, answer: OrphanAnswer) -> None:
        self.answers -= 1
        self._bytes -= len(answer.ack.payload)
        if answer.leaf:
            self._out.leaves.release(answer.leaf)
        if answer.ack.blobs:
            self._file_references.forget(_reference_of(answer))


def _without(claimants: tuple[Claimant, ...], worker: WorkerId) -> tuple[Claimant, ...]:
    return tuple(one for one in claimants if one.worker != worker)


def _least_missed(claimants: Iterable[Claimant]) -> WorkerId:
    """The oldest worker with the most frequent patterns: many workers of one kind do not push out all others."""
    known = tuple(claimants)
    alike = Counter(one.patterns for one in known)
    return max(known, key=lambda one: alike[one.patterns]).worker


def _reference_of(answer: OrphanAnswer) -> JobId:
    """An id that no job can have: a job of this id may exist here too, with a result of its own."""
    return JobId(b"claim" + answer.ack.job + answer.claimant.worker)
