"""How do a thousand jobs a second each get a `.done` file? They share files: one line per job, linked from each.

A new file costs far more than a line: a block and an inode, and ext4 avoids recently deleted inodes, so that the search
for others can cost more than the rest of a small job. The results of one second therefore share one file, and the
`.done` of each job is a link to it. A result too long for a line has its own file.

    <job id> {"JobId":…}\\n     a line of a shared file
    {"JobId":…}                the whole of an own file
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
"""How long a page is written to. A result has the time of the page's last line, so it may seem younger by this."""
PAGE_BYTES_MAX: Final = 256 * KIB
"""Reading one result reads its whole page. The limit also bounds the links to a page: ext4 allows 65 000."""
_NAME: Final = ".ledger"


class DoneMarks:
    """Writes results and links them to their jobs. Safe from any thread."""

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/{_NAME}"
        self._lock = threading.Lock()
        self._file = -1
        self._bytes = 0
        self._turn_at = 0.0
        self._links = True
        """False once the file system turned out to have no links."""

    def put(self, job: str, content: bytes, name: str, folder: int) -> None:
        """Write a result to a new file of an open folder, completely or not at all. Raises OSError."""
        if self._links and len(content) <= LINE_BYTES_MAX:
            with self._lock:
                if self._write_line(b"%s %s\n" % (job.encode(), content)):
                    try:
                        os.link(self._path, name, dst_dir_fd=folder, follow_symlinks=False)
                        return
                    except FileExistsError:
                        raise
                    except OSError as error:
                        self._links = error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EXDEV}
                        self._turn()
        write_new(name, content, 0o600, folder)

    def close(self) -> None:
        with self._lock:
            self._turn()

    def _write_line(self, line: bytes) -> bool:
        """False if the line is incomplete; then it is not linked."""
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
        """Start a new page with the next line. The old one lives as long as a job has a link to it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._bytes = 0
        with contextlib.suppress(OSError):
            os.unlink(self._path)


def read_entry(job: str, name: str, folder: int) -> bytes | None:
    """The result that was put for this job in an open folder. None if there is none. Raises OSError."""
    data = read_all(name, folder)
    if data.startswith(b"{"):
        return data
    start = job.encode() + b" "
    for line in reversed(data.split(b"\n")):  # The last line counts if the job ran twice within a page.
        if line.startswith(start):
            return line[len(start) :]
    return None
