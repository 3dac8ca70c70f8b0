"""What do workers hold that nobody submitted here? (SPEC L4)

A leader that was started anew knows no job; the workers that outlived its predecessor tell it what they run and which
results they have. Each of these is a claim until a client submits the job: then it is not run a second time, if the
worker is one that could have been given it. Which worker that is shows only then: so a claim displaces no other one.
Nobody may ever ask, so claims are bounded by count, bytes and age, and the oldest go first. A result is confirmed to
its worker, which may forget it then: so it is kept in the journal as well.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Container, Iterable
from typing import Final, NamedTuple

import msgspec

from wakugumi.core.ids import ConnId, JobId, WorkerId
from wakugumi.core.leader.events import Acked
from wakugumi.core.leader.jobs.file_references import FileReferences
from wakugumi.core.leader.journal.entries import ForgetClaim, KeepClaim
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.core.subject import Pattern
from wakugumi.limits.leader import CLAIMS_MAX, KEPT_BYTES_MAX, UNDELIVERED_TTL_S

CLAIMANTS_MAX: Final = 4
"""Workers that claim one job, and as many that have answered it: more than attempts that are under way at once."""


class Claimant(NamedTuple):
    """A worker that says that it has a job."""

    worker: WorkerId
    since: float
    """When it was said last: a worker that has connected anew since, and said nothing, no longer holds the job."""
    patterns: tuple[Pattern, ...]
    """What it heard then: a job outside of these is not its own. Empty if an older journal does not tell."""


class OrphanAnswer(msgspec.Struct, gc=False, eq=False):
    """How the job ended, as one of its claimants says."""

    by: Claimant
    said: Acked
    leaf: int = 0
    """Where it stands in the journal, if there is one."""


class OrphanClaim(msgspec.Struct, gc=False, eq=False):
    claimants: tuple[Claimant, ...]
    """Those that have not answered yet. The last one to claim it last."""
    since: float
    """When it was claimed last."""
    answers: tuple[OrphanAnswer, ...] = ()
    """The first one first, and one for each worker."""


class OrphanJobs:
    """The claims of one leader, the oldest first."""

    def __init__(self, holds: FileReferences, out: StepBuilder) -> None:
        self._holds = holds
        self._out = out
        self.by_job: OrderedDict[JobId, OrphanClaim] = OrderedDict()
        self.answers = 0
        """Of all claims."""
        self._bytes = 0

    def hold(self, job_id: JobId, worker: WorkerId, patterns: tuple[Pattern, ...], now: float) -> None:
        """This worker has it, unless it has answered already."""
        claimant = Claimant(worker, now, patterns)
        known = self.by_job.get(job_id)
        if known is None:
            self.by_job[job_id] = OrphanClaim((claimant,), now)
            self._drop_too_much()
        elif not any(answer.by.worker == worker for answer in known.answers):
            known.since = now
            known.claimants = (*_without(known.claimants, worker), claimant)
            if len(known.claimants) > CLAIMANTS_MAX:
                known.claimants = _without(known.claimants, _least_missed(known.claimants))

    def answer(self, event: Acked, worker: WorkerId) -> bool:
        """The job is done. False if this worker did not claim it, or said so before."""
        claim = self.by_job.get(event.job)
        by = next((one for one in claim.claimants if one.worker == worker), None) if claim is not None else None
        if claim is None or by is None:
            return False
        claim.claimants = _without(claim.claimants, worker)
        answer = OrphanAnswer(by, event)
        self._add(claim, answer)
        if self._out.keeps:
            self._keep(answer)
        if len(claim.answers) > CLAIMANTS_MAX:
            self._drop_answer(claim, _least_missed(answer.by for answer in claim.answers))
        self._drop_too_much()
        return True

    def recovered(self, record: KeepClaim, leaf: int, now: float) -> None:
        """A leader before this one was given it."""
        nobody = ConnId(0)
        said = Acked(
            *(nobody, record.job, record.ok, record.reason, record.payload),
            blobs=record.blobs,
            begun=record.begun,
            request=record.request,
        )
        claim = self.by_job.get(record.job)
        if claim is None:
            claim = self.by_job[record.job] = OrphanClaim((), now)
        self._add(claim, OrphanAnswer(Claimant(record.worker, now, record.patterns), said, leaf))
        self._drop_too_much()

    def move(self, job_id: JobId) -> None:
        """Write its answers to this step's leaf, if they stand in the oldest ones."""
        claim = self.by_job.get(job_id)
        leaves = self._out.leaves
        for answer in claim.answers if claim is not None else ():
            if leaves.is_in_oldest(answer.leaf):
                leaves.release(answer.leaf)
                self._keep(answer)

    def take(self, job_id: JobId) -> OrphanClaim | None:
        """Someone submitted it."""
        return self._drop(job_id) if job_id in self.by_job else None

    def sweep(self, workers: Container[WorkerId], now: float) -> None:
        """Forget what nobody asked for in time, and what was claimed by workers that are gone."""
        gone = [
            job_id
            for job_id, claim in self.by_job.items()
            if claim.since + UNDELIVERED_TTL_S <= now
            or not (claim.answers or any(claimant.worker in workers for claimant in claim.claimants))
        ]
        for job_id in gone:
            self._drop(job_id)

    def blobs(self) -> list[tuple[JobId, tuple[str, ...]]]:
        """Of the results that were claimed."""
        return [(_held_as(answer), answer.said.blobs) for answer in self._all_answers()]

    @property
    def bytes(self) -> int:
        """Of all answers."""
        return self._bytes

    def leaves(self) -> list[int]:
        """Those in which answers stand."""
        return [answer.leaf for answer in self._all_answers()]

    def check(self) -> None:
        answers = self._all_answers()
        assert all(bool(leaf) == self._out.keeps for leaf in self.leaves())
        assert len(self.by_job) <= CLAIMS_MAX
        assert self.answers == len(answers)
        assert self._bytes == sum(len(answer.said.payload) for answer in answers)
        assert self._bytes <= KEPT_BYTES_MAX
        for claim in self.by_job.values():
            assert max(len(claim.claimants), len(claim.answers)) <= CLAIMANTS_MAX
            assert claim.claimants or claim.answers
            workers = [one.worker for one in (*claim.claimants, *(answer.by for answer in claim.answers))]
            assert len(workers) == len(set(workers))

    def _all_answers(self) -> list[OrphanAnswer]:
        return [answer for claim in self.by_job.values() for answer in claim.answers]

    def _add(self, claim: OrphanClaim, answer: OrphanAnswer) -> None:
        claim.answers = (*claim.answers, answer)
        self.answers += 1
        self._bytes += len(answer.said.payload)
        if answer.said.blobs:
            self._holds.keep(_held_as(answer), answer.said.blobs)

    def _keep(self, answer: OrphanAnswer) -> None:
        by, said = answer.by, answer.said
        what = (said.ok, said.reason, said.payload, said.blobs, said.begun, said.request)
        self._out.keep.append(KeepClaim(said.job, by.worker, *what, by.patterns))
        answer.leaf = self._out.leaves.hold(said.job, len(said.payload))

    def _drop_too_much(self) -> None:
        while self._bytes > KEPT_BYTES_MAX or len(self.by_job) > CLAIMS_MAX:
            self._drop(next(iter(self.by_job)))

    def _drop_answer(self, claim: OrphanClaim, worker: WorkerId) -> None:
        gone = next(answer for answer in claim.answers if answer.by.worker == worker)
        claim.answers = tuple(answer for answer in claim.answers if answer is not gone)
        self._release(gone)
        if gone.leaf:
            self._out.keep.append(ForgetClaim(gone.said.job, worker))

    def _drop(self, job_id: JobId) -> OrphanClaim:
        claim = self.by_job.pop(job_id)
        for answer in claim.answers:
            self._release(answer)
        if any(answer.leaf for answer in claim.answers):
            self._out.keep.append(ForgetClaim(job_id))
        return claim

    def _release(self, answer: OrphanAnswer) -> None:
        self.answers -= 1
        self._bytes -= len(answer.said.payload)
        if answer.leaf:
            self._out.leaves.release(answer.leaf)
        if answer.said.blobs:
            self._holds.forget(_held_as(answer))


def _without(claimants: tuple[Claimant, ...], worker: WorkerId) -> tuple[Claimant, ...]:
    return tuple(one for one in claimants if one.worker != worker)


def _least_missed(claimants: Iterable[Claimant]) -> WorkerId:
    """The oldest of those whose patterns most of them have: strangers of one kind do not push out all others."""
    known = tuple(claimants)
    alike = Counter(one.patterns for one in known)
    return max(known, key=lambda one: alike[one.patterns]).worker


def _held_as(answer: OrphanAnswer) -> JobId:
    """Under no id that a job can have: a job of this id may be here as well, with a result of its own."""
    return JobId(b"claim" + answer.said.job + answer.by.worker)
