"""Where are blobs put and fetched? In a place: a folder, a leader or worker over HTTP, an object store.

All calls may be made from any thread, block as long as it takes, and resume where an earlier try ended. They raise
Refused (the place refuses, or the content is wrong) or Lost (the place cannot be reached).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from wakugumi.adapters.blobs.store import CHUNK_BYTES, BlobStore, Incoming, link_into
from wakugumi.adapters.files import READ
from wakugumi.errors import Refused
from wakugumi.wire.messages.references import BlobRef

OnBytes: TypeAlias = Callable[[int], None]
"""Called with the number of further bytes transferred; an exception of it ends the transfer."""


class Place(Protocol):
    """A store of blobs."""

    url: str

    def has(self, ref: BlobRef) -> bool: ...

    def link(self, ref: BlobRef, source: Path) -> None:
        """Before `put`: let a folder on this machine have a link to a file that never changes, in place of a copy."""
        ...

    def put(self, ref: BlobRef, source: Path, on_bytes: OnBytes = ...) -> None:
        """Put a file's content there, if it is not there already. Refused("blob-broken") if the content is wrong."""
        ...

    def fetch(self, ref: BlobRef, into: Incoming, on_bytes: OnBytes = ...) -> None:
        """Write the blob into `into`, from its offset, and finish it. Refused("no-blob") if it is not there."""
        ...

    def remove(self, sha256: str) -> None: ...


class FolderPlace:
    """A folder that both sides can access: of an embedded grid, or a shared one."""

    def __init__(self, folder: Path) -> None:
        self.store = BlobStore(folder)
        self.url = folder.absolute().as_uri()

    def has(self, ref: BlobRef) -> bool:
        return self.store.has(ref)

    def link(self, ref: BlobRef, source: Path) -> None:
        if not self.store.has(ref):
            link_into(os.fspath(self.store.incoming), ref, source)

    def put(self, ref: BlobRef, source: Path, on_bytes: OnBytes = lambda _: None) -> None:
        if self.store.has(ref):
            return
        incoming = self.store.begin(ref)
        try:
            file = os.open(source, READ)
        except OSError as error:
            incoming.close()
            raise Refused("bad-request", f"{source} cannot be read: {error.strerror}", hint="") from None
        _copy(file, incoming, on_bytes)

    def fetch(self, ref: BlobRef, into: Incoming, on_bytes: OnBytes = lambda _: None) -> None:
        _copy(self.store.open(ref.sha256), into, on_bytes)

    def remove(self, sha256: str) -> None:
        self.store.remove(sha256)


def _copy(file: int, into: Incoming, on_bytes: OnBytes) -> None:
    """Copy an open file from the offset of `into`, and finish that, which verifies the content."""
    try:
        os.lseek(file, into.at, os.SEEK_SET)
        while piece := os.read(file, CHUNK_BYTES):
            into.write(piece)
            on_bytes(len(piece))
        into.finish()
    finally:
        os.close(file)
        into.close()
