"""How are the acts of a machine's flows performed? Each in a task, whose end is an event (`core/flows.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.flows import Abandon, Act, ActFailed, Answered, FlowDo, FlowEvent
from wakugumi.errors import Lost


class ActPerformer:
    """Performs acts. Make it inside a running loop, and close it."""

    def __init__(self, perform: Callable[[Act[Any]], Awaitable[Any]], post: Callable[[FlowEvent], None]) -> None:
        self._perform = perform
        self._post = post
        self._tasks = Tasks()
        self._by_number: dict[int, asyncio.Task[None]] = {}
        self._is_closing = False

    def do(self, effect: FlowDo) -> None:
        if isinstance(effect, Abandon):
            if (task := self._by_number.pop(effect.number, None)) is not None:
                task.cancel()
            return
        work = self._answer(effect.number, effect.act)
        self._by_number[effect.number] = self._tasks.start(work, name=type(effect.act).__name__)

    async def close(self) -> None:
        """Stops all acts."""
        self._is_closing = True
        await self._tasks.close()

    async def _answer(self, number: int, act: Act[Any]) -> None:
        """An act fails with any exception: the flow decides which of them it foresees."""
        try:
            event: FlowEvent = Answered(number, await self._perform(act))
        except Exception as error:
            event = ActFailed(number, error)
        except asyncio.CancelledError:
            if number not in self._by_number or self._is_closing:
                raise
            event = ActFailed(number, Lost("the act was cancelled"))  # By somebody else, and the flow waits.
        if self._by_number.pop(number, None) is not None:
            self._post(event)
