"""How many files may this process open, how many connections follow from that, and what do programs get?

The usual soft limit is 1 024: the connections of a larger fleet, or the programs of many slots, would reach it. Some
programs expect a low one, so they get what was there before. Where there are no such limits: as many as we like.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from wakugumi.limits.wire import CONNECTION_FILES_SHARE, CONNECTIONS_MAX

log = logging.getLogger("wakugumi.process")

_open_files_of_programs: tuple[int, int] | None = None
"""RLIMIT_NOFILE as it was before we raised our own."""


def raise_open_files() -> int:
    """Let this process open as many files as the hard limit allows. Returns how many that are, and logs it."""
    global _open_files_of_programs
    before = open_files_max()
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            if _open_files_of_programs is None:
                _open_files_of_programs = (soft, hard)
    now = open_files_max()
    log.info("open files: at most %d (%d before), so at most %d connections", now, before, connections_max())
    return now


def open_files_max() -> int:
    """How many files this process may have open at once."""
    try:
        import resource
    except ImportError:
        return 1 << 30
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def connections_max(parts: int = 1) -> int:
    """How many connections a port may hold, if so many parts of this process share what it may open."""
    return max(1, min(CONNECTIONS_MAX, int(open_files_max() * CONNECTION_FILES_SHARE) // parts))


def limiter() -> Callable[[int], None] | None:
    """Gives a program the limit of open files as it was before we raised it; None if we did not.

    After its start, for a lower limit of ours would hold in all our threads: a program that looks at once sees ours.
    """
    limits = _open_files_of_programs
    if limits is None:
        return None
    try:
        from resource import RLIMIT_NOFILE, prlimit
    except ImportError:  # Only Linux has prlimit.
        return None

    def limit(pid: int) -> None:
        with contextlib.suppress(OSError):  # It became another user's, or has ended.
            prlimit(pid, RLIMIT_NOFILE, limits)

    return limit
