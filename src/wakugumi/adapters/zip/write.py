"""How does a folder of any size become a ZIP? It is written from its beginning to its end, with flat memory.

    entry   head, content[, sizes and checksum if they were not known before]
    …
    the list of all entries, which waits in memory or in a scratch file until they are written; the end

Small files are stored, larger ones deflated if that helps. Written bytes are never changed afterwards: so a HashedFile
knows the SHA-256 at the end, and is not read again.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import IO, Final, Protocol

from wakugumi.adapters.digest import Digest
from wakugumi.adapters.files import Closing, write_all
from wakugumi.adapters.zip.names import first_folder, free_names, hints_at_output, plain_name, plain_target
from wakugumi.adapters.zip.records import (
    CHUNK_BYTES,
    DEFLATED,
    END,
    SIZES_FOLLOW_FLAG,
    STORED,
    SYNC,
    UTF8_FLAG,
    WORTH_IT,
    NewEntry,
    crc32,
    dos_time,
    end_of,
    entry_of,
    packer,
    text_entry,
)
from wakugumi.adapters.zip.walk import FoundFile, is_found, open_found, pieces_of, pieces_used_up
from wakugumi.limits.runner import ARCHIVE_ENTRIES_MAX
from wakugumi.limits.units import KIB, MIB
from wakugumi.wire.messages.references import BlobRef

_LARGE_BYTES: Final = 0xF000_0000
"""From here on a file's sizes take 64 bits: deflating may make it a little larger, and that is not known before."""
_SIZES: Final = struct.Struct("<4sI2I")
_SIZES_64: Final = struct.Struct("<4sI2Q")
_LINK_BYTES_MAX: Final = 4 * KIB
"""Longest target of a link: a longer one is no path of Linux, and no reader takes it."""
_MODE_MASK: Final = 0o170777
"""Bits of a file's mode that are kept: its kind, and the rights to read, write and run; no bit that gives the rights of
another user."""
_LIST_MEMORY_BYTES: Final = 1 * MIB
"""Bytes of the list held in memory: some 10 000 entries. More of the list waits on the disk."""
USED_UP_BYTES: Final = 64 * MIB
"""Smaller files are removed soon, and take little space until then."""
_BUFFER_BYTES: Final = 256 * KIB
"""Small files are written together."""


class TooBig(Exception):
    """The archive would exceed its limit."""


class Output(Protocol):
    def write(self, data: bytes, /) -> object: ...


