"""What is a journal on disk, and can this one be used?

A folder with four things in it, used by one leader only:

    journal.sqlite          one table, `log`: a row is a leaf, with all records of one step of the leader
    journal.sqlite-wal      commits that are not in journal.sqlite yet; it belongs to it, and so does `-shm`
    lock                    locked, like the folder itself, by the leader that uses it; holds its process id
    reserve                 space for the day when the disk is full (`adapters/journal/disk_reserve.py`)

Leaves are numbered without gaps. Each has a checksum over its number, its time and its content: SQLite finds a damaged
page, the checksum also finds a valid page of other content. Every error of SQLite is translated here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from wakugumi.adapters.files import sync_folder
from wakugumi.adapters.folder_lock import FolderInUse, FolderLock
from wakugumi.adapters.folder_lock import holder as holder_of
from wakugumi.core.ids import JobId
from wakugumi.core.leader.journal.entries import KeepJob, KeepWhole, LeaderKeep
from wakugumi.errors import ConfigError
from wakugumi.limits.units import KIB, MIB

try:
    from isal.isal_zlib import crc32
except ImportError:  # The same checksum, ten times slower.
    from zlib import crc32

FILE_NAME: Final = "journal.sqlite"
LOCK_NAME: Final = "lock"
NEW_NAME: Final = f"{FILE_NAME}.new"
"""Output of a repair until it replaces the damaged file (`adapters/journal/maintenance.py`)."""
APPLICATION_ID: Final = 0x57616B75
"""`Waku`: distinguishes a journal from other SQLite files."""
MIGRATIONS: Final = (
    (
        "CREATE TABLE log(number INTEGER PRIMARY KEY, written_at REAL, crc INTEGER, records BLOB)",
        "CREATE TABLE stretch(filler BLOB)",
    ),
)
"""Statements that make version n from version n - 1, in order; `PRAGMA user_version` is the version of a file."""
VERSION: Final = len(MIGRATIONS)
PAGE_BYTES: Final = 4 * KIB
"""Page size of SQLite, and the least that a commit writes."""
BUSY_TIMEOUT_S: Final = 5.0
"""How long to wait for another process that reads the file: it locks it only for a moment."""

SQL_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""Exceptions of the module `sqlite3`; UnicodeDecodeError for a message that quotes damaged bytes."""

_WAL_KEPT_BYTES: Final = 32 * MIB
"""The write-ahead log grows during a long read; afterwards it is cut to this."""
_PROBE_NAME: Final = "probe"
_PROBE_BYTES: Final = 256 * KIB
_MAGIC: Final = b"SQLite format 3\0"
_HEAD: Final = Struct("<qd")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[LeaderKeep]).decode


class Leaf(NamedTuple):
    """All records of one step."""

    number: int
    written_at: float
    """By the wall clock, only to show ages: the clock may step."""
    records: list[LeaderKeep]


class Use(NamedTuple):
    """Disk space of the file."""

    file_bytes: int
    free_bytes: int
    """Space of removed leaves inside the file, reused by new ones."""


class Damaged(ConfigError):
    """The content of the file is not what was written. `leaf` is the number of the damaged leaf, 0 if unknown."""

    def __init__(self, path: Path, what: str, leaf: int = 0) -> None:
        super().__init__(
            f"the journal {path} is damaged: {what}",
            f"`waku store check {path.parent}` tells more, `waku store repair {path.parent}` keeps what is readable",
        )
        self.what = what
        self.leaf = leaf


def lock(folder: Path) -> FolderLock:
    """Lock a state folder for one leader. Raises ConfigError."""
    try:
        return FolderLock(str(folder), LOCK_NAME, patient=True)
    except FolderInUse as held:
        raise ConfigError(
            f"another leader (process {held.pid or 'unknown'}) uses the state folder {folder}",
            "stop that one, or give this one a folder of its own with --state DIR",
        ) from None
    except OSError as error:
        raise folder_unusable(folder, error) from None


def holder(folder: Path) -> int:
    """Id of the process that uses this folder: 0 if there is none, -1 if unknown."""
    pid = holder_of(str(folder), LOCK_NAME)
    return 0 if pid is None else pid or -1


def make_folder(folder: Path) -> None:
    """Make the state folder, accessible only to this user. Raises ConfigError."""
    try:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True)
            sync_folder(folder.parent)
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "not permitted")
    except OSError as error:
        raise folder_unusable(folder, error) from None


