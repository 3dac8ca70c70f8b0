"""How many further jobs may a client start now, and in which order do those wait that may not?"""

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
    """There is some while the `gate` is open, and the unfinished jobs are neither too many nor too large."""

    def __init__(self, book: JobBook, uploads: Uploads, jobs_max: int) -> None:
        self.jobs_max = jobs_max
        self.gate = False
        """A leader takes jobs."""
        self._book = book
        self._unfinished = book.unfinished
        self._uploads = uploads
        self._waiting: deque[Callable[[], int]] = deque()
        """The calls of those that wait: each tells how many jobs will be started because of it, later."""

    @property
    def free(self) -> int:
        """How many jobs may be started now."""
        if not self.gate or self._book.request_bytes + self._uploads.held_bytes >= UNFINISHED_BYTES_MAX:
            return 0
        return self.jobs_max - len(self._unfinished)

    @property
    def must_wait(self) -> bool:
        """There is no room, or others were here before."""
        return bool(self._waiting) or self.free <= 0

    async def admission(self) -> None:
        """Wait for room, in line with the others that do."""
        put = self._waiting.append
        while True:
            if self._book.ended is not None:
                raise self._book.ended
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            put(lambda turn=turn: _give(turn))  # type: ignore[misc]
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # It was our turn: the next one may have it.
                    self.tell()
                raise
            if self.free > 0:
                return
            put = self._waiting.appendleft  # Another one was quicker: the first in line stays first.

    def on_room(self, call: Callable[[], int]) -> None:
        self._waiting.append(call)

    def tell(self) -> None:
        """There may be room, or nothing will be started any more: call those that wait, as far as it reaches."""
        promised = 0
        while self._waiting and (self._book.ended is not None or self.free > promised):
            promised += self._waiting.popleft()()


def _give(turn: asyncio.Future[None]) -> int:
    if turn.done():
        return 0
    turn.set_result(None)
    return 1
