"""How does a folder of any size become a ZIP? Straight to a file, with flat memory, and hashed on the way.

    entry   header, content[, sizes and checksum if they were not known before]
    …
    the list of all entries, which waits in a scratch file until they are written; the end

Written bytes are never changed afterwards: so the SHA-256 is known at the end, and the file is not read again.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable
from tempfile import SpooledTemporaryFile
from typing import Final

from wakugumi.adapters.files import write_all
from wakugumi.adapters.zip.records import SIZES_FOLLOW_FLAG, UTF8_FLAG, end_of
from wakugumi.adapters.zip.write_memory import CHUNK_BYTES, FoundFile, TooBig, Zip
from wakugumi.limits.runner import ARCHIVE_ENTRIES_MAX
from wakugumi.limits.units import KIB, MIB
from wakugumi.wire.messages.references import BlobRef

_SIZES: Final = struct.Struct("<4sI2I")
_SIZES_64: Final = struct.Struct("<4sI2Q")
_CENTRAL_MEMORY_BYTES: Final = 1 * MIB
"""Bytes of the list held in memory: some 10 000 entries. More of the list waits on the disk."""
_BUFFER_BYTES: Final = 256 * KIB
"""Small files are written together."""


class FileZip(Zip):
    """An archive in an open file, from its current position."""

    flags = UTF8_FLAG | SIZES_FOLLOW_FLAG
    entries_max = ARCHIVE_ENTRIES_MAX

    def __init__(self, file: int, folder: str, bytes_max: int, go_on: Callable[[], None] = lambda: None) -> None:
        """The files may have `bytes_max` in all. `folder` is for scratch files; `go_on` is called between pieces, and
        its exception ends the work."""
        super().__init__()
        self._go_on = go_on
        self._file = file
        self._start = self._at = os.lseek(file, 0, os.SEEK_CUR)
        self._digest = hashlib.sha256()
        self._buffer = bytearray()
        self._central = SpooledTemporaryFile(_CENTRAL_MEMORY_BYTES, dir=folder)  # noqa: SIM115 - `close` does
        self._room = bytes_max

    def finish(self) -> BlobRef:
        """Hash and size of the archive."""
        at, size = self._at, self._central.tell()
        self._central.seek(0)
        while data := self._central.read(CHUNK_BYTES):
            self._write(data)
        self._write(end_of(self._count, size, at))
        self._flush()
        return BlobRef(self._digest.hexdigest(), self._at - self._start)

    def close(self) -> None:
        """Closes the scratch file; the archive's file belongs to its owner."""
        self._central.close()

    def _add_file(self, found: FoundFile, file: int, status: os.stat_result) -> None:
        self._room -= status.st_size
        if self._room < 0:
            raise TooBig
        super()._add_file(found, file, status)

    def _write(self, data: bytes) -> None:
        self._go_on()
        self._at += len(data)
        if len(data) < _BUFFER_BYTES:
            self._buffer += data
            if len(self._buffer) >= _BUFFER_BYTES:
                self._flush()
        else:
            self._flush()
            self._put(data)

    def _write_line(self, line: bytes) -> None:
        self._central.write(line)

    def _tell_sizes(self, crc: int, size: int, raw: int, *, at: int, large: bool) -> None:  # noqa: ARG002 - they follow
        self._write((_SIZES_64 if large else _SIZES).pack(b"PK\7\10", crc, size, raw))

    def _flush(self) -> None:
        self._put(self._buffer)
        self._buffer = bytearray()

    def _put(self, data: bytes | bytearray) -> None:
        self._digest.update(data)
        write_all(self._file, data)
