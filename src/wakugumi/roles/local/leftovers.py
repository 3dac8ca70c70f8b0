"""What is left of an embedded grid that was killed, and who removes it? Its parent, or the next grid of the same user.

Each has a temporary folder of its own, which it has locked as long as it lives.
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
"""How `local` calls such folders."""


def end_abandoned(folder: str) -> None:
    """End what a dead grid left running, and remove its temporary folder. Nothing happens if it lives, or if
    the folder is a link or another user's."""
    with suppress(FolderInUse, OSError):
        lock = FolderLock(folder, LOCK, own=True)
        try:
            if (owner := owner_of(folder)) is not None:
                end_marked(Mark(owner))
            remove_tree(folder)
        finally:
            lock.release()


def end_abandoned_beside(folder: str) -> None:
    """The same for all that lie beside this one, the folder of a grid that lives."""
    base = os.path.dirname(folder)
    with suppress(OSError):
        for name in os.listdir(base):
            path = f"{base}/{name}"
            if NAME.fullmatch(name) and path != folder and _is_abandoned(path):
                end_abandoned(path)


def _is_abandoned(path: str) -> bool:
    """A grid that only begins has not said yet whose its folder is. What is another user's is left alone."""
    with suppress(OSError):
        return os.stat(path, follow_symlinks=False).st_uid == os.geteuid() and owner_of(path) is not None
    return False
