"""How is one blob put into a leader's place, from a file or from memory?

`run` belongs in a thread.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from wakugumi.adapters.blobs.file_put import FilePut
from wakugumi.errors import ConfigError, Refused
from wakugumi.roles.client.files.inputs import InputBlob


class BlobUpload(FilePut):
    """One blob on its way to one place."""

    def __init__(self, url: str, blob: InputBlob) -> None:
        super().__init__(url)
        self.blob = blob

    def run(self) -> None:
        """To the end. Raises Refused, Lost, or PutStopped."""
        source = self.blob.source
        _check_is_shared(self.url)
        if not isinstance(source, bytes):
            source.check(self.blob.ref)
            self._put(Path(source.path))
            return
        import tempfile

        try:
            file, path = tempfile.mkstemp(prefix="waku-")
        except OSError as error:
            raise self._no_room(error) from None
        try:
            with open(file, "wb") as spool:
                spool.write(source)
            self._put(Path(path))
        except OSError as error:
            raise self._no_room(error) from None
        finally:
            os.unlink(path)

    def _put(self, path: Path) -> None:
        """A place without room is the leader's full disk, not a worker's. Broken content may be a changed file."""
        try:
            self.send(self.blob.ref, path)
        except ConfigError as error:
            raise Refused("not-supported", f"the leader's place for files cannot be used: {error}") from None
        except Refused as no:
            if no.code == "disk":
                raise Refused("disk-full", no.message) from None
            if no.code == "blob-broken" and not isinstance(self.blob.source, bytes):
                self.blob.source.check(self.blob.ref)
            raise

    def _no_room(self, error: OSError) -> Refused:
        why = f"cannot write {self.blob.name!r} to a temporary file for its upload: {error.strerror}"
        return Refused("disk", why, hint="free room in this machine's folder for temporary files (TMPDIR)")


def _check_is_shared(url: str) -> None:
    """The leader's folder must be visible here, and is never made. Raises Refused."""
    if url.startswith("file:"):
        folder = unquote(urlsplit(url).path)
        if not os.path.isdir(folder):
            raise Refused(
                "not-supported", f"the leader's folder for files, {folder}, is not here: it must be a shared one"
            )
