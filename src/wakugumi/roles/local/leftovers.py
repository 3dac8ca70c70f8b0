"""How is an embedded grid removed that was killed? By its parent, or by the next grid of the same user.

Each grid has a temporary folder of its own, locked as long as the grid lives.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Final

from wakugumi.adapters.files import remove_tree
from wakugumi.adapters.folder_lock import FolderInUse, FolderLock
from wakugumi.adapters.jobdir.folder_claim import LOCK
from wakugumi.adapters.jobdir.folder_owner import owner_of
from wakugumi.adapters.programs.marks import Mark, end_marked

NAME: Final = re.compile(r"waku-[0-9a-f]{16}")
"""Names of the temporary folders of `local`."""


def end_abandoned(folder: str) -> None:
    """Ends the programs of a dead grid, and removes its temporary folder. A living grid, a link and another user's
    folder are left alone."""
    with suppress(FolderInUse, OSError):
        lock = FolderLock(folder, LOCK, own=True)
        try:
            if (owner := owner_of(folder)) is not None:
                end_marked(Mark(owner))
            remove_tree(folder)
        finally:
            lock.release()


def end_abandoned_beside(folder: str) -> None:
    """Calls `end_abandoned` for all folders beside this one, which is of a living grid."""
    base = os.path.dirname(folder)
    with suppress(OSError):
        for name in os.listdir(base):
            path = f"{base}/{name}"
            if NAME.fullmatch(name) and path != folder and _is_abandoned(path):
                end_abandoned(path)


def _is_abandoned(path: str) -> bool:
    """Is it our own user's folder, and has it an owner? A grid that only begins has not written one yet."""
    with suppress(OSError):
        return os.stat(path, follow_symlinks=False).st_uid == os.geteuid() and owner_of(path) is not None
    return False
