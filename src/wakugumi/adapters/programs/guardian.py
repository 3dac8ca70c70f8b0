"""Which process ends the programs when the worker itself dies? A parent that does nothing else. (SPEC W3)

    guardian ── worker ── programs ── …

An orphan becomes a child of the worker or, if that is gone, of the guardian, which kills it. If the guardian dies
first, the kernel signals the worker, which then ends everything below it and itself. If both are killed in the same
instant, programs continue until the next worker on the same jobs folder starts: it ends them first (`marks`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

from wakugumi.adapters.programs.linux import ask_for_parent_death, become_subreaper
from wakugumi.adapters.programs.process_tree import OwnChildren, kill_with_all_below, send

log = logging.getLogger("wakugumi.guardian")

FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_GUARDIAN_DIED: Final = signal.SIGRTMIN
"""A signal without another use."""
_END_WITHIN_S: Final = 10.0
"""Time limit for processes that the kernel holds (a dead network disk); they are then left."""


def guard(run: Callable[[], int]) -> int:
    """Run `run` in a child process and return its exit code; 128 plus the number after a signal.

    Call it before there are threads, a loop or children. Returns when no process is left below this one.
    """
    if not become_subreaper():
        return run()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    waited_for = {*FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    sys.stdout.flush()
    sys.stderr.flush()
    guardian = os.getpid()
    worker = os.fork()
    if worker == 0:
        _work(run, guardian, before)
    code = _wait_for(worker, waited_for)
    _end_all_below()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code


def _work(run: Callable[[], int], guardian: int, mask: set[int | signal.Signals]) -> None:
    """The child process. Never returns."""
    code = 1
    try:
        # A group of its own gets each signal once, from the guardian, even if a terminal sends it to the whole group.
        os.setpgid(0, 0)
        signal.signal(_GUARDIAN_DIED, _guardian_died)
        ask_for_parent_death(_GUARDIAN_DIED)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if os.getppid() == guardian:
            code = run()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # As at the end of any process.
    finally:
        logging.shutdown()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait_for(worker: int, waited_for: set[signal.Signals]) -> int:
    while True:
        number = signal.sigwait(waited_for)
        if number != signal.SIGCHLD:
            send(worker, number)
            continue
        for pid, status in _reap():
            if pid == worker:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


def _guardian_died(_number: int, _frame: FrameType | None) -> None:
    _end_all_below()
    os._exit(128 + signal.SIGKILL)


def _end_all_below() -> None:
    """Kill repeatedly, because the orphans of each round become our children."""
    children = OwnChildren()
    give_up_at = time.monotonic() + _END_WITHIN_S
    try:
        while pids := children.pids():
            kill_with_all_below(pids)
            _reap()
            if time.monotonic() > give_up_at:
                log.error("unkillable processes left pids=%s", pids)
                return
            time.sleep(0.001)
    finally:
        children.close()


def _reap() -> list[tuple[int, int]]:
    """Process ids and statuses of all children that have ended."""
    ended = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            ended.append((pid, status))
    return ended
