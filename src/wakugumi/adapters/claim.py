"""Whose folder is this? One process's, by a lock; further ones get folders of their own inside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from wakugumi.adapters.folder_lock import FolderLock, Held
from wakugumi.errors import ConfigError

LOCK: Final = ".lock"
_WORKERS_MAX: Final = 100
"""Workers of one machine that share a folder: each claims a folder of its own in it."""


def claim(path: Path, *, what: str, inside: str, hint: str) -> tuple[str, FolderLock]:
    """The folder that is ours now, and the lock that says so. Raises ConfigError.

    `what` it is called in errors; `inside` is how the folders of further workers are called, before their number.
    """
    for number in range(1, _WORKERS_MAX + 1):
        folder = os.path.abspath(path if number == 1 else path / f"{inside}{number}")
        try:
            os.makedirs(folder, 0o700, exist_ok=True)
            owner = os.stat(folder).st_uid
            lock = FolderLock(folder, LOCK)
        except Held:
            continue
        except OSError as error:
            raise ConfigError(f"the {what} {folder} cannot be used: {error.strerror}", hint) from None
        if owner not in {os.geteuid(), 0}:  # its owner could put anything in place of what we keep there
            lock.release()
            raise ConfigError(f"the {what} {folder} belongs to another user", hint)
        return folder, lock
    raise ConfigError(f"{_WORKERS_MAX} workers already share the {what} {path}", hint)
