"""Is there disk space for the journal, and what happens without it?

A leader or gateway with a full disk must still record how its accepted jobs end. It therefore owns a file of filler
bytes, the reserve, which it deletes on that day; and it reports a shortage well before.

Space is free on the disk, and inside the journal's file, where removed leaves leave pages. A disk filled by the journal
itself is thus no longer short once its jobs are gone. But a commit goes first to the write-ahead log beside the file,
for which the disk itself needs space.
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
"""Seconds between two looks at the disk: other programs use it too, but rarely fill 64 MiB much faster."""
BESIDE_MIN_BYTES: Final = 2 * JOURNAL_RESERVE_BYTES
"""Least free space on the disk itself: for a late write-ahead log with a large commit in it."""
SURPLUS_BYTES: Final = 2 * JOURNAL_SLACK_BYTES
KEPT_BYTES: Final = JOURNAL_SLACK_BYTES
"""Free space inside the file above SURPLUS_BYTES and half of the file is returned to the disk, except KEPT_BYTES: about
that much comes and goes with a journal's garbage, and would soon be needed again."""
_RESERVE_NAME: Final = "reserve"


class DiskRoom:
    """The space on one folder's disk. Used by one thread at a time."""

    def __init__(self, folder: Path, free_bytes: Callable[[], int] | None = None) -> None:
        self._path = folder / _RESERVE_NAME
        self._free_bytes = free_bytes or partial(free_on_disk, folder)
        self._look_at = 0.0
        self.low = False

    def make_way(self) -> None:
        """Call before the journal is opened: opening needs a little space, after a crash more."""
        if self._free_bytes() < JOURNAL_RESERVE_BYTES:
            self.give_up_reserve()

    def prepare(self, use: Use) -> None:
        """Call after the journal is opened. Without space for the reserve the journal starts, but reports a
        shortage."""
        self.low = self._is_short(use, 1) or not self._make_reserve()

    def is_time(self, now: float) -> bool:
        """Whether a look at the disk is due."""
        return now >= self._look_at

    def look(self, now: float, use: Use) -> None:
        """Measure the free space."""
        self._look_at = now + LOOK_S
        if not self.low:
            self.low = self._is_short(use, 1)
        elif not self._is_short(use, 2):  # A larger threshold, or it would flip with every job.
            self.low = not self._make_reserve()

    def surplus_bytes(self, use: Use) -> int:
        """Free bytes inside the file that should be returned to the disk."""
        if use.free_bytes > SURPLUS_BYTES and use.free_bytes > use.file_bytes // 2:
            return use.free_bytes - KEPT_BYTES
        if not self.low:
            return 0
        return min(use.free_bytes, max(0, 2 * BESIDE_MIN_BYTES - self._free_bytes()))

    def give_up_reserve(self) -> None:
        """Delete the reserve, because the disk is full."""
        self.low = True
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            return

    def _is_short(self, use: Use, times: int) -> bool:
        free = self._free_bytes()
        return free < times * BESIDE_MIN_BYTES or free + use.free_bytes < times * JOURNAL_FREE_MIN_BYTES

    def _make_reserve(self) -> bool:
        """Write random bytes: some file systems skip zeros, or compress repeats within a few hundred KiB."""
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
