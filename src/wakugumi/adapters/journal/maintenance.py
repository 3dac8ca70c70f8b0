"""Is a journal intact, and how is it copied or repaired? For operators of a leader (`waku store`).

Checking and copying do not disturb a running leader. A repair needs the folder for itself, and destroys nothing:
readable leaves go into a new file, with their numbers, and the damaged file is renamed.

    journal.sqlite.part ──complete──► journal.sqlite.new ──the old one is renamed──► journal.sqlite

A leader does not start while a `.new` exists, because it could take the journal for a missing one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import time
from pathlib import Path
from typing import Final

import msgspec

from wakugumi.adapters.files import sync_folder
from wakugumi.adapters.journal.file import (
    FILE_NAME,
    NEW_NAME,
    SQL_ERRORS,
    Leaf,
    checksum,
    encode_records,
    file_unusable,
    file_use,
    folder_unusable,
    holder,
    lock,
    open_to_read,
    open_to_write,
    structure_damage,
)
from wakugumi.adapters.journal.salvage import LostLeaf, salvage
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.leader.jobs.dead_letters import is_dead
from wakugumi.core.leader.journal.entries import (
    DropLeaves,
    ForgetJob,
    ForgetWorkerKey,
    KeepAttempt,
    KeepDeclined,
    KeepDelivered,
    KeepJob,
    KeepOutcome,
    KeepResult,
    KeepWhole,
    KeepWorkerKey,
    LeaderKeep,
)
from wakugumi.errors import ConfigError

_PART_NAME: Final = f"{FILE_NAME}.part"
_SIDE_FILES: Final = ("-wal", "-shm")


class JobCounts(msgspec.Struct):
    """Number of jobs in a journal, by state."""

    queued: int = 0
    running: int = 0
    finished: int = 0
    undelivered: int = 0
    """Finished jobs whose result was not delivered."""
    dead: int = 0
    """Finished jobs that used up their attempts."""


class JournalReport(msgspec.Struct):
    """Findings about a journal."""

    path: str
    leader: int
    """Id of the process that uses it now: 0 if there is none, -1 if unknown."""
    leaves: int
    """Number of readable leaves."""
    lost_leaves: list[int]
    emptied_leaves: int
    """Readable leaves that an earlier repair put in the place of damaged ones."""
    jobs: JobCounts
    lost_jobs: list[str]
    """Jobs whose records the journal has without their request. Jobs that were only in lost leaves are unknown."""
    file_bytes: int
    free_bytes: int
    """Free space inside the file."""
    damage: str
    """The first damage found; empty if there is none."""


class Repair(msgspec.Struct):
    """Outcome of a repair."""

    found: JournalReport
    aside: str
    """Path of the damaged file now; empty if the journal was intact, and is unchanged."""


def check(folder: Path) -> JournalReport:
    """Check all of a journal, also while a leader uses it. Raises ConfigError if there is none."""
    report = _look(folder / FILE_NAME)
    report.leader = holder(folder)
    return report


def backup(folder: Path, target: Path) -> int:
    """Copy a journal as of one moment, also while a leader uses it; returns the bytes. Raises ConfigError."""
    path = folder / FILE_NAME
    part = target.with_name(f"{target.name}.part")
    with contextlib.closing(open_to_read(path)) as base:
        try:
            if os.path.lexists(target):
                raise FileExistsError
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            try:
                with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as copy:
                    base.backup(copy)
                os.link(part, target)  # Unlike a rename, a link never replaces a file.
                sync_folder(target.absolute().parent)
            finally:
                part.unlink()
        except FileExistsError as error:
            raise ConfigError(
                f"{error.filename or target} is there already", "name a file that is not there yet"
            ) from None
        except SQL_ERRORS as error:
            raise file_unusable(path, error) from None
        except OSError as error:
            raise ConfigError(
                f"{target} cannot be written: {error.strerror}", "name a new file in a folder that is there"
            ) from None
    return target.stat().st_size


def repair(folder: Path) -> Repair:
    """Keep the readable leaves, and rename the damaged file. Raises ConfigError with the journal unchanged."""
    path, part, new = (folder / name for name in (FILE_NAME, _PART_NAME, NEW_NAME))
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}", "name the folder that the leader was given with --state DIR")
    held = lock(folder)
    try:
        if new.exists() and not path.exists():
            return Repair(_look(new), _exchange(folder))
        new.unlink(missing_ok=True)
        found = _look(path)
        if not found.damage:
            return Repair(found, "")
        if not found.leaves:
            raise ConfigError(
                f"nothing in {path} can be read: {found.damage}",
                "put a backup of it into an empty folder, under the same name",
            )
        _copy_readable(path, part)
        part.rename(new)
        sync_folder(folder)
        return Repair(found, _exchange(folder))
    except OSError as error:
        raise folder_unusable(path, error) from None
    finally:
        held.release()


class _JournalFold:
    """The state of each job according to all leaves."""

    def __init__(self) -> None:
        self._state: dict[JobId, str] = {}
        self._undelivered: set[JobId] = set()
        self._lost: set[JobId] = set()

    def add(self, leaf: Leaf | LostLeaf) -> None:
        for record in leaf.records:
            if isinstance(leaf, Leaf):
                self._record(record)
            elif isinstance(record, KeepJob | KeepWhole) and record.job not in self._state:
                self._lost.add(record.job)

    def count(self) -> JobCounts:
        states = list(self._state.values())
        return JobCounts(
            states.count("queued"),
            states.count("running"),
            states.count("finished") + states.count("dead"),
            len(self._undelivered),
            states.count("dead"),
        )

    def lost(self) -> list[str]:
        return sorted(show_job_id(job) for job in self._lost)

    def _record(self, record: LeaderKeep) -> None:
        if isinstance(record, DropLeaves | KeepWorkerKey | ForgetWorkerKey):
            return
        job = record.job
        if isinstance(record, KeepJob | KeepWhole | ForgetJob):
            self._state.pop(job, None)
            self._undelivered.discard(job)
            self._lost.discard(job)
        elif job not in self._state:
            self._lost.add(job)
            return
        match record:
            case KeepJob() | KeepOutcome() | KeepDeclined():
                self._state[job] = "queued"
            case KeepAttempt():
                self._state[job] = "running"
            case KeepResult():
                self._state[job] = "dead" if is_dead(record.result) else "finished"
                self._undelivered.add(job)
            case KeepDelivered():
                self._undelivered.discard(job)
            case KeepWhole():
                if record.result is None:
                    self._state[job] = "queued" if record.running is None else "running"
                else:
                    self._state[job] = "dead" if is_dead(record.result) else "finished"
                    if not record.delivered:
                        self._undelivered.add(job)


def _look(path: Path) -> JournalReport:
    fold = _JournalFold()
    leaves = emptied = 0
    lost: list[int] = []
    with contextlib.closing(open_to_read(path)) as base:
        try:
            base.execute("BEGIN")  # The state of one moment, however long this takes.
            damage = structure_damage(base)
            for leaf in salvage(base, path):
                fold.add(leaf)
                if isinstance(leaf, LostLeaf):
                    lost.append(leaf.number)
                    damage = damage or leaf.why
                else:
                    leaves += 1
                    emptied += not leaf.records
            use = file_use(base)
        except SQL_ERRORS as error:
            raise file_unusable(path, error) from None
    lost_jobs = fold.lost() if lost else []
    return JournalReport(str(path), 0, leaves, lost, emptied, fold.count(), lost_jobs, *use, damage)


def _copy_readable(path: Path, target: Path) -> None:
    """Copy all leaves; an unreadable leaf becomes an empty one, so that the numbers have no gap."""
    for side in ("", *_SIDE_FILES):
        target.with_name(target.name + side).unlink(missing_ok=True)
    try:
        with (
            contextlib.closing(open_to_read(path)) as base,
            contextlib.closing(open_to_write(target, sqlite3.Connection)) as new,
        ):
            new.execute("BEGIN")
            written_at = 0.0
            for leaf in salvage(base, path):
                written_at = leaf.written_at if isinstance(leaf, Leaf) else written_at
                records = encode_records(leaf.records if isinstance(leaf, Leaf) else [])
                row = (leaf.number, written_at, checksum(leaf.number, written_at, records), records)
                new.execute("INSERT INTO log VALUES (?, ?, ?, ?)", row)
            new.execute("COMMIT")
    except SQL_ERRORS as error:
        raise file_unusable(target, error) from None


def _exchange(folder: Path) -> str:
    """Rename the damaged file with its side files, and put the new one in its place; returns the damaged file's
    path."""
    path = folder / FILE_NAME
    name = time.strftime("damaged-%Y%m%dT%H%M%SZ", time.gmtime())
    again = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    names = (f"{name}{suffix}.sqlite" for suffix in again)
    taken = set(os.listdir(folder))
    aside = folder / next(name for name in names if taken.isdisjoint({name + side for side in ("", *_SIDE_FILES)}))
    for side in ("", *_SIDE_FILES):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{side}").rename(f"{aside}{side}")
    sync_folder(folder)
    (folder / NEW_NAME).rename(path)
    sync_folder(folder)
    return str(aside)
