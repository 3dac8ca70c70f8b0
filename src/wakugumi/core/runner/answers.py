"""Which results does the leader get now, and which are read from the disk first? (SPEC W4, W7)

Which results answer a repeated assignment is decided by the rule at the top of `finished`; how many may be on their way
at once, by `resend`.
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
    """What the leader at this line is told of finished jobs."""

    __slots__ = ("_do", "_is_theirs", "_kept", "_line", "again", "telling")

    def __init__(
        self, line: LineToLeader, kept: FinishedJobs, is_theirs: Callable[[JobId], bool], do: list[SlotsDo]
    ) -> None:
        """A job that `is_theirs` is here, and the leader is answered when it is done."""
        self._line = line
        self._kept = kept
        self._is_theirs = is_theirs
        self._do = do
        self.again = Resending(kept)
        self.telling = False
        """The leader at this line gets results."""

    def begin(self) -> None:
        """From now on the leader gets results, first all that it is owed."""
        if not self.telling:
            self.telling = True
            self.again.begin()
            self.send_more()

    def end(self) -> None:
        """It is gone."""
        self.telling = False
        self.again.end()

    def answer(self, job: JobId, payload: bytes, request: bytes) -> None:
        """Tell the leader, or have it told when the line is written."""
        again = self.again
        if again.is_full:
            again.wait(job)
            return
        self._do.append(ev.SendAck(job, payload, request))
        if again.gave(len(payload)):
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
        """The leader waits for these, of an earlier life."""
        if self._line.kind is not LeaderKind.OWN:
            return
        for job in self.again.fetch(jobs):
            if not self._is_theirs(job):
                self._do.append(ev.SendFailure(job, "worker-error", "more was fetched than this worker offered"))
        self.send_more()

    def send_more(self) -> None:
        """Results that wait, as many as may be on their way; to an old leader, which confirms nothing, all of them."""
        while (job := self.again.next(self._is_theirs)) is not None:
            owed = self._kept.owed_here(job)
            if owed is None:
                self.again.look(job)
                self._do.append(ev.LoadResult(job))
            else:
                self._send_again(job, *owed)

    def loaded(self, found: ev.ResultLoaded) -> None:
        """The disk was asked for a result that is to be told again."""
        job, owed = found.job, self._kept.owes(found.job)
        if self._is_theirs(job):  # Assigned anew meanwhile: that is what its leader waits for now.
            self.again.drop(job)
        elif found.payload is None or (found.reason == CANCELLED and not owed):
            # The leader was told of a result and waits for it: it must hear that there is none. A cancelled one is
            # none either, for nobody fetches what he has cancelled: it is wanted after all.
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
        self.again.told(job, confirms=self._line.kind is LeaderKind.OWN)
        self.answer(job, payload, request)
