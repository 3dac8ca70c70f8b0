"""Which results are sent to the leader now, and which are read from the disk first? (SPEC W4, W7)

The rule at the top of `finished` decides which results answer a repeated assignment; `resend`, how many may be in
flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wakugumi.core.ids import JobId
from wakugumi.core.runner import events as ev
from wakugumi.core.runner.events import SlotsDo
from wakugumi.core.runner.finished import CANCELLED, FinishedJobs
from wakugumi.core.runner.leader_line import LeaderKind, LineToLeader
from wakugumi.core.runner.resend import Resending


class Answers:
    """Results for the connected leader."""

    __slots__ = ("_do", "_is_theirs", "_kept", "_line", "again", "sends_results")

    def __init__(
        self, line: LineToLeader, kept: FinishedJobs, is_theirs: Callable[[JobId], bool], do: list[SlotsDo]
    ) -> None:
        """`is_theirs`: the job is here, and the leader gets its answer when it ends."""
        self._line = line
        self._kept = kept
        self._is_theirs = is_theirs
        self._do = do
        self.again = Resending(kept)
        self.sends_results = False
        """The connected leader gets results."""

    def begin(self) -> None:
        """Send results from now on, first all that are owed."""
        if not self.sends_results:
            self.sends_results = True
            self.again.begin()
            self.send_more()

    def end(self) -> None:
        """The leader is gone."""
        self.sends_results = False
        self.again.end()

    def answer(self, job: JobId, payload: bytes, request: bytes) -> None:
        """Send the result now, or once the connection has written earlier ones."""
        again = self.again
        if again.is_full:
            again.wait(job)
            return
        self._do.append(ev.SendAck(job, payload, request))
        if again.count_unwritten(len(payload)):
            self._do.append(ev.TellWhenResultsWritten())
        if self._line.kind is LeaderKind.OLD:
            self._kept.deliver(job)

    def written(self) -> None:
        self.again.written()
        self.send_more()

    def confirm(self, jobs: Sequence[JobId]) -> None:
        for job in jobs:
            if self._kept.confirm(job):
                self._do.append(ev.ForgetResult(job))
        if self.again.settle(jobs):
            self.send_more()

    def fetch(self, jobs: Sequence[JobId]) -> None:
        """The leader waits for these results of an earlier life."""
        if self._line.kind is not LeaderKind.OWN:
            return
        for job in self.again.fetch(jobs):
            if not self._is_theirs(job):
                self._do.append(ev.SendFailure(job, "worker-error", "more was fetched than this worker offered"))
        self.send_more()

    def send_more(self) -> None:
        """Send waiting results, as many as may be in flight; an old leader confirms nothing and gets all of them."""
        while (job := self.again.next(self._is_theirs)) is not None:
            owed = self._kept.owed_here(job)
            if owed is None:
                self.again.search(job)
                self._do.append(ev.LoadResult(job))
            else:
                self._send_again(job, *owed)

    def loaded(self, found: ev.ResultLoaded) -> None:
        """The disk has answered for a result that is sent again."""
        job, owed = found.job, self._kept.owes(found.job)
        if self._is_theirs(job):  # Assigned again meanwhile: the leader waits for the new run.
            self.again.drop(job)
        elif found.payload is None or (found.reason == CANCELLED and not owed):
            # The leader waits for this result and must learn that there is none. A cancelled result counts as none: the
            # leader fetches the job, so it is wanted again.
            self.again.drop(job)
            self._kept.forget(job)
            self._do.append(ev.SendFailure(job, "worker-error", "its result is no longer on the worker's disk"))
        else:
            if not owed:
                self._kept.fetched(job, ok=found.ok)
            self._send_again(job, found.payload, found.request)
        self.send_more()

    def _send_again(self, job: JobId, payload: bytes, request: bytes) -> None:
        if self.again.is_full:
            self.again.wait(job)
            return
        self.again.sent(job, confirms=self._line.kind is LeaderKind.OWN)
        self.answer(job, payload, request)
