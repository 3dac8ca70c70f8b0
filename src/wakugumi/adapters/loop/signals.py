"""How does a person, or the system, ask a process to stop? By SIGTERM, SIGINT or SIGHUP, as often as they like.

What a first and a second request mean is for the role to say; usually: finish what runs, then: stop now.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

STOP_SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


def on_stop_signals(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call it in the loop, once per signal, as long as the loop lives. Under `nohup`, SIGHUP stays ignored."""
    for number in STOP_SIGNALS:
        if number.name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN:
            continue
        try:
            loop.add_signal_handler(number, callback)
        except NotImplementedError:  # Windows' loops have no such door; the interpreter's own is open everywhere.
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback))


@contextmanager
def handlers_restored() -> Iterator[None]:
    """What the signals did before, they do again afterwards: not every loop puts back what it found."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: it was not set from Python, and cannot be set again
                signal.signal(number, handler)
