"""How does a job get a large file without a copy, and cannot harm the next job by writing to it?

It gets a hard link, and we hold a file lease on the content for as long as any job has one. Before anybody's open for
writing or truncating goes on, the kernel tells us (SIGIO) and lets them wait until we let go: meanwhile the content is
taken out of the store. What the writer then changes is its own file, and the next job fetches a fresh one.

Only Linux has leases, not on every file system, and a signal needs the main thread's loop. Elsewhere `take` gives
nothing, and the job gets a copy: one that shares its blocks where the file system can, else a plain one.
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
"""Leases at once, in use or kept for the next job: each is an open file, of which a process has some thousand."""
WRITABLE: Final = 0o644
"""What a job may do with a link, as with an input that came in a frame: whoever writes gets their own version."""
READ_ONLY: Final = 0o444
_CLONE: Final = 0x40049409
"""FICLONE of <linux/fs.h>."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_COPY_BYTES: Final = 1 << 30
_NO_SUCH_COPY: Final = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})

_listeners: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
"""A process has one handler for a signal, and may have several workers."""


class Lease:
    """The kernel's promise about one file, while `is_whole`. It is asked from any thread."""

    __slots__ = ("file", "key", "users")

    def __init__(self, key: str, file: int) -> None:
        self.key = key
        self.file = file
        self.users = 0

    def is_whole(self) -> bool:
        """Has nobody begun to write since it was taken?"""
        try:
            return self.file >= 0 and fcntl.fcntl(self.file, fcntl.F_GETLEASE) == fcntl.F_RDLCK
        except OSError:
            return False


class Leases:
    """The leases of one worker, by the names of the contents. All calls are made in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_broken: Callable[[str], None]) -> None:
        """`on_broken` is called with the name while the writer waits: when it returns, the writer goes on."""
        self._loop = loop
        self._on_broken = on_broken
        self._held: dict[str, Lease] = {}
        """In the order of their last use."""
        self._listening = False

    def find(self, key: str) -> Lease | None:
        """The lease on this content, if there is one."""
        return self._held.get(key)

    def take(self, key: str, path: str) -> Lease | None:
        """A lease on the file, for one more user. None if it cannot be had: someone may write to it unnoticed."""
        lease = self._held.pop(key, None)
        if lease is None:
            if not self._make_room() or not self._listen():
                return None
            file = os.open(path, READ)
            try:
                fcntl.fcntl(file, fcntl.F_SETOWN, os.getpid())
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                os.fchmod(file, WRITABLE)
            except OSError:  # no such thing there, not our file, or someone has it open for writing
                os.close(file)
                return None
            lease = Lease(key, file)
        self._held[key] = lease
        lease.users += 1
        return lease

    def release(self, lease: Lease) -> None:
        """One user less. Without any it is kept for the next one, while there is room."""
        lease.users -= 1
        assert lease.users >= 0

    def drop(self, key: str) -> None:
        """Let go of it. Who waits to write goes on."""
        lease = self._held.pop(key, None)
        if lease is not None:
            if lease.is_whole():
                with contextlib.suppress(OSError):
                    os.fchmod(lease.file, READ_ONLY)
            _let_go(lease)

    def look(self) -> None:
        """Someone wants to write: find out to what. It is called by itself."""
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
        """An unheard SIGIO would end the process: no lease without an ear for it."""
        if self._listening:
            return True
        if not hasattr(fcntl, "F_SETLEASE") or threading.current_thread() is not threading.main_thread():
            return False
        if self._loop not in _listeners:
            try:
                self._loop.add_signal_handler(signal.SIGIO, partial(_hear, self._loop))
            except (NotImplementedError, RuntimeError, ValueError):
                return False
            _listeners[self._loop] = []
        _listeners[self._loop].append(self.look)
        self._listening = True
        return True


def copy_file(source: int, path: str, mode: int, folder: int | None = None) -> None:
    """An open file's content under a new name, as cheap as can be. All of it or, on an error, nothing. With an open
    `folder`, the path begins there."""
    file = os.open(path, _NEW, mode, dir_fd=folder)
    try:
        if _clone(source, file) or _copy_inside(source, file):
            return
    except OSError:
        os.unlink(path, dir_fd=folder)
        raise
    finally:
        os.close(file)
    os.unlink(path, dir_fd=folder)
    copy_new(source, path, mode, folder)


def _clone(source: int, file: int) -> bool:
    """Both files share their blocks until one of them is written to."""
    try:
        fcntl.ioctl(file, _CLONE, source)
    except OSError:
        return False
    return True


def _copy_inside(source: int, file: int) -> bool:
    """False if the kernel does not copy between these two."""
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


def _hear(loop: asyncio.AbstractEventLoop) -> None:
    for look in list(_listeners.get(loop, ())):
        look()
