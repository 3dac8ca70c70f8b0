"""Can a job be started on this machine? The test that a worker repeats after a failed start. (SPEC W9)

The test needs the same as a job, on the same disk: room, a directory, a synced file, descriptors. A program, the last
step, is started by the caller in the same way as all others.
"""

from __future__ import annotations

import os
from typing import Final

from wakugumi.adapters.files import Closing, Refusing, free_on_disk, remove_tree, write_new
from wakugumi.errors import Sick
from wakugumi.limits.units import KIB

FILE_BYTES: Final = 64 * KIB
FILES: Final = 16
"""Descriptors that the probe opens: more than one job takes, for a machine with just enough would soon fail again."""
_NAME: Final = ".probe"
"""A fixed name: files of a worker that was killed during a probe are removed by the next probe."""


def check_machine(folder: str, free_min_bytes: int) -> None:
    """Raises Refused, as for a job. Takes as long as a sync of a file."""
    path = f"{folder}/{_NAME}"
    with Refusing(f"no job can be kept in {folder}"):
        check_room(folder, free_min_bytes)
        if os.path.lexists(path):
            remove_tree(path)
        os.makedirs(path, 0o700)
        try:
            write_new(f"{path}/file", os.urandom(FILE_BYTES), 0o600)
            _sync(f"{path}/file")
            _open_some(f"{path}/file")
        finally:
            remove_tree(path)


def check_room(folder: str, free_min_bytes: int) -> None:
    """Raises Sick, and OSError."""
    if free_on_disk(folder) < free_min_bytes:
        raise Sick("disk", f"less than {free_min_bytes} bytes are free in {folder}")
    status = os.statvfs(folder)
    if status.f_files and not status.f_favail:
        raise Sick("disk", f"no inodes are free in {folder}")


def a_program() -> list[bytes] | None:
    """A program that does nothing, and is everywhere; None if it is not here."""
    for path in (b"/bin/true", b"/usr/bin/true"):
        if os.access(path, os.X_OK):
            return [path]
    return None


def _sync(path: str) -> None:
    with Closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as file:
        os.fsync(file)


def _open_some(path: str) -> None:
    files: list[int] = []
    try:
        files.extend(os.open(path, os.O_RDONLY | os.O_CLOEXEC) for _ in range(FILES))
    finally:
        for file in files:
            os.close(file)
