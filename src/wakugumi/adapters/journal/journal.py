"""How does what a leader must keep get to the disk before anyone hears of it? (SPEC L7)

    loop's thread      commit ──► queue ─────────────► done, in order
    writer's thread               └─► one transaction ─┘        all that waits shares one: group commit
    reader's thread    load ────► one leaf ──────────► done     with a connection of its own, past the writer

One statement is one transaction, so the writer gives up Python's lock once, is in the disk's hands, and takes it once.
Nothing is reported as done that is not on disk: a full disk is waited for, any other error is the end (`on_failure`),
because after a failed fsync nobody knows what the disk has. Nor is a payload reported as gone that could not be read.
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
"""How long a leaf that nobody waits for may wait for company: each commit costs the disk a flush."""
PATIENT_S: Final = 0.002
"""The same if somebody waits who is in no hurry."""
LINGER_BYTES_MAX: Final = 256 * KIB
SLOW_S: Final = 5.0
"""A commit that takes longer is worth a word: to all who wait the leader seems to hang."""

_SPECIAL: Final = frozenset({KeepWhole, DropLeaves})


class Journal:
    """The leader's journal. All of it is called, and calls back, in the loop's thread."""

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
        reader_factory: type[sqlite3.Connection] = sqlite3.Connection,
        free_bytes: Callable[[], int] | None = None,
    ) -> Journal:
        """Make the folder if need be, and take it for this process. Raises ConfigError."""
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
        """Somebody waits for what lingers."""
        self._slow_timer: asyncio.TimerHandle | None = None
        self._progress_at = 0.0
        """When something was committed last, or there was something to commit again."""
        self._look_at = 0.0
        self._stalled = False
        """It was said that nothing is committed."""
        self._entries_waiting = 0
        self._bytes_waiting = 0
        self._loading: Counter[int] = Counter()
        self._safe_leaf = next_leaf - 1
        self._drop_leaf = 0
        self._drop_before = 0
        self.behind = False
        """More waits for the disk than is good: whoever feeds us should pause."""
        self._shut = False
        self._failed = False

    @property
    def idle(self) -> bool:
        """Nothing lingers, waits or is being written."""
        return not self._entries_waiting and not self._lingering

    def leaves(self) -> Iterator[Leaf]:
        """All that is kept, the oldest first, one at a time. Raises ConfigError."""
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
        """From now on it can be written to. `on_failure` is called once, and then nothing is done any more.
        `on_stalled` is told why nothing was committed for some seconds, and with "" that commits go on.

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
        """Keep these, as the next leaf, and call `done` once they and all before are safe.

        Without `done` nobody waits, and they may linger to go with the next; for a `patient` one not quite as long.
        Without records it only asks.
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
        """Read these jobs' payloads from a leaf. What is damaged is missing in the answer, and logged."""
        assert self._reader is not None
        self._loading[leaf] += 1
        self._reader.queue.put((leaf, jobs, done))

    async def close(self) -> None:
        """Commit what lingers, write all back, and let go of the folder.

        If the disk is full still, what it did not take is given up: nobody was told that it is safe.
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
        if not _SPECIAL.isdisjoint(map(type, records)):  # at a fortieth of a microsecond per record
            for record in records:
                if isinstance(record, DropLeaves):
                    self._drop_leaf, self._drop_before = self.next_leaf, record.before
                elif isinstance(record, KeepWhole) and isinstance(record.payload, int):
                    content = records
                    weight += record.checksum >> 32  # the size of what is to be fetched
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
        """Only this thread can tell that the disk has the other one. While there is work it looks every few seconds."""
        assert self._loop is not None
        self._look_at = time.monotonic() + after_s
        self._slow_timer = self._loop.call_later(after_s, self._look_for_stall)

    def _look_for_stall(self) -> None:
        self._slow_timer = None
        if self._writer is None or not self._entries_waiting or self._stalled:
            return
        now = time.monotonic()
        if now - self._look_at > SLOW_S:
            self._progress_at = now  # This process itself stood still: that says nothing about the disk.
        waited_s = now - self._progress_at
        if waited_s < SLOW_S:
            self._watch(SLOW_S - waited_s)
            return
        self._stalled = True
        why = "the journal's disk is full" if self._writer.waits_for_room else "the journal's disk does not answer"
        log.error("nothing was committed for %.0f s: %s (%s)", waited_s, why, self.path)
        self._on_stalled(why)

    def _written(self, entries: Sequence[WriterItem]) -> None:
        if self._failed:
            return
        if self._stalled:
            self._stalled = False
            log.warning("commits go on after %.0f s (%s)", time.monotonic() - self._progress_at, self.path)
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
        """Remove old leaves, once what replaces them is safe and everyone who asked for something in them has it.

        What was decided before is performed before: `done` was called for all that stands before the record, and so
        every load that may still need the old leaves is known. If it is killed before, the leaves stay for a while.
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
