"""Which transfers were interrupted, and how much space do their received bytes take?

The bytes stay, so that a transfer can be resumed, until they are too old or others need the space. All calls are made
in the loop's thread.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

from wakugumi.adapters.blobs.store import BlobStore
from wakugumi.limits.files import PARTIAL_TTL_S


class Partials:
    """Received bytes of interrupted transfers of one store."""

    def __init__(self, store: BlobStore, trash: Callable[[], str]) -> None:
        """`trash` returns a new name for a file to be removed later: removing a large file takes time."""
        self._store = store
        self._trash = trash
        self._left: dict[str, tuple[int, float]] = {}
        """Size, and time of the last received byte, of each interrupted transfer; oldest first."""
        store.remove_abandoned(time.time(), PARTIAL_TTL_S)
        for entry in sorted(store.begun(), key=lambda entry: entry.used_at):
            self._left[entry.sha256] = (entry.size, entry.used_at)

    @property
    def used_bytes(self) -> int:
        return sum(size for size, _ in self._left.values())

    def size(self, sha256: str) -> int:
        return self._left.get(sha256, (0, 0.0))[0]

    def oldest_first(self) -> Iterator[tuple[str, int]]:
        return ((sha256, size) for sha256, (size, _) in self._left.items())

    def left(self, sha256: str) -> None:
        """A transfer has ended: note its received bytes, if there are any."""
        size = self._store.received(sha256)
        if size:
            self._left[sha256] = (size, time.time())

    def resumed(self, sha256: str) -> None:
        """The transfer continues."""
        self._left.pop(sha256, None)

    def give_up(self, sha256: str) -> None:
        del self._left[sha256]
        with contextlib.suppress(OSError):
            os.replace(self._store.scratch(sha256), self._trash())

    def give_up_old(self, now: float) -> None:
        """`now` is of the wall clock."""
        for sha256, (_, received_at) in list(self._left.items()):
            if received_at < now - PARTIAL_TTL_S:
                self.give_up(sha256)
