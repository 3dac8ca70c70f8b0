"""How are files written, read and removed safely in a folder where a foreign program ran, and how much space is left?

No link is followed, no pipe blocks, no folder is too deep, and an incomplete file is removed.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from wakugumi.adapters.beneath import LOOK_AT_FOLDER, open_beneath
from wakugumi.errors import Refused, Sick
from wakugumi.limits.units import KIB, MIB

READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
READ_FOLDER: Final = READ | os.O_DIRECTORY
PLAIN_FOLDER: Final = stat.S_IFDIR | stat.S_IRWXU
"""Mode of a folder of ours that no program has changed."""
NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
USED_UP: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS})
"""Errors of exhausted descriptors, processes or memory."""
_PUNCH_HOLE: Final = 0x1 | 0x2
"""Linux: make a hole, and keep the file's size."""
_COPY_BYTES: Final = 1 << 30
"""Bytes that the kernel copies in one call."""
_FREED_BYTES: Final = 4 * MIB
"""Space of a file that is given back by one call."""
_BLOCK_BYTES: Final = 64 * KIB
"""A multiple of the blocks of every file system: only whole blocks can be given back."""


def in_folder(path: str, folder: int | None) -> str:
    """The name of a file relative to its open parent `folder`, if given; else its path."""
    return path if folder is None else path.rpartition("/")[2]


def refused(error: OSError, what: str) -> Refused:
    """A disk error as a Refused with a code of the error table."""
    text = f"{what}: {error.strerror or error}"
    if error.errno in _DISK_ERRORS:
        return Sick("disk", text)
    return Sick("worker-error", text) if error.errno in USED_UP else Refused("worker-error", text)


class Refusing:
    """A context that raises a disk error as a Refused."""

    __slots__ = ("_refuse", "_what")

    def __init__(self, what: str, refuse: Callable[[OSError, str], Refused] = refused) -> None:
        self._what = what
        self._refuse = refuse

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise self._refuse(error, self._what) from None


class Closing:
    """A context with an open file, which it closes."""

    __slots__ = ("_file",)

    def __init__(self, file: int) -> None:
        self._file = file

    def __enter__(self) -> int:
        return self._file

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def write_all(file: int, data: bytes | bytearray | memoryview) -> None:
    """Write to an open file, in as many calls as necessary. Raises OSError."""
    written = os.write(file, data) if data else 0
    while written < len(data):
        written += os.write(file, memoryview(data)[written:])


def sync_folder(path: str | Path) -> None:
    """Make new, changed and removed names in this folder survive a power loss. Raises OSError."""
    with Closing(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder:
        os.fsync(folder)


def free_on_disk(folder: str | Path) -> int:
    """Bytes that this user may still write there. Raises OSError."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def write_new(path: str, content: bytes, mode: int, folder: int | None = None) -> None:
    """Write a new file; an error leaves none. With an open `folder`, the path is a name in it."""
    file = open_in(folder, path, NEW, mode)
    try:
        write_all(file, content)
    except OSError:
        os.unlink(path, dir_fd=folder)
        raise
    finally:
        os.close(file)


def copy_new(source: int, path: str, mode: int, folder: int | None = None) -> None:
    """Copy an open file to a new name; an error leaves none. With an open `folder`, the path is a name in it."""
    file = open_in(folder, path, NEW, mode)
    try:
        at = 0
        while sent := os.sendfile(file, source, at, _COPY_BYTES):
            at += sent
    except OSError:
        os.unlink(path, dir_fd=folder)
        raise
    finally:
        os.close(file)


def free_range(file: int, at: int, end: int) -> bool:
    """Give the disk space and memory of a part of an open file back; the part reads as zeros then. False if the system
    cannot."""
    import ctypes  # Few programs need it.

    try:
        call = ctypes.CDLL(None).fallocate
    except AttributeError:
        return False
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(call(file, _PUNCH_HOLE, at, end - at) == 0)


class UsedUp:
    """An open file that is read once from a position on: its space and memory are given back meanwhile."""

    __slots__ = ("_at", "_file")

    def __init__(self, file: int, at: int = 0) -> None:
        self._file = file
        self._at = -(-at // _BLOCK_BYTES) * _BLOCK_BYTES

    def read_to(self, at: int) -> None:
        """All before this position was read."""
        if at - self._at >= _FREED_BYTES:
            end = at // _BLOCK_BYTES * _BLOCK_BYTES
            free_range(self._file, self._at, end)
            self._at = end


def read_all(path: str, folder: int | None = None) -> bytes:
    """Content of a small file; with an open `folder`, of a file below it. Raises OSError."""
    with Closing(open_in(folder, path, READ)) as file:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        return os.read(file, status.st_size)


def open_in(folder: int | None, path: str, flags: int, mode: int = 0) -> int:
    """Open a file by its path; with an open `folder`, below it."""
    return os.open(path, flags, mode) if folder is None else open_beneath(folder, path, flags, mode)


def remove_tree(path: str, folder: int | None = None) -> None:
    """Remove a folder with its content, or the link or file in its place; with an open `folder`, the path is a name in
    it. Raises OSError if anything stays."""
    try:
        file = open_unlocked(path, folder)
    except FileNotFoundError:
        return
    except OSError:
        if stat.S_ISDIR(os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode):
            raise
        os.unlink(path, dir_fd=folder)
        return
    with Closing(file):
        empty(file, os.listdir(file))
    os.rmdir(path, dir_fd=folder)


def open_unlocked(path: str, folder: int | None = None) -> int:
    """Open a folder, not a link to one, and give the owner all rights on it, and others none. With an open `folder`,
    the path is a name in it. Raises OSError."""
    try:
        file = open_in(folder, path, READ_FOLDER)
    except PermissionError:
        # A plain `chmod` would follow a link that was put in its place meanwhile. This way needs /proc.
        with Closing(open_in(folder, path, LOOK_AT_FOLDER)) as locked:
            os.chmod(f"/proc/self/fd/{locked}", stat.S_IRWXU)  # noqa: PTH101
        file = open_in(folder, path, READ_FOLDER)
    try:
        if os.fstat(file).st_mode != PLAIN_FOLDER:
            os.fchmod(file, stat.S_IRWXU)
    except BaseException:
        os.close(file)
        raise
    return file


def empty(folder: int, names: Sequence[str]) -> None:
    """Remove these from an open folder. Nested folders are moved up first, so that none is too deep."""
    folders = [name for name in names if not _unlink(folder, name)]
    prefix, number = os.urandom(8).hex(), itertools.count()
    while folders:
        inside = folders.pop()
        with Closing(open_unlocked(inside, folder)) as file:  # A program may have locked it.
            for name in os.listdir(file):
                if not _unlink(file, name):
                    os.close(open_unlocked(name, file))
                    folders.append(f"{prefix}-{next(number)}")
                    os.rename(name, folders[-1], src_dir_fd=file, dst_dir_fd=folder)
        os.rmdir(inside, dir_fd=folder)


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
