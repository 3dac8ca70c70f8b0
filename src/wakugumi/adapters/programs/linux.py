"""Which services does only Linux offer to a process, and what replaces them elsewhere?

`prctl`: orphans become our children, a parent's death is signalled, and programs of the same user cannot read our
memory and environment; False where it is missing. Keys in our start arguments are overwritten. `boot_id`: the current
boot of the machine; empty where unknown.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Final

_KEY: Final = re.compile(rb"(?:://([^/@\0]+)|([a-z2-7]{32}-[a-z2-7]{52}))@")
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
    """Processes of the same user cannot read our memory, open files and environment; root can. The kernel leaves no
    core dump of us, and no user reads keys of addresses in our start arguments, which are public.

    Forked processes inherit this, started programs do not. We ourselves can still read only our public /proc files, and
    our open files.
    """
    hide_keys_in_arguments()
    return _prctl(_PR_SET_DUMPABLE, 0)


def hide_keys_in_arguments() -> None:
    """Overwrite the part before `@` of each address in the arguments that this process was started with, as other users
    see them; `sys.argv` stays. They could be read in the first moments of the process."""
    try:
        # Their place in our memory: the fields of `stat` behind the name begin with the third.
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[48 - 3]), int(fields[49 - 3])
    except (OSError, IndexError, ValueError):
        return
    if start:
        for found in _KEY.finditer(ctypes.string_at(start, end - start)):
            of = 1 if found[1] else 2
            ctypes.memset(start + found.start(of), ord("*"), len(found[of]))


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
