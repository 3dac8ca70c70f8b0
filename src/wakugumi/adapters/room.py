"""Is there room for what must be kept, and what if there is not?

A leader whose disk is full must still write down how the jobs end that it has accepted. So it owns a file of nothing,
the reserve, which it gives up on that day; and it says that room is short well before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wakugumi.limits import JOURNAL_FREE_MIN_BYTES, JOURNAL_RESERVE_BYTES, MIB

LOOK_S: Final = 1.0
"""How often the disk is asked: others use it too, but nobody fills 64 MiB much faster."""
_RESERVE_NAME: Final = "reserve"


class Room:
    """The room on one folder's disk. Used by one thread at a time."""

    def __init__(self, folder: Path, free_bytes: Callable[[], int] | None = None) -> None:
        self._folder = folder
        self._path = folder / _RESERVE_NAME
        self._free_bytes = free_bytes or self._ask_system
        self._look_at = 0.0
        self.low = False

    def make_way(self) -> None:
        """Before anything is opened: to open a journal takes a little room, and after a crash more."""
        if self._free_bytes() < JOURNAL_RESERVE_BYTES:
            self.give_up_reserve()

    def prepare(self) -> None:
        """Once it is open. Without room for the reserve it starts all the same, and says that room is short."""
        self.low = self._free_bytes() < JOURNAL_FREE_MIN_BYTES or not self._make_reserve()

    def look(self, now: float) -> None:
        """Ask the disk, if it is time to."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        free = self._free_bytes()
        if not self.low:
            self.low = free < JOURNAL_FREE_MIN_BYTES
        elif free >= 2 * JOURNAL_FREE_MIN_BYTES:  # with a gap, or it would flip with every job
            self.low = not self._make_reserve()

    def give_up_reserve(self) -> None:
        """The disk is full: what was set aside for this is free now."""
        self.low = True
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            return

    def _make_reserve(self) -> bool:
        """Of random bytes: some file systems leave out zeros, and pack what repeats within a few hundred KiB."""
        try:
            there = os.stat(self._path)
            if there.st_size == JOURNAL_RESERVE_BYTES and there.st_blocks * 512 >= JOURNAL_RESERVE_BYTES:
                return True
        except OSError:
            pass
        filler = os.urandom(MIB)
        try:
            with open(self._path, "wb", buffering=0) as file:
                for _ in range(JOURNAL_RESERVE_BYTES // MIB):
                    if file.write(filler) < MIB:
                        raise OSError("cut short")
        except OSError:
            self.give_up_reserve()
            return False
        return True

    def _ask_system(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize
