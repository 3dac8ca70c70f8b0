"""Which files of a finished job does its result name by their hashes? Those that did not fit the result's frame."""

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
    """What did not fit, and where it lies."""

    ref: BlobRef
    path: Path


class Whole(NamedTuple):
    """A finished job's encoded result, all of its parts, and of which request it is."""

    payload: bytes
    parts: Sequence[LargePart]
    request: bytes = b""
    """The digest of the request that was run; empty if it is not known."""


def parts_of(result: JobResult, folder: str) -> list[LargePart]:
    """Raises OSError if one of them is not there, ValueError if one has another size."""
    refs = {ARCHIVE: result.archive_blob, STDOUT: result.stdout_blob, STDERR: result.stderr_blob}
    parts = [LargePart(ref, Path(folder, name)) for name, ref in refs.items() if isinstance(ref, BlobRef)]
    for part in parts:
        if os.stat(part.path, follow_symlinks=False).st_size != part.ref.size:
            raise ValueError(f"{part.path} has another size")
    return parts


def copy_hashed(source: int, more: bytes, path: str) -> BlobRef:
    """An open file's content and some more under a new name. Raises OSError."""
    import hashlib  # Hardly any job needs it.

    digest, at = hashlib.sha256(), 0
    with open(os.open(path, NEW, 0o600), "wb") as file:
        while piece := os.pread(source, MIB, at):
            at += len(piece)
            digest.update(piece)
            file.write(piece)
        digest.update(more)
        file.write(more)
    return BlobRef(digest.hexdigest(), at + len(more))
