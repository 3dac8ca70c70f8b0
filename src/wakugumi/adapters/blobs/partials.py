"""Which transfers were left half-way, and how much room does what has come of them take?

It stays, so that whoever goes on with one need not begin anew: until nobody did for long, or others need the room. All
calls are made in the loop's thread.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

from wakugumi.adapters.blobs.store import BlobStore
from wakugumi.limits.files import PARTIAL_TTL_S


class Partials:
    """What has come of transfers of one store that are not under way."""

    def __init__(self, store: BlobStore, trash: Callable[[], str]) -> None:
        """`trash` gives a new name for what is to be removed: that of a large file takes its time."""
        self._store = store
        self._trash = trash
        self._left: dict[str, tuple[int, float]] = {}
        """Bytes, and when the last of them came, oldest first."""
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
        """A transfer has ended; if it has left something, that is one of us."""
        size = self._store.received(sha256)
        if size:
            self._left[sha256] = (size, time.time())

    def resumed(self, sha256: str) -> None:
        """Somebody goes on with it."""
        self._left.pop(sha256, None)

    def give_up(self, sha256: str) -> None:
        del self._left[sha256]
        with contextlib.suppress(OSError):
            os.replace(self._store.scratch(sha256), self._trash())

    def give_up_old(self, now: float) -> None:
        """`now` is of the wall clock."""
        for sha256, (_, came_at) in list(self._left.items()):
            if came_at < now - PARTIAL_TTL_S:
                self.give_up(sha256)
