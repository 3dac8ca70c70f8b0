"""How is much fetched while all else goes on, and how far is it? In a thread; stderr tells, most of all a terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from wakugumi.adapters.loop.threads import beside
from wakugumi.app.show.output import draw_over, is_drawable, say, size
from wakugumi.app.show.transfers import LINE_EVERY_S

if TYPE_CHECKING:
    from wakugumi.adapters.blobs.place import OnBytes

T = TypeVar("T")

_QUIET_S: Final = 1.0
"""What is done sooner needs no line."""
_DRAW_EVERY_S: Final = 0.2
_STOP_S: Final = 1.0
"""How long a transfer that was stopped may take to clean up after itself."""


class ShownTransfer:
    """One transfer. `on_bytes` may be called from any thread; `told` is called with a line now and then."""

    def __init__(self, total_bytes: int, told: Callable[[str], None] | None = None) -> None:
        self._total = total_bytes
        self._done = 0
        is_drawn = told is not None or is_drawable(sys.stderr)
        self._told = told or (draw_over if is_drawn else _say)
        self._every_s = _DRAW_EVERY_S if is_drawn else LINE_EVERY_S
        self._began_at = monotonic()
        self._next_at = self._began_at + (_QUIET_S if is_drawn else LINE_EVERY_S)
        self._is_shown = False
        self.stopped = False

    def on_bytes(self, count: int) -> None:
        if self.stopped:
            raise TransferStopped
        self._done += count
        now = monotonic()
        if now >= self._next_at and self._done:
            self._next_at = now + self._every_s
            self._is_shown = True
            self._told(self._text(count, now - self._began_at))

    def _text(self, count: int, passed_s: float) -> str:
        if not count and self._done >= self._total:
            return f"unpacking {size(self._done)}"
        rate = size(int(self._done / passed_s))
        return f"fetching {size(self._done)} of {size(max(self._total, self._done))}, {rate}/s"

    def close(self) -> None:
        if self._is_shown:
            self._told("")


class TransferStopped(Exception):
    """The command was asked to stop."""


async def in_thread(work: Callable[[OnBytes], T], transfer: ShownTransfer) -> T:
    """Do something that fetches, and let the loop go on. If we are cancelled, so is it, with its next bytes.

    It is given a moment to remove what is half done; if it stands still, nobody waits for it.
    """
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def run() -> T:
        try:
            return work(transfer.on_bytes)
        finally:
            with suppress(RuntimeError):  # The loop is closed: nobody wants to know.
                loop.call_soon_threadsafe(over.set)

    try:
        return await beside(run, "wakugumi transfer")
    except asyncio.CancelledError:
        transfer.stopped = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await over.wait()
        raise
    finally:
        transfer.close()


def _say(text: str) -> None:
    if text:
        say(text)
