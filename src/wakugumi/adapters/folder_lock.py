"""Which process uses this folder? One at a time, by a lock on the folder itself and on a file in it.

The file alone could be removed, for example by a cleaner of temporary files, and the next process would lock a new one;
the folder stays the same. The file names the process. Earlier versions, and file systems without locks on folders, know
only the file. The system releases both when the process ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from typing import Final

_NO_FOLDER_LOCKS: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of network file systems without locks on folders."""
_RETRY_S: Final = 0.1


class FolderInUse(Exception):
    """Another process has the folder. `pid` is 0 if unknown."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self.pid = pid


class FolderLock:
    """A folder owned by this process until `release`."""

    def __init__(self, folder: str, name: str, *, patient: bool = False, own: bool = False) -> None:
        """Lock the folder, and write our process id to the file of this name. Raises FolderInUse, or OSError if the
        folder cannot be used. `patient`: try twice, as a short `holder` call may have it. `own`: raise OSError for a
        link and for another user's folder."""
        self._files: list[int] = []
        try:
            links = os.O_NOFOLLOW if own else 0
            self._files.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | links))
            if own and os.fstat(self._files[0]).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "the folder is another user's", folder)
            file = os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            self._files.append(file)
            if not _lock(self._files, fcntl.LOCK_EX):
                if patient:
                    time.sleep(_RETRY_S)
                if not patient or not _lock(self._files, fcntl.LOCK_EX):
                    raise FolderInUse(_pid_in(file))
        except BaseException:
            self.release()
            raise
        with contextlib.suppress(OSError):  # On a full disk the lock works without the id.
            os.ftruncate(file, 0)
            os.pwrite(file, b"%d\n" % os.getpid(), 0)

    @property
    def is_held(self) -> bool:
        return bool(self._files)

    @property
    def folder(self) -> int:
        """The open folder."""
        return self._files[0]

    def is_on(self, status: os.stat_result) -> bool:
        """Whether it locks this folder."""
        return os.path.samestat(os.fstat(self.folder), status)

    def release(self) -> None:
        while self._files:
            os.close(self._files.pop())


def holder(folder: str, name: str) -> int | None:
    """Id of the process that uses this folder: 0 if unknown, None if there is none."""
    files: list[int] = []
    try:
        files.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        with contextlib.suppress(FileNotFoundError):
            files.append(os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
        if not _lock(files, fcntl.LOCK_SH):
            return _pid_in(files[1]) if len(files) > 1 else 0
    except OSError:
        pass
    finally:
        for file in files:
            os.close(file)
    return None


def _lock(files: list[int], how: int) -> bool:
    """Lock the folder, then the file; False if another process has one. Raises OSError if the file cannot be locked."""
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
