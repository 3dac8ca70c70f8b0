"""Which jobs could a worker not even start, and who gets them then? (SPEC W9, F11)

    its machine is sick    to another worker, without using up an attempt, once per worker; from then on it uses one
    unknown program        to another worker; if no connected one is left that may have it, that is the job's answer

Such a job *shuns* workers. One that lacks its program is shunned while another is connected that may have it, however
busy or out of order. One whose machine was sick is shunned while another can be waited for, however busy; but one that
rests or is drained is waited for a while only: then the job goes to any of them.
A program that began and then broke its machine is none of this: it uses an attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from wakugumi.core import events as ev
from wakugumi.core.job import DONE, QUEUED, JobId, Tried, WorkerId
from wakugumi.core.roster import Roster, Worker, can_run, members_of
from wakugumi.core.subject import Subject
from wakugumi.core.wants import Wants
from wakugumi.limits import RESTING_PATIENCE_S

if TYPE_CHECKING:
    from wakugumi.core.course import Course
    from wakugumi.core.queues import Job, Lanes

UNKNOWN_PROGRAM: Final = "unknown-program"
_SICK: Final = frozenset({"disk", "worker-error"})
_NOTHING: Final = Wants()
_NOBODY: Final = Tried()
_NEVER: Final = float("inf")
_DONE_KEPT: Final = 64
"""Jobs that are done and may still be remembered, however few there are: fewer are not worth a look."""

Key: TypeAlias = tuple[Subject, Tried, Wants | None]
"""A subject, who could not start a job of it, and what it asks for besides."""


def never_began(event: ev.Acked) -> bool:
    """Its worker could not start it. One that does not know a program has not begun it, also an old one."""
    return event.reason == UNKNOWN_PROGRAM or (not event.begun and event.reason in _SICK)


def was_tried(tried: Tried | None, worker: Worker) -> bool:
    return tried is not None and (worker.id in tried.sick or worker.id in tried.lack)


def tried_too(tried: Tried | None, worker: WorkerId, *, lacks: bool) -> Tried:
    """The same, and this worker."""
    sick, lack = (tried or _NOBODY).sick, (tried or _NOBODY).lack
    if lacks:
        return Tried(sick, lack if worker in lack else (*lack, worker))
    return Tried(sick if worker in sick else (*sick, worker), lack)


def without_shuns(wants: Wants | None) -> Wants | None:
    """What its client asked for; None for nothing."""
    if wants is not None and wants.shuns:
        wants = msgspec.structs.replace(wants, shuns=())
    return None if wants == _NOTHING else wants


class _Alike:
    """Jobs of one subject that ask for the same and were tried by the same workers: they shun the same."""

    __slots__ = ("alone_since", "jobs", "wants")

    def __init__(self, wants: Wants | None) -> None:
        self.jobs: dict[JobId, Job] = {}
        """Some of them may be done by now."""
        self.wants = wants
        """What they ask for, with those that they shun: one object for all."""
        self.alone_since = _NEVER
        """Since when nobody serves who has not tried them."""


class NotStarted:
    """The jobs of one leader that some worker could not start."""

    def __init__(self, roster: Roster, lanes: Lanes, course: Course) -> None:
        self._roster = roster
        self._lanes = lanes
        self._course = course
        self._alike: dict[Key, _Alike] = {}
        self._count = 0
        """All jobs of these, also those that are done."""
        self._era = -1
        self._look_at = _NEVER

    def __bool__(self) -> bool:
        return bool(self._alike)

    def wake_at(self) -> float | None:
        return self._look_at if self._look_at < _NEVER else None

    def by(self, worker: Worker, job: Job, event: ev.Acked, now: float) -> None:
        """Its worker could not start it, and says why."""
        course = self._course
        before = course.tried.get(job.id)
        lacks = event.reason == UNKNOWN_PROGRAM
        tried = tried_too(before, worker.id, lacks=lacks)
        worker.fault = _first_line(event.output) or event.reason
        if lacks and not self._able(job, tried):
            course.finish(job, False, event.payload, now, by=worker, why=event.reason, blobs=event.blobs)
            return
        self._leave(job)
        key, alike = self._join(job, tried)
        alike.alone_since = _NEVER
        self._look_again(key, alike, now)
        job.wants = alike.wants
        if lacks or tried != before:
            course.give_back(job, now, by=worker if tried != before else None, lacks=lacks)
        else:
            course.attempt_lost(job, event.reason, now, at_once=False, output=event.output)

    def recovered(self) -> None:
        """What the last leader knew of this."""
        for job_id, tried in self._course.tried.items():
            job = self._course.jobs[job_id]
            _, alike = self._join(job, tried)
            job.wants = alike.wants

    def look(self, now: float) -> None:
        """Other workers serve than before, or the time has come: other ones may be shunned."""
        if self._roster.era == self._era and now < self._look_at:
            return
        self._era, self._look_at = self._roster.era, _NEVER
        if self._count > 2 * len(self._course.tried) + _DONE_KEPT:
            self._forget_done()
        for key, alike in self._alike.items():
            self._look_again(key, alike, now)

    def check(self) -> None:
        jobs, tried = self._course.jobs, self._course.tried
        assert self._count == sum(len(alike.jobs) for alike in self._alike.values())
        for job_id, by in tried.items():
            assert jobs[job_id].state is not DONE
            assert by != _NOBODY
            assert any(alike.jobs.get(job_id) is jobs[job_id] for key, alike in self._alike.items() if key[1] == by)
        for job_id, job in jobs.items():
            assert job.state is DONE or job.wants is None or not job.wants.shuns or job_id in tried
        for alike in self._alike.values():
            for job in alike.jobs.values():
                if job.state is not DONE and jobs.get(job.id) is job:
                    assert job.wants == alike.wants, "those that are alike shun the same"

    def _join(self, job: Job, tried: Tried) -> tuple[Key, _Alike]:
        key = job.subject, tried, without_shuns(job.wants)
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = _Alike(key[2])
            self._era = -1
        self._count += job.id not in alike.jobs
        alike.jobs[job.id] = job
        self._course.tried[job.id] = tried
        return key, alike

    def _leave(self, job: Job) -> None:
        tried = self._course.tried.pop(job.id, None)
        if tried is not None:
            key = job.subject, tried, without_shuns(job.wants)
            alike = self._alike[key]
            del alike.jobs[job.id]
            self._count -= 1
            if not alike.jobs:
                del self._alike[key]

    def _forget_done(self) -> None:
        jobs = self._course.jobs
        for key, alike in list(self._alike.items()):
            alike.jobs = {it: job for it, job in alike.jobs.items() if job.state is not DONE and jobs.get(it) is job}
            if not alike.jobs:
                del self._alike[key]
        self._count = sum(len(alike.jobs) for alike in self._alike.values())

    def _look_again(self, key: Key, alike: _Alike, now: float) -> None:
        shuns = self._shuns(key, alike, now)
        if shuns == (() if alike.wants is None else alike.wants.shuns):
            return
        wants = key[2]
        alike.wants = msgspec.structs.replace(wants or _NOTHING, shuns=shuns) if shuns else wants
        # The last one first: each goes to the head of its queue, and so they stand there as they stood before.
        for job in reversed(alike.jobs.values()):
            if job.state is QUEUED and self._course.jobs.get(job.id) is job:
                self._lanes.taken(job)
                job.wants = alike.wants
                self._lanes.push(job, first=True)
            elif job.state is not DONE:
                job.wants = alike.wants

    def _shuns(self, key: Key, alike: _Alike, now: float) -> tuple[WorkerId, ...]:
        _, tried, _ = key
        able = self._able(next(iter(alike.jobs.values())), tried)
        others = [worker for worker in able if worker.id not in tried.sick]
        if any(worker.serves for worker in others):
            alike.alone_since = _NEVER
            return (*tried.sick, *tried.lack)
        if not others:
            alike.alone_since = _NEVER
        else:
            alike.alone_since = min(alike.alone_since, now)
            patient_until = alike.alone_since + RESTING_PATIENCE_S
            if now < patient_until:
                self._look_at = min(self._look_at, patient_until)
                return (*tried.sick, *tried.lack)
        return tried.lack if able else ()

    def _able(self, job: Job, tried: Tried) -> list[Worker]:
        """Who is connected and may have its program, however busy or sick."""
        wants = without_shuns(job.wants) or _NOTHING
        return [
            worker
            for worker in members_of(self._roster.pools_for(job.subject))
            if worker.id not in tried.lack
            and not worker.leaving
            and can_run(worker, wants)
            and (wants.slots == 1 or worker.slots >= wants.slots)
            and (worker.blobs or not wants.blobs)
        ]


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0].removeprefix("wakugumi: ")
