"""How is one blob put into a leader's place, from a file or from memory, and may a failed try be repeated?

All methods run in a thread; any thread may read the counts. `uploads` starts the tries, and
knows the jobs that wait for the blob.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.limits.files import UPLOAD_BROKEN_MAX
from wakugumi.roles.client.files.inputs import InputBlob

if TYPE_CHECKING:
    from wakugumi.adapters.blobs.place import Place


class BlobUpload:
    """One blob on its way to one place."""

    def __init__(self, url: str, blob: InputBlob) -> None:
        self.url = url
        self.blob = blob
        self.done_bytes = 0
        self.moved_at = 0.0
        """When the last bytes were sent."""
        self.has_begun = False
        self.is_stopped = False

    def run(self) -> None:
        """To the end. Raises Refused, Lost, or UploadStopped."""
        from wakugumi.adapters.blobs.open_place import open_place

        self.done_bytes, self.has_begun = 0, True
        source = self.blob.source
        _check_is_shared(self.url)
        try:
            place = open_place(self.url)
        except ConfigError as error:
            raise Refused("not-supported", f"the leader's place for files cannot be used: {error}") from None
        if not isinstance(source, bytes):
            source.check(self.blob.ref)
            self._put(place, Path(source.path))
            return
        import tempfile

        try:
            file, path = tempfile.mkstemp(prefix="waku-")
        except OSError as error:
            raise self._no_room(error) from None
        try:
            with open(file, "wb") as spool:
                spool.write(source)
            self._put(place, Path(path))
        except OSError as error:
            raise self._no_room(error) from None
        finally:
            os.unlink(path)

    def _put(self, place: Place, path: Path) -> None:
        """A place without room is the leader's full disk, not a worker's."""
        try:
            place.put(self.blob.ref, path, self._on_bytes)
        except Refused as no:
            if no.code != "disk":
                raise
            raise Refused("disk-full", no.message) from None

    def _no_room(self, error: OSError) -> Refused:
        why = f"cannot write {self.blob.name!r} to a temporary file for its upload: {error.strerror}"
        return Refused("disk", why, hint="free room in this machine's folder for temporary files (TMPDIR)")

    def may_try_again(self, no: Refused, broken: int) -> bool:
        """Is the failure one of the connection or of others, not of the content? Raises Refused if the file changed."""
        if no.code == "blob-broken" and not isinstance(self.blob.source, bytes):
            self.blob.source.check(self.blob.ref)
        return no.code == "blob-busy" or (no.code == "blob-broken" and broken < UPLOAD_BROKEN_MAX)

    def unreached(self, error: Lost, still_s: float) -> Refused:
        return Refused(
            "no-leader",
            f"{self.blob.name!r} cannot be sent to {self.url}: no byte has gone there for {still_s:.0f} s: {error}",
            hint="the leader gave this address; it must be one that can be reached from here",
        )

    def _on_bytes(self, count: int) -> None:
        self.done_bytes += count
        if count:
            self.moved_at = time.monotonic()
        if self.is_stopped:
            raise UploadStopped


class UploadStopped(Exception):
    """The blob is no longer wanted there."""


def _check_is_shared(url: str) -> None:
    """The leader's folder must be visible here, and is never made. Raises Refused."""
    if url.startswith("file:"):
        folder = unquote(urlsplit(url).path)
        if not os.path.isdir(folder):
            raise Refused(
                "not-supported", f"the leader's folder for files, {folder}, is not here: it must be a shared one"
            )
