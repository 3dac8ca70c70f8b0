"""Which jobs do callers of this machine want, and how are they answered? (SPEC N1, N2)

A caller waits for the end of a job, no matter who started it. A job that only callers want is *ours*: the leader does
not learn of it, unless it assigns that job as well.
"""

from __future__ import annotations

from typing import Final

from wakugumi.core.ids import JobId
from wakugumi.core.runner import events as ev
from wakugumi.core.runner.events import SlotsDo
from wakugumi.core.runner.jobs_here import PendingRun

STOPPING: Final = "this machine takes no more jobs"


class Callers:
    """A separate object because Python reads attributes of an object with thirty of them more slowly: a tenth of a
    job's time in here."""

    __slots__ = ("_do", "asked", "ours", "waiting")

    def __init__(self, do: list[SlotsDo]) -> None:
        self._do = do
        self.asked: dict[JobId, PendingRun] = {}
        """Wanted jobs for which the disk is searched for an earlier result. They take no slot."""
        self.waiting: set[JobId] = set()
        """Jobs for which callers wait."""
        self.ours: set[JobId] = set()
        """Running jobs that only callers want: the leader does not learn of them."""

    def want(self, event: ev.CallerWants, *, here: bool, leaving: bool, slots: int) -> None:
        """`here`: the job runs or is about to run. `slots`: all slots of this machine."""
        job = event.job
        if here:  # The caller waits for the same end, even of a job that is being killed.
            self.waiting.add(job)
        elif leaving:
            self.refuse(job, "stopping", STOPPING)
        elif event.slots > slots:
            self.refuse(job, "bad-request", f"it needs {event.slots} slots, and there are {slots}")
        else:
            self.waiting.add(job)
            self.asked[job] = PendingRun(event.ticket, event.slots)
            self._do.append(ev.LoadResult(job))

    def answer(self, job: JobId, payload: bytes, request: bytes, *, kept: bool = False) -> None:
        """The job has a result."""
        if job in self.waiting:
            self.waiting.remove(job)
            self.asked.pop(job, None)
            self._do.append(ev.AnswerCaller(job, payload, request, kept))

    def refuse(self, job: JobId, code: str, text: str) -> None:
        self.waiting.discard(job)
        self._do.append(ev.RefuseCaller(job, code, text))

    def refuse_assigned(self, job: JobId, code: str, text: str) -> None:
        """An assigned job is not started. A caller in `asked` is answered after the search on the disk."""
        if job in self.waiting and job not in self.asked:
            self.refuse(job, code, text)
