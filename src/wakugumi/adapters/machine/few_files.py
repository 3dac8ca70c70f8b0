"""How does a program start quickly while this process has a thousand connections? From a thread with few open files.

The system copies the table of open files for each new process, and closes the copies before the program begins: 80 µs
for a thousand files. A thread may have a table of its own (`unshare`). This one has next to nothing in it, and opens
the files of a program anew by the names that the system gives to open files of the calling thread.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, NamedTuple, TypeAlias

from wakugumi.adapters.machine.open_files import open_files_max

CLONE_FILES: Final = 0x400
_MODE: Final = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK
"""Of the flags of an open file, those that hold for its next opening."""

Spawn: TypeAlias = Callable[[Sequence[int]], int]
"""Starts a program with these files; returns its process id."""


class _Asked(NamedTuple):
    names: list[str]
    modes: list[int]
    """How each file is opened."""
    spawn: Spawn


class FewFiles:
    """A thread with few open files. Close it."""

    def __init__(self) -> None:
        """Raises OSError where the system has no such threads, or does not allow them."""
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._answers: SimpleQueue[int | Exception | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="few files", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OSError(str(error)) from None
        self._answer()

    def start(self, spawn: Spawn, files: Sequence[int]) -> int | None:
        """Calls `spawn` there with these files; None if they cannot be opened there. Raises what `spawn` raises."""
        folder = f"/proc/self/task/{threading.get_native_id()}/fd"
        modes = [fcntl.fcntl(file, fcntl.F_GETFL) & _MODE | os.O_CLOEXEC for file in files]
        self._asked.put(_Asked([f"{folder}/{file}" for file in files], modes, spawn))
        return self._answer()

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join()

    def _answer(self) -> int | None:
        answer = self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _run(self) -> None:
        try:
            _unshare()
        except (AttributeError, OSError) as error:
            self._answers.put(OSError(str(error)))
            return
        os.closerange(3, min(open_files_max(), 1 << 20))
        self._answers.put(0)
        while (asked := self._asked.get()) is not None:
            self._answers.put(_spawned(asked))


def _spawned(asked: _Asked) -> int | Exception | None:
    opened: dict[str, int] = {}  # A file that is there twice is opened once, and has one position.
    try:
        for name, mode in zip(asked.names, asked.modes, strict=True):
            if name not in opened:
                opened[name] = os.open(name, mode)
    except OSError:
        answer = None
    else:
        answer = _called(asked.spawn, [opened[name] for name in asked.names])
    for file in opened.values():
        with suppress(OSError):  # The caller waits for an answer.
            os.close(file)
    return answer


def _called(spawn: Spawn, files: Sequence[int]) -> int | Exception:
    try:
        return spawn(files)
    except Exception as error:
        return error


def _unshare() -> None:
    """Raises OSError, and AttributeError without such a function."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_FILES) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
