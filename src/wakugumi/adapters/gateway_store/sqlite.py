"""How do the gateways of one machine share their state? One SQLite file in a folder that all of them use.

Calls are made in the loop itself: with a write-ahead log and no wait for the disk a call takes some 50 µs, less than
the way to a thread and back. Only `flush` waits for the disk, in a thread, outside of every transaction, once for all
waiting callers: only the write-ahead log is flushed; pages that were moved from it into the file were flushed there
before. `tidy` moves pages, on a connection of its own, so that no commit does.

Leases count the time since the machine was started, and hold for that start alone: a change of the machine's clock ends
no lease, and a restart ends all of them. Times that people read, and ages of days, are by the machine's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from wakugumi.adapters.files import Closing
from wakugumi.adapters.gateway_store.rows import COLUMNS, data_of, read_row, row_values
from wakugumi.adapters.gateway_store.sqlite_file import FILE_NAME, open_file
from wakugumi.adapters.journal.disk_reserve import DiskRoom
from wakugumi.adapters.journal.file import BUSY_TIMEOUT_S, SQL_ERRORS, file_use, is_full, make_folder
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.loop.threads import beside
from wakugumi.adapters.programs.linux import boot_id
from wakugumi.core.gateway.rows import GatewayJob, OpenJob, Totals
from wakugumi.core.ids import JobId
from wakugumi.errors import Refused
from wakugumi.limits.units import MIB

log = logging.getLogger("wakugumi.gateway")

T = TypeVar("T")


WAL_MAX_BYTES: Final = 64 * MIB
"""Size from which writers wait a moment for a restart of the log: under constant writes it never starts anew by
itself."""
_RESTART_S: Final = 0.25
"""Longest wait for a moment without readers and writers: otherwise the next `tidy` tries again."""


class SqliteGatewayStore:
    """A GatewayStore. Make it inside a running loop, and close it."""

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.time,
        *,
        uptime: Callable[[], float] | None = None,
        free_bytes: Callable[[], int] | None = None,
        boot: str | None = None,
    ) -> None:
        """`uptime` is a clock that cannot be set, the same in all processes of this machine until its restart, and
        `boot` names that start. `free_bytes` returns the free room of the disk. Raises ConfigError if the folder or the
        file cannot be used."""
        make_folder(folder)
        self._room = DiskRoom(folder, free_bytes)
        self._room.make_way()
        self._path = folder / FILE_NAME
        self._log = f"{self._path}-wal"
        self._clock = clock
        self._boot = boot_id() if boot is None else boot
        # The clock stands still while the machine sleeps, as all of its gateways do: none of them is dead after that.
        self._uptime = uptime or (time.monotonic if self._boot else time.time)
        with contextlib.ExitStack() as undo:
            self._base = open_file(self._path)
            undo.callback(self._base.close)
            self._aside = open_file(self._path)
            """A second connection for long work: moving the write-ahead log, and counting. It blocks no other call."""
            undo.callback(self._aside.close)
            self._room.prepare(file_use(self._aside))
            undo.pop_all()
        self._aside_lock = asyncio.Lock()
        self._aside_guard = threading.Lock()
        """Held for a moment to read or change `_aside_users` and `_aside_over`."""
        self._aside_users = 0
        """Threads that use the second connection: one, or none. The caller may be gone meanwhile."""
        self._aside_over = False
        self._tasks = Tasks()
        self._told = _Told(self._refused)
        self._flushed: asyncio.Future[None] | None = None
        """The next flush, for writes since the last one began."""
        self._flushing: asyncio.Task[None] | None = None

    async def get(self, job: JobId, *, contents: bool = True) -> GatewayJob | None:
        columns = "body, answer" if contents else "NULL, NULL"
        with self._told:
            found = self._base.execute(f"SELECT {COLUMNS}, {columns} FROM job WHERE id = ?", (job,)).fetchone()  # noqa: S608 - our own words
        return None if found is None else read_row(found)

    async def add(self, row: GatewayJob) -> tuple[GatewayJob, bool]:
        now = self._clock()
        new = msgspec.structs.replace(row, version=1, accepted_at=now, changed_at=now)
        with self._told:
            added = self._base.execute(
                "INSERT INTO job VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*row_values(new), data_of(new.body), data_of(new.answer)),
            ).rowcount
        if added == 1:
            return new, True
        found = await self.get(row.job)
        return (found, False) if found is not None else await self.add(row)  # The row has just been removed.

    async def replace(self, old: GatewayJob, new: GatewayJob) -> GatewayJob | None:
        new = msgspec.structs.replace(
            new, version=old.version + 1, accepted_at=old.accepted_at, changed_at=self._clock()
        )
        job, version, *values = row_values(new)
        sets = "version = ?, state = ?, owner = ?, accepted_at = ?, changed_at = ?, kept_bytes = ?, told = ?"
        for column, before, after in (("body", old.body, new.body), ("answer", old.answer, new.answer)):
            if before is not after:  # A content that stays is not written again.
                sets += f", {column} = ?"
                values.append(data_of(after))
        with self._told:
            changed = self._execute(
                f"UPDATE job SET {sets} WHERE id = ? AND version = ?",  # noqa: S608 - our own words
                (version, *values, job, old.version),
            ).rowcount
        return new if changed == 1 else None

    async def remove(self, row: GatewayJob) -> bool:
        with self._told:
            gone = self._execute("DELETE FROM job WHERE id = ? AND version = ?", (row.job, row.version)).rowcount
        return gone == 1

    async def hold(self, owner: str, lease_s: float) -> None:
        now = self._uptime()
        with self._told:
            self._execute("INSERT OR REPLACE INTO lease VALUES(?, ?, ?)", (owner, self._boot, now + lease_s))
            self._execute("DELETE FROM lease WHERE boot <> ? OR until < ?", (self._boot, now))

    async def release(self, owner: str) -> None:
        with self._told:
            self._base.execute("DELETE FROM lease WHERE owner = ?", (owner,))

    async def is_held(self, owner: str) -> bool:
        with self._told:
            found = self._base.execute("SELECT boot, until FROM lease WHERE owner = ?", (owner,)).fetchone()
        return found is not None and found[0] == self._boot and found[1] >= self._uptime()

    async def orphans(self, most: int, *, but: str = "") -> list[JobId]:
        found: list[tuple[float, bytes]] = []
        with self._told:
            living = self._base.execute(
                "SELECT owner FROM lease WHERE boot = ? AND until >= ?", (self._boot, self._uptime())
            ).fetchall()
            for owner in self._owners():
                if owner != but and (owner,) not in living:
                    found += self._base.execute(
                        "SELECT accepted_at, id FROM job WHERE state < 2 AND owner = ? ORDER BY accepted_at LIMIT ?",
                        (owner, most),
                    ).fetchall()
        return [JobId(job) for _, job in sorted(found)[:most]]

    async def open_jobs(self, owner: str, most: int, after: OpenJob | None = None) -> list[OpenJob]:
        with self._told:
            found = self._base.execute(
                "SELECT accepted_at, id FROM job WHERE state < 2 AND owner = ? AND (accepted_at, id) > (?, ?) "
                "ORDER BY accepted_at, id LIMIT ?",
                (owner, *(after or (-math.inf, b"")), most),
            ).fetchall()
        return [OpenJob(accepted_at, JobId(job)) for accepted_at, job in found]

    async def oldest(self, most: int, age_s: float | None = None) -> list[GatewayJob]:
        before = math.inf if age_s is None else self._clock() - age_s
        with self._told:
            found = self._base.execute(
                f"SELECT {COLUMNS}, NULL, NULL FROM job WHERE state >= 2 AND changed_at <= ? "  # noqa: S608 - our own words
                "ORDER BY changed_at LIMIT ?",
                (before, most),
            ).fetchall()
        return [read_row(one) for one in found]

    async def totals(self) -> Totals:
        def count() -> Totals:
            by_state = self._aside.execute(
                "SELECT state, count(*), sum(kept_bytes) FROM job WHERE state < 2 GROUP BY state"
            ).fetchall()
            ended = self._aside.execute("SELECT count(*), sum(kept_bytes) FROM job WHERE state >= 2").fetchone()
            counts = {state: count for state, count, _ in by_state}
            open_bytes = sum(size for *_, size in by_state)
            return Totals(counts.get(0, 0), counts.get(1, 0), ended[0], ended[1] or 0, open_bytes)

        return await self._do_aside(count)

    async def flush(self) -> None:
        if self._flushed is None:
            self._flushed = asyncio.get_running_loop().create_future()
            if self._flushing is None or self._flushing.done():
                self._flushing = self._tasks.start(self._flush(), name="flush", quiet=True)
        await asyncio.shield(self._flushed)

    @property
    def is_short(self) -> bool:
        return self._room.low

    async def tidy(self) -> None:
        was_low = self._room.low
        await self._do_aside(self._move)
        if self._room.low != was_low:
            log.warning("disk has %s path=%s", "room again" if was_low else "hardly any room left", self._path)

    async def close(self) -> None:
        if self._flushing is not None and not self._flushing.done():
            await asyncio.wait([self._flushing])
        await self._tasks.close()
        self._base.close()
        with self._aside_guard:
            self._aside_over = True
            if not self._aside_users:
                self._aside.close()

    def _owners(self) -> Iterator[str]:
        """Owners of open jobs. One step of the index for each owner, however many jobs it has."""
        owner = ""
        while True:
            found = self._base.execute("SELECT min(owner) FROM job WHERE state < 2 AND owner > ?", (owner,)).fetchone()
            if found[0] is None:
                return
            owner = found[0]
            yield owner

    def _move(self) -> None:
        """Moves the write-ahead log into the file, in a thread. A first pass runs beside writers, so that little is
        left if they have to wait."""
        now = time.monotonic()
        if self._room.is_time(now):
            self._room.look(now, file_use(self._aside))
        self._aside.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        if os.stat(self._log).st_size <= WAL_MAX_BYTES:
            return
        self._aside.execute(f"PRAGMA busy_timeout = {round(1000 * _RESTART_S)}")
        try:
            self._aside.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        finally:
            self._aside.execute(f"PRAGMA busy_timeout = {round(1000 * BUSY_TIMEOUT_S)}")

    async def _do_aside(self, work: Callable[[], T]) -> T:
        """Runs in a thread, on the second connection."""

        def run() -> T:
            with self._aside_guard:
                if self._aside_over:
                    raise Refused("stopping", "the gateway's state is closed")
                self._aside_users += 1
            try:
                return work()
            finally:
                self._aside_used()

        async with self._aside_lock:
            try:
                return await beside(run, "state")
            except SQL_ERRORS as error:
                raise self._refused(error) from None
            except (OSError, RuntimeError) as error:
                raise disk_refused(error) from None

    def _aside_used(self) -> None:
        """A thread no longer uses the second connection; the last one closes it."""
        with self._aside_guard:
            self._aside_users -= 1
            if self._aside_over and not self._aside_users:
                self._aside.close()

    async def _flush(self) -> None:
        while (asked := self._flushed) is not None:
            self._flushed = None
            failed: Refused | None = Refused("stopping", "the gateway's state is closed")
            try:
                await beside(lambda: _sync(self._log), "flush")
                failed = None
            except Exception as error:
                failed = disk_refused(error)
            finally:  # Waiting callers are released in any case.
                if failed is None:
                    asked.set_result(None)
                else:
                    asked.set_exception(failed)
                    asked.exception()  # Marks it as retrieved: all callers may be gone.

    def _execute(self, statement: str, values: tuple[object, ...]) -> sqlite3.Cursor:
        """Executes a write that must succeed on a full disk, with the help of the reserve. Raises SQL_ERRORS."""
        try:
            return self._base.execute(statement, values)
        except SQL_ERRORS as error:
            if not is_full(error, self._path.parent):
                raise
            if not self._room.low:
                log.error("disk full, no new jobs are accepted path=%s", self._path)
            self._room.give_up_reserve()
            return self._base.execute(statement, values)

    def _refused(self, error: Exception) -> Refused:
        if is_full(error, self._path.parent):
            return _full()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return Refused("busy", "another process holds the gateway's state", "come again")
        return Refused("worker-error", f"the gateway's state cannot be used: {error}", "look at the gateway's disk")


class _Told:
    """Translates SQLite's errors."""

    def __init__(self, refused: Callable[[Exception], Refused]) -> None:
        self._refused = refused

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, SQL_ERRORS):
            raise self._refused(error) from None


def _sync(path: str) -> None:
    with Closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as file:
        os.fdatasync(file)


def disk_refused(error: Exception, _what: str = "") -> Refused:
    """A full disk is a case of its own; other errors are for the operator. A machine may also have no thread to
    spare."""
    if not isinstance(error, OSError) or error.errno == errno.EAGAIN:
        return Refused("worker-error", f"the gateway's state cannot be used: {error}", "the gateway's log has more")
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return _full()
    return Refused("disk", f"the gateway's disk failed: {error.strerror or error}", "look at the gateway's disk")


def _full() -> Refused:
    return Refused("disk-full", "there is no room on the gateway's disk", "free room on it (--state DIR)")
