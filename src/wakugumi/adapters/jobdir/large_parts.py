"""Which files of a finished job does its result name by hash? The ones that do not fit the result's frame."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from wakugumi.adapters.files import NEW
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


class Whole(NamedTuple):
    """A finished job's encoded result, its large parts, and the digest of its request."""

    payload: bytes
    parts: Sequence[LargePart]
    request: bytes = b""
    """Digest of the request that was run; empty if unknown."""


def parts_of(result: JobResult, folder: str) -> list[LargePart]:
    """Raises OSError if a part is missing, ValueError if it has another size."""
    refs = {ARCHIVE: result.archive_blob, STDOUT: result.stdout_blob, STDERR: result.stderr_blob}
    parts = [LargePart(ref, Path(folder, name)) for name, ref in refs.items() if isinstance(ref, BlobRef)]
    for part in parts:
        if os.stat(part.path, follow_symlinks=False).st_size != part.ref.size:
            raise ValueError(f"{part.path} has another size")
    return parts


def copy_hashed(source: int, more: bytes, path: str) -> BlobRef:
    """Copy an open file, then `more`, to a new file. Raises OSError."""
    import hashlib  # Few jobs need it.

    digest, at = hashlib.sha256(), 0
    with open(os.open(path, NEW, 0o600), "wb") as file:
        while piece := os.pread(source, MIB, at):
            at += len(piece)
            digest.update(piece)
            file.write(piece)
        digest.update(more)
        file.write(more)
    return BlobRef(digest.hexdigest(), at + len(more))
