"""How does a folder of any size become a ZIP? Straight to a file, with flat memory, and hashed on the way.

    entry   header, content[, sizes and checksum if they were not known before]
    …
    the list of all entries, which waits in a scratch file until they are written; the end

Whatever needs more than 32 bits (4 GiB), or more than 65 535 entries, is told in the 64-bit form of ZIP. Nothing that
was written is changed afterwards: so its SHA-256 is known at the end, and the file is not read again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
from collections.abc import Callable, Iterator
from tempfile import SpooledTemporaryFile
from typing import Final

from wakugumi.adapters.zip.names import plain_name, plain_target
from wakugumi.adapters.zip.write_memory import (
    BY_UNIX,
    CENTRAL,
    CHUNK_BYTES,
    DEFLATED,
    END,
    ENTRIES_MAX,
    LOCAL,
    STORED,
    SYNC,
    UTF8_FLAG,
    VERSION,
    WORTH_IT,
    Found,
    TooBig,
    crc32,
    dos_time,
    is_found,
    open_found,
    packer,
)
from wakugumi.limits.runner import ARCHIVE_DEFLATE_FROM_BYTES, ARCHIVE_ENTRIES_MAX
from wakugumi.limits.units import KIB, MIB
from wakugumi.wire.message import BlobRef

_SIZES_FOLLOW_FLAG: Final = 0x8
_VERSION_64: Final = 45
_MAX_32: Final = 0xFFFFFFFF
_LARGE_BYTES: Final = 0xF000_0000
"""From here on a file's sizes take 64 bits: deflating may make it a little larger, and that is not known before."""
_EXTRA_64: Final = struct.Struct("<HHQQ")
_SIZES: Final = struct.Struct("<4sI2I")
_SIZES_64: Final = struct.Struct("<4sI2Q")
_END_64: Final = struct.Struct("<4sQ2H2I4Q")
_LOCATOR_64: Final = struct.Struct("<4sIQI")
_CENTRAL_MEMORY_BYTES: Final = 1 * MIB
"""Of the list of entries: some 10 000 of them. More of it waits on the disk."""
_BUFFER_BYTES: Final = 256 * KIB
"""Small files are written together."""
_ZEROS: Final = bytes(CHUNK_BYTES)


class FileZip:
    """An archive in an open file, from where that stands. Its methods raise OSError, and TooBig."""

    def __init__(self, file: int, folder: str, bytes_max: int, go_on: Callable[[], None] = lambda: None) -> None:
        """Of files with at most `bytes_max` in all. `folder` is for scratch files; `go_on` is called between pieces,
        and what it raises ends the work."""
        self._file = file
        self._start = self._at = os.lseek(file, 0, os.SEEK_CUR)
        self._digest = hashlib.sha256()
        self._buffer = bytearray()
        self._central = SpooledTemporaryFile(_CENTRAL_MEMORY_BYTES, dir=folder)  # noqa: SIM115 - `close` does
        self._count = 0
        self.unpacked_bytes = 0
        """Of all that is in it, as it was before packing."""
        self._room = bytes_max
        self._go_on = go_on

    def add(self, folder: int, found: Found) -> None:
        """One thing of an open folder. A file that is gone, or is no longer one, is left out."""
        self._go_on()
        if found.target is not None:
            self._whole(found, STORED, plain_target(found.name, found.target).encode(), None)
        elif found.name.endswith("/"):
            self._whole(found, STORED, b"", None)
        else:
            self._add_file(folder, found)

    def finish(self) -> BlobRef:
        """Its hash, and its size."""
        at, size = self._at, self._central.tell()
        self._central.seek(0)
        while data := self._central.read(CHUNK_BYTES):
            self._write(data)
        self._write(end_of(self._count, size, at))
        self._flush()
        return BlobRef(self._digest.hexdigest(), self._at - self._start)

    def close(self) -> None:
        """The scratch file; the archive's is its owner's."""
        self._central.close()

    def _add_file(self, folder: int, found: Found) -> None:
        try:
            file = open_found(folder, found)
        except FileNotFoundError:
            return
        try:
            status = os.fstat(file)
            if not is_found(status, found):
                return
            self._room -= status.st_size
            if self._room < 0:
                raise TooBig
            if status.st_size > CHUNK_BYTES:
                self._in_pieces(found, status.st_size, _pieces(file, status))
                return
            data = os.read(file, status.st_size)
        finally:
            os.close(file)
        packed = None
        if len(data) >= ARCHIVE_DEFLATE_FROM_BYTES:
            deflating = packer()
            packed = deflating.compress(data) + deflating.flush()
        if packed is not None and len(packed) < len(data) * WORTH_IT:
            self._whole(found, DEFLATED, data, packed)
        else:
            self._whole(found, STORED, data, None)

    def _whole(self, found: Found, method: int, data: bytes, packed: bytes | None) -> None:
        """All of it is in memory: sizes and checksum are told first."""
        at, name, crc = self._at, plain_name(found.name).encode(), crc32(data)
        content = data if packed is None else packed
        when = dos_time(found.status.st_mtime)
        sizes = (len(content), len(data))
        self._write(LOCAL.pack(b"PK\3\4", VERSION, UTF8_FLAG, method, *when, crc, *sizes, len(name), 0) + name)
        self._write(content)
        self._list(found, name, UTF8_FLAG, method, when, crc, *sizes, at)

    def _in_pieces(self, found: Found, size: int, pieces: Iterator[bytes]) -> None:
        """Sizes and checksum are told after it. Whether deflating helps is decided by the first piece."""
        at, name, flags = self._at, plain_name(found.name).encode(), UTF8_FLAG | _SIZES_FOLLOW_FLAG
        piece = next(pieces, b"")
        deflating = packer()
        packed = deflating.compress(piece) + deflating.flush(SYNC)
        helps = len(packed) < len(piece) * WORTH_IT
        when, method = dos_time(found.status.st_mtime), DEFLATED if helps else STORED
        large = size >= _LARGE_BYTES
        extra = _EXTRA_64.pack(1, 16, 0, 0) if large else b""
        fields = (flags, method, *when, 0, *((_MAX_32, _MAX_32) if large else (0, 0)), len(name), len(extra))
        self._write(LOCAL.pack(b"PK\3\4", _VERSION_64 if large else VERSION, *fields) + name + extra)
        start, raw, crc = self._at, len(piece), crc32(piece)
        self._write(packed if helps else piece)
        for piece in pieces:
            self._go_on()
            raw, crc = raw + len(piece), crc32(piece, crc)
            self._write(deflating.compress(piece) if helps else piece)
        if helps:
            self._write(deflating.flush())
        length = self._at - start
        self._write((_SIZES_64 if large else _SIZES).pack(b"PK\7\10", crc, length, raw))
        self._list(found, name, flags, method, when, crc, length, raw, at)

    def _list(
        self,
        found: Found,
        name: bytes,
        flags: int,
        method: int,
        when: tuple[int, int],
        crc: int,
        size: int,
        raw: int,
        at: int,
    ) -> None:
        mode = stat.S_IFMT(found.status.st_mode) | found.status.st_mode & 0o777
        self._central.write(line_of(name, mode, flags, method, when, crc, size, raw, at))
        self._count += 1
        self.unpacked_bytes += raw
        if self._count > ARCHIVE_ENTRIES_MAX:
            raise TooBig

    def _write(self, data: bytes) -> None:
        self._at += len(data)
        if len(data) < _BUFFER_BYTES:
            self._buffer += data
            if len(self._buffer) >= _BUFFER_BYTES:
                self._flush()
        else:
            self._flush()
            self._put(data)

    def _flush(self) -> None:
        self._put(self._buffer)
        self._buffer = bytearray()

    def _put(self, data: bytes | bytearray) -> None:
        self._digest.update(data)
        with memoryview(data) as view:
            at = 0
            while at < len(view):
                at += os.write(self._file, view[at:])


