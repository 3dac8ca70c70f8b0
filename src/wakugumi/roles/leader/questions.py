"""How do questions reach a leader's machines without delaying jobs? `QuestionShare` gives them turns. (SPEC O6)"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from wakugumi.adapters.loop.drive import Drive
from wakugumi.core.connections.question_share import QuestionShare
from wakugumi.core.leader.events import QuestionAsked
from wakugumi.errors import Refused

_CHECK_S: Final = 0.2
"""Seconds between two looks at whether jobs still wait, while questions wait."""


class Questions:
    """The questions of all connections of one leader."""

    def __init__(self, jobs_wait: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs_wait = jobs_wait
        self.share: QuestionShare[tuple[Drive[Any, Any, Any], QuestionAsked]] = QuestionShare()
        self.disconnect = self.share.went
        self._timer: asyncio.Handle | None = None

    def ask(self, drive: Drive[Any, Any, Any], event: QuestionAsked, size: int) -> None:
        """The machine of `drive` answers the question, now or in its turn. Raises Refused."""
        if not self.share.ask(event.conn, (drive, event), size):
            raise Refused("full", "too many questions wait for an answer", hint="ask again when one is answered")
        if self._timer is None:
            self._answer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _answer(self) -> None:
        """Answer one question; other callbacks of the loop run before the next one."""
        self._timer = None
        jobs_wait, now = self._jobs_wait(), self._loop.time()
        found = self.share.next(now, jobs_wait=jobs_wait)
        if found is not None:
            drive, event = found
            if jobs_wait:
                drive.flush()  # The time of earlier events must not count as this question's.
                began = time.thread_time()
                drive.post(event)
                drive.flush()
                self.share.spent(time.thread_time() - began)
            else:
                drive.post(event)
        due_at = self.share.due_at()
        if due_at is None:
            return
        if found is not None and due_at <= now:
            self._timer = self._loop.call_soon(self._answer)
        else:
            self._timer = self._loop.call_at(min(due_at, now + _CHECK_S), self._answer)
