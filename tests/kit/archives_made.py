"""Archives made of a folder, small and large."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterable

from wakugumi.adapters.zip.walk import FoundFile, walk
from wakugumi.adapters.zip.write import HashedFile, ZipWriter
from wakugumi.limits.units import MIB

ROOM = 3 * MIB


def pack(folder: int, inputs: frozenset[str] = frozenset(), bytes_max: int = ROOM) -> zipfile.ZipFile:
    """As another program, which knows nothing of ours, reads it."""
    data = zip_of(folder, walk(folder, inputs), bytes_max)
    assert len(data) <= bytes_max
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert archive.testzip() is None
    return archive


def zip_of(folder: int, all_found: Iterable[FoundFile], bytes_max: int = ROOM) -> bytes:
    made = io.BytesIO()
    writer = ZipWriter(made, bytes_max=bytes_max)
    for found in all_found:
        writer.add(folder, found)
    writer.finish()
    return made.getvalue()


def file_zip_of(folder: int, all_found: Iterable[FoundFile]) -> bytes:
    with tempfile.TemporaryFile() as file:
        out = HashedFile(file.fileno())
        with contextlib.closing(ZipWriter(out, files_bytes_max=ROOM, scratch="/tmp")) as writer:
            for found in all_found:
                writer.add(folder, found)
            writer.finish()
        out.finish()
        return os.pread(file.fileno(), ROOM, 0)
