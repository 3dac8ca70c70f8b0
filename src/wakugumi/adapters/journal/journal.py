"""How do a leader's records get to disk before any peer sees their effects? (SPEC L7)

    loop's thread      commit ──► queue ─────────────► done, in order
    writer's thread               └─► one transaction ─┘        for all waiting entries: group commit
    reader's thread    load ────► one leaf ──────────► done     with its own connection, past the writer

One statement is one transaction, so the writer releases Python's lock once per transaction, for the time of the disk.
Entries are reported as done only when they are on disk: a full disk is waited for, and any other error ends the journal
(`on_failure`), because after a failed fsync the state of the disk is unknown. A payload that could not be read is never
reported as missing.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Final

from wakugumi.adapters.folder_lock import FolderLock
from wakugumi.adapters.journal.disk_reserve import DiskRoom
from wakugumi.adapters.journal.file import (
    FILE_NAME,
    PAGE_BYTES,
    SQL_ERRORS,
    Leaf,
    encode_records,
    file_unusable,
    file_use,
    lock,
    make_folder,
    open_beside,
    open_to_write,
    read_leaves,
)
from wakugumi.adapters.journal.reader import LeafReader, Loaded
from wakugumi.adapters.journal.writer import Done, Drop, Writer, WriterItem, settle
from wakugumi.core.ids import JobId
from wakugumi.core.leader.journal.entries import DropLeaves, KeepWhole, LeaderKeep
from wakugumi.errors import JournalError
from wakugumi.limits.journal import JOURNAL_BACKLOG_BYTES_MAX
from wakugumi.limits.units import KIB

__all__ = ["Journal", "Leaf"]

log = logging.getLogger("wakugumi.journal")

LINGER_S: Final = 0.05
"""How long a leaf without `done` may wait for others: each commit costs the disk a flush."""
PATIENT_S: Final = 0.002
"""How long a leaf of a patient caller may wait for others."""
LINGER_BYTES_MAX: Final = 256 * KIB
SLOW_S: Final = 5.0
"""A commit that takes longer is reported: the leader seems to hang."""

_SPECIAL: Final = frozenset({KeepWhole, DropLeaves})


class Journal:
    """The leader's journal. All calls and callbacks are made in the loop's thread."""

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
        reader_factory: type[sqlite3.Connection] = sqlite3.Connection,
        free_bytes: Callable[[], int] | None = None,
    ) -> Journal:
        """Make the folder if necessary, and lock it for this process. Raises ConfigError."""
        make_folder(folder)
        with ExitStack() as undo:
            held = lock(folder)
            undo.callback(held.release)
            path = folder / FILE_NAME
            room = DiskRoom(folder, free_bytes)
            room.make_way()
            base = open_to_write(path, factory)
            undo.callback(base.close)
            try:
                room.prepare(file_use(base))
                last = settle(base, path, room)
            except SQL_ERRORS as error:
                raise file_unusable(path, error) from None
            undo.pop_all()
        return cls(path, held, base, reader_factory, room, last + 1)

    def __init__(
        self,
        path: Path,
        lock: FolderLock,
        base: sqlite3.Connection,
        reader_factory: type[sqlite3.Connection],
        room: DiskRoom,
        next_leaf: int,
    ) -> None:
        """See `open`."""
        self.path = path
        self.next_leaf = next_leaf
        self._lock = lock
        self._base = base
        self._reader_factory = reader_factory
        self._room = room
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer: Writer | None = None
        self._reader: LeafReader | None = None
        self._on_failure: Callable[[Exception], None] = _ignore
        self._on_behind: Callable[[bool], None] = _ignore
        self._on_stalled: Callable[[str], None] = _ignore
        self._lingering: list[WriterItem] = []
        self._lingering_bytes = 0
        self._linger: asyncio.TimerHandle | None = None
        self._patient = False
        """A caller waits for the lingering entries."""
        self._slow_timer: asyncio.TimerHandle | None = None
        self._progress_at = 0.0
        """Time of the last commit, or of the first entry since the journal was idle."""
        self._check_at = 0.0
        self._stalled = False
        """`on_stalled` was called with a reason."""
        self._entries_waiting = 0
        self._bytes_waiting = 0
        self._loading: Counter[int] = Counter()
        self._safe_leaf = next_leaf - 1
        self._drop_leaf = 0
        self._drop_before = 0
        self.behind = False
        """Too much waits for the disk: callers should pause."""
        self._shut = False
        self._failed = False

    @property
    def idle(self) -> bool:
        """Whether no entry lingers, waits or is being written."""
        return not self._entries_waiting and not self._lingering

    def leaves(self) -> Iterator[Leaf]:
        """All leaves, the oldest first, one at a time. Raises ConfigError."""
        with closing(open_beside(self.path, sqlite3.Connection)) as base:
            yield from read_leaves(base, self.path)

    def begin(
        self,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[Exception], None],
        on_disk_low: Callable[[bool], None],
        on_behind: Callable[[bool], None] | None = None,
        on_stalled: Callable[[str], None] | None = None,
    ) -> None:
        """Start to accept commits. After `on_failure`, which is called once, nothing is done any more. `on_stalled`
        gets the reason after some seconds without a commit, and "" when commits continue.

        Raises ConfigError.
        """
        self._reader = LeafReader(self.path, self._reader_factory, loop, self._loaded, self._fail)
        self._loop = loop
        self._on_failure = on_failure
        self._on_behind = on_behind or _ignore
        self._on_stalled = on_stalled or _ignore
        self._writer = Writer(self.path, self._base, self._room, loop, self._written, self._fail, on_disk_low)
        self._writer.start()
        self._reader.start()

    def commit(self, records: Sequence[LeaderKeep], done: Done | None, *, patient: bool = False) -> None:
        """Keep these records as the next leaf, and call `done` once they and all earlier ones are safe.

        Without `done` they may linger to share the next commit; with `patient` for a shorter time. Without records,
        `done` is only called once all earlier ones are safe.
        """
        assert self._loop is not None
        if self._shut:
            return
        if records:
            entry = self._entry(records, done)
            self.next_leaf += 1
        elif done is None:
            return
        elif self.idle:
            self._loop.call_soon(done)
            return
        else:
            entry = WriterItem(0, 0.0, b"", 0, done)
        if (done is not None and not patient) or self._lingering_bytes + entry.weight > LINGER_BYTES_MAX:
            self._send(entry)
            return
        self._lingering.append(entry)
        self._lingering_bytes += entry.weight
        if self._linger is None or (done is not None and not self._patient):
            if self._linger is not None:
                self._linger.cancel()
            self._patient = done is not None
            self._linger = self._loop.call_later(PATIENT_S if self._patient else LINGER_S, self._send)

    def load(self, leaf: int, jobs: Sequence[JobId], done: Loaded) -> None:
        """Read these jobs' payloads from a leaf. Damaged ones are missing in the answer, and logged."""
        assert self._reader is not None
        self._loading[leaf] += 1
        self._reader.queue.put((leaf, jobs, done))

    async def close(self) -> None:
        """Commit all entries, write the log back, and release the folder.

        If the disk is still full, unwritten entries are given up: they were never reported as safe.
        """
        if self._writer is not None and self._reader is not None:
            self._send()
            reader, writer, self._reader, self._writer = self._reader, self._writer, None, None
            reader.closing.set()
            reader.queue.put(None)
            await asyncio.to_thread(reader.join)
            writer.closing.set()
            writer.queue.put(None)
            await asyncio.to_thread(writer.join)
        if self._slow_timer is not None:
            self._slow_timer.cancel()
        self._shut = True
        with suppress(sqlite3.Error):
            self._base.close()
        self._lock.release()

    def _entry(self, records: Sequence[LeaderKeep], done: Done | None) -> WriterItem:
        content: bytes | Sequence[LeaderKeep] = encode_records(records)
        weight = len(content) + PAGE_BYTES
        if not _SPECIAL.isdisjoint(map(type, records)):  # Takes a fortieth of a microsecond per record.
            for record in records:
                if isinstance(record, DropLeaves):
                    self._drop_leaf, self._drop_before = self.next_leaf, record.before
                elif isinstance(record, KeepWhole) and isinstance(record.payload, int):
                    content = records
                    weight += record.checksum >> 32  # The size of the payload to be copied.
        return WriterItem(self.next_leaf, time.time(), content, weight, done)

    def _send(self, entry: WriterItem | None = None) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
            self._patient = False
        entries, self._lingering, self._lingering_bytes = self._lingering, [], 0
        if entry is not None:
            entries.append(entry)
        if not entries or self._writer is None:
            return
        if not self._entries_waiting:
            self._progress_at = time.monotonic()
        self._entries_waiting += len(entries)
        for one in entries:
            self._bytes_waiting += one.weight
            self._writer.queue.put(one)
        if self._slow_timer is None:
            self._watch(SLOW_S)
        if not self.behind and self._bytes_waiting > JOURNAL_BACKLOG_BYTES_MAX:
            self.behind = True
            self._on_behind(True)

    def _watch(self, after_s: float) -> None:
        """Look for a stall in some seconds: only this thread can notice that the disk blocks the writer."""
        assert self._loop is not None
        self._check_at = time.monotonic() + after_s
        self._slow_timer = self._loop.call_later(after_s, self._check_for_stall)

    def _check_for_stall(self) -> None:
        self._slow_timer = None
        if self._writer is None or not self._entries_waiting or self._stalled:
            return
        now = time.monotonic()
        if now - self._check_at > SLOW_S:
            self._progress_at = now  # This process itself was suspended, so the disk may be fine.
        waited_s = now - self._progress_at
        if waited_s < SLOW_S:
            self._watch(SLOW_S - waited_s)
            return
        self._stalled = True
        why = "the journal's disk is full" if self._writer.waits_for_room else "the journal's disk does not answer"
        log.error("nothing was committed path=%s seconds=%.0f: %s", self.path, waited_s, why)
        self._on_stalled(why)

    def _written(self, entries: Sequence[WriterItem]) -> None:
        if self._failed:
            return
        if self._stalled:
            self._stalled = False
            log.warning("commits go on path=%s seconds=%.0f", self.path, time.monotonic() - self._progress_at)
            self._on_stalled("")
        self._entries_waiting -= len(entries)
        if self._entries_waiting:
            self._progress_at = time.monotonic()
        for entry in entries:
            self._bytes_waiting -= entry.weight
            self._safe_leaf = entry.number or self._safe_leaf
        for entry in entries:
            if entry.done is not None:
                entry.done()
        if self.behind and self._bytes_waiting < JOURNAL_BACKLOG_BYTES_MAX // 2:
            self.behind = False
            self._on_behind(False)
        self._drop()

    def _loaded(self, leaf: int, done: Loaded, payloads: dict[JobId, bytes]) -> None:
        if self._failed:
            return
        self._loading[leaf] -= 1
        if not self._loading[leaf]:
            del self._loading[leaf]
        done(payloads)
        self._drop()

    def _drop(self) -> None:
        """Remove old leaves once their replacements are safe and no load needs them.

        All earlier decisions were performed before this one, because `done` was called for all records before it; so
        every load that may need the old leaves is known. After a crash the leaves stay for a while.
        """
        before = self._drop_before
        if not before or self._safe_leaf < self._drop_leaf or self._writer is None:
            return
        if not any(leaf < before for leaf in self._loading):
            self._drop_before = 0
            self._writer.queue.put(Drop(before))

    def _fail(self, error: JournalError) -> None:
        if not self._failed:
            self._shut = self._failed = True
            self._on_failure(error)


def _ignore(_: object) -> None:
    pass
