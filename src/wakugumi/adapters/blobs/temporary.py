"""How is content fetched only to be read once? It is verified as usual, but not kept.

Content of a remote place passes through a file that is never synced; content in a local folder is read there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator

from wakugumi.adapters.blobs.place import FolderPlace, OnBytes, Place
from wakugumi.adapters.blobs.store import CHUNK_BYTES, Incoming
from wakugumi.adapters.files import refused
from wakugumi.errors import Refused
from wakugumi.wire.messages.references import BlobRef


class NotWritten(Refused):
    """The local disk rejects the content; the source is not to blame."""

    def __init__(self, error: OSError) -> None:
        super().__init__("disk", error.strerror or str(error), "make room there")
        self.error = error


class TemporaryDownload(Incoming):
    """Content on its way to a temporary file, which is not synced. Disk errors are NotWritten."""

    def __init__(self, ref: BlobRef, scratch: str, path: str) -> None:
        with _ours():
            super().__init__(ref, scratch, path)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with _ours():
            super().write(data)

    def restart(self) -> None:
        with _ours():
            super().restart()

    def finish(self) -> None:
        if self.at != self.ref.size or self._digest.hexdigest() != self.ref.sha256:
            super().finish()  # Raises the right error.
        try:
            os.replace(self._scratch, self._path)
        except OSError as error:
            raise NotWritten(error) from None
        finally:
            self.close()


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    """Turn a refusal caused by a disk error into NotWritten."""
    try:
        yield
    except Refused as no:
        if isinstance(no.__context__, OSError):
            raise NotWritten(no.__context__) from None
        raise


def open_here(place: Place, ref: BlobRef, on_bytes: OnBytes) -> int | None:
    """An open, verified blob of a folder that we can access; None if the place is elsewhere.

    A blob never changes: the verified bytes are the ones read afterwards. Raises Refused.
    """
    if not isinstance(place, FolderPlace):
        return None
    file = place.store.open(ref.sha256)
    try:
        digest, at = hashlib.sha256(), 0
        room = bytearray(CHUNK_BYTES)
        view = memoryview(room)
        while count := os.preadv(file, [room], at):
            at += count
            digest.update(view[:count])
            on_bytes(count)
        if BlobRef(digest.hexdigest(), at) != ref:
            raise Refused("blob-broken", "the content is not what its SHA-256 says")
    except OSError as error:
        os.close(file)
        raise refused(error, "a blob cannot be read") from None
    except BaseException:
        os.close(file)
        raise
    return file
