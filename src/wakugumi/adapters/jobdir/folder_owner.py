"""Which worker owns a jobs folder? Its id survives restarts. (SPEC L4)"""

from __future__ import annotations

import contextlib
import os
from typing import Final
from uuid import UUID, uuid4

import msgspec

from wakugumi.adapters.files import read_all, write_new
from wakugumi.core.ids import WorkerId
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.untrusted_json import Unreadable, read_json

WORKER: Final = ".worker"


class FolderOwner(msgspec.Struct, frozen=True, rename="pascal"):
    """Content of `.worker`: an id, and the host and inode for which it is valid. A copy elsewhere does not count."""

    worker_id: UUID
    node: str
    inode: int


def owner_of(folder: str) -> WorkerId | None:
    """The id of the worker that owns this folder. None if there is none, or the folder is a copy."""
    with contextlib.suppress(OSError, Unreadable):
        owner = read_json(read_all(f"{folder}/{WORKER}"), FolderOwner)
        if (owner.node, owner.inode) == (os.uname().nodename, os.stat(folder).st_ino) and owner.worker_id.int:
            return WorkerId(owner.worker_id.bytes_le)
    return None


def new_owner(folder: str) -> WorkerId:
    """A new id, written to the folder if possible."""
    path = f"{folder}/{WORKER}"
    owner = FolderOwner(uuid4(), os.uname().nodename, os.stat(folder).st_ino)
    with contextlib.suppress(OSError):  # The id then lasts until the process ends.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}.new")
        write_new(f"{path}.new", encode(owner), 0o600)
        os.replace(f"{path}.new", path)
    return WorkerId(owner.worker_id.bytes_le)
