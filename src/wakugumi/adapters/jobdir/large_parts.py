"""Which files of a finished job does its result name by hash? The ones that do not fit the result's frame."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from wakugumi.adapters.beneath import open_beneath
from wakugumi.adapters.files import NEW, Closing, in_folder
from wakugumi.adapters.zip.write import HashedFile
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.job import JobResult
from wakugumi.wire.messages.references import BlobRef

ARCHIVE: Final = "result.zip"
STDOUT: Final = ".stdout"
STDERR: Final = ".stderr"


class LargePart(NamedTuple):
    """A part that does not fit a frame, and its file."""

    ref: BlobRef
    path: Path

    @property
    def size(self) -> int:
        return self.ref.size


class Whole(NamedTuple):
    """A finished job's encoded result, in an envelope if it has an archive, its large parts, and the digest of its
    request."""

    payload: bytes
    parts: Sequence[LargePart]
    request: bytes = b""
    """Digest of the request that was run; empty if unknown."""


def parts_of(result: JobResult, path: str, folder: int | None = None) -> list[LargePart]:
    """Large parts of a result in the directory of this path, which may be open as `folder`. Raises OSError if a part is
    missing, ValueError if it has another size."""
    refs = {ARCHIVE: result.archive_blob, STDOUT: result.stdout_blob, STDERR: result.stderr_blob}
    parts = [LargePart(ref, Path(path, name)) for name, ref in refs.items() if isinstance(ref, BlobRef)]
    for part in parts:
        where = in_folder(str(part.path), folder)
        if os.stat(where, dir_fd=folder, follow_symlinks=False).st_size != part.ref.size:
            raise ValueError(f"{part.path} has another size")
    return parts


def copy_hashed(source: int, more: bytes, name: str, folder: int) -> BlobRef:
    """Copy an open file, then `more`, to a new file of an open folder. Raises OSError."""
    with Closing(open_beneath(folder, name, NEW, 0o600)) as file:
        at, out = 0, HashedFile(file)
        while piece := os.pread(source, MIB, at):
            at += len(piece)
            out.write(piece)
        out.write(more)
        return out.finish()
