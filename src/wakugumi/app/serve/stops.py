"""How often was a server asked to stop? The first signal ends it in order, the second at once."""

from __future__ import annotations

import asyncio
from typing import Any

from wakugumi.adapters.loop.signals import on_stop_signals


class Stops:
    """The signals to stop, counted."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Event()
        on_stop_signals(asyncio.get_running_loop(), self._ask)

    async def wait(self, count: int, *others: asyncio.Future[Any]) -> None:
        """Returns after `count` signals, or when one of the others is done. Raises the exception of that one."""
        for other in others:
            other.add_done_callback(lambda _other: self._news.set())
        while self.count < count and not any(other.done() for other in others):
            self._news.clear()
            await self._news.wait()
        for other in others:
            if other.done():
                other.result()

    def _ask(self) -> None:
        self.count += 1
        self._news.set()
