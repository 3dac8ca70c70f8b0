"""How are files with secrets read and written? Only their owner may ever read them, and each is old or new, never half.

No link is followed to a secret. A file is made with mode 0600 under another name, flushed, and renamed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from wakugumi.adapters.files import NEW, READ, Closing, sync_folder, write_all
from wakugumi.adapters.folder_lock import FolderInUse, FolderLock
from wakugumi.errors import ConfigError
from wakugumi.limits.access import ACCESS_FILE_BYTES_MAX, ACCESS_LOCK_S

_NEW_SUFFIX: Final = ".new"
_LOCK_NAME: Final = ".access.lock"
_LOCK_PAUSE_S: Final = 0.02
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_private(path: Path) -> bytes | None:
    """Content of a file that only this user may read; None if there is none. Raises ConfigError."""
    try:
        with Closing(os.open(path, READ)) as file:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{path} holds secrets, and is not a file", f"remove {path}")
            _check(found, path, "600")
            if found.st_size > ACCESS_FILE_BYTES_MAX:
                raise ConfigError(f"{path} has more than {ACCESS_FILE_BYTES_MAX} bytes", "restore it from a copy")
            return _read(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        if path.is_symlink():
            raise ConfigError(f"{path} holds secrets, and is a link", "put the file itself there") from None
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def write_private(path: Path, data: bytes) -> None:
    """Replace a file, or a link in its place. Raises ConfigError."""
    scratch = path.with_name(f".{path.name}.{os.urandom(8).hex()}{_NEW_SUFFIX}")
    try:
        try:
            with Closing(os.open(scratch, NEW, stat.S_IRUSR | stat.S_IWUSR)) as file:
                write_all(file, data)
                os.fsync(file)
            os.replace(scratch, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(scratch)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def make_private_folder(path: Path) -> None:
    """A folder of this user alone, made if it is missing. Raises ConfigError."""
    try:
        os.makedirs(path.parent, stat.S_IRWXU, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, stat.S_IRWXU)
            sync_folder(path.parent)
        found = os.lstat(path)
    except OSError as error:
        raise ConfigError(f"the folder {path} cannot be used: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{path} is to hold secrets, and is not a folder", "put a folder there, no link")
    _check(found, path, "700")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder's files are changed by one process at a time; others wait. Raises ConfigError."""
    lock = _lock(folder)
    try:
        yield
    finally:
        lock.release()


def _lock(folder: Path) -> FolderLock:
    until = time.monotonic() + ACCESS_LOCK_S
    while True:
        try:
            return FolderLock(str(folder), _LOCK_NAME)
        except FolderInUse as error:
            if time.monotonic() > until:
                raise ConfigError(
                    f"process {error.pid} has changed files of {folder} for {ACCESS_LOCK_S:g} s", "end that process"
                ) from None
            time.sleep(_LOCK_PAUSE_S)
        except OSError as error:
            raise ConfigError(f"the folder {folder} cannot be locked: {error.strerror}") from None


def remove_halves(folder: Path) -> None:
    """Remove files that a killed process has left unfinished. Only under the lock."""
    for name in os.listdir(folder):
        if name.startswith(".") and name.endswith(_NEW_SUFFIX):
            with contextlib.suppress(OSError):
                os.unlink(folder / name)


def _check(found: os.stat_result, path: Path, mode: str) -> None:
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"{path} holds secrets, and belongs to user {found.st_uid}", "use a file or folder of your own"
        )
    if found.st_mode & _OTHERS:
        raise ConfigError(
            f"others may use {path}, which holds secrets (mode {stat.S_IMODE(found.st_mode):o})",
            f"run chmod {mode} {path}; if others could read it, make new keys",
        )


def _read(file: int) -> bytes:
    parts = []
    while part := os.read(file, ACCESS_FILE_BYTES_MAX):
        parts.append(part)
    return b"".join(parts)
