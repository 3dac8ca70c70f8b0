"""Which question is answered next, and when? (SPEC O6)

While jobs wait, all questions together take at most a share of the leader's time (`QUESTIONS_SHARE`), and a moment at
once (`QUESTIONS_BURST_S`), so that a person never waits for an answer. Beyond that they wait in line: one line for each
connection, and the connections take turns. While no job waits, each question is answered at once. The cost of a
question is known only afterwards: a costly question is never cut off, and makes the next ones wait longer.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from wakugumi.core.ids import ConnId
from wakugumi.limits.leader import (
    QUESTIONS_BURST_S,
    QUESTIONS_BYTES_MAX,
    QUESTIONS_BYTES_PER_CONNECTION_MAX,
    QUESTIONS_PER_CONNECTION_MAX,
    QUESTIONS_SHARE,
)

Q = TypeVar("Q")


class _Line(Generic[Q]):
    __slots__ = ("questions", "size")

    def __init__(self) -> None:
        self.questions: deque[tuple[Q, int]] = deque()
        self.size = 0


class QuestionShare(Generic[Q]):
    """Unanswered questions of one leader."""

    def __init__(self, share: float = QUESTIONS_SHARE, burst_s: float = QUESTIONS_BURST_S) -> None:
        self._share = share
        self._burst_s = burst_s
        self._left_s = burst_s
        """Time that questions may take now; below 0 they wait."""
        self._at = 0.0
        self._lines: dict[ConnId, _Line[Q]] = {}
        """The connection whose turn is next comes first."""
        self._size = 0

    def __len__(self) -> int:
        return sum(len(line.questions) for line in self._lines.values())

    def ask(self, conn: ConnId, question: Q, size: int) -> bool:
        """The question waits for its turn. False: too many wait, of this connection or in all."""
        line = self._lines.get(conn)
        if line is None:
            if self._size + size > QUESTIONS_BYTES_MAX:
                return False
            line = self._lines[conn] = _Line()
        elif (
            len(line.questions) >= QUESTIONS_PER_CONNECTION_MAX
            or line.size + size > QUESTIONS_BYTES_PER_CONNECTION_MAX
            or self._size + size > QUESTIONS_BYTES_MAX
        ):
            return False
        line.questions.append((question, size))
        line.size += size
        self._size += size
        return True

    def next(self, now: float, *, jobs_wait: bool) -> Q | None:
        """The question to answer now, if it is time."""
        self._left_s = min(self._burst_s, self._left_s + max(0.0, now - self._at) * self._share)
        self._at = now
        if not self._lines or (jobs_wait and self._left_s < 0):
            return None
        conn, line = next(iter(self._lines.items()))
        question, size = line.questions.popleft()
        line.size -= size
        self._size -= size
        del self._lines[conn]
        if line.questions:
            self._lines[conn] = line  # Behind all others.
        return question

    def spent(self, cost_s: float) -> None:
        """An answer took so long while jobs waited."""
        self._left_s -= cost_s

    def due_at(self) -> float | None:
        """When the next question is answered if jobs wait until then; None if no question waits."""
        return self._at + max(0.0, -self._left_s) / self._share if self._lines else None

    def went(self, conn: ConnId) -> None:
        """The connection ended: its questions are dropped."""
        line = self._lines.pop(conn, None)
        if line is not None:
            self._size -= line.size
