"""What if content is only read, and then forgotten? It is verified like any other, and kept nowhere.

What comes from afar passes through a file that nobody waits for the disk to have; what lies in a folder that we see is
read there.
"""

from __future__ import annotations

import hashlib
import os

from wakugumi.adapters.blobs import CHUNK_BYTES, Incoming
from wakugumi.adapters.files import refused
from wakugumi.adapters.places import FolderPlace, OnBytes, Place
from wakugumi.errors import Refused
from wakugumi.wire.message import BlobRef


class Passing(Incoming):
    """Content on its way to a file that is gone soon: after a loss of power it would not be looked for."""

    def finish(self) -> None:
        if self.at != self.ref.size or self._digest.hexdigest() != self.ref.sha256:
            super().finish()  # It says what is wrong.
        try:
            os.replace(self._scratch, self._path)
        except OSError as error:
            raise refused(error, "what was fetched cannot be kept") from None
        finally:
            self.close()


def open_here(place: Place, ref: BlobRef, on_bytes: OnBytes) -> int | None:
    """An open file of a blob in a folder that we see, after its content was verified; None if the place is elsewhere.

    A blob never changes: what was read to be verified is what is read afterwards. Raises Refused.
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
