"""Which process uses this folder? One at a time, by a lock of the folder itself and of a file in it.

A file alone can be removed, by a cleaner of temporary files for example, and the next process would lock a new one of
the same name. The folder stays the same. The file tells which process has it, and is all that earlier versions, and
file systems that lock no folders, know. The system releases both when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from typing import Final

_NO_FOLDER_LOCKS: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
"""How network file systems say that they lock no folders."""
_LOOK_S: Final = 0.1


class FolderInUse(Exception):
    """Another process has it. `pid` is 0 if it is not known which."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self.pid = pid


class FolderLock:
    """A folder that is ours, until `release`."""

    def __init__(self, folder: str, name: str, *, patient: bool = False, own: bool = False) -> None:
        """Takes it, and writes our process id to the file of this name. Raises Held, and OSError for a folder that
        cannot be used. With `patient` it is tried twice, with a pause: somebody may just be looking (`holder`). With
        `own`, a link and a folder of another user raise OSError."""
        self._files: list[int] = []
        try:
            links = os.O_NOFOLLOW if own else 0
            self._files.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | links))
            if own and os.fstat(self._files[0]).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "the folder is another user's", folder)
            file = os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            self._files.append(file)
            if not _took(self._files, fcntl.LOCK_EX):
                if patient:
                    time.sleep(_LOOK_S)
                if not patient or not _took(self._files, fcntl.LOCK_EX):
                    raise FolderInUse(_pid_in(file))
        except BaseException:
            self.release()
            raise
        with contextlib.suppress(OSError):  # A full disk: the lock holds without it.
            os.ftruncate(file, 0)
            os.pwrite(file, b"%d\n" % os.getpid(), 0)

    @property
    def is_held(self) -> bool:
        return bool(self._files)

    @property
    def folder(self) -> int:
        """The folder itself, open."""
        return self._files[0]

    def is_on(self, status: os.stat_result) -> bool:
        """Is it this folder?"""
        return os.path.samestat(os.fstat(self.folder), status)

    def release(self) -> None:
        while self._files:
            os.close(self._files.pop())


def holder(folder: str, name: str) -> int | None:
    """The process that uses this folder: 0 if it is not known which, None if there is none."""
    files: list[int] = []
    try:
        files.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        with contextlib.suppress(FileNotFoundError):
            files.append(os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
        if not _took(files, fcntl.LOCK_SH):
            return _pid_in(files[1]) if len(files) > 1 else 0
    except OSError:
        pass
    finally:
        for file in files:
            os.close(file)
    return None


def _took(files: list[int], how: int) -> bool:
    """The folder first, then the file. Raises OSError if the file cannot be locked at all."""
    for number, file in enumerate(files):
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                return False
            if number > 0 or error.errno not in _NO_FOLDER_LOCKS:
                raise
    return True


def _pid_in(file: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(os.pread(file, 20, 0))
    return 0
