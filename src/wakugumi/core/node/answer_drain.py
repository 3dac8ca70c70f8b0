"""Which answers does a node that stops wait for, and for how long? For all that are begun, up to DRAIN_DEADLINE_S.

begin … end       callers that wait for a job, or for the end of its answer
stop ──► is_over  all have ended, the time is over, or the operator is in a hurry
"""

from __future__ import annotations

from wakugumi.limits.wire import DRAIN_DEADLINE_S


class AnswerDrain:
    """Answers of one node."""

    def __init__(self) -> None:
        self.answering = 0
        """Callers that wait for a job, or for the end of its answer."""
        self.due_at: float | None = None
        """End of the time for answers; None until the node stops."""
        self._in_a_hurry = False

    def begin(self) -> None:
        self.answering += 1

    def end(self) -> None:
        assert self.answering
        self.answering -= 1

    def stop(self, now: float) -> None:
        if self.due_at is None:
            self.due_at = now + DRAIN_DEADLINE_S

    def hurry(self) -> None:
        """No further answer is waited for."""
        self._in_a_hurry = True

    def is_over(self, now: float) -> bool:
        return self.due_at is not None and (not self.answering or self._in_a_hurry or self.due_at <= now)
