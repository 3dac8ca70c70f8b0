"""What does Linux alone offer to a process, and how do we live where it is missing?

`prctl`: orphans come to us, we learn of our parent's death, and programs of the same user cannot read our memory and
environment; False where it is missing. `boot_id`: which start of the machine this is; empty where nobody knows.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36


def become_subreaper() -> bool:
    """From now on orphans below this process become its children, instead of init's."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def stop_being_subreaper() -> bool:
    return _prctl(_PR_SET_CHILD_SUBREAPER, 0)


def ask_for_parent_death(number: int) -> bool:
    """This signal comes to us when our parent dies."""
    return _prctl(_PR_SET_PDEATHSIG, number)


def hide_from_programs() -> bool:
    """Processes of the same user cannot read our memory, our open files and what we were started with; root can.

    It holds for what we fork, and no longer for a program that we start. Of our own /proc files only those that
    everybody may read are left to us, and our open files.
    """
    return _prctl(_PR_SET_DUMPABLE, 0)


def boot_id() -> str:
    """Of this start of the machine, the same to all of its processes and never again; empty if nobody knows."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False
