"""Which jobs could a worker not even start, and which worker gets them then? (SPEC W9, F11)

    sick machine        to another worker, without using up an attempt, once per worker; the second time uses one
    unknown program     to another worker; without a worker that may have the program, this is the job's answer
    refused variable    as for an unknown program: another worker may let jobs set it

Such a job *shuns* workers:

    without the program    while another worker may have it: one that is connected, however busy or out of order, or
                           that left a moment ago. A new leader with open jobs first waits for all workers
    on a sick machine      while another worker serves and has credit, and RESTING_PATIENCE_S longer: then the job
                           may go there again
    sick a second time     while another worker serves, however busy

A program that began and then broke its machine uses an attempt.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from wakugumi.core.ids import MACHINE_FAULTS, JobId, Tried, WorkerId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.jobs.broadcast import owner_of
from wakugumi.core.leader.jobs.lifecycle import JobLifecycle
from wakugumi.core.leader.jobs.states import DONE, QUEUED
from wakugumi.core.leader.records import JobRecord, WorkerRecord
from wakugumi.core.leader.scheduling.lanes import Lanes
from wakugumi.core.leader.scheduling.roster import Roster, can_run, members_of
from wakugumi.core.requirements import Requirements, without_shuns
from wakugumi.core.subject import Subject, matches
from wakugumi.limits.leader import RECOVERY_GRACE_S, RESTING_PATIENCE_S

LACKING: Final = frozenset({"unknown-program", "env-refused"})
"""Faults of one worker that another may not have."""
_NOTHING: Final = Requirements()
_NOBODY: Final = Tried()
_NEVER: Final = float("inf")
_DONE_KEPT: Final = 64
"""Number of done jobs that may stay in the groups, however few there are: fewer are not worth a cleanup."""

Key: TypeAlias = tuple[Subject, Tried, Requirements | None]
"""Subject, workers that could not start the job, and its requirements without `shuns`."""


def never_began(event: ev.Acked) -> bool:
    """The worker could not start the job. Also an old worker that does not know the program has not begun it."""
    return event.reason in LACKING or (not event.begun and event.reason in MACHINE_FAULTS)


def was_tried(tried: Tried | None, worker: WorkerRecord) -> bool:
    return tried is not None and (worker.id in tried.sick or worker.id in tried.lack)


def tried_too(tried: Tried | None, worker: WorkerId, *, lacks: bool) -> Tried:
    """`tried` with this worker added."""
    sick, lack, again = msgspec.structs.astuple(tried or _NOBODY)
    if lacks:
        return Tried(sick, _with(lack, worker), again)
    return Tried(_with(sick, worker), lack, again)


def tried_again(tried: Tried, worker: WorkerId, reason: str) -> Tried:
    """`tried` after an attempt on this worker that failed for this reason."""
    if reason not in MACHINE_FAULTS or worker not in tried.sick:
        return tried
    return Tried(tried.sick, tried.lack, _with(tried.again, worker))


class _TriedGroup:
    """Jobs of one subject with the same requirements, tried by the same workers: they shun the same ones."""

    __slots__ = ("alone_since", "busy_since", "jobs", "requirements")

    def __init__(self, requirements: Requirements | None) -> None:
        self.jobs: dict[JobId, JobRecord] = {}
        """Jobs by id; some may be done by now."""
        self.requirements = requirements
        """Requirements with `shuns`, one object for all jobs."""
        self.alone_since = _NEVER
        """Since when no worker serves that has not tried the jobs."""
        self.busy_since = _NEVER
        """Since when the serving workers that have not tried the jobs are without credit."""


class NotStarted:
    def __init__(self, roster: Roster, lanes: Lanes, lifecycle: JobLifecycle) -> None:
        self._roster = roster
        self._lanes = lanes
        self._lifecycle = lifecycle
        self.groups: dict[Key, _TriedGroup] = {}
        """Groups of jobs by key. Mostly empty: then a step skips `review`."""
        self._count = 0
        """Number of jobs in all groups, including done ones."""
        self._era = -1
        self.review_at = _NEVER
        """Time of the next `review`, if nothing changes before."""
        self._all_back_by = 0.0
        """After a restart: until then, disconnected workers may still come back."""

    def could_not_start(self, worker: WorkerRecord, job: JobRecord, event: ev.Acked, now: float) -> None:
        """The worker could not start the job, and reports why."""
        lifecycle = self._lifecycle
        before = lifecycle.tried.get(job.id)
        lacks = event.reason in LACKING
        tried = tried_too(before, worker.id, lacks=lacks)
        worker.fault = _first_line(event.output) or event.reason
        if lacks and not self._able(job, tried) and self._expected_until(job, tried, now) <= now:
            lifecycle.finish(job, False, event.payload, now, by=worker, why=event.reason, blobs=event.blobs)
            return
        self._move(job, tried, now)
        if lacks or tried != before:
            lifecycle.give_back(job, now, by=worker if tried != before else None, lacks=lacks)
        else:
            self.attempt_fails(worker, job, event.reason, now)
            lifecycle.attempt_lost(job, event.reason, now, at_once=False, output=event.output)

    def attempt_fails(self, worker: WorkerRecord, job: JobRecord, reason: str, now: float) -> None:
        """The attempt is about to end for this reason."""
        tried = self._lifecycle.tried.get(job.id)
        if tried is not None:
            self._move(job, tried_again(tried, worker.id, reason), now)

    def recovered(self, now: float) -> None:
        """Restore what the last leader knew. Its workers are not back yet."""
        if any(job.state is not DONE for job in self._lifecycle.jobs.values()):
            self._all_back_by = now + RECOVERY_GRACE_S
        for job_id, tried in self._lifecycle.tried.items():
            job = self._lifecycle.jobs[job_id]
            _, group = self._join(job, tried)
            job.requirements = group.requirements

    def review(self, now: float) -> None:
        """Decide anew which workers are shunned, if other workers serve than before or a time has come."""
        if self._roster.era == self._era and now < self.review_at:
            return
        self._era, self.review_at = self._roster.era, _NEVER
        if self._count > 2 * len(self._lifecycle.tried) + _DONE_KEPT:
            self._forget_done()
        for key, group in self.groups.items():
            self._review_group(key, group, now)

    def check(self) -> None:
        jobs, tried = self._lifecycle.jobs, self._lifecycle.tried
        assert self._count == sum(len(group.jobs) for group in self.groups.values())
        for job_id, by in tried.items():
            assert jobs[job_id].state is not DONE
            assert by != _NOBODY
            assert any(group.jobs.get(job_id) is jobs[job_id] for key, group in self.groups.items() if key[1] == by)
        for job_id, job in jobs.items():
            assert job.state is DONE or job.requirements is None or not job.requirements.shuns or job_id in tried
        for group in self.groups.values():
            for job in group.jobs.values():
                if job.state is not DONE and jobs.get(job.id) is job:
                    assert job.requirements == group.requirements, "a job shuns other workers than its group"

    def _move(self, job: JobRecord, tried: Tried, now: float) -> None:
        """Put a running job into the group of `tried`. The patience with other workers begins anew."""
        self._leave(job)
        key, group = self._join(job, tried)
        group.alone_since = group.busy_since = _NEVER
        self._review_group(key, group, now)
        job.requirements = group.requirements

    def _join(self, job: JobRecord, tried: Tried) -> tuple[Key, _TriedGroup]:
        key = job.subject, tried, without_shuns(job.requirements)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = _TriedGroup(key[2])
            self._era = -1
        self._count += job.id not in group.jobs
        group.jobs[job.id] = job
        self._lifecycle.tried[job.id] = tried
        return key, group

    def _leave(self, job: JobRecord) -> None:
        tried = self._lifecycle.tried.pop(job.id, None)
        if tried is not None:
            key = job.subject, tried, without_shuns(job.requirements)
            group = self.groups[key]
            del group.jobs[job.id]
            self._count -= 1
            if not group.jobs:
                del self.groups[key]

    def _forget_done(self) -> None:
        jobs = self._lifecycle.jobs
        for key, group in list(self.groups.items()):
            group.jobs = {it: job for it, job in group.jobs.items() if job.state is not DONE and jobs.get(it) is job}
            if not group.jobs:
                del self.groups[key]
        self._count = sum(len(group.jobs) for group in self.groups.values())

    def _review_group(self, key: Key, group: _TriedGroup, now: float) -> None:
        shuns = self._shuns(key, group, now)
        if shuns == (() if group.requirements is None else group.requirements.shuns):
            return
        requirements = key[2]
        group.requirements = msgspec.structs.replace(requirements or _NOTHING, shuns=shuns) if shuns else requirements
        queued = []
        for job in group.jobs.values():
            if job.state is QUEUED and self._lifecycle.jobs.get(job.id) is job:
                queued.append(job)
            elif job.state is not DONE:
                job.requirements = group.requirements
        self._lanes.change_requirements(queued, group.requirements)

    def _shuns(self, key: Key, group: _TriedGroup, now: float) -> tuple[WorkerId, ...]:
        _, tried, requirements = key
        job = next(iter(group.jobs.values()))
        able = self._able(job, tried)
        if not able:
            group.alone_since = group.busy_since = _NEVER
            expected_until = self._expected_until(job, tried, now)
            if now < expected_until:
                self.review_at = min(self.review_at, expected_until)
                return tried.lack
            return ()
        others = [worker for worker in able if worker.id not in tried.sick]
        if any(worker.serves for worker in others):
            group.alone_since = _NEVER
            if len(tried.again) == len(tried.sick):
                return (*tried.sick, *tried.lack)
            slots = (requirements or _NOTHING).slots
            is_one_free = any(worker.usable_credit >= slots for worker in others)
            group.busy_since = _NEVER if is_one_free else min(group.busy_since, now)
            patient_until = min(group.busy_since, now) + RESTING_PATIENCE_S
            if now < patient_until:
                self.review_at = min(self.review_at, patient_until)
                return (*tried.sick, *tried.lack)
            return (*tried.again, *tried.lack)
        group.busy_since = _NEVER
        if not others:
            group.alone_since = _NEVER
        else:
            group.alone_since = min(group.alone_since, now)
            patient_until = group.alone_since + RESTING_PATIENCE_S
            if now < patient_until:
                self.review_at = min(self.review_at, patient_until)
                return (*tried.sick, *tried.lack)
        return tried.lack

    def _able(self, job: JobRecord, tried: Tried) -> list[WorkerRecord]:
        """Connected workers that may start the job, however busy or sick."""
        requirements = without_shuns(job.requirements) or _NOTHING
        members = members_of(self._roster.pools_for(job.subject))
        return [worker for worker in members if not worker.leaving and _may_start(worker, requirements, tried)]

    def _expected_until(self, job: JobRecord, tried: Tried, now: float) -> float:
        """Until when may a worker come back that can start the job? No connected worker that stays can."""
        until = self._all_back_by
        requirements = without_shuns(job.requirements) or _NOTHING
        for worker in members_of(self._roster.pools_for(job.subject)):
            if worker.leaving and _may_start(worker, requirements, tried):
                return max(until, now + RESTING_PATIENCE_S)
        owner = owner_of(job.subject)
        for worker in reversed(self._roster.gone.values()):
            back_by = worker.spent_at + RESTING_PATIENCE_S
            if back_by <= max(until, now):
                break  # Earlier entries left earlier.
            serves_it = any(matches(it, job.subject) for it in worker.patterns) if owner is None else worker.id == owner
            if serves_it and _may_start(worker, requirements, tried):
                return back_by
        return until


def _may_start(worker: WorkerRecord, requirements: Requirements, tried: Tried) -> bool:
    return (
        worker.id not in tried.lack
        and can_run(worker, requirements)
        and (requirements.slots == 1 or worker.slots >= requirements.slots)
        and (worker.blobs or not requirements.blobs)
    )


def _with(workers: tuple[WorkerId, ...], worker: WorkerId) -> tuple[WorkerId, ...]:
    """Sorted, so that the order of the tries makes no difference."""
    return workers if worker in workers else tuple(sorted((*workers, worker)))


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0].removeprefix("wakugumi: ")
