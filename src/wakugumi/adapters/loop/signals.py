"""How does a person, or the system, stop a process? By SIGTERM, SIGINT or SIGHUP, once or several times.

The role decides what the first and the second request mean; usually: finish running work, then: stop now.
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
    """Calls `callback` in the loop, once per signal, as long as the loop lives. Under `nohup`, SIGHUP stays ignored."""
    for number in STOP_SIGNALS:
        if number.name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN:
            continue
        try:
            loop.add_signal_handler(number, callback)
        # Loops on Windows do not support this; the interpreter's own handlers work everywhere.
        except NotImplementedError:
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback))


@contextmanager
def handlers_restored() -> Iterator[None]:
    """Restores the handlers of the signals afterwards: not every loop does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: the handler was not set from Python, and cannot be set again.
                signal.signal(number, handler)
