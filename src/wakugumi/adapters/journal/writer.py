"""How are waiting entries written to disk, and what if the disk fails? By one thread, one transaction at a time.

A statement is a transaction, so the thread releases Python's lock once per transaction. Work that no caller waits for
comes after the report: writing back the write-ahead log, removing old leaves, looking for space.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, TypeAlias

import msgspec

from wakugumi.adapters.journal.disk_reserve import LOOK_S, DiskRoom
from wakugumi.adapters.journal.file import (
    PAGE_BYTES,
    Damaged,
    checksum,
    encode_records,
    file_use,
    is_full,
    payloads_of,
    read_leaf,
)
from wakugumi.core.ids import JobId
from wakugumi.core.leader.journal.entries import KeepWhole, LeaderKeep
from wakugumi.errors import ConfigError, JournalError
from wakugumi.limits.units import MIB

log = logging.getLogger("wakugumi.journal")

ROWS_MAX: Final = 64
BATCH_BYTES_MAX: Final = 4 * MIB
"""Most leaves and bytes of one transaction, which thus stays well within the write-ahead log's usual size."""
WAL_BYTES: Final = 8 * MIB
"""Size at which the write-ahead log is written back. Flushing a growing file costs twice as much as overwriting, so the
log is stretched to this size at the start. Writing back 8 MiB takes some 15 ms, in which commits wait; they hold ten
thousand jobs, which share the two flushes of the writing back."""
COUNT_FIRST: Final = 64
TURN_MAX_S: Final = 0.005
"""Leaves removed, or pages returned, by the first transaction, and the time that one should take: the number doubles or
halves accordingly. All at once would block commits for seconds."""
DROP_AT_CLOSE_S: Final = 1.0
"""Time for removals at the end; leaves that remain are removed with the next drop."""
RETRY_FIRST_S: Final = 0.01
RETRY_MAX_S: Final = 1.0

_INSERT: Final = tuple(f"INSERT INTO log VALUES {','.join(['(?,?,?,?)'] * rows)}" for rows in range(ROWS_MAX + 1))  # noqa: S608
"""One statement per number of rows; all contents are values."""
_WRITE_BACK: Final = "PRAGMA wal_checkpoint(PASSIVE)"
"""Writes back as much as possible without waiting for readers."""

Done: TypeAlias = Callable[[], None]


class WriterItem(NamedTuple):
    """An entry for the writer: a leaf, a callback, or both."""

    number: int
    """0: no leaf."""
    written_at: float
    records: bytes | Sequence[LeaderKeep]
    """Encoded, unless a payload has still to be copied from another leaf."""
    weight: int
    done: Done | None


class Drop(NamedTuple):
    """A request to the writer to remove the leaves before this one, a few at a time."""

    before: int


