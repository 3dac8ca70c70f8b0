"""Is there room for what must be kept, and what if there is not?

A leader or gateway whose disk is full must still write down how the jobs end that it has accepted. So it owns a file of
nothing, the reserve, which it gives up on that day; and it says that room is short well before.

Room is what is free on the disk, and what is free inside the journal's file: removed leaves leave their pages there. So
a disk that the journal itself has filled is not short any more once its jobs are gone. But a commit goes to the
write-ahead log first, beside the file, and for that the disk itself must have some.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from wakugumi.adapters.files import free_on_disk
from wakugumi.adapters.journal.file import Use
from wakugumi.limits.journal import JOURNAL_FREE_MIN_BYTES, JOURNAL_RESERVE_BYTES, JOURNAL_SLACK_BYTES
from wakugumi.limits.units import MIB

LOOK_S: Final = 1.0
"""How often the disk is asked: others use it too, but nobody fills 64 MiB much faster."""
BESIDE_MIN_BYTES: Final = 2 * JOURNAL_RESERVE_BYTES
"""What must be free on the disk itself: a write-ahead log that is late to be written back, and a large commit in it."""
SURPLUS_BYTES: Final = 2 * JOURNAL_SLACK_BYTES
KEPT_BYTES: Final = JOURNAL_SLACK_BYTES
"""What is free inside is given back to the disk if it is more than the former and than half of the file, all but the
latter: as much as that comes and goes with the garbage that a journal may hold, and would only be taken again."""
_RESERVE_NAME: Final = "reserve"


class DiskRoom:
    """The room on one folder's disk. Used by one thread at a time."""

    def __init__(self, folder: Path, free_bytes: Callable[[], int] | None = None) -> None:
        self._path = folder / _RESERVE_NAME
        self._free_bytes = free_bytes or partial(free_on_disk, folder)
        self._look_at = 0.0
        self.low = False

    def make_way(self) -> None:
        """Before anything is opened: to open a journal takes a little room, and after a crash more."""
        if self._free_bytes() < JOURNAL_RESERVE_BYTES:
            self.give_up_reserve()

    def prepare(self, use: Use) -> None:
        """Once it is open. Without room for the reserve it starts all the same, and says that room is short."""
        self.low = self._is_short(use, 1) or not self._make_reserve()

    def is_time(self, now: float) -> bool:
        """To ask the disk anew."""
        return now >= self._look_at

    def look(self, now: float, use: Use) -> None:
        """Ask the disk."""
        self._look_at = now + LOOK_S
        if not self.low:
            self.low = self._is_short(use, 1)
        elif not self._is_short(use, 2):  # with a gap, or it would flip with every job
            self.low = not self._make_reserve()

    def surplus_bytes(self, use: Use) -> int:
        """What of the room inside is better given back to the disk."""
        if use.free_bytes > SURPLUS_BYTES and use.free_bytes > use.file_bytes // 2:
            return use.free_bytes - KEPT_BYTES
        if not self.low:
            return 0
        return min(use.free_bytes, max(0, 2 * BESIDE_MIN_BYTES - self._free_bytes()))

    def give_up_reserve(self) -> None:
        """The disk is full: what was set aside for this is free now."""
        self.low = True
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            return

    def _is_short(self, use: Use, times: int) -> bool:
        free = self._free_bytes()
        return free < times * BESIDE_MIN_BYTES or free + use.free_bytes < times * JOURNAL_FREE_MIN_BYTES

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
            with open(self._path, "wb", buffering=0, opener=_open_own) as file:
                for _ in range(JOURNAL_RESERVE_BYTES // MIB):
                    if file.write(filler) < MIB:
                        raise OSError("cut short")
        except OSError:
            self.give_up_reserve()
            return False
        return True


def _open_own(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
