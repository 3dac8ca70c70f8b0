"""Do subjects take turns? (SPEC L1)

Watches every round of assignments of one leader. A subject waits while a client that may run more has a job there that
asks for nothing. Until it is served, each other subject may be served at most once by workers that hear it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wakugumi.core.ids import JobId
    from wakugumi.core.leader.records import JobRecord, Lane, Turn, WorkerRecord
    from wakugumi.core.leader.scheduling.lanes import Lanes
    from wakugumi.core.subject import Subject


class Turns:
    """The judge of one leader's queues: from now on `assign` is watched."""

    def __init__(self, lanes: Lanes, broken: Callable[[JobId, str], None]) -> None:
        self._lanes = lanes
        self._broken = broken
        self._assign = lanes.assign
        self._passed: dict[Subject, Counter[Subject]] = {}
        """Of each subject that waits: how often others were served that could have let it go first."""
        vars(lanes)["assign"] = self.assign

    def assign(self) -> list[JobRecord]:
        before = self._waiting()
        jobs = self._assign()
        after = self._waiting()
        # A client's room only shrinks in a round, so who waits before and after it could have been served all the time.
        waits = [self._lanes.lane(subject) for subject, turns in after.items() if turns & before.get(subject, set())]
        self._passed = {subject: self._passed.get(subject, Counter()) for subject in after}
        for job in jobs:
            self._passed.pop(job.subject, None)
            if job.worker is not None and (job.requirements is None or job.requirements.slots == 1):
                for lane in waits:
                    if lane is not None and lane.subject != job.subject and _hears(job.worker, lane):
                        self._pass(lane.subject, job)
        return jobs

    def _pass(self, subject: Subject, job: JobRecord) -> None:
        passed = self._passed.setdefault(subject, Counter())
        passed[job.subject] += 1
        if passed[job.subject] > 1:
            assert job.worker is not None
            self._broken(job.id, f"{job.subject} has two turns at {job.worker.label}, for which {subject} waits")

    def _waiting(self) -> dict[Subject, set[Turn]]:
        return {
            lane.subject: turns
            for lane in self._lanes.busy_lanes()
            if (turns := {turn for turn in lane.ring if turn.needs is None and turn.client.may_run})
        }


def _hears(worker: WorkerRecord, lane: Lane) -> bool:
    return any(worker.number in pool.members for pool in lane.pools)