def open_to_write(path: Path, factory: type[sqlite3.Connection]) -> sqlite3.Connection:
    """Open the journal; create or migrate it if necessary. Raises ConfigError."""
    if path.with_name(NEW_NAME).exists():
        raise ConfigError(
            f"a repair of the journal {path} was interrupted", f"finish it with `waku store repair {path.parent}`"
        )
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        _check_start(path)
    except OSError as error:
        raise folder_unusable(path, error) from None
    try:
        # Several threads use it, one after the other; each statement is a transaction unless one is begun.
        base = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, factory=factory
        )
        with contextlib.ExitStack() as undo:
            undo.callback(base.close)
            _migrate(base, check_identity(base, path))
            undo.pop_all()
    except SQL_ERRORS as error:
        raise file_unusable(path, error) from None
    return base


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open it for reading, also while a leader in another process writes. Raises ConfigError."""
    try:
        _check_start(path)
    except FileNotFoundError:
        raise ConfigError(
            f"there is no journal in {path.parent}", "name the folder that the leader was given with --state DIR"
        ) from None
    except OSError as error:
        raise folder_unusable(path, error) from None
    return open_beside(path, sqlite3.Connection)


def open_beside(path: Path, factory: type[sqlite3.Connection]) -> sqlite3.Connection:
    """As `open_to_read`, for the process that has it open for writing. Raises ConfigError.

    Here only SQLite may open the file: closing a file releases all locks that its process has on it, and the writer's
    lock keeps other processes from removing the write-ahead log.
    """
    try:
        base = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            factory=factory,
        )
        with contextlib.ExitStack() as undo:
            undo.callback(base.close)
            if check_identity(base, path) == 0:
                raise ConfigError(f"{path} is empty: no leader has written to it yet")
            undo.pop_all()
    except SQL_ERRORS as error:
        raise file_unusable(path, error) from None
    return base


def check_identity(base: sqlite3.Connection, path: Path) -> int:
    """The version of this journal, 0 for a new one. Raises ConfigError if it is another file, which stays unchanged."""
    application: int = base.execute("PRAGMA application_id").fetchone()[0]
    version: int = base.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        # A leader that was killed while it created the file leaves an empty one.
        if application or version or base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise _foreign(path)
        return 0
    if version > VERSION:
        raise ConfigError(
            f"the journal {path} is of version {version}, and this Wakugumi knows versions up to {VERSION}",
            "use the Wakugumi that wrote it, or a newer one",
        )
    return version


def file_use(base: sqlite3.Connection) -> Use:
    """Costs next to nothing: all values are on the first page. Raises sqlite3.Error."""
    pages, free, size = (
        base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return Use(pages * size, free * size)


def read_leaves(base: sqlite3.Connection, path: Path) -> Iterator[Leaf]:
    """All leaves, the oldest first, one at a time. Raises Damaged.

    The whole table is checked first, because leaves missing at an end leave no gap. The check costs less than half of
    the reading.
    """
    expected = 0
    if damage := structure_damage(base):
        raise Damaged(path, damage)
    try:
        for row in base.execute("SELECT number, written_at, crc, records FROM log ORDER BY number"):
            leaf = decode_leaf(path, row)
            if expected and leaf.number != expected:
                raise Damaged(path, f"leaf {expected} is missing", expected)
            expected = leaf.number + 1
            yield leaf
    except SQL_ERRORS as error:
        raise file_unusable(path, error) from None


def read_leaf(base: sqlite3.Connection, path: Path, number: int) -> Leaf:
    """Raises ConfigError."""
    try:
        # All rows, so that the statement ends: an open one would keep the write-ahead log from being written back.
        rows = base.execute("SELECT number, written_at, crc, records FROM log WHERE number = ?", (number,)).fetchall()
    except SQL_ERRORS as error:
        raise file_unusable(path, error) from None
    if not rows:
        raise Damaged(path, f"leaf {number} is missing", number)
    return decode_leaf(path, rows[0])


def structure_damage(base: sqlite3.Connection) -> str:
    """The first damage found by SQLite itself; empty if there is none."""
    try:
        found = base.execute("PRAGMA integrity_check(1)").fetchone()[0]
    except SQL_ERRORS as error:
        return str(error)
    return "" if found == "ok" else str(found).replace("\n", " ")


def encode_records(records: Sequence[LeaderKeep]) -> bytes:
    return _encode(records)


def checksum(number: int, written_at: float, records: bytes) -> int:
    return crc32(records, crc32(_HEAD.pack(number, written_at)))


def decode_leaf(path: Path, row: tuple[object, object, object, object]) -> Leaf:
    """A row of `log`. Raises Damaged."""
    number, written_at, crc, records = row
    if not isinstance(number, int):
        raise Damaged(path, "a leaf has no number")
    if (
        not isinstance(written_at, float)
        or not isinstance(records, bytes)
        or checksum(number, written_at, records) != crc
    ):
        raise Damaged(path, f"leaf {number} is not what was written", number)
    try:
        return Leaf(number, written_at, _decode(records))
    except msgspec.MsgspecError as error:
        raise Damaged(path, f"leaf {number} cannot be read: {error}", number) from None


def decode_anyway(records: object) -> list[LeaderKeep]:
    """Readable records of a damaged leaf; not to be trusted."""
    try:
        return _decode(records) if isinstance(records, bytes) else []
    except (msgspec.MsgspecError, ValueError):
        return []


def payloads_of(records: Iterable[LeaderKeep]) -> dict[JobId, bytes]:
    return {
        record.job: record.payload
        for record in records
        if isinstance(record, KeepJob | KeepWhole) and isinstance(record.payload, bytes)
    }


def folder_unusable(path: Path, error: OSError) -> ConfigError:
    """An error of the system about the folder or a file in it as a ConfigError."""
    if error.errno in {errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP}:
        return ConfigError(
            f"{path} cannot be used for the leader's state: a file, link or folder is where it must not be",
            "name a folder of its own with --state DIR",
        )
    if error.errno in {errno.EACCES, errno.EPERM}:
        return ConfigError(
            f"this user may not read and write {path}", "give the folder to the user that runs the leader (chown)"
        )
    if error.errno == errno.EROFS:
        return ConfigError(f"{path} is on a disk that can only be read", "name a folder elsewhere with --state DIR")
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return ConfigError(f"there is no room on the disk of {path}", "free some, and start again")
    return ConfigError(f"{path} cannot be used for the leader's state: {error.strerror or error}")


def file_unusable(path: Path, error: Exception) -> ConfigError:
    """An error of SQLite about the file as a ConfigError."""
    if isinstance(error, UnicodeDecodeError):
        return Damaged(path, "SQLite's message about it is not text")
    if is_full(error, path.parent):
        return ConfigError(f"there is no room on the disk of {path}", "free some, and start again")
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:  # The primary code without its details.
        case sqlite3.SQLITE_CORRUPT:
            return Damaged(path, str(error))
        case sqlite3.SQLITE_NOTADB:
            return _foreign(path)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH | sqlite3.SQLITE_CANTOPEN:
            return ConfigError(
                f"the journal {path} cannot be opened: {error}",
                "the user that runs the leader must own the folder, on a disk that can be written",
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return ConfigError(f"another process holds the journal {path}", "wait for it to end, or end it")
        case _:
            return ConfigError(f"the journal {path} cannot be used: {error}", "look at the disk and the system's log")


def is_full(error: Exception, folder: Path) -> bool:
    """Whether only space is missing. SQLite reports a full disk, and with another code for `-shm`, but not an exhausted
    quota: there a write fails, and the reason must be found out."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_IOERR_WRITE:
        return not _has_room(folder)
    return code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}