class Writer(threading.Thread):
    """Takes all waiting entries, writes them as one transaction, reports them, and repeats."""

    def __init__(
        self,
        path: Path,
        base: sqlite3.Connection,
        room: DiskRoom,
        loop: asyncio.AbstractEventLoop,
        on_written: Callable[[Sequence[WriterItem]], None],
        on_failure: Callable[[JournalError], None],
        on_disk_low: Callable[[bool], None],
    ) -> None:
        super().__init__(name="journal writer", daemon=True)
        self.queue: SimpleQueue[WriterItem | Drop | None] = SimpleQueue()
        self.closing = threading.Event()
        self._path = path
        self._base = base
        self._room = room
        self._loop = loop
        self._on_written = on_written
        self._on_failure = on_failure
        self._on_disk_low = on_disk_low
        self._reported_low = False
        self._wal_bytes = 0
        self._first = 0
        self._drop_count = COUNT_FIRST
        self._drop_before = 0
        self._surplus_pages = 0
        self._shrink_count = COUNT_FIRST
        self.waits_for_room = False
        """The disk is full, and the writer retries."""
        self._held: WriterItem | None = None
        self._ended = False

    def run(self) -> None:
        try:
            self._report_room()
            self._find_surplus()
            while not self._ended:
                entries = self._take()
                if entries:
                    if not self._write_patiently(entries):
                        break
                    self._call_in_loop(self._on_written, entries)
                self._do_chores()
            until = time.monotonic() + DROP_AT_CLOSE_S
            while self._drop_before > self._first and time.monotonic() < until:
                self._remove_some()
        except Exception as error:
            log.critical("journal not writable path=%s: %s", self._path, error, exc_info=surprise(error))
            self._call_in_loop(self._on_failure, failure(self._path, "written", error))
        else:
            with suppress(sqlite3.Error):
                self._base.execute(_WRITE_BACK).fetchall()

    def _take(self) -> list[WriterItem]:
        """The entries of the next transaction; waits if there are none."""
        if self._held is not None:
            entries, self._held = [self._held], None
            return entries
        entries = []
        weight = 0
        try:
            item = self.queue.get(timeout=self._patience_s())
            while item is not None:
                if isinstance(item, Drop):
                    self._drop_before = item.before
                elif isinstance(item.records, bytes):
                    entries.append(item)
                    weight += item.weight
                else:
                    self._held = item  # In its own transaction, as the payloads it copies may be among these entries.
                if self._held is not None or len(entries) >= ROWS_MAX or weight >= BATCH_BYTES_MAX:
                    return entries
                item = self.queue.get_nowait()
            self._ended = True
        except Empty:
            pass
        return entries

    def _patience_s(self) -> float | None:
        if self._drop_before > self._first or self._surplus_pages:
            return 0.0
        return LOOK_S if self._room.low else None

    def _write_patiently(self, entries: list[WriterItem]) -> bool:
        """Write the entries, however long the disk is full. False if closed before."""
        pause_s = RETRY_FIRST_S
        while True:
            try:
                self._write(entries)
                self.waits_for_room = False
                return True
            except sqlite3.Error as error:
                if not self._is_full(error):
                    raise
            self.waits_for_room = True
            if not self._room.low:
                log.error("journal disk full, nothing new is accepted path=%s", self._path)
            self._room.give_up_reserve()
            self._report_room()
            if self.closing.wait(pause_s) and pause_s > RETRY_FIRST_S:
                log.error("journal disk still full, unreported leaves are given up count=%d", len(entries))
                return False
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    def _write(self, entries: list[WriterItem]) -> None:
        values: list[int | float | bytes] = []
        rows = 0
        for number, written_at, records, weight, _ in entries:
            if not number:
                continue
            content = records if isinstance(records, bytes) else self._fetched(records)
            values += (number, written_at, checksum(number, written_at, content), content)
            rows += 1
            self._wal_bytes += weight
        if rows:
            self._base.execute(_INSERT[rows], values)

    def _fetched(self, records: Sequence[LeaderKeep]) -> bytes:
        """Encode the records, with each payload copied from the leaf that it names. Raises Damaged."""
        leaves: dict[int, dict[JobId, bytes]] = {}
        whole: list[LeaderKeep] = []
        for record in records:
            if isinstance(record, KeepWhole) and isinstance(record.payload, int):
                leaf = record.payload
                if leaf not in leaves:
                    leaves[leaf] = payloads_of(read_leaf(self._base, self._path, leaf).records)
                if record.job not in leaves[leaf]:
                    raise Damaged(self._path, f"leaf {leaf} lacks a job that must be in it", leaf)
                whole.append(msgspec.structs.replace(record, payload=leaves[leaf][record.job]))
            else:
                whole.append(record)
        return encode_records(whole)

    def _do_chores(self) -> None:
        """Work that no caller waits for."""
        now = time.monotonic()
        if self._room.is_time(now):
            self._room.look(now, file_use(self._base))
            self._report_room()
            if self._room.low:
                self._find_surplus()
        if self._drop_before > self._first:
            self._remove_some()
            if self._drop_before <= self._first:
                self._find_surplus()
        elif self._surplus_pages and self.queue.empty():
            self._shrink_some()
        if self._wal_bytes >= WAL_BYTES:
            self._wal_bytes = 0
            try:
                self._base.execute(_WRITE_BACK).fetchall()
            except sqlite3.Error as error:
                if not self._is_full(error):
                    raise
                self._room.give_up_reserve()
                self._report_room()

    def _remove_some(self) -> None:
        if not self._first:
            self._first = self._base.execute("SELECT min(number) FROM log").fetchone()[0] or self._drop_before
        before = min(self._first + self._drop_count, self._drop_before)
        began_at = time.monotonic()
        try:
            self._base.execute("DELETE FROM log WHERE number < ?", (before,))
        except sqlite3.Error as error:
            if not self._is_full(error):
                raise
            self._drop_before = 0  # They stay until the next request.
            return
        self._first = before
        self._wal_bytes += 8 * PAGE_BYTES  # Mostly the list of free pages.
        self._drop_count = _next_count(self._drop_count, began_at)

    def _find_surplus(self) -> None:
        self._surplus_pages = self._room.surplus_bytes(file_use(self._base)) // PAGE_BYTES

    def _shrink_some(self) -> None:
        """Return pages to the disk: pages at the end move into gaps, and the file is cut when the write-ahead log is
        written back."""
        pages = min(self._shrink_count, self._surplus_pages)
        free_before = file_use(self._base).free_bytes
        began_at = time.monotonic()
        try:
            # As a script: `execute` would run only the first step of a statement without columns, and each step frees
            # one page.
            self._base.executescript(f"PRAGMA incremental_vacuum({pages})")
        except sqlite3.Error as error:
            if not self._is_full(error):
                raise
            self._surplus_pages = 0
            return
        self._shrink_count = _next_count(self._shrink_count, began_at)
        self._wal_bytes += 2 * pages * PAGE_BYTES  # A moved page and at most one that points to it.
        self._surplus_pages -= pages
        if file_use(self._base).free_bytes >= free_before:
            self._surplus_pages = 0  # The file was created without auto_vacuum.
        elif not self._surplus_pages:
            self._wal_bytes = WAL_BYTES  # Write back now, which cuts the file.

    def _is_full(self, error: Exception) -> bool:
        return is_full(error, self._path.parent)

    def _call_in_loop(self, function: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(function, *args)

    def _report_room(self) -> None:
        if self._room.low != self._reported_low:
            self._reported_low = self._room.low
            self._call_in_loop(self._on_disk_low, self._reported_low)


def settle(base: sqlite3.Connection, path: Path, room: DiskRoom) -> int:
    """Make sure that all existing leaves are on disk, and return the number of the last one. Raises sqlite3.Error.

    After a failed flush the system may show a write-ahead log that the disk does not have. The log is therefore written
    back into the file and flushed there before anything builds on it.
    """
    try:
        base.execute(_WRITE_BACK).fetchall()
        if not room.low and os.path.getsize(f"{path}-wal") < WAL_BYTES:
            base.execute("INSERT INTO stretch VALUES (zeroblob(?))", (WAL_BYTES,))
            base.execute(_WRITE_BACK).fetchall()
            base.execute("DELETE FROM stretch")
    except sqlite3.Error as error:
        if not is_full(error, path.parent):
            raise
        room.give_up_reserve()
        base.execute(_WRITE_BACK).fetchall()
    last: int = base.execute("SELECT coalesce(max(number), 0) FROM log").fetchone()[0]
    return last


def failure(path: Path, done: str, error: Exception) -> JournalError:
    """The error that ends the process. `done`: the action that failed."""
    return JournalError(
        f"the journal {path} cannot be {done}: {error}; nothing more is accepted",
        f"look at the disk and the system's log; `waku store check {path.parent}` tells what is there",
    )


def surprise(error: Exception) -> Exception | None:
    """The error if it deserves a traceback, because it is a bug and not the disk's fault."""
    return None if isinstance(error, sqlite3.Error | OSError | ConfigError) else error


def _next_count(count: int, began_at: float) -> int:
    in_time = time.monotonic() - began_at < TURN_MAX_S
    return count * 2 if in_time else max(1, count // 2)