def end_of(count: int, size: int, at: int) -> bytes:
    """What follows a list of so many entries, which has this size and stands here."""
    end = b""
    if count >= ENTRIES_MAX or at >= _MAX_32 or size >= _MAX_32:
        end = _END_64.pack(b"PK\6\6", 44, BY_UNIX | _VERSION_64, _VERSION_64, 0, 0, count, count, size, at)
        end += _LOCATOR_64.pack(b"PK\6\7", 0, at + size, 1)
    count = min(count, ENTRIES_MAX)
    return end + END.pack(b"PK\5\6", 0, 0, count, count, min(size, _MAX_32), min(at, _MAX_32), 0)


def line_of(
    name: bytes,
    mode: int,
    flags: int,
    method: int,
    when: tuple[int, int],
    crc: int,
    size: int,
    raw: int,
    at: int,
) -> bytes:
    """What the list of all entries says of one."""
    attributes = mode << 16 | (0x10 if name.endswith(b"/") else 0)
    large = [number for number in (raw, size, at) if number >= _MAX_32]
    extra = struct.pack(f"<HH{len(large)}Q", 1, 8 * len(large), *large) if large else b""
    version = _VERSION_64 if large else VERSION
    size, raw, at = min(size, _MAX_32), min(raw, _MAX_32), min(at, _MAX_32)
    fields = (flags, method, *when, crc, size, raw, len(name), len(extra), 0, 0, 0, attributes, at)
    return CENTRAL.pack(b"PK\1\2", BY_UNIX | version, version, *fields) + name + extra


def _pieces(file: int, status: os.stat_result) -> Iterator[bytes]:
    """A file's content, as much as it had when we looked. Its holes are not read: they are zeros."""
    size = status.st_size
    if status.st_blocks * 512 >= size:
        yield from _read(file, 0, size)
        return
    at = 0
    while at < size:
        data_at, hole_at = _next_data(file, at, size)
        while at < data_at:
            piece = _ZEROS[: data_at - at] if data_at - at < CHUNK_BYTES else _ZEROS
            yield piece
            at += len(piece)
        yield from _read(file, at, hole_at)
        at = hole_at


def _read(file: int, at: int, end: int) -> Iterator[bytes]:
    while at < end and (piece := os.pread(file, min(CHUNK_BYTES, end - at), at)):
        yield piece
        at += len(piece)


def _next_data(file: int, at: int, size: int) -> tuple[int, int]:
    """Where the next data begins and ends."""
    try:
        data_at = min(os.lseek(file, at, os.SEEK_DATA), size)
        return data_at, min(os.lseek(file, data_at, os.SEEK_HOLE), size) if data_at < size else size
    except OSError as error:
        if error.errno == errno.ENXIO:  # There is none: the rest is a hole.
            return size, size
        return at, size  # This file system does not tell.
