"""What do workers hold that nobody submitted here? (SPEC L4)

A leader that was started anew knows no job; the workers that outlived its predecessor tell it what they run and which
results they have. Each of these is a claim until a client submits the job: then it is not run a second time, if the
worker is one that could have been given it. Nobody may ever ask, so claims are bounded by count, bytes and age, and the
oldest go first. A result is confirmed to its worker, which may forget it then: so it is kept in the journal as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from typing import Final, NamedTuple

import msgspec

from wakugumi.core.events import Acked, ForgetClaim, KeepClaim
from wakugumi.core.holds import Holds
from wakugumi.core.job import ConnId, JobId, WorkerId
from wakugumi.core.outbox import Outbox
from wakugumi.core.subject import Pattern
from wakugumi.limits import CLAIMS_MAX, KEPT_BYTES_MAX, UNDELIVERED_TTL_S

CLAIMANTS_MAX: Final = 4
"""Workers that claim one job: more than attempts that are under way at once."""


class Claimant(NamedTuple):
    """A worker that says that it has a job."""

    worker: WorkerId
    since: float
    """When it was said last: a worker that has connected anew since, and said nothing, no longer holds the job."""
    patterns: tuple[Pattern, ...]
    """What it heard then: a job outside of these is not its own. Empty if an older journal does not tell."""


class Claim(msgspec.Struct, gc=False, eq=False):
    claimants: tuple[Claimant, ...]
    """The last one to claim it last."""
    answer: Acked | None = None
    """What the first of them said that had finished."""
    answered_by: Claimant | None = None
    leaf: int = 0
    """Where the answer stands in the journal, if there is one."""


class Claims:
    """The claims of one leader, the oldest first."""

    def __init__(self, holds: Holds, out: Outbox) -> None:
        self._holds = holds
        self._out = out
        self.by_job: OrderedDict[JobId, Claim] = OrderedDict()
        self._bytes = 0

    def hold(self, job_id: JobId, worker: WorkerId, patterns: tuple[Pattern, ...], now: float) -> None:
        """This worker has it. A result that we were given already outweighs it."""
        claimant = Claimant(worker, now, patterns)
        known = self.by_job.get(job_id)
        if known is None:
            self.by_job[job_id] = Claim((claimant,))
            self._drop_too_much()
        elif known.answer is None:
            others = tuple(other for other in known.claimants if other.worker != worker)
            if len(others) < CLAIMANTS_MAX:
                known.claimants = (*others, claimant)

    def answer(self, event: Acked, worker: WorkerId) -> bool:
        """The job is done. False if this worker did not claim it, or it was done before."""
        claim = self.by_job.get(event.job)
        if claim is None or claim.answer is not None:
            return False
        by = next((claimant for claimant in claim.claimants if claimant.worker == worker), None)
        if by is None:
            return False
        self._answered(claim, event, by)
        if self._out.keeps:
            self._keep(claim, event, by)
        self._drop_too_much()
        return True

    def recovered(self, record: KeepClaim, leaf: int, now: float) -> None:
        """A leader before this one was given it."""
        nobody = ConnId(0)
        answer = Acked(
            *(nobody, record.job, record.ok, record.reason, record.payload),
            blobs=record.blobs,
            begun=record.begun,
            request=record.request,
        )
        by = Claimant(record.worker, now, record.patterns)
        self.by_job[record.job] = claim = Claim((by,), leaf=leaf)
        self._answered(claim, answer, by)
        self._drop_too_much()

    def move(self, job_id: JobId) -> None:
        """Write its answer to this step's leaf, if it stands in the oldest ones."""
        claim = self.by_job.get(job_id)
        leaves = self._out.leaves
        if claim is None or claim.answer is None or claim.answered_by is None:
            return
        if leaves.is_in_oldest(claim.leaf):
            leaves.release(claim.leaf)
            self._keep(claim, claim.answer, claim.answered_by)

    def take(self, job_id: JobId) -> Claim | None:
        """Someone submitted it."""
        return self._drop(job_id) if job_id in self.by_job else None

    def sweep(self, workers: Container[WorkerId], now: float) -> None:
        """Forget what nobody asked for in time, and what was claimed by workers that are gone."""
        gone = [
            job_id
            for job_id, claim in self.by_job.items()
            if claim.claimants[-1].since + UNDELIVERED_TTL_S <= now
            or (claim.answer is None and not any(claimant.worker in workers for claimant in claim.claimants))
        ]
        for job_id in gone:
            self._drop(job_id)

    def blobs(self) -> list[tuple[JobId, tuple[str, ...]]]:
        """Of the results that were claimed."""
        answers = [claim.answer for claim in self.by_job.values() if claim.answer is not None]
        return [(_held_as(answer.job), answer.blobs) for answer in answers]

    @property
    def bytes(self) -> int:
        """Of all answers."""
        return self._bytes

    def leaves(self) -> list[int]:
        """Those in which answers stand."""
        return [claim.leaf for claim in self.by_job.values() if claim.answer is not None]

    def check(self) -> None:
        assert all(bool(leaf) == self._out.keeps for leaf in self.leaves())
        assert len(self.by_job) <= CLAIMS_MAX
        assert self._bytes == sum(len(claim.answer.payload) for claim in self.by_job.values() if claim.answer)
        assert self._bytes <= KEPT_BYTES_MAX

    def _answered(self, claim: Claim, answer: Acked, by: Claimant) -> None:
        claim.answer, claim.answered_by = answer, by
        self._bytes += len(answer.payload)
        if answer.blobs:
            self._holds.keep(_held_as(answer.job), answer.blobs)

    def _keep(self, claim: Claim, answer: Acked, by: Claimant) -> None:
        said = (answer.ok, answer.reason, answer.payload, answer.blobs, answer.begun, answer.request)
        self._out.keep.append(KeepClaim(answer.job, by.worker, *said, by.patterns))
        claim.leaf = self._out.leaves.hold(answer.job, len(answer.payload))

    def _drop_too_much(self) -> None:
        while self._bytes > KEPT_BYTES_MAX or len(self.by_job) > CLAIMS_MAX:
            self._drop(next(iter(self.by_job)))

    def _drop(self, job_id: JobId) -> Claim:
        claim = self.by_job.pop(job_id)
        if claim.answer is not None:
            self._bytes -= len(claim.answer.payload)
            if claim.leaf:
                self._out.leaves.release(claim.leaf)
                self._out.keep.append(ForgetClaim(job_id))
            if claim.answer.blobs:
                self._holds.forget(_held_as(job_id))
        return claim


def _held_as(job_id: JobId) -> JobId:
    """Under no id that a job can have: a job of this id may be here as well, with a result of its own."""
    return JobId(b"claim" + job_id)
