"""Where do stdout and stderr of a program go? Straight to files, without a pipe, and out of the program's reach.

The files have no name. They are reused by later jobs, because making and removing two files costs more than all other
disk work of a small job; but only if no process is left that could still write to them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final

from wakugumi.adapters.files import Refusing
from wakugumi.adapters.programs.run_as import User
from wakugumi.adapters.programs.spawn import above_stdio

_KEPT_MAX: Final = 64
"""Most pairs kept for later jobs: about as many as a large machine runs at once."""


class Capture:
    """Files for stdout and stderr of one program."""

    __slots__ = ("err", "err_bytes", "is_blank", "out", "out_bytes")

    def __init__(self, out: int, err: int) -> None:
        self.out = out
        self.err = err
        self.out_bytes = 0
        self.err_bytes = 0
        self.is_blank = True
        """The files were empty when last measured, without allocated blocks."""

    def measure(self) -> int:
        """Measure both files; returns the larger size."""
        out, err = os.fstat(self.out), os.fstat(self.err)
        self.out_bytes, self.err_bytes = out.st_size, err.st_size
        self.is_blank = not (out.st_size or err.st_size or out.st_blocks or err.st_blocks)
        return max(self.out_bytes, self.err_bytes)

    def texts(self, bytes_max: int, err_bytes_max: int | None = None) -> tuple[str, str]:
        """The end of each file as text, with replacement characters for invalid bytes. Call `measure` before."""
        err_bytes_max = bytes_max if err_bytes_max is None else err_bytes_max
        return _text(self.out, self.out_bytes, bytes_max), _text(self.err, self.err_bytes, err_bytes_max)

    def renew(self) -> None:
        """Reset for another job. Offset and flags are shared with the previous program, which may have changed both."""
        for file in (self.out, self.err):
            if not self.is_blank:
                os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)
            fcntl.fcntl(file, fcntl.F_SETFL, 0)
        self.out_bytes = self.err_bytes = 0

    def close(self) -> None:
        os.close(self.out)
        os.close(self.err)


class Captures:
    """Empty captures for later jobs."""

    def __init__(self, folder: str, user: User | None = None) -> None:
        """With a `user` the files belong to it, so that its programs may reopen them by /dev/stdout."""
        self._folder = folder
        self._user = user
        self._free: list[Capture] = []

    def take(self) -> Capture:
        """Raises Refused."""
        if self._free:
            return self._free.pop()
        with Refusing("there is no place for the program's output"):
            out = self._nameless()
            try:
                return Capture(out, self._nameless())
            except OSError:
                os.close(out)
                raise

    def give_back(self, capture: Capture, *, abandoned: bool) -> None:
        """Return a capture. Only if no living process has it open (`abandoned`) it is reused. Call `measure` before."""
        if abandoned and len(self._free) < _KEPT_MAX:
            try:
                capture.renew()
            except OSError:
                capture.close()
            else:
                self._free.append(capture)
        else:
            capture.close()

    def close(self) -> None:
        while self._free:
            self._free.pop().close()

    def _nameless(self) -> int:
        file = _nameless(self._folder)
        if self._user is not None:
            os.fchown(file, self._user.uid, self._user.gid)
        return file


def _nameless(folder: str) -> int:
    with contextlib.suppress(AttributeError, OSError):
        return above_stdio(os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600))
    # Some file systems have no unnamed files; a full disk fails here again.
    name = f"{folder}/.capture-{os.urandom(8).hex()}"
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(name)
    return above_stdio(file)


def _text(file: int, size: int, bytes_max: int) -> str:
    length = min(size, bytes_max)
    return os.pread(file, length, size - length).decode("utf-8", "replace") if length else ""
