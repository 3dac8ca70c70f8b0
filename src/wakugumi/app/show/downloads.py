"""How is a large result fetched while the event loop goes on, and how far is it? In a thread; stderr shows it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from wakugumi.adapters.loop.threads import beside
from wakugumi.app.show.output import draw_over, is_drawable, size
from wakugumi.app.show.progress import LINE_EVERY_S, Lines

if TYPE_CHECKING:
    from wakugumi.adapters.blobs.place import OnBytes

T = TypeVar("T")

QUIET_S: Final = 1.0
"""A transfer that is done sooner gets no line."""
_DRAW_EVERY_S: Final = 0.2
_STOP_S: Final = 1.0
"""Time that a stopped transfer has to clean up."""


class ShownTransfer:
    """One transfer. `on_bytes` may be called from any thread; `tell` gets a text now and then, an empty one last."""

    def __init__(self, total_bytes: int, tell: Callable[[str], None] | None = None) -> None:
        self._total = total_bytes
        self._done = 0
        self._count = 0
        self._began_at = monotonic()
        self._tell = tell or (draw_over if is_drawable(sys.stderr) else None)
        every_s, first_s = (_DRAW_EVERY_S, QUIET_S) if self._tell else (LINE_EVERY_S, None)
        self._lines = Lines(self._text, every_s, first_s=first_s, tell=self._tell)
        self.stopped = False

    def on_bytes(self, count: int) -> None:
        if self.stopped:
            raise TransferStopped
        self._done += count
        self._count = count
        if self._done:
            self._lines.show()

    def _text(self) -> str:
        if not self._count and self._done >= self._total:
            return f"unpacking {size(self._done)}"
        rate = size(int(self._done / (monotonic() - self._began_at)))
        return f"fetching {size(self._done)} of {size(max(self._total, self._done))}, {rate}/s"

    def close(self) -> None:
        if self._tell and self._lines.has_told:
            self._tell("")


class TransferStopped(Exception):
    """The command was asked to stop."""


async def in_thread(work: Callable[[OnBytes], T], transfer: ShownTransfer) -> T:
    """Do `work`, which fetches, in a thread. Cancelling it stops the transfer with its next bytes.

    A stopped transfer has a moment to remove its unfinished files; if it stands still, it is not waited for.
    """
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def run() -> T:
        try:
            return work(transfer.on_bytes)
        finally:
            with suppress(RuntimeError):  # The loop may be closed already.
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
