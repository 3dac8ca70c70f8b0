"""How does Ctrl-C end a command that waits? Its coroutine is cancelled, cleans up, and reports how far it came.

The second signal ends the command at once. SIGTERM counts like Ctrl-C.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

from wakugumi.adapters.loop.event_loop import run as run_loop
from wakugumi.adapters.loop.signals import handlers_restored, on_stop_signals
from wakugumi.app import EXIT_INTERRUPTED
from wakugumi.app.show.output import show_cursor

T = TypeVar("T")


class Stopped(KeyboardInterrupt):
    """A signal stopped the command, and it has cleaned up."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine to its end. Raises Stopped if a signal came first."""
    asked: list[None] = []
    try:
        with handlers_restored():
            return run_loop(_until_asked(main, asked))
    except asyncio.CancelledError:
        if not asked:
            raise
        raise Stopped from None


async def _until_asked(main: Coroutine[Any, Any, T], asked: list[None]) -> T:
    task = asyncio.current_task()
    assert task is not None

    def stop() -> None:
        if asked:
            show_cursor()
            os._exit(EXIT_INTERRUPTED)
        asked.append(None)
        task.cancel()

    on_stop_signals(asyncio.get_running_loop(), stop)
    return await main
