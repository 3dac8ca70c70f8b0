"""How is large content hashed while it is read and written? In a thread of its own, at most a few pieces behind."""

from __future__ import annotations

import hashlib
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Final
from weakref import finalize

from wakugumi.limits.units import MIB

_LARGE_BYTES: Final = 8 * MIB
"""The thread begins after so much: less is hashed before a thread would have begun."""
_AHEAD: Final = 4
"""Pieces that wait to be hashed."""


class Digest:
    """The SHA-256 of content. Call it from one thread at a time."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._until_begin = _LARGE_BYTES
        self._line: SimpleQueue[bytes | None] | None = None
        """Pieces for the thread; None until it begins."""
        self._room = Semaphore(_AHEAD)

    def update(self, data: bytes | bytearray | memoryview) -> None:
        if not isinstance(data, bytes):  # Its owner may change it.
            self._settle()
            self._sha256.update(data)
        elif self._line is not None or self._begin():
            self._room.acquire()
            assert self._line is not None
            self._line.put(data)
        else:
            self._sha256.update(data)
            self._until_begin -= len(data)

    def hexdigest(self) -> str:
        self._settle()
        return self._sha256.hexdigest()

    def _settle(self) -> None:
        """Wait until all pieces are hashed."""
        if self._line is not None:
            for _ in range(_AHEAD):
                self._room.acquire()
            self._room.release(_AHEAD)

    def _begin(self) -> bool:
        if self._until_begin <= 0:
            line: SimpleQueue[bytes | None] = SimpleQueue()
            thread = Thread(target=_hash, args=(self._sha256, line, self._room), name="waku-hash", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # The machine can start no further thread.
                self._until_begin = _LARGE_BYTES
                return False
            self._line = line
            finalize(self, line.put, None)
        return self._line is not None


def _hash(sha256: hashlib._Hash, line: SimpleQueue[bytes | None], room: Semaphore) -> None:
    while (data := line.get()) is not None:
        sha256.update(data)
        room.release()
