"""Is a journal sound, and how is one copied or mended? For whoever looks after a leader (`waku store`).

Looking and copying disturb no leader that runs. Mending needs the folder for itself, and destroys nothing: what can be
read goes into a new file, under the numbers it had, and the damaged one is put aside.

    journal.sqlite.part ──complete──► journal.sqlite.new ──the old one is aside──► journal.sqlite

A leader does not start while a `.new` is there: it could take the journal for one that is only missing.
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
    KeepAttempt,
    KeepDeclined,
    KeepDelivered,
    KeepJob,
    KeepOutcome,
    KeepResult,
    KeepWhole,
    LeaderKeep,
)
from wakugumi.errors import ConfigError

_PART_NAME: Final = f"{FILE_NAME}.part"
_SIDE_FILES: Final = ("-wal", "-shm")


class JobCounts(msgspec.Struct):
    """How many jobs a journal has, by what is to be done with them."""

    queued: int = 0
    running: int = 0
    finished: int = 0
    undelivered: int = 0
    """Of the finished: nobody has taken the result."""
    dead: int = 0
    """Of the finished: they used up their attempts."""


class JournalReport(msgspec.Struct):
    """What was found in a journal."""

    path: str
    leader: int
    """The process that uses it now: 0 if there is none, -1 if it is not known which."""
    leaves: int
    """That can be read."""
    lost_leaves: list[int]
    emptied_leaves: int
    """Of those that can be read: an earlier repair put them where a damaged one had been."""
    jobs: JobCounts
    lost_jobs: list[str]
    """Those that the journal speaks of without having their request. What stood in lost leaves alone is not among them:
    nobody can say."""
    file_bytes: int
    free_bytes: int
    """Of the file: what it can take without growing."""
    damage: str
    """The first that was found; empty if there is none."""


class Repair(msgspec.Struct):
    """What became of a damaged journal."""

    found: JournalReport
    aside: str
    """Where the damaged one is now; empty if it was sound, and was left alone."""


def check(folder: Path) -> JournalReport:
    """Look at all of it, also while a leader uses it. Raises ConfigError if there is nothing to look at."""
    report = _look(folder / FILE_NAME)
    report.leader = holder(folder)
    return report


def backup(folder: Path, target: Path) -> int:
    """Copy it as it is at one moment, also while a leader uses it; returns the bytes. Raises ConfigError."""
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
                os.link(part, target)  # unlike a rename it takes nobody's place
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
    """Keep what is readable, put the damaged file aside. Raises ConfigError, and then the journal is as it was."""
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
    """What all leaves together say about each job."""

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
        if isinstance(record, DropLeaves):
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
            base.execute("BEGIN")  # one moment, however long it takes to look
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
    """A leaf that cannot be read becomes an empty one, so that the numbers have no gap."""
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
    """The damaged file steps aside, with what belongs to it, and the new one takes its place; returns where it is."""
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
