"""Where do stdout and stderr of a program go? Straight to files, with no pipe in between and out of its reach.

The files have no name. They serve one job after the other, because making and removing two files costs more than all
else that is done on disk for a small job; but only if no process is left that could still write to them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final

from wakugumi.adapters.files import refused
from wakugumi.adapters.programs.run_as import User
from wakugumi.adapters.programs.spawn import above_stdio

_KEPT_MAX: Final = 64
"""Pairs that wait for the next job: as many as a large machine runs at once."""


class Capture:
    """What one program writes to stdout and stderr."""

    __slots__ = ("err", "err_bytes", "is_blank", "out", "out_bytes")

    def __init__(self, out: int, err: int) -> None:
        self.out = out
        self.err = err
        self.out_bytes = 0
        self.err_bytes = 0
        self.is_blank = True
        """Nothing was in it when it was last measured, not even room set aside."""

    def measure(self) -> int:
        """See how much there is; returns the larger of the two."""
        out, err = os.fstat(self.out), os.fstat(self.err)
        self.out_bytes, self.err_bytes = out.st_size, err.st_size
        self.is_blank = not (out.st_size or err.st_size or out.st_blocks or err.st_blocks)
        return max(self.out_bytes, self.err_bytes)

    def texts(self, bytes_max: int, err_bytes_max: int | None = None) -> tuple[str, str]:
        """The end of each as text, with replacement characters for what is none. `measure` comes first."""
        err_bytes_max = bytes_max if err_bytes_max is None else err_bytes_max
        return _text(self.out, self.out_bytes, bytes_max), _text(self.err, self.err_bytes, err_bytes_max)

    def renew(self) -> None:
        """As if just made. Position and flags are shared with the program that had it, which may have changed both."""
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
    """Empty captures for the jobs to come."""

    def __init__(self, folder: str, user: User | None = None) -> None:
        """With a `user`, a program of theirs may open them anew, by /dev/stdout."""
        self._folder = folder
        self._user = user
        self._free: list[Capture] = []

    def take(self) -> Capture:
        """Raises Refused."""
        if self._free:
            return self._free.pop()
        try:
            out = self._nameless()
            try:
                return Capture(out, self._nameless())
            except OSError:
                os.close(out)
                raise
        except OSError as error:
            raise refused(error, "there is no place for the program's output") from None

    def give_back(self, capture: Capture, *, abandoned: bool) -> None:
        """Only what no living process has open is `abandoned`, and serves another job. `measure` comes first."""
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
    # Some file systems have no such thing, and a full disk will say so again.
    name = f"{folder}/.capture-{os.urandom(8).hex()}"
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(name)
    return above_stdio(file)


def _text(file: int, size: int, bytes_max: int) -> str:
    length = min(size, bytes_max)
    return os.pread(file, length, size - length).decode("utf-8", "replace") if length else ""
