"""How is a file below an open folder opened, so that no link leads elsewhere? (SPEC W5)

A program may replace a folder by a link at any moment, also between a check and the use of its name. So the kernel
resolves the whole name in one call, without links (`openat2`, Linux 5.6). Older kernels lack the call, and sandboxes
may refuse it: there each part of the name is opened below the one before.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Errors for a missing file, or a link or file in the place of a folder."""
LOOK: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
"""Opens a file for its status alone, whatever its kind and mode."""
LOOK_AT_FOLDER: Final = LOOK | os.O_DIRECTORY
OpenBelow: TypeAlias = Callable[[int, str, int, int], int]

_OPENAT2: Final = 437
"""The number of the call, the same on all machines that Python has 64-bit builds for."""
_NO_MAGIC_LINKS: Final = 0x02
_NO_LINKS: Final = 0x04
_BENEATH: Final = 0x08


def open_beneath(folder: int, name: str, flags: int, mode: int = 0) -> int:
    """Open a file below an open folder by a name with slashes. No part of the name may be a link or lead up, so that no
    process that can change these folders can lead elsewhere. Raises OSError."""
    if "/" not in name and name != "..":
        return os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=folder)
    if name.startswith("/") or ".." in name.split("/"):
        raise OSError(errno.EXDEV, "the name leads out of its folder", name)
    return (by_kernel() or by_parts)(folder, name, flags | os.O_NOFOLLOW, mode)


def by_parts(folder: int, name: str, flags: int, mode: int) -> int:
    """`open_beneath` on any kernel."""
    way, _, last = name.rpartition("/")
    at = folder
    try:
        for part in way.split("/"):
            inside = os.open(part, LOOK_AT_FOLDER, dir_fd=at)
            if at != folder:
                os.close(at)
            at = inside
        return os.open(last, flags, mode, dir_fd=at)
    finally:
        if at != folder:
            os.close(at)


@cache
def by_kernel() -> OpenBelow | None:
    """`open_beneath` in one call; None if the kernel does not have it, or a sandbox refuses it."""
    import ctypes  # Few commands open files below a folder.

    class OpenHow(ctypes.Structure):
        """`struct open_how` of the kernel."""

        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
    except (AttributeError, OSError):
        return None
    call.restype = ctypes.c_long
    size = ctypes.c_size_t(ctypes.sizeof(OpenHow))

    def open_(folder: int, name: str, flags: int, mode: int) -> int:
        how = OpenHow(flags, mode if flags & os.O_CREAT else 0, _BENEATH | _NO_LINKS | _NO_MAGIC_LINKS)
        path = os.fsencode(name)
        if b"\0" in path:
            raise ValueError("embedded null byte")
        while True:
            file = call(ctypes.c_long(_OPENAT2), ctypes.c_int(folder), path, ctypes.byref(how), size)
            if file >= 0:
                return int(file)
            number = ctypes.get_errno()
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number), name)

    try:
        root = os.open("/", LOOK_AT_FOLDER)
        try:
            os.close(open_(root, ".", LOOK_AT_FOLDER, 0))
        finally:
            os.close(root)
    except OSError:
        return None
    return open_
