"""Which processes did a worker leave that was killed with its guardian, and when do they end? (SPEC W3)

Every program carries the mark of its jobs folder: a variable in its environment, and a number as the soft limit
RLIMIT_RSS, which Linux does not enforce. Its descendants inherit both, whatever their session and parent; a process
that clears its environment still has the number. Only one worker at a time uses a folder, so processes with its mark
are left from an earlier worker: the next one ends them before its first job.

A process is signalled by a pidfd opened before its mark was read: a process id may be reused, a pidfd not.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import time
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from wakugumi.adapters.programs.process_tree import children_of, kill_with_all_below, read_environment, state_of

log = logging.getLogger("wakugumi.process")

MARK_VARIABLE: Final = "WAKU_JOBS_MARK"
_LIMIT_FROM: Final = 1 << 62
"""So large that a program takes the limit for unlimited."""
_END_WITHIN_S: Final = 10.0
"""Time limit for processes that the kernel holds (a dead network disk); they are then left."""
_ROUNDS_MAX: Final = 200
"""Some 0.1 s, on a machine where processes start and end all the time."""
_PAUSE_S: Final = 0.02


class Mark:
    """The mark of a jobs folder."""

    def __init__(self, folder_id: bytes) -> None:
        """`folder_id` is random, and stays with the folder. It cannot be derived from the mark, which is public."""
        digest = sha256(b"jobs folder " + folder_id).digest()
        self.text = digest[:16].hex()
        self.number = _LIMIT_FROM | int.from_bytes(digest[16:24], "little") & _LIMIT_FROM - 1
        self._in_environment = f"\0{MARK_VARIABLE}={self.text}\0".encode()
        self._in_limits = b"%d" % self.number

    def is_on(self, pid: int) -> bool:
        """False for a process that is gone or may not be inspected. A process that has ended may still have it."""
        with contextlib.suppress(OSError), open(f"/proc/{pid}/limits", "rb", buffering=0) as file:
            if self._in_limits in file.read().split():
                return True
        return self._in_environment in b"\0%b\0" % (read_environment(pid) or b"")


def end_marked(mark: Mark, within_s: float = _END_WITHIN_S) -> int:
    """End every process with this mark and its descendants. Returns the number of marked ones after their end."""
    ended = 0
    give_up_at = time.monotonic() + within_s
    spared = _self_and_above()
    while found := _stopped(mark, spared):
        # Descendants carry the mark, too, unless they removed it on purpose.
        kill_with_all_below([child for pid in found for child in children_of(pid) if child not in found])
        for process in found.values():
            process.send(signal.SIGKILL)
        ended += len(found)
        left = _wait_for_end(found.values(), give_up_at)
        for process in found.values():
            process.close()
        if left:
            log.error("processes from before this worker was restarted cannot be ended pids=%s", left)
            break
    if ended:
        log.warning("ended processes from before this worker was restarted count=%d", ended)
    return ended


class _Process:
    """A process that has, or may have, the mark."""

    def __init__(self, pid: int) -> None:
        """Raises ProcessLookupError if the process is gone."""
        self.pid = pid
        self._pidfd = -1
        if hasattr(os, "pidfd_open"):
            try:
                self._pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                raise
            except (OSError, NotImplementedError):
                pass  # An old kernel, a sandbox, or no descriptor left: use the process id.

    @property
    def has_ended(self) -> bool:
        if self._pidfd < 0:
            return state_of(self.pid) in {"", "Z", "X"}
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, number: int) -> None:
        with contextlib.suppress(OSError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)
            else:
                os.kill(self.pid, number)

    def close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def _stopped(mark: Mark, spared: set[int]) -> dict[int, _Process]:
    """All processes with the mark, stopped. The search repeats until none is new: a stopped process cannot fork.

    A process that ended before it was inspected may have left a child: then the newest are searched again.
    """
    found: dict[int, _Process] = {}
    others = set(spared)
    for _ in range(_ROUNDS_MAX):
        is_more = False
        for pid in reversed(_all_pids()):
            if pid in found or pid in others:
                continue
            try:
                process = _Process(pid)
            except ProcessLookupError:
                is_more = True
                continue
            is_marked = mark.is_on(pid)
            has_ended = process.has_ended  # If it still lives, the mark that was read is its own.
            if is_marked and not has_ended:
                process.send(signal.SIGSTOP)
                found[pid] = process
            else:
                others.add(pid)  # The id is not reused until the process is reaped.
                process.close()
            is_more = is_more or is_marked or has_ended
        if not is_more:
            break
    return found


def _wait_for_end(processes: Iterable[_Process], give_up_at: float) -> list[int]:
    """Ids of processes that have not ended by then."""
    left = [process for process in processes if not process.has_ended]
    while left and time.monotonic() < give_up_at:
        time.sleep(_PAUSE_S)
        left = [process for process in left if not process.has_ended]
    return [process.pid for process in left]


def _all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _self_and_above() -> set[int]:
    """A worker that a job started must not end itself."""
    pids: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            break
    return pids
