"""How are files written, read and removed safely in a folder where a foreign program ran, and how much space is left?

No link is followed, no pipe blocks, no folder is too deep, and an incomplete file is removed.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wakugumi.errors import Refused, Sick

READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
READ_FOLDER: Final = READ | os.O_DIRECTORY
NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
USED_UP: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS})
"""Errors of exhausted descriptors, processes or memory."""
_COPY_BYTES: Final = 1 << 30
"""Bytes that the kernel copies in one call."""


GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Errors of `open_beneath` for a missing file, or a link or file in the place of a folder."""
_SEARCH_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_beneath(folder: int, name: str, flags: int) -> int:
    """Open a file below an open folder by a name with slashes. No part of the name may be a link, so that no process
    that can change these folders can lead elsewhere. Raises OSError."""
    way, _, last = name.rpartition("/")
    at = folder
    try:
        for part in way.split("/") if way else ():
            inside = os.open(part, _SEARCH_FOLDER, dir_fd=at)
            if at != folder:
                os.close(at)
            at = inside
        return os.open(last, flags | os.O_NOFOLLOW, dir_fd=at)
    finally:
        if at != folder:
            os.close(at)


def in_folder(path: str, folder: int | None) -> str:
    """The name of a file relative to its open parent `folder`, if given; else its path."""
    return path if folder is None else path.rpartition("/")[2]


def refused(error: OSError, what: str) -> Refused:
    """A disk error as a Refused with a code of the error table."""
    text = f"{what}: {error.strerror or error}"
    if error.errno in _DISK_ERRORS:
        return Sick("disk", text)
    return Sick("worker-error", text) if error.errno in USED_UP else Refused("worker-error", text)


def write_all(file: int, data: bytes | bytearray | memoryview) -> None:
    """Write to an open file, in as many calls as necessary. Raises OSError."""
    written = os.write(file, data) if data else 0
    while written < len(data):
        written += os.write(file, memoryview(data)[written:])


def sync_folder(path: str | Path) -> None:
    """Make new, changed and removed names in this folder survive a power loss. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def free_on_disk(folder: str | Path) -> int:
    """Bytes that this user may still write there. Raises OSError."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def write_new(path: str, content: bytes, mode: int, folder: int | None = None) -> None:
    """Write a new file; an error leaves none. With an open `folder`, the path is relative to it."""
    file = os.open(path, NEW, mode, dir_fd=folder)
    try:
        write_all(file, content)
    except OSError:
        os.unlink(path, dir_fd=folder)
        raise
    finally:
        os.close(file)


def copy_new(source: int, path: str, mode: int, folder: int | None = None) -> None:
    """Copy an open file to a new name; an error leaves none."""
    file = os.open(path, NEW, mode, dir_fd=folder)
    try:
        at = 0
        while sent := os.sendfile(file, source, at, _COPY_BYTES):
            at += sent
    except OSError:
        os.unlink(path, dir_fd=folder)
        raise
    finally:
        os.close(file)


def read_all(path: str) -> bytes:
    file = os.open(path, READ)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        return os.read(file, status.st_size)
    finally:
        os.close(file)


def remove_tree(path: str) -> None:
    """Remove a folder with its content, or the link or file in its place. Raises OSError if anything stays."""
    try:
        file = os.open(path, READ_FOLDER)
    except FileNotFoundError:
        return
    except OSError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return
        os.chmod(path, stat.S_IRWXU)  # noqa: PTH101
        file = os.open(path, READ_FOLDER)
    try:
        os.fchmod(file, stat.S_IRWXU)
        empty(file, os.listdir(file))
    finally:
        os.close(file)
    os.rmdir(path)


def empty(folder: int, names: Sequence[str]) -> None:
    """Remove these from an open folder. Nested folders are moved up first, so that none is too deep."""
    folders = [name for name in names if not _unlink(folder, name)]
    prefix, number = os.urandom(8).hex(), itertools.count()
    while folders:
        inside = folders.pop()
        _unlock(folder, inside)  # A program may have locked it.
        file = os.open(inside, READ_FOLDER, dir_fd=folder)
        try:
            for name in os.listdir(file):
                if not _unlink(file, name):
                    _unlock(file, name)
                    folders.append(f"{prefix}-{next(number)}")
                    os.rename(name, folders[-1], src_dir_fd=file, dst_dir_fd=folder)
        finally:
            os.close(file)
        os.rmdir(inside, dir_fd=folder)


def _unlock(folder: int, name: str) -> None:
    """Give the owner all rights on a folder. A plain `chmod` would follow a link put in its place; an unreadable folder
    needs /proc, which is not everywhere."""
    try:
        file, by_number = os.open(name, READ_FOLDER, dir_fd=folder), True
    except PermissionError:
        file, by_number = os.open(name, _SEARCH_FOLDER, dir_fd=folder), not hasattr(os, "O_PATH")
    try:
        os.chmod(file if by_number else f"/proc/self/fd/{file}", stat.S_IRWXU)  # noqa: PTH101
    finally:
        os.close(file)


def _unlink(folder: int, name: str) -> bool:
    """False if it is a folder that is not empty."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            return False
    return True
