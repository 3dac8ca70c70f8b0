"""How do a thousand jobs a second each get a `.done` of their own? They share files: one line each, linked from each.

A new file costs a disk far more than a line: a block and an inode each, and ext4 shuns inodes that were deleted in the
last minutes, so that looking for others can cost more than all else about a small job. A second's worth of results is
therefore one file, and the `.done` of each job is a link to it. A result too long for a line has a file of its own.

    <job id> {"JobId":…}\\n     a line of a shared one
    {"JobId":…}                all of an own one
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from typing import Final

from wakugumi.adapters.files import read_all, write_new
from wakugumi.limits.units import KIB

LINE_BYTES_MAX: Final = 16 * KIB
PAGE_S: Final = 1.0
"""How long a page is written to. Its time is that of its last line, so a result may seem younger by this."""
PAGE_BYTES_MAX: Final = 256 * KIB
"""To read one result all of its page is read. And a page has a bounded number of links: ext4 takes 65 000."""
_NAME: Final = ".ledger"


class DoneMarks:
    """Writes results, and links them to where they belong. May be called from any thread."""

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/{_NAME}"
        self._lock = threading.Lock()
        self._file = -1
        self._bytes = 0
        self._turn_at = 0.0
        self._links = True
        """Until the file system says that it has none."""

    def put(self, job: str, content: bytes, path: str) -> None:
        """Make it a file: there in full, or not at all. Raises OSError."""
        if self._links and len(content) <= LINE_BYTES_MAX:
            with self._lock:
                if self._write_line(b"%s %s\n" % (job.encode(), content)):
                    try:
                        os.link(self._path, path)
                        return
                    except FileExistsError:
                        raise
                    except OSError as error:
                        self._links = error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EXDEV}
                        self._turn()
        write_new(path, content, 0o600)

    def close(self) -> None:
        with self._lock:
            self._turn()

    def _write_line(self, line: bytes) -> bool:
        """False if it is not there in full: then nobody will be linked to it."""
        now = time.monotonic()
        if self._file < 0 or now >= self._turn_at or self._bytes >= PAGE_BYTES_MAX:
            self._turn()
            try:
                self._file = os.open(
                    self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
                )
            except OSError:
                return False
            self._turn_at = now + PAGE_S
        try:
            written = os.write(self._file, line)
        except OSError:
            written = 0
        self._bytes += written
        if written != len(line):
            self._turn()
        return written == len(line)

    def _turn(self) -> None:
        """A new page, with the next line. The old one lives as long as a job is linked to it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._bytes = 0
        with contextlib.suppress(OSError):
            os.unlink(self._path)


def read_entry(job: str, path: str) -> bytes | None:
    """What was put there for this job. None if it is not there. Raises OSError."""
    data = read_all(path)
    if data.startswith(b"{"):
        return data
    start = job.encode() + b" "
    for line in reversed(data.split(b"\n")):  # the last one, should it have run twice within a page
        if line.startswith(start):
            return line[len(start) :]
    return None
