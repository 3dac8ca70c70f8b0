"""Archives made of a folder, small and large."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterable

from wakugumi.adapters.zip.write_file import FileZip
from wakugumi.adapters.zip.write_memory import FoundFile, ZipWriter, walk
from wakugumi.limits.units import MIB

ROOM = 3 * MIB


def pack(folder: int, inputs: frozenset[str] = frozenset(), bytes_max: int = ROOM) -> zipfile.ZipFile:
    """As another program, which knows nothing of ours, reads it."""
    writer = ZipWriter(bytes_max)
    for found in walk(folder, inputs):
        writer.add(folder, found)
    data = writer.finish()
    assert len(data) <= bytes_max
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert archive.testzip() is None
    return archive


def zip_of(folder: int, all_found: Iterable[FoundFile]) -> bytes:
    writer = ZipWriter(ROOM)
    for found in all_found:
        writer.add(folder, found)
    return writer.finish()


def file_zip_of(folder: int, all_found: Iterable[FoundFile]) -> bytes:
    with tempfile.TemporaryFile() as file, contextlib.closing(FileZip(file.fileno(), "/tmp", ROOM)) as writer:
        for found in all_found:
            writer.add(folder, found)
        writer.finish()
        return os.pread(file.fileno(), ROOM, 0)
