"""How do the gateways of one machine share their state? One SQLite file in a folder that all of them use.

Calls are made in the loop itself: with a write-ahead log and no wait for the disk a call takes some 50 µs, less than
the way to a thread and back. Only `flush` waits for the disk, in a thread, outside of every transaction, once for all
waiting callers: only the write-ahead log is flushed; pages that were moved from it into the file were flushed there
before. `tidy` moves pages, on a connection of its own, so that no commit does.

Leases count the time since the machine was started, and hold for that start alone: a change of the machine's clock ends
no lease, and a restart ends all of them. Times that people read, and ages of days, are by the machine's clock.

Only SQLite opens the file. Closing a file releases all locks of the process on it, and these locks keep a gateway that
ends from removing the write-ahead log under the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from wakugumi.adapters.files import sync_folder
from wakugumi.adapters.gateway_store.interface import (
    DONE,
    FAILED,
    QUEUED,
    RUNNING,
    GatewayJob,
    OpenJob,
    Totals,
)
from wakugumi.adapters.http.spool import Content
from wakugumi.adapters.journal.disk_reserve import DiskRoom
from wakugumi.adapters.journal.file import BUSY_TIMEOUT_S, SQL_ERRORS, file_use, is_full, make_folder
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.loop.threads import beside
from wakugumi.adapters.programs.linux import boot_id
from wakugumi.core.ids import JobId
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.units import MIB

log = logging.getLogger("wakugumi.gateway")

T = TypeVar("T")

FILE_NAME: Final = "gateway.sqlite"
APPLICATION_ID: Final = 0x57616B47
"""`WakG`: tells the file from other files of SQLite."""

_MIGRATIONS: Final = (
    (
        # Searched values have a column; `told` is all else but the contents, which stand last: a look at the state of a
        # job does not read them.
        """CREATE TABLE job(
            id BLOB PRIMARY KEY, version INTEGER, state INTEGER, owner TEXT, accepted_at REAL, changed_at REAL,
            kept_bytes INTEGER, told BLOB, body BLOB, answer BLOB)""",
        "CREATE INDEX open_jobs ON job(owner, state) WHERE state < 2",
        "CREATE INDEX ended_jobs ON job(changed_at, kept_bytes) WHERE state >= 2",
        "CREATE TABLE gateway(owner TEXT PRIMARY KEY, until REAL)",
    ),
    (
        # The oldest jobs of an owner are found without sorting all of its jobs.
        "DROP INDEX open_jobs",
        "CREATE INDEX open_jobs ON job(owner, accepted_at, state) WHERE state < 2",
    ),
    (
        # A gateway of an earlier version that still runs on this file renews no lease and takes over no job.
        "DROP TABLE gateway",
        "CREATE TABLE lease(owner TEXT PRIMARY KEY, boot TEXT, until REAL)",
    ),
    (
        # Bodies of open jobs are counted without reading their rows. Bodies in files of an earlier version are counted
        # from the next change of their rows on.
        "UPDATE job SET kept_bytes = coalesce(length(body), 0) WHERE state < 2",
        "DROP INDEX open_jobs",
        "CREATE INDEX open_jobs ON job(owner, accepted_at, state, kept_bytes) WHERE state < 2",
    ),
)
"""Statements that turn version n - 1 into version n, in order; the version of a file is `PRAGMA user_version`."""
VERSION: Final = len(_MIGRATIONS)

_STATES: Final = {QUEUED: 0, RUNNING: 1, DONE: 2, FAILED: 3}
_STATE_NAMES: Final = tuple(_STATES)
_COLUMNS: Final = "id, version, state, owner, accepted_at, changed_at, told"
_WAL_KEPT_BYTES: Final = 32 * MIB
"""Size to which the write-ahead log is cut when it starts anew."""
_WAL_MAX_BYTES: Final = 64 * MIB
"""Size from which writers wait a moment for a restart of the log: under constant writes it never starts anew by
itself."""
_RESTART_S: Final = 0.25
"""Longest wait for a moment without readers and writers: otherwise the next `tidy` tries again."""


class _RowExtras(msgspec.Struct, array_like=True):
    """Fields that no query uses."""

    name: str
    group: str
    is_async: bool
    key: str
    query: str
    headers: dict[str, str]
    tries: int
    status: int
    head: dict[str, str]
    body: tuple[int, str] | None
    answer: tuple[int, str] | None
    """Size and file of body and answer; the file is empty if the content is in the row."""
    request: str = ""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_RowExtras).decode


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
            self._base = _open(self._path)
            undo.callback(self._base.close)
            self._aside = _open(self._path)
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
        self._flushed: asyncio.Future[None] | None = None
        """The next flush, for writes since the last one began."""
        self._flushing: asyncio.Task[None] | None = None

    async def get(self, job: JobId, *, contents: bool = True) -> GatewayJob | None:
        columns = "body, answer" if contents else "NULL, NULL"
        with self._told():
            found = self._base.execute(f"SELECT {_COLUMNS}, {columns} FROM job WHERE id = ?", (job,)).fetchone()  # noqa: S608 - our own words
        return None if found is None else _row(found)

    async def add(self, row: GatewayJob) -> tuple[GatewayJob, bool]:
        now = self._clock()
        new = msgspec.structs.replace(row, version=1, accepted_at=now, changed_at=now)
        with self._told():
            added = self._base.execute(
                "INSERT INTO job VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*_values(new), _data(new.body), _data(new.answer)),
            ).rowcount
        if added == 1:
            return new, True
        found = await self.get(row.job)
        return (found, False) if found is not None else await self.add(row)  # The row has just been removed.

    async def replace(self, old: GatewayJob, new: GatewayJob) -> GatewayJob | None:
        new = msgspec.structs.replace(
            new, version=old.version + 1, accepted_at=old.accepted_at, changed_at=self._clock()
        )
        job, version, *values = _values(new)
        sets = "version = ?, state = ?, owner = ?, accepted_at = ?, changed_at = ?, kept_bytes = ?, told = ?"
        for column, before, after in (("body", old.body, new.body), ("answer", old.answer, new.answer)):
            if before is not after:  # A content that stays is not written again.
                sets += f", {column} = ?"
                values.append(_data(after))
        with self._told():
            changed = self._execute(
                f"UPDATE job SET {sets} WHERE id = ? AND version = ?",  # noqa: S608 - our own words
                (version, *values, job, old.version),
            ).rowcount
        return new if changed == 1 else None

    async def remove(self, row: GatewayJob) -> bool:
        with self._told():
            gone = self._execute("DELETE FROM job WHERE id = ? AND version = ?", (row.job, row.version)).rowcount
        return gone == 1

    async def hold(self, owner: str, lease_s: float) -> None:
        now = self._uptime()
        with self._told():
            self._execute("INSERT OR REPLACE INTO lease VALUES(?, ?, ?)", (owner, self._boot, now + lease_s))
            self._execute("DELETE FROM lease WHERE boot <> ? OR until < ?", (self._boot, now))

    async def release(self, owner: str) -> None:
        with self._told():
            self._base.execute("DELETE FROM lease WHERE owner = ?", (owner,))

    async def is_held(self, owner: str) -> bool:
        with self._told():
            found = self._base.execute("SELECT boot, until FROM lease WHERE owner = ?", (owner,)).fetchone()
        return found is not None and found[0] == self._boot and found[1] >= self._uptime()

    async def orphans(self, most: int, *, but: str = "") -> list[JobId]:
        found: list[tuple[float, bytes]] = []
        with self._told():
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
        with self._told():
            found = self._base.execute(
                "SELECT accepted_at, id FROM job WHERE state < 2 AND owner = ? AND (accepted_at, id) > (?, ?) "
                "ORDER BY accepted_at, id LIMIT ?",
                (owner, *(after or (-math.inf, b"")), most),
            ).fetchall()
        return [OpenJob(accepted_at, JobId(job)) for accepted_at, job in found]

    async def oldest(self, most: int, age_s: float | None = None) -> list[GatewayJob]:
        before = math.inf if age_s is None else self._clock() - age_s
        with self._told():
            found = self._base.execute(
                f"SELECT {_COLUMNS}, NULL, NULL FROM job WHERE state >= 2 AND changed_at <= ? "  # noqa: S608 - our own words
                "ORDER BY changed_at LIMIT ?",
                (before, most),
            ).fetchall()
        return [_row(one) for one in found]

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
        if os.stat(self._log).st_size <= _WAL_MAX_BYTES:
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
                raise _disk_refused(error) from None

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
                failed = _disk_refused(error)
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

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Translates SQLite's errors."""
        try:
            yield
        except SQL_ERRORS as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> Refused:
        if is_full(error, self._path.parent):
            return _full()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return Refused("busy", "another process holds the gateway's state", "come again")
        return Refused("worker-error", f"the gateway's state cannot be used: {error}", "look at the gateway's disk")


