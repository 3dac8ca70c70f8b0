"""How does a file go to a place in a thread, so that the loop sees how far it is and can stop it?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path

from wakugumi.core.transfers.transfers import PutEnd
from wakugumi.errors import Lost, Refused
from wakugumi.wire.messages.references import BlobRef


class PutStopped(Exception):
    """The content is no longer wanted there."""


class FilePut:
    """One content on its way to one place. Any thread may read the counts."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.done_bytes = 0
        self.moved_at = float("-inf")
        """When the last bytes were sent."""
        self.is_running = False
        self.is_stopped = False

    @property
    def moved_s(self) -> float:
        """Seconds since the last bytes were sent."""
        return time.monotonic() - self.moved_at

    def send(self, ref: BlobRef, path: Path, *, may_link: bool = False) -> None:
        """In a thread. `may_link`: the file never changes. Raises ConfigError for a place that cannot be used, Lost,
        Refused, or PutStopped."""
        from wakugumi.adapters.blobs.open_place import open_place

        self.done_bytes = 0
        self._on_bytes(0)
        place = open_place(self.url)
        if may_link:
            place.link(ref, path)
        place.put(ref, path, self._on_bytes)

    async def end(self, thread: Awaitable[None]) -> PutEnd:
        """The outcome of the thread. A cancelled call stops it."""
        self.is_running = True
        try:
            await thread
        except (Lost, Refused) as error:
            return PutEnd(error, self.moved_s)
        except asyncio.CancelledError:
            self.is_stopped = True
            raise
        finally:
            self.is_running = self.is_stopped
        return PutEnd()

    def _on_bytes(self, count: int) -> None:
        self.done_bytes += count
        if count:
            self.moved_at = time.monotonic()
        if self.is_stopped:
            raise PutStopped
