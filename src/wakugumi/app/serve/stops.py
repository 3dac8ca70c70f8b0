"""How often was a server asked to stop? The first signal ends it in order, the second at once."""

from __future__ import annotations

import asyncio
from typing import Any

from wakugumi.adapters.loop.signals import on_stop_signals


class Stops:
    """What the signals ask for: the first time to end in order, the second time at once."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Event()
        on_stop_signals(asyncio.get_running_loop(), self._ask)

    async def wait(self, count: int, *others: asyncio.Future[Any]) -> None:
        """Returns when we were asked so often, or one of the others is done. Raises what that one raised."""
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