def _open(path: Path) -> sqlite3.Connection:
    """Raises ConfigError."""
    try:
        _make_file(path)
        base = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        with contextlib.ExitStack() as undo:
            undo.callback(base.close)
            base.execute("PRAGMA journal_mode = WAL")
            base.execute("PRAGMA synchronous = NORMAL")
            base.execute("PRAGMA wal_autocheckpoint = 0")
            base.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
            base.execute("PRAGMA secure_delete = OFF")
            _make(base, path)
            sync_folder(path.parent)
            undo.pop_all()
    except OSError as error:
        raise ConfigError(f"{path} cannot be used for the gateway's state: {error.strerror or error}") from None
    except SQL_ERRORS as error:
        raise ConfigError(
            f"{path} cannot be used for the gateway's state: {error}", "name another folder with --state DIR"
        ) from None
    return base


def _make_file(path: Path) -> None:
    """Makes the file for this user alone, if it is not there. An existing file may have locks of this process, and is
    not opened. Raises OSError."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise OSError(errno.EEXIST, "it is no file") from None


def _make(base: sqlite3.Connection, path: Path) -> None:
    """Makes or migrates the tables, in one transaction, for two gateways may start at once."""
    base.execute("BEGIN IMMEDIATE")
    application = base.execute("PRAGMA application_id").fetchone()[0]
    version = base.execute("PRAGMA user_version").fetchone()[0]
    is_new = application == 0 and base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if not is_new and (application != APPLICATION_ID or version > VERSION):
        raise ConfigError(
            f"{path} is not the state of a gateway of this version", "name another folder with --state DIR"
        )
    if is_new or version < VERSION:
        for migration in _MIGRATIONS[0 if is_new else version :]:
            for statement in migration:
                base.execute(statement)
        base.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        base.execute(f"PRAGMA user_version = {VERSION}")
    base.execute("COMMIT")


def _values(row: GatewayJob) -> tuple[object, ...]:
    told = _RowExtras(
        row.name,
        row.group,
        row.is_async,
        row.key,
        row.query,
        row.headers,
        row.tries,
        row.status,
        row.head,
        None if row.body is None else (row.body.size, row.body.file),
        None if row.answer is None else (row.answer.size, row.answer.file),
        row.request,
    )
    content = row.answer if row.is_final else row.body
    kept_bytes = 0 if content is None else content.size
    state = _STATES[row.state]
    return row.job, row.version, state, row.owner, row.accepted_at, row.changed_at, kept_bytes, _encode(told)


def _data(content: Content | None) -> bytes | None:
    return None if content is None else content.data


def _row(found: tuple[bytes, int, int, str, float, float, bytes, bytes | None, bytes | None]) -> GatewayJob:
    job, version, state, owner, accepted_at, changed_at, encoded, body, answer = found
    told = _decode(encoded)
    return GatewayJob(
        job=JobId(job),
        name=told.name,
        owner=owner,
        state=_STATE_NAMES[state],
        group=told.group,
        is_async=told.is_async,
        key=told.key,
        query=told.query,
        headers=told.headers,
        body=None if told.body is None else Content(told.body[0], body, told.body[1]),
        tries=told.tries,
        status=told.status,
        head=told.head,
        answer=None if told.answer is None else Content(told.answer[0], answer, told.answer[1]),
        version=version,
        accepted_at=accepted_at,
        changed_at=changed_at,
        request=told.request,
    )


def _sync(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(file)
    finally:
        os.close(file)


def _disk_refused(error: Exception) -> Refused:
    """A full disk is a case of its own; other errors are for the operator. A machine may also have no thread to
    spare."""
    if not isinstance(error, OSError):
        return Refused("worker-error", f"the gateway's state cannot be used: {error}", "the gateway's log has more")
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return _full()
    return Refused("disk", f"the gateway's disk failed: {error.strerror or error}", "look at the gateway's disk")


def _full() -> Refused:
    return Refused("disk-full", "there is no room on the gateway's disk", "free room on it (--state DIR)")
