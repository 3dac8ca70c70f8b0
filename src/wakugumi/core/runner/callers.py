"""What do callers of this machine want, and what are they told? (SPEC N1, N2)

A caller waits for the end of a job, whoever had it started. A job that callers alone want is *ours*: the leader does
not hear of it, until it assigns that job as well.
"""

from __future__ import annotations

from typing import Final

from wakugumi.core.ids import JobId
from wakugumi.core.runner import events as ev
from wakugumi.core.runner.events import SlotsDo
from wakugumi.core.runner.jobs_here import Wish

STOPPING: Final = "this machine takes no more jobs"


class Callers:
    """An object of its own also because Python reads the attributes of one that has thirty of them more slowly: a tenth
    of a job's time in here."""

    __slots__ = ("_do", "asked", "ours", "waiting")

    def __init__(self, do: list[SlotsDo]) -> None:
        self._do = do
        self.asked: dict[JobId, Wish] = {}
        """Wanted, and the disk is asked whether they have finished before. That takes no slot."""
        self.waiting: set[JobId] = set()
        """Callers wait for these."""
        self.ours: set[JobId] = set()
        """Those of the running that callers alone want: the leader does not hear of them."""

    def want(self, event: ev.CallerWants, *, here: bool, leaving: bool, slots: int) -> None:
        """`here`: the job runs or is about to. This machine has so many `slots`."""
        job = event.job
        if here:  # The caller waits for the same end, also for that of a job which is being killed.
            self.waiting.add(job)
        elif leaving:
            self.refuse(job, "stopping", STOPPING)
        elif event.slots > slots:
            self.refuse(job, "bad-request", f"it needs {event.slots} slots, and there are {slots}")
        else:
            self.waiting.add(job)
            self.asked[job] = Wish(event.payload, event.slots)
            self._do.append(ev.LoadResult(job))

    def tell(self, job: JobId, payload: bytes, request: bytes, *, kept: bool = False) -> None:
        """Its result is here."""
        if job in self.waiting:
            self.waiting.remove(job)
            self.asked.pop(job, None)
            self._do.append(ev.AnswerCaller(job, payload, request, kept))

    def refuse(self, job: JobId, code: str, text: str) -> None:
        self.waiting.discard(job)
        self._do.append(ev.RefuseCaller(job, code, text))

    def refuse_assigned(self, job: JobId, code: str, text: str) -> None:
        """A job that the leader had assigned is not started. A caller that the disk is asked for hears from there."""
        if job in self.waiting and job not in self.asked:
            self.refuse(job, code, text)
