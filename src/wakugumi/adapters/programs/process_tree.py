"""Which processes descend from which, for which job do they run, what do they use, and how are they ended?

All facts come from /proc; where it is missing, no process is known.

A process id may be reused as soon as the parent has reaped the process. Only two kinds of ids are therefore signalled
here: our own children, which only we can reap, and descendants of a process that was stopped first.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from typing import Final, NamedTuple

JOB_VARIABLE: Final = "WAKU_JOB_ID"
"""Variable in the environment of every program of a job: for the program itself, and to recognize strays."""
_GENERATIONS_MAX: Final = 100
"""A deeper tree is killed down to this depth; the rest become our children, and are found later."""
_ENVIRON_BYTES_MAX: Final = 4 * 1024 * 1024
"""The kernel allows no larger environment and arguments."""
_TICK_S: Final = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """Resources of a process and of the children that it has waited for."""

    cpu_s: float
    resident_bytes: int
    """Its own memory, without pages shared with files."""
    data_bytes: int
    """Memory counted by RLIMIT_DATA."""


class OwnChildren:
    """The children of this process, adopted orphans included, at the cost of one small read."""

    def __init__(self) -> None:
        pid = os.getpid()
        try:
            self._file = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    @property
    def known(self) -> bool:
        return self._file >= 0

    def pids(self) -> list[int]:
        """Current children. Empty where they cannot be known."""
        if self._file < 0:
            return []
        data = os.pread(self._file, 4096, 0)
        if len(data) > 4000:  # The kernel ends before a full page, never inside a number.
            while more := os.pread(self._file, 4096, len(data)):
                data += more
        return [*map(int, data.split())]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def children_of(pid: int) -> list[int]:
    """Empty if the process is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
    return found


def with_all_below(roots: Iterable[int]) -> list[int]:
    """The processes and all their descendants."""
    found = list(roots)
    seen = set(found)
    for pid in found:  # The list grows during the loop.
        for child in children_of(pid):
            if child not in seen:
                seen.add(child)
                found.append(child)
    return found


def kill_with_all_below(roots: Iterable[int]) -> int:
    """Stop them, generation by generation, then kill them all. Returns their number.

    A stopped process can neither fork nor reap, so no descendant escapes, and no id below it is reused meanwhile.
    """
    new = list(roots)
    stopped: dict[int, None] = {}
    for _ in range(_GENERATIONS_MAX):
        if not new:
            break
        for pid in new:
            send(pid, signal.SIGSTOP)
        stopped.update(dict.fromkeys(new))
        new = [child for pid in stopped for child in children_of(pid) if child not in stopped]
    for pid in stopped:
        send(pid, signal.SIGKILL)
    return len(stopped)


def send(pid: int, number: int) -> bool:
    """False if the process is gone, or may not be signalled."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def send_to_group(pid: int, number: int) -> bool:
    try:
        os.killpg(pid, number)
    except OSError:
        return False
    return True


def session_of(pid: int) -> int:
    """The process that began the session of `pid`; 0 if it is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def state_of(pid: int) -> str:
    """State as in /proc, such as `Z` for a zombie; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


def start_of(pid: int) -> int:
    """Start time in ticks, which identifies the process together with its id; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def read_environment(pid: int) -> bytes | None:
    """The environment at the start of the program; empty if it may not be read. None if the process is gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return file.read(_ENVIRON_BYTES_MAX) or b""
    except PermissionError:
        return b""
    except OSError:
        return None


def job_of(pid: int) -> str | None:
    """The job that it was started for; empty if unknown. None if it is gone or a zombie."""
    environment = read_environment(pid)
    if environment is None:
        return None
    wanted = JOB_VARIABLE.encode() + b"="
    for line in environment.split(b"\0"):
        if line.startswith(wanted):
            return line[len(wanted) :].decode("ascii", "replace")
    return ""


def usage_of(pid: int) -> Usage | None:
    """None if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        with open(f"/proc/{pid}/statm", "rb") as file:
            pages = file.read().split()
    except OSError:
        return None
    cpu_s = sum(map(int, fields[11:15])) * _TICK_S
    return Usage(cpu_s, (int(pages[1]) - int(pages[2])) * _PAGE_BYTES, int(pages[5]) * _PAGE_BYTES)


def tasks_of_user(uid: int) -> int:
    """Number of a user's threads, as counted by RLIMIT_NPROC."""
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            with contextlib.suppress(OSError):
                owner = os.stat(f"/proc/{name}").st_uid
                if owner == uid or (owner == 0 and _real_user_of(name) == uid):
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _real_user_of(pid: str) -> int:
    """The user also of a hidden process, whose files in /proc belong to root."""
    with open(f"/proc/{pid}/status", "rb") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(b"Uid:")), -1)