class ZipWriter:
    """An archive. Its methods raise OSError, and TooBig. Close it."""

    def __init__(
        self,
        out: Output,
        *,
        bytes_max: int = sys.maxsize,
        files_bytes_max: int = sys.maxsize,
        scratch: str | None = None,
        at: int = 0,
        uses_up: bool = False,
    ) -> None:
        """The archive may have `bytes_max`, its files `files_bytes_max` in all. `scratch` is a folder for a long list
        of entries, `at` the number of bytes before the archive. `uses_up`: large files give their space back while
        they are packed, so that their content is not on the disk twice."""
        self._out = out
        self._at = at
        self._bytes_max = at + bytes_max - END.size
        self._files_bytes_max = files_bytes_max
        self._uses_up = uses_up
        self._list: IO[bytes] = BytesIO()
        if scratch is not None:
            from tempfile import SpooledTemporaryFile

            self._list = SpooledTemporaryFile(_LIST_MEMORY_BYTES, dir=scratch)  # noqa: SIM115 - `close` does
        self._list_bytes = 0
        self._count = 0
        self.unpacked_bytes = 0
        """Bytes of all files, before packing."""
        self._taken: set[str] = set()
        """Names of files that may be like those of texts."""

    def add(self, folder: int, found: FoundFile) -> None:
        """Adds one file, folder or link of an open folder. A file that is gone, or is no longer a file, is left out."""
        if hints_at_output(found.name.encode(errors="replace")):
            self._taken.add(first_folder(plain_name(found.name)))
        if found.target is not None:
            target = plain_target(found.name, found.target).encode()
            if len(target) <= _LINK_BYTES_MAX:
                self._whole(found, target)
            return
        if found.name.endswith("/"):
            self._whole(found, b"")
            return
        is_used_up = self._uses_up and found.status.st_size >= USED_UP_BYTES
        try:
            file = open_found(folder, found, os.O_RDWR) if is_used_up else open_found(folder, found)
        except FileNotFoundError:
            return
        except OSError:  # Its rights forbid to write.
            if not is_used_up:
                raise
            self._uses_up = False
            self.add(folder, found)
            return
        with Closing(file):
            status = os.fstat(file)
            if is_found(status, found):
                if self.unpacked_bytes + status.st_size > self._files_bytes_max:
                    raise TooBig
                if status.st_size > CHUNK_BYTES:
                    pieces = pieces_of(file, status)
                    if is_used_up and status.st_nlink == 1:  # No other name leads to it.
                        pieces = pieces_used_up(file, pieces)
                    self._in_pieces(found, status.st_size, pieces)
                else:
                    self._whole(found, os.read(file, status.st_size))

    def add_texts(self, texts: Mapping[str, bytes]) -> None:
        """Adds stdout and stderr, behind all files."""
        for name, content in zip(free_names(texts, self._taken), texts.values(), strict=True):
            at = self._at
            entry, data = text_entry(name, content)
            self._write(entry.head() + data)
            self.add_line(entry.line(at), 0)

    def finish(self) -> None:
        """Writes the list and the end."""
        if self._at + self._list_bytes > self._bytes_max:
            raise TooBig
        self._list.seek(0)
        while data := self._list.read(CHUNK_BYTES):
            self._out.write(data)
        self._out.write(end_of(self._count, self._list_bytes, self._at))

    def close(self) -> None:
        """Closes the scratch file; the output belongs to its owner."""
        self._list.close()

    def add_line(self, line: bytes, raw: int) -> None:
        """Adds a line of an entry with `raw` bytes to the list."""
        self._list.write(line)
        self._list_bytes += len(line)
        self._count += 1
        self.unpacked_bytes += raw
        if self._count > ARCHIVE_ENTRIES_MAX:
            raise TooBig

    def _whole(self, found: FoundFile, data: bytes) -> None:
        """The content is in memory: sizes and checksum come first."""
        at = self._at
        entry, content = entry_of(*_described(found), data)
        self._write(entry.head() + content)
        self.add_line(entry.line(at), entry.raw)

    def _in_pieces(self, found: FoundFile, size: int, pieces: Iterator[bytes]) -> None:
        """Sizes and checksum come after the content. The first piece decides whether deflating helps."""
        at, is_large, piece, deflating = self._at, size >= _LARGE_BYTES, next(pieces, b""), packer()
        packed = deflating.compress(piece) + deflating.flush(SYNC)
        helps = len(packed) < len(piece) * WORTH_IT
        entry = NewEntry(*_described(found), DEFLATED if helps else STORED, flags=UTF8_FLAG | SIZES_FOLLOW_FLAG)
        self._write(entry.head(is_large=is_large))
        start, raw, crc = self._at, len(piece), crc32(piece)
        self._write(packed if helps else piece)
        for piece in pieces:
            raw, crc = raw + len(piece), crc32(piece, crc)
            self._write(deflating.compress(piece) if helps else piece)
        if helps:
            self._write(deflating.flush())
        entry = entry._replace(crc=crc, size=self._at - start, raw=raw)
        self._write((_SIZES_64 if is_large else _SIZES).pack(b"PK\7\10", crc, entry.size, raw))
        self.add_line(entry.line(at), raw)

    def _write(self, data: bytes) -> None:
        self._at += len(data)
        if self._at + self._list_bytes > self._bytes_max:
            raise TooBig
        self._out.write(data)


class HashedFile:
    """An open file, written from its current position and hashed on the way. Its methods raise OSError."""

    def __init__(self, file: int, go_on: Callable[[], None] = lambda: None) -> None:
        """`go_on` is called for each piece, and its exception ends the work."""
        self._file = file
        self._go_on = go_on
        self._digest = Digest()
        self._buffer = bytearray()
        self._size = 0

    def write(self, data: bytes) -> None:
        self._go_on()
        self._size += len(data)
        if len(data) < _BUFFER_BYTES:
            self._buffer += data
            if len(self._buffer) >= _BUFFER_BYTES:
                self._flush()
        else:
            self._flush()
            self._put(data)

    def finish(self) -> BlobRef:
        """Hash and size of the written bytes."""
        self._flush()
        return BlobRef(self._digest.hexdigest(), self._size)

    def _flush(self) -> None:
        self._put(bytes(self._buffer))
        self._buffer = bytearray()

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        write_all(self._file, data)


def _described(found: FoundFile) -> tuple[bytes, int, tuple[int, int]]:
    """Name, mode and time of an entry."""
    return plain_name(found.name).encode(), found.status.st_mode & _MODE_MASK, dos_time(found.status.st_mtime)
