"""How does a job get a large file without a copy, and without harm to the next job if it writes to it?

The job gets a hard link, and the worker holds a file lease on the content while any job has a link. When a process
opens the file for writing or truncating, the kernel suspends it and signals the worker (SIGIO). The worker removes the
content from the store and gives up the lease. The file then belongs to the writer alone; the next job fetches the
content anew.

Only Linux has leases, not on every file system, and a signal needs the main thread's loop. Elsewhere `take` returns
None, and the job gets a copy, which shares its blocks where the file system can.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from wakugumi.adapters.files import READ, copy_new

FILES_MAX: Final = 256
"""Most leases at once, in use or kept for the next job: each is an open file, of which a process has some thousand."""
WRITABLE: Final = 0o644
"""Mode of a linked content, as of an input from a frame: a writer gets its own version."""
READ_ONLY: Final = 0o444
_CLONE: Final = 0x40049409
"""FICLONE of <linux/fs.h>."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_COPY_BYTES: Final = 1 << 30
_NO_SUCH_COPY: Final = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})

_listeners: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
"""Leases of each loop: a process has one handler per signal, and may have several workers."""


class Lease:
    """A lease on one file. `is_whole` may be called from any thread."""

    __slots__ = ("file", "key", "users")

    def __init__(self, key: str, file: int) -> None:
        self.key = key
        self.file = file
        self.users = 0

    def is_whole(self) -> bool:
        """Whether no process has begun to write since the lease was taken."""
        try:
            return self.file >= 0 and fcntl.fcntl(self.file, fcntl.F_GETLEASE) == fcntl.F_RDLCK
        except OSError:
            return False


class Leases:
    """The leases of one worker, by content. All calls are made in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_broken: Callable[[str], None]) -> None:
        """`on_broken` is called with the content's key while the writer is suspended; the writer continues
        afterwards."""
        self._loop = loop
        self._on_broken = on_broken
        self._held: dict[str, Lease] = {}
        """All leases, in the order of their last use."""
        self._listening = False

    def find(self, key: str) -> Lease | None:
        return self._held.get(key)

    def take(self, key: str, path: str) -> Lease | None:
        """A lease for one more user. None if it is impossible: a process could write to the file unnoticed."""
        lease = self._held.pop(key, None)
        if lease is None:
            if not self._make_room() or not self._listen():
                return None
            file = os.open(path, READ)
            try:
                fcntl.fcntl(file, fcntl.F_SETOWN, os.getpid())
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                os.fchmod(file, WRITABLE)
            except OSError:  # No leases here, another user's file, or a process has it open for writing.
                os.close(file)
                return None
            lease = Lease(key, file)
        self._held[key] = lease
        lease.users += 1
        return lease

    def release(self, lease: Lease) -> None:
        """Remove one user. A lease without users is kept for the next one, within FILES_MAX."""
        lease.users -= 1
        assert lease.users >= 0

    def drop(self, key: str) -> None:
        """Give up the lease; a suspended writer continues."""
        lease = self._held.pop(key, None)
        if lease is not None:
            if lease.is_whole():
                with contextlib.suppress(OSError):
                    os.fchmod(lease.file, READ_ONLY)
            _let_go(lease)

    def look(self) -> None:
        """Find and report broken leases. The handler of SIGIO calls this."""
        for key, lease in list(self._held.items()):
            if not lease.is_whole():
                try:
                    self._on_broken(key)
                finally:
                    self.drop(key)

    def close(self) -> None:
        for key in list(self._held):
            self.drop(key)
        if self._listening:
            self._listening = False
            listeners = _listeners[self._loop]
            listeners.remove(self.look)
            if not listeners:
                del _listeners[self._loop]
                self._loop.remove_signal_handler(signal.SIGIO)

    def _make_room(self) -> bool:
        if len(self._held) < FILES_MAX:
            return True
        idle = next((key for key, lease in self._held.items() if not lease.users), None)
        if idle is None:
            return False
        self.drop(idle)
        return True

    def _listen(self) -> bool:
        """Handle SIGIO: without a handler the signal of a broken lease would end the process."""
        if self._listening:
            return True
        if not hasattr(fcntl, "F_SETLEASE") or threading.current_thread() is not threading.main_thread():
            return False
        if self._loop not in _listeners:
            try:
                self._loop.add_signal_handler(signal.SIGIO, partial(_on_signal, self._loop))
            except (NotImplementedError, RuntimeError, ValueError):
                return False
            _listeners[self._loop] = []
        _listeners[self._loop].append(self.look)
        self._listening = True
        return True


def copy_file(source: int, path: str, mode: int, folder: int | None = None) -> None:
    """Copy an open file to a new name, in the cheapest way. An error leaves no file. With an open `folder`, the path is
    relative to it."""
    file = os.open(path, _NEW, mode, dir_fd=folder)
    try:
        if clone(source, file) or _copy_inside(source, file):
            return
    except OSError:
        os.unlink(path, dir_fd=folder)
        raise
    finally:
        os.close(file)
    os.unlink(path, dir_fd=folder)
    copy_new(source, path, mode, folder)


def clone(source: int, file: int) -> bool:
    """Let both files share their blocks until one of them is modified."""
    try:
        fcntl.ioctl(file, _CLONE, source)
    except OSError:
        return False
    return True


def _copy_inside(source: int, file: int) -> bool:
    """Copy in the kernel. False if it does not copy between these two."""
    if not hasattr(os, "copy_file_range"):
        return False
    at = 0
    try:
        while count := os.copy_file_range(source, file, _COPY_BYTES, at, at):
            at += count
    except OSError as error:
        if at == 0 and error.errno in _NO_SUCH_COPY:
            return False
        raise
    return at == os.fstat(source).st_size


def _let_go(lease: Lease) -> None:
    file, lease.file = lease.file, -1
    with contextlib.suppress(OSError):
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    os.close(file)


def _on_signal(loop: asyncio.AbstractEventLoop) -> None:
    for look in list(_listeners.get(loop, ())):
        look()
