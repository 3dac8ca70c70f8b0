"""How many further jobs may a client start now, and in which order do the others wait?"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from wakugumi.limits.units import MIB
from wakugumi.roles.client.files.uploads import Uploads
from wakugumi.roles.client.session.book import JobBook

UNFINISHED_BYTES_MAX: Final = 256 * MIB
"""Requests of unfinished jobs are kept to be sent again; beyond this `submit` waits."""


class Room:
    """There is room while the `gate` is open, and the unfinished jobs are neither too many nor too large."""

    def __init__(self, book: JobBook, uploads: Uploads, jobs_max: int) -> None:
        self.jobs_max = jobs_max
        self.gate = False
        """A leader takes jobs."""
        self._book = book
        self._unfinished = book.unfinished
        self._uploads = uploads
        self._waiting: deque[Callable[[], int]] = deque()
        """Waiting calls: each returns how many jobs it will start later."""

    @property
    def free(self) -> int:
        """Number of jobs that may be started now."""
        if not self.gate or self._book.request_bytes + self._uploads.held_bytes >= UNFINISHED_BYTES_MAX:
            return 0
        return self.jobs_max - len(self._unfinished)

    @property
    def must_wait(self) -> bool:
        """There is no room, or others wait already."""
        return bool(self._waiting) or self.free <= 0

    async def admission(self) -> None:
        """Wait for room, in line with others."""
        put = self._waiting.append
        while True:
            if self._book.ended is not None:
                raise self._book.ended
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            put(lambda turn=turn: _give(turn))  # type: ignore[misc]
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # It was our turn: pass it on to the next.
                    self.wake()
                raise
            if self.free > 0:
                return
            put = self._waiting.appendleft  # Another job was quicker: the first in line stays first.

    def on_room(self, call: Callable[[], int]) -> None:
        self._waiting.append(call)

    def wake(self) -> None:
        """There may be room, or the session has ended: call waiting calls, as far as the room reaches."""
        promised = 0
        while self._waiting and (self._book.ended is not None or self.free > promised):
            promised += self._waiting.popleft()()


def _give(turn: asyncio.Future[None]) -> int:
    if turn.done():
        return 0
    turn.set_result(None)
    return 1