def _has_room(folder: Path) -> bool:
    """Whether a probe file can be written; only errors about space count. Its bytes are random, as some file systems
    skip zeros, and synced, as some check the quota only then."""
    path = folder / _PROBE_NAME
    try:
        with open(path, "wb", buffering=0, opener=_open_own) as file:
            file.write(os.urandom(_PROBE_BYTES))
            os.fsync(file)
    except OSError as error:
        return error.errno not in {errno.ENOSPC, errno.EDQUOT}
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
    return True


def _open_own(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _check_start(path: Path) -> None:
    """SQLite would treat a foreign file of a few bytes as empty. Raises ConfigError, OSError."""
    with open(path, "rb") as file:
        start = file.read(len(_MAGIC))
    if start not in {b"", _MAGIC}:
        raise _foreign(path)


def _foreign(path: Path) -> ConfigError:
    return ConfigError(
        f"{path} is not a journal of Wakugumi", "name another folder with --state DIR, or put the file elsewhere"
    )


def _migrate(base: sqlite3.Connection, version: int) -> None:
    # First, as the first page settles it: unneeded space can be returned to the disk. This costs a page per commit, and
    # saves more when leaves are removed, as their pages need not be read.
    base.execute("PRAGMA auto_vacuum = INCREMENTAL")
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("PRAGMA synchronous = FULL")
    base.execute("PRAGMA wal_autocheckpoint = 0")
    base.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
    # Some builds of SQLite overwrite deleted content with zeros, which would write the bytes of each job once more.
    base.execute("PRAGMA secure_delete = OFF")
    if version == VERSION:
        return
    base.execute("BEGIN IMMEDIATE")
    for migration in MIGRATIONS[version:]:
        for statement in migration:
            base.execute(statement)
    base.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    base.execute(f"PRAGMA user_version = {VERSION}")
    base.execute("COMMIT")
