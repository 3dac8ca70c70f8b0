"""Which event loop? uvloop where it is installed (a round trip is a fifth shorter), plain asyncio elsewhere. And how
often does a process look for garbage? Seldom: its jobs leave hardly any cycles behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

GARBAGE: Final = (10_000, 20, 20)
"""New objects before a look at the young, such looks before one at the older, and those before one at all. With
Python's 700, looks took a twentieth of the time of a gateway and a leader."""


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a process's main coroutine to its end."""
    gc.set_threshold(*GARBAGE)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
