"""What happens to a task when it fails, or when its owner ends? A failure is logged by the task's name, and no task
outlives its owner.

A loop that must run as long as its owner is started by `start_loop`: an unforeseen exception is logged, and the loop
goes on after a pause. `tests/house/test_loops.py` finds every endless loop that is not started so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from wakugumi.limits.runner import LOOP_PAUSE_FIRST_S, LOOP_PAUSE_MAX_S

log = logging.getLogger("wakugumi.tasks")


class Tasks:
    """The tasks of one owner. `close` cancels them and waits for their end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], *, name: str, quiet: bool = False) -> asyncio.Task[Any]:
        """The failure of a `quiet` task is not logged: its waiting caller gets it."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard if quiet else self._ended)
        return task

    def start_loop(self, loop: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> asyncio.Task[None]:
        """Starts a loop that must live. It ends when it returns, or with its owner; after any exception it begins
        anew."""
        return self.start(_run_for_good(loop, name), name=name)

    async def close(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed task=%r", task.get_name(), exc_info=error)


async def _run_for_good(loop: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    clock = asyncio.get_running_loop().time
    pause_s = LOOP_PAUSE_FIRST_S
    is_over = False
    while not is_over:
        began_at = clock()
        try:
            await loop()
            is_over = True
        except Exception:
            if clock() - began_at > LOOP_PAUSE_MAX_S:
                pause_s = LOOP_PAUSE_FIRST_S
            log.exception("task failed, restarts task=%r pause_s=%g", name, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOP_PAUSE_MAX_S)
