"""Which process owns a folder? The first one, by a lock; further ones get folders inside it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from wakugumi.adapters.folder_lock import FolderInUse, FolderLock
from wakugumi.adapters.programs.run_as import User, check_way
from wakugumi.errors import ConfigError

LOCK: Final = ".lock"
_PASSABLE: Final = stat.S_IRWXU | stat.S_IXGRP | stat.S_IXOTH
"""Mode that lets programs of another user enter their own directory, but list none."""
_WORKERS_MAX: Final = 100
"""Most workers of one machine that share a folder: each claims a folder inside it."""


def claim(path: Path, *, what: str, inside: str, hint: str, user: User | None = None) -> tuple[str, FolderLock]:
    """The claimed folder and its lock. Raises ConfigError.

    `what` names the folder in errors; `inside` is the name of further workers' folders, before their number. A `user`
    whose programs run here cannot replace the folder, and can enter its own directories in it.
    """
    for number in range(1, _WORKERS_MAX + 1):
        folder = os.path.abspath(path if number == 1 else path / f"{inside}{number}")
        try:
            if user is not None:
                check_way(user, what, folder)  # Before anything is made at an unsafe path.
            os.makedirs(folder, 0o700, exist_ok=True)
            if user is not None:
                check_way(user, what, folder)
            if os.lstat(folder).st_uid not in {os.geteuid(), 0}:
                raise ConfigError(f"the {what} {folder} belongs to another user", hint)
            status = os.stat(folder)
            _check(status, f"the {what} {folder}", hint)
            lock = FolderLock(folder, LOCK)
            try:
                if not lock.is_on(status):
                    raise ConfigError(f"the {what} {folder} was replaced just now", hint)
                if user is not None:
                    os.fchmod(lock.folder, _PASSABLE)
            except BaseException:
                lock.release()
                raise
        except FolderInUse:
            continue
        except OSError as error:
            raise ConfigError(f"the {what} {folder} cannot be used: {error.strerror}", hint) from None
        return folder, lock
    raise ConfigError(f"{_WORKERS_MAX} workers already share the {what} {path}", hint)


def _check(status: os.stat_result, folder: str, hint: str) -> None:
    """A process that may write to the folder could replace its files. Raises ConfigError."""
    if status.st_uid not in {os.geteuid(), 0}:
        raise ConfigError(f"{folder} belongs to another user", hint)
    others = stat.S_IWOTH if status.st_uid == os.geteuid() else stat.S_IWGRP | stat.S_IWOTH
    if status.st_mode & others:
        raise ConfigError(
            f"other users may write to {folder} (mode {stat.S_IMODE(status.st_mode):o})",
            f"{hint}; a folder inside this one will do: it is made for this user alone",
        )
