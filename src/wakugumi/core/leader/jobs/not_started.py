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


class _Alike:
    """Jobs of one subject with the same requirements, tried by the same workers: they shun the same ones."""

    __slots__ = ("alone_since", "busy_since", "jobs", "wants")

    def __init__(self, wants: Requirements | None) -> None:
        self.jobs: dict[JobId, JobRecord] = {}
        """Jobs by id; some may be done by now."""
        self.wants = wants
        """Requirements with `shuns`, one object for all jobs."""
        self.alone_since = _NEVER
        """Since when no worker serves that has not tried the jobs."""
        self.busy_since = _NEVER
        """Since when the serving workers that have not tried the jobs are without credit."""


class NotStarted:
    """The jobs of one leader that some worker could not start."""

    def __init__(self, roster: Roster, lanes: Lanes, lifecycle: JobLifecycle) -> None:
        self._roster = roster
        self._lanes = lanes
        self._lifecycle = lifecycle
        self.alike: dict[Key, _Alike] = {}
        """Groups of jobs by key. Mostly empty: then a step skips `look`."""
        self._count = 0
        """Number of jobs in all groups, including done ones."""
        self._era = -1
        self.look_at = _NEVER
        """Time of the next `look`, if nothing changes before."""
        self._all_back_by = 0.0
        """After a restart: until then, disconnected workers may still come back."""

    def by(self, worker: WorkerRecord, job: JobRecord, event: ev.Acked, now: float) -> None:
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
            _, alike = self._join(job, tried)
            job.wants = alike.wants

    def look(self, now: float) -> None:
        """Decide anew which workers are shunned, if other workers serve than before or a time has come."""
        if self._roster.era == self._era and now < self.look_at:
            return
        self._era, self.look_at = self._roster.era, _NEVER
        if self._count > 2 * len(self._lifecycle.tried) + _DONE_KEPT:
            self._forget_done()
        for key, alike in self.alike.items():
            self._look_again(key, alike, now)

    def check(self) -> None:
        jobs, tried = self._lifecycle.jobs, self._lifecycle.tried
        assert self._count == sum(len(alike.jobs) for alike in self.alike.values())
        for job_id, by in tried.items():
            assert jobs[job_id].state is not DONE
            assert by != _NOBODY
            assert any(alike.jobs.get(job_id) is jobs[job_id] for key, alike in self.alike.items() if key[1] == by)
        for job_id, job in jobs.items():
            assert job.state is DONE or job.wants is None or not job.wants.shuns or job_id in tried
        for alike in self.alike.values():
            for job in alike.jobs.values():
                if job.state is not DONE and jobs.get(job.id) is job:
                    assert job.wants == alike.wants, "a job shuns other workers than its group"

    def _move(self, job: JobRecord, tried: Tried, now: float) -> None:
        """Put a running job into the group of `tried`. The patience with other workers begins anew."""
        self._leave(job)
        key, alike = self._join(job, tried)
        alike.alone_since = alike.busy_since = _NEVER
        self._look_again(key, alike, now)
        job.wants = alike.wants

    def _join(self, job: JobRecord, tried: Tried) -> tuple[Key, _Alike]:
        key = job.subject, tried, without_shuns(job.wants)
        alike = self.alike.get(key)
        if alike is None:
            alike = self.alike[key] = _Alike(key[2])
            self._era = -1
        self._count += job.id not in alike.jobs
        alike.jobs[job.id] = job
        self._lifecycle.tried[job.id] = tried
        return key, alike

    def _leave(self, job: JobRecord) -> None:
        tried = self._lifecycle.tried.pop(job.id, None)
        if tried is not None:
            key = job.subject, tried, without_shuns(job.wants)
            alike = self.alike[key]
            del alike.jobs[job.id]
            self._count -= 1
            if not alike.jobs:
                del self.alike[key]

    def _forget_done(self) -> None:
        jobs = self._lifecycle.jobs
        for key, alike in list(self.alike.items()):
            alike.jobs = {it: job for it, job in alike.jobs.items() if job.state is not DONE and jobs.get(it) is job}
            if not alike.jobs:
                del self.alike[key]
        self._count = sum(len(alike.jobs) for alike in self.alike.values())

    def _look_again(self, key: Key, alike: _Alike, now: float) -> None:
        shuns = self._shuns(key, alike, now)
        if shuns == (() if alike.wants is None else alike.wants.shuns):
            return
        wants = key[2]
        alike.wants = msgspec.structs.replace(wants or _NOTHING, shuns=shuns) if shuns else wants
        queued = []
        for job in alike.jobs.values():
            if job.state is QUEUED and self._lifecycle.jobs.get(job.id) is job:
                queued.append(job)
            elif job.state is not DONE:
                job.wants = alike.wants
        self._lanes.ask_anew(queued, alike.wants)

    def _shuns(self, key: Key, alike: _Alike, now: float) -> tuple[WorkerId, ...]:
        _, tried, wants = key
        job = next(iter(alike.jobs.values()))
        able = self._able(job, tried)
        if not able:
            alike.alone_since = alike.busy_since = _NEVER
            expected_until = self._expected_until(job, tried, now)
            if now < expected_until:
                self.look_at = min(self.look_at, expected_until)
                return tried.lack
            return ()
        others = [worker for worker in able if worker.id not in tried.sick]
        if any(worker.serves for worker in others):
            alike.alone_since = _NEVER
            if len(tried.again) == len(tried.sick):
                return (*tried.sick, *tried.lack)
            slots = (wants or _NOTHING).slots
            is_one_free = any(worker.usable_credit >= slots for worker in others)
            alike.busy_since = _NEVER if is_one_free else min(alike.busy_since, now)
            patient_until = min(alike.busy_since, now) + RESTING_PATIENCE_S
            if now < patient_until:
                self.look_at = min(self.look_at, patient_until)
                return (*tried.sick, *tried.lack)
            return (*tried.again, *tried.lack)
        alike.busy_since = _NEVER
        if not others:
            alike.alone_since = _NEVER
        else:
            alike.alone_since = min(alike.alone_since, now)
            patient_until = alike.alone_since + RESTING_PATIENCE_S
            if now < patient_until:
                self.look_at = min(self.look_at, patient_until)
                return (*tried.sick, *tried.lack)
        return tried.lack

    def _able(self, job: JobRecord, tried: Tried) -> list[WorkerRecord]:
        """Connected workers that may start the job, however busy or sick."""
        wants = without_shuns(job.wants) or _NOTHING
        members = members_of(self._roster.pools_for(job.subject))
        return [worker for worker in members if not worker.leaving and _may_start(worker, wants, tried)]

    def _expected_until(self, job: JobRecord, tried: Tried, now: float) -> float:
        """Until when may a worker come back that can start the job? No connected worker that stays can."""
        until = self._all_back_by
        wants = without_shuns(job.wants) or _NOTHING
        for worker in members_of(self._roster.pools_for(job.subject)):
            if worker.leaving and _may_start(worker, wants, tried):
                return max(until, now + RESTING_PATIENCE_S)
        owner = owner_of(job.subject)
        for worker in reversed(self._roster.gone.values()):
            back_by = worker.spent_at + RESTING_PATIENCE_S
            if back_by <= max(until, now):
                break  # Earlier entries left earlier.
            serves_it = any(matches(it, job.subject) for it in worker.patterns) if owner is None else worker.id == owner
            if serves_it and _may_start(worker, wants, tried):
                return back_by
        return until


def _may_start(worker: WorkerRecord, wants: Requirements, tried: Tried) -> bool:
    return (
        worker.id not in tried.lack
        and can_run(worker, wants)
        and (wants.slots == 1 or worker.slots >= wants.slots)
        and (worker.blobs or not wants.blobs)
    )


def _with(workers: tuple[WorkerId, ...], worker: WorkerId) -> tuple[WorkerId, ...]:
    """Sorted, so that the order of the tries makes no difference."""
    return workers if worker in workers else tuple(sorted((*workers, worker)))


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0].removeprefix("wakugumi: ")
