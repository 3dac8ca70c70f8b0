"""What is the file of the gateways' state, and can this one be used?

Only SQLite opens the file. Closing a file releases all locks of the process on it, and these locks keep a gateway that
ends from removing the write-ahead log under the others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from pathlib import Path
from typing import Final

from wakugumi.adapters.files import sync_folder
from wakugumi.adapters.journal.file import BUSY_TIMEOUT_S, SQL_ERRORS
from wakugumi.errors import ConfigError
from wakugumi.limits.units import MIB

FILE_NAME: Final = "gateway.sqlite"
APPLICATION_ID: Final = 0x57616B47
"""`WakG`: tells the file from other files of SQLite."""

MIGRATIONS: Final = (
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
    # Each row has its client id (`rows.py` finds that of an older row). Earlier versions would show jobs to everybody:
    # they cannot open the file any more.
    (),
)
"""Statements that turn version n - 1 into version n, in order; the version of a file is `PRAGMA user_version`."""
VERSION: Final = len(MIGRATIONS)

WAL_KEPT_BYTES: Final = 32 * MIB
"""Size to which the write-ahead log is cut when it starts anew."""


def open_file(path: Path) -> sqlite3.Connection:
    """Raises ConfigError."""
    try:
        _make_file(path)
        base = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        with contextlib.ExitStack() as undo:
            undo.callback(base.close)
            base.execute("PRAGMA journal_mode = WAL")
            base.execute("PRAGMA synchronous = NORMAL")
            base.execute("PRAGMA wal_autocheckpoint = 0")
            base.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
            base.execute("PRAGMA secure_delete = OFF")
            _make_tables(base, path)
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


def _make_tables(base: sqlite3.Connection, path: Path) -> None:
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
        for migration in MIGRATIONS[0 if is_new else version :]:
            for statement in migration:
                base.execute(statement)
        base.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        base.execute(f"PRAGMA user_version = {VERSION}")
    base.execute("COMMIT")
