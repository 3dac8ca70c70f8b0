"""Which services does only Linux offer to a process, and what replaces them elsewhere?

`prctl`: orphans become our children, a parent's death is signalled, and programs of the same user cannot read our
memory and environment; False where it is missing. `boot_id`: the current boot of the machine; empty where unknown.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36


def become_subreaper() -> bool:
    """From now on orphans below this process become its children instead of init's."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def stop_being_subreaper() -> bool:
    return _prctl(_PR_SET_CHILD_SUBREAPER, 0)


def ask_for_parent_death(number: int) -> bool:
    """Receive this signal when our parent dies."""
    return _prctl(_PR_SET_PDEATHSIG, number)


def hide_from_programs() -> bool:
    """Processes of the same user cannot read our memory, open files and start arguments; root can.

    Forked processes inherit this, started programs do not. We ourselves can still read only our public /proc files, and
    our open files.
    """
    return _prctl(_PR_SET_DUMPABLE, 0)


def boot_id() -> str:
    """Id of the machine's current boot, the same in all processes; empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False
