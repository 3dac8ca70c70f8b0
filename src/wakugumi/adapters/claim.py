"""Whose folder is this? One process's, by a lock on a file in it; further ones get folders of their own inside."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from wakugumi.errors import ConfigError

_WORKERS_MAX: Final = 100
"""Workers of one machine that share a folder: each claims a folder of its own in it."""


def claim(path: Path, *, what: str, inside: str, hint: str) -> tuple[str, int]:
    """The folder that is ours now, and the open file whose lock says so. Raises ConfigError.

    `what` it is called in errors; `inside` is how the folders of further workers are called, before their number.
    """
    for number in range(1, _WORKERS_MAX + 1):
        folder = os.path.abspath(path if number == 1 else path / f"{inside}{number}")
        try:
            os.makedirs(folder, 0o700, exist_ok=True)
            owner = os.stat(folder).st_uid
            lock = os.open(f"{folder}/.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"the {what} {folder} cannot be used: {error.strerror}", hint) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        if owner not in {os.geteuid(), 0}:  # its owner could put anything in place of what we keep there
            os.close(lock)
            raise ConfigError(f"the {what} {folder} belongs to another user", hint)
        return folder, lock
    raise ConfigError(f"{_WORKERS_MAX} workers already share the {what} {path}", hint)
