"""Has a process ended, how do worker and guardian die at once, and what if no thread or process can be started?"""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from tests.kit.eventually import eventually_blocking

from wakugumi.adapters.programs.process_tree import children_of
from wakugumi.adapters.programs.spawn import Spawner


def has_ended(pid: int) -> bool:
    """It is gone, or a zombie: who reaps it is another question. Asked once: between two looks it may vanish."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def kill_together(guardian: int) -> None:
    """A guardian and its worker die, and neither sees the other's end: both are stopped first.

    The worker is killed first. After the guardian's death the kernel would continue a stopped worker, because its
    process group is orphaned then.
    """
    (worker,) = children_of(guardian)
    pids = (worker, guardian)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)
    eventually_blocking(lambda: all(has_ended(pid) for pid in pids))


@contextmanager
def no_new_thread() -> Iterator[None]:
    """The system can start no further thread meanwhile: no machine has room for such a stack."""
    before = threading.stack_size(1 << 47)
    try:
        yield
    finally:
        threading.stack_size(before)


@contextmanager
def no_new_process() -> Iterator[None]:
    """The user may start no further process meanwhile. Root is above that limit, and gets the error without it."""
    if os.geteuid() == 0:
        with patch.object(Spawner, "start", side_effect=OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))):
            yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
