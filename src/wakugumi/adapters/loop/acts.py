"""How are the acts of a machine's flows performed? At once, or in a task if they wait; the answer is an event
(`core/flows.py`).

`perform` returns an answer, or an awaitable of it, which becomes a task. Most calls of an asynchronous interface (rows
in a local file, bytes in memory) need no wait: `first_step` finds out, and saves them the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import CoroutineType
from typing import Any, Final, TypeVar

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.flows import Abandon, Act, ActFailed, Answered, FlowDo, FlowEvent
from wakugumi.errors import Lost

T = TypeVar("T")


class ActPerformer:
    """Performs acts. Make it inside a running loop, and close it. `post` must not call back: `Drive.post` does not."""

    def __init__(self, perform: Callable[[Act[Any]], Any], post: Callable[[FlowEvent], None]) -> None:
        self._perform = perform
        self._post = post
        self._tasks = Tasks()
        self._by_number: dict[int, asyncio.Task[None]] = {}
        self._is_closing = False

    def do(self, effect: FlowDo) -> None:
        number = effect.number
        if isinstance(effect, Abandon):
            if (task := self._by_number.pop(number, None)) is not None:
                task.cancel()
            return
        try:
            answer = self._perform(effect.act)
        except Exception as error:
            self._post(ActFailed(number, error))
            return
        if isinstance(answer, _AWAITED):
            work: Coroutine[Any, Any, None] = self._answer(number, answer)
            if isinstance(answer, _Rest):  # It has begun: to cancel it must reach it, also before the task has begun.
                work = _Rest(work, work.send(None))
            task = self._by_number[number] = self._tasks.start(work, name=type(effect.act).__name__)
            if isinstance(answer, CoroutineType):  # A task that is cancelled before it begins awaits nothing.
                task.add_done_callback(lambda _: answer.close())
        else:
            self._post(Answered(number, answer))

    async def close(self) -> None:
        """Stops all acts."""
        self._is_closing = True
        await self._tasks.close()

    async def _answer(self, number: int, answer: Awaitable[Any]) -> None:
        """An act fails with any exception: the flow decides which of them it foresees."""
        try:
            event: FlowEvent = Answered(number, await answer)
        except Exception as error:
            event = ActFailed(number, error)
        except asyncio.CancelledError:
            if number not in self._by_number or self._is_closing:
                raise
            event = ActFailed(number, Lost("the act was cancelled"))  # By somebody else, and the flow waits.
        if self._by_number.pop(number, None) is not None:
            self._post(event)


def first_step(work: Coroutine[Any, Any, T]) -> T | Awaitable[T]:
    """The value of `work`, if it does not wait; otherwise an awaitable of the rest. The first step is no task's: before
    it waits, `work` must not ask for the current task, as `asyncio.timeout` does. Raises what `work` raises."""
    try:
        asked = work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    return _Rest(work, asked)


class _Rest(Coroutine[Any, Any, T]):
    """Work whose first step was taken: its task first waits for what that step asked for."""

    def __init__(self, work: Coroutine[Any, Any, T], asked: Any) -> None:
        self._work = work
        self._asked = asked
        self._has_asked = False

    def __await__(self) -> Generator[Any, Any, T]:
        return self  # type: ignore[return-value]  # It has all that `await` uses of a generator.

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        if self._has_asked:
            return self._work.send(value)
        self._has_asked = True
        return self._asked

    def throw(self, *error: Any) -> Any:
        self._has_asked = True
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()


_AWAITED: Final = (CoroutineType, _Rest, asyncio.Future)
"""Answers that are awaited. `inspect.isawaitable` takes ten times as long."""
