"""How is content fetched only to be read once? It is verified as usual, but not kept.

Content of a remote place passes through a file that is never synced; content in a local folder is read there.
"""

from __future__ import annotations

import os
from io import FileIO
from pathlib import Path
from tempfile import TemporaryDirectory

from wakugumi.adapters.blobs.place import FolderPlace, OnBytes, Place
from wakugumi.adapters.blobs.store import Incoming, ref_of_open
from wakugumi.adapters.files import Refusing
from wakugumi.adapters.zip.records import missing_of_head
from wakugumi.errors import Refused
from wakugumi.wire.messages.references import BlobRef


class NotWritten(Refused):
    """The local disk rejects the content; the source is not to blame."""

    def __init__(self, error: OSError) -> None:
        super().__init__("disk", error.strerror or str(error), "make room there")
        self.error = error


class TemporaryDownload(Incoming):
    """Content on its way to a temporary file, which is not synced. Disk errors are NotWritten."""

    @staticmethod
    def move(_file: int, scratch: str | Path, path: str) -> None:
        os.replace(scratch, path)

    @staticmethod
    def refusing(what: str) -> Refusing:
        return Refusing(what, lambda error, _what: NotWritten(error))


class ArchiveDownload(TemporaryDownload):
    """An archive on its way to a file that lacks the archive's head: the first content begins where the file does, so
    that the file can become that content without a copy."""

    def __init__(self, ref: BlobRef, scratch: str, path: str, head: bytearray) -> None:
        """`head` has the first bytes of an earlier try, and gets those that are still missing."""
        self._head = head
        super().__init__(ref, scratch, path)

    def for_file(self, data: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview:
        while len(data) and (missing := missing_of_head(self._head)):
            self._head += data[:missing]
            data = data[missing:]
        return data

    def cut(self, size: int) -> None:
        del self._head[size:]
        super().cut(size - len(self._head))

    def read_received(self) -> None:
        self._digest.update(bytes(self._head))
        self.at = len(self._head)
        super().read_received()


def open_blob(place: Place, ref: BlobRef) -> FileIO:
    """A blob's content as an open file without a name; of a folder that we can access, the blob itself. Raises Refused
    or Lost."""
    if isinstance(place, FolderPlace):
        return FileIO(place.store.open(ref.sha256))
    with Refusing("a blob cannot be written"), TemporaryDirectory(prefix="wakugumi-") as folder:
        path = f"{folder}/{ref.sha256}"
        place.fetch(ref, TemporaryDownload(ref, f"{path}.part", path))
        return FileIO(path)


def open_here(place: Place, ref: BlobRef, on_bytes: OnBytes) -> int | None:
    """An open, verified blob of a folder that we can access; None if the place is elsewhere.

    A blob never changes: the verified bytes are the ones read afterwards. Raises Refused.
    """
    if not isinstance(place, FolderPlace):
        return None
    file = place.store.open(ref.sha256)
    try:
        with Refusing("a blob cannot be read"):
            if ref_of_open(file, on_bytes) != ref:
                raise Refused("blob-broken", "the content is not what its SHA-256 says")
    except BaseException:
        os.close(file)
        raise
    return file
