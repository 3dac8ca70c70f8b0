"""The owner of a link: writes down what the link tells, and wakes a test that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wakugumi.adapters.net.link import Link
from wakugumi.errors import PeerError
from wakugumi.wire.frame import Frame

DEADLINE_S = 20.0


class Owner:
    """Writes down what its link tells it, and wakes those who wait for that."""

    def __init__(self) -> None:
        self.link: Link
        self.frames: list[Frame] = []
        self.blocked: list[bool] = []
        self.alive = 0
        self.opened = 0
        self.lost = 0
        self.refuse: int | None = None
        """A type that this owner calls a breach of the protocol."""
        self.fail_at: int | None = None
        """After so many frames this owner fails."""
        self._news = asyncio.Event()

    def on_open(self, link: Link) -> None:
        self.link = link
        self.opened += 1
        self._news.set()

    def on_frame(self, _link: Link, frame: Frame) -> None:
        if frame.type == self.refuse:
            raise PeerError("that was one too many")
        if len(self.frames) == self.fail_at:
            raise KeyError("nobody foresaw this")
        self.frames.append(frame)
        self._news.set()

    def on_alive(self, _link: Link) -> None:
        self.alive += 1
        self._news.set()

    def on_blocked(self, _link: Link, blocked: bool) -> None:
        self.blocked.append(blocked)
        self._news.set()

    def on_lost(self, _link: Link) -> None:
        self.lost += 1
        self._news.set()

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not holds():
                self._news.clear()
                await self._news.wait()

    @property
    def types(self) -> list[int]:
        return [frame.type for frame in self.frames]
