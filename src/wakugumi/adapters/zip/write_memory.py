"""How does a folder become a ZIP? Written here, because the standard library deflates eight times slower than isal.

Small files are stored, larger ones deflated if that helps. An archive that fits a frame is made in memory, here; a
larger one is written to the disk, by `write_file`. Neither holds more than a part of a folder in memory.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator
from itertools import islice
from typing import Final, NamedTuple, Protocol

from wakugumi.adapters.files import GONE, READ, READ_FOLDER, open_beneath
from wakugumi.adapters.zip.names import climbs, plain_name, plain_target
from wakugumi.adapters.zip.records import (
    DEFLATED,
    END,
    ENTRIES_MAX,
    EXTRA_64,
    LOCAL,
    MAX_32,
    STORED,
    UTF8_FLAG,
    VERSION,
    VERSION_64,
    dos_time,
    end_of,
    line_of,
)
from wakugumi.limits.runner import ARCHIVE_DEFLATE_FROM_BYTES
from wakugumi.limits.units import KIB, MIB
from wakugumi.limits.wire import FILE_NAME_BYTES_MAX

try:
    from isal import isal_zlib as deflate
except ImportError:  # pragma: no cover - no wheel for this machine
    import zlib as deflate  # type: ignore[no-redef]

CHUNK_BYTES: Final = 1 * MIB
"""Bytes of a file per read; the first chunk decides whether deflating helps."""
_LEVEL: Final = 2
"""Of isal's four (0 to 3): half the size for a tenth of the time. Fine for zlib too."""
WORTH_IT: Final = 0.97
_BATCH: Final = 4_096
"""Entries of a folder that are held at once: sorted among themselves, as far as that costs no memory."""
_OPEN_MAX: Final = 8
"""Folders inside each other that are read bit by bit; of deeper ones all names are read, for files must not run out."""

_LOOK_AT_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC

_LARGE_BYTES: Final = 0xF000_0000
"""From here on a file's sizes take 64 bits: deflating may make it a little larger, and that is not known before."""
_SIZES: Final = struct.Struct("<3I")
_SIZES_AT: Final = 14
"""Checksum and sizes, in the head of an entry."""
_LINK_BYTES_MAX: Final = 4 * KIB
"""Longest target of a link: a longer one is no path of Linux, and no reader takes it."""
_MODE_MASK: Final = 0o170777
"""Bits of a file's mode that are kept: its kind, and the rights to read, write and run; no bit that gives the rights of
another user."""
_ZEROS: Final = bytes(CHUNK_BYTES)

crc32: Final = deflate.crc32
NotDeflated: Final[type[Exception]] = deflate.error  # type: ignore[assignment]  # its stub says an instance
_SYNC: Final = deflate.Z_SYNC_FLUSH


class Deflater(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self, mode: int = ..., /) -> bytes: ...


class Inflater(Protocol):
    unconsumed_tail: bytes
    eof: bool

    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


def packer() -> Deflater:
    """For one file of an archive."""
    return deflate.compressobj(_LEVEL, deflate.DEFLATED, -15)


def unpacker() -> Inflater:
    return deflate.decompressobj(-15)


class TooBig(Exception):
    """The archive would exceed its limit."""


class FoundFile(NamedTuple):
    """A file, folder or link of a program in its directory."""

    name: str
    """Path relative to the directory, with slashes."""
    status: os.stat_result
    target: str | None = None
    """Target of a link."""
    lent: bool = False
    """The file belongs to another user, and is lent to this job."""


def walk(
    folder: int, inputs: frozenset[str], owner: int | None = None, lent: Container[tuple[int, int]] = ()
) -> Iterator[FoundFile]:
    """Output of a program below an open folder: files, empty folders, and links that stay inside.

    Left out: the inputs, hidden files and folders, links that lead out, pipes, sockets and devices, and names too long
    to be written elsewhere. With an `owner`, also files of other users, which may be there by a hard link; but not
    files that were `lent` to this job (device and inode): the job may rename its inputs.
    """
    brought = {name[:at] for name in inputs for at, char in enumerate(name) if char == "/"}
    inside, entries, nothing = "", _entries(folder, "", 0), True
    above: list[tuple[str, Iterator[tuple[str, os.stat_result]]]] = []
    while True:
        for name, status in entries:
            nothing = False
            kind = stat.S_IFMT(status.st_mode)
            if name in inputs or len(os.fsencode(name)) > FILE_NAME_BYTES_MAX:
                continue
            if kind == stat.S_IFDIR:
                above.append((inside, entries))
                inside, nothing = name + "/", True
                entries = _entries(folder, inside, len(above))
                break
            if kind == stat.S_IFREG and owner in {None, status.st_uid}:
                yield FoundFile(name, status)
            elif kind == stat.S_IFREG and (status.st_dev, status.st_ino) in lent:
                yield FoundFile(name, status, lent=True)
            elif kind == stat.S_IFLNK and (target := _target_inside(folder, name)) is not None:
                yield FoundFile(name, status, target)
        else:
            is_empty = nothing and inside and inside[:-1] not in brought
            if is_empty and (seen := _status(folder, inside[:-1])) is not None:
                yield FoundFile(inside, seen)
            if not above:
                return
            inside, entries = above.pop()
            nothing = False


class Zip(ABC):
    """An archive that is written from its beginning to its end. Its methods raise OSError, and TooBig."""

    flags: int
    """Of an entry whose sizes are told after its content."""
    entries_max: int

    def __init__(self) -> None:
        self._at = 0
        self._count = 0
        self.unpacked_bytes = 0
        """Bytes of all files, before packing."""

    @abstractmethod
    def _write(self, data: bytes) -> None:
        """Writes bytes, and moves `_at`."""

    @abstractmethod
    def _write_line(self, line: bytes) -> None:
        """Adds a line to the list of entries."""

    @abstractmethod
    def _tell_sizes(self, crc: int, size: int, raw: int, *, at: int, large: bool) -> None:
        """Sets checksum and sizes of the entry at `at`, once known."""

    def add(self, folder: int, found: FoundFile) -> None:
        """Adds one file, folder or link of an open folder. A file that is gone, or is no longer a file, is left out."""
        if found.target is not None:
            target = plain_target(found.name, found.target).encode()
            if len(target) <= _LINK_BYTES_MAX:
                self._whole(found, target)
            return
        if found.name.endswith("/"):
            self._whole(found, b"")
            return
        try:
            file = open_found(folder, found)
        except FileNotFoundError:
            return
        try:
            status = os.fstat(file)
            if is_found(status, found):
                self._add_file(found, file, status)
        finally:
            os.close(file)

    def _add_file(self, found: FoundFile, file: int, status: os.stat_result) -> None:
        if status.st_size > CHUNK_BYTES:
            self._in_pieces(found, status.st_size, _pieces(file, status))
        else:
            self._whole(found, os.read(file, status.st_size))

    def _whole(self, found: FoundFile, data: bytes) -> None:
        """The content is in memory: sizes and checksum come first."""
        at, raw, crc = self._at, len(data), crc32(data)
        name, when = plain_name(found.name).encode(), dos_time(found.status.st_mtime)
        method, content = STORED, data
        if raw >= ARCHIVE_DEFLATE_FROM_BYTES:
            deflating = packer()
            packed = deflating.compress(data) + deflating.flush()
            if len(packed) < raw * WORTH_IT:
                method, content = DEFLATED, packed
        size = len(content)
        head = LOCAL.pack(b"PK\3\4", VERSION, UTF8_FLAG, method, *when, crc, size, raw, len(name), 0)
        self._write(head + name + content)
        mode = found.status.st_mode & _MODE_MASK
        self.add_line(line_of(name, mode, UTF8_FLAG, method, when, crc, size, raw, at), raw)

    def _in_pieces(self, found: FoundFile, size: int, pieces: Iterator[bytes]) -> None:
        """Sizes and checksum come after the content. The first piece decides whether deflating helps."""
        at, name, when = self._at, plain_name(found.name).encode(), dos_time(found.status.st_mtime)
        piece = next(pieces, b"")
        deflating = packer()
        packed = deflating.compress(piece) + deflating.flush(_SYNC)
        helps = len(packed) < len(piece) * WORTH_IT
        method, large = DEFLATED if helps else STORED, size >= _LARGE_BYTES
        extra = EXTRA_64.pack(1, 16, 0, 0) if large else b""
        fields = (self.flags, method, *when, 0, *((MAX_32, MAX_32) if large else (0, 0)), len(name), len(extra))
        self._write(LOCAL.pack(b"PK\3\4", VERSION_64 if large else VERSION, *fields) + name + extra)
        start, raw, crc = self._at, len(piece), crc32(piece)
        self._write(packed if helps else piece)
        for piece in pieces:
            raw, crc = raw + len(piece), crc32(piece, crc)
            self._write(deflating.compress(piece) if helps else piece)
        if helps:
            self._write(deflating.flush())
        length = self._at - start
        self._tell_sizes(crc, length, raw, at=at, large=large)
        mode = found.status.st_mode & _MODE_MASK
        self.add_line(line_of(name, mode, self.flags, method, when, crc, length, raw, at), raw)

    def add_line(self, line: bytes, raw: int) -> None:
        self._write_line(line)
        self._count += 1
        self.unpacked_bytes += raw
        if self._count > self.entries_max:
            raise TooBig


class ZipWriter(Zip):
    """An archive in memory, of at most `bytes_max`."""

    flags = UTF8_FLAG
    entries_max = ENTRIES_MAX - 1

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self._room = bytes_max - END.size
        self._data = bytearray()
        self._lines = bytearray()

    def finish(self) -> bytes:
        return b"".join([self._data, self._lines, end_of(self._count, len(self._lines), self._at)])

    def _write(self, data: bytes) -> None:
        self._at += len(data)
        if self._at > self._room:
            raise TooBig
        self._data += data

    def _write_line(self, line: bytes) -> None:
        self._room -= len(line)
        if self._at > self._room:
            raise TooBig
        self._lines += line

    def _tell_sizes(self, crc: int, size: int, raw: int, *, at: int, large: bool) -> None:
        if large:
            raise TooBig
        _SIZES.pack_into(self._data, at + _SIZES_AT, crc, size, raw)


def _entries(folder: int, inside: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    """Entries of a folder below the open one, without hidden ones. A folder that cannot be read has none."""
    try:
        file = open_beneath(folder, inside[:-1] or ".", READ_FOLDER)
    except OSError:
        return
    batch_max = _BATCH if depth < _OPEN_MAX else None
    try:
        with os.scandir(file) as entries:
            shown = (
                (inside + entry.name, entry.stat(follow_symlinks=False))
                for entry in entries
                if not entry.name.startswith(".")
            )
            batch = sorted(islice(shown, batch_max))
            while len(batch) == batch_max:
                yield from batch
                batch = sorted(islice(shown, batch_max))
    finally:
        os.close(file)
    yield from batch


def _target_inside(folder: int, name: str) -> str | None:
    """The target of a link, if it stays inside whatever other links there are. Only the last part may be a link itself:
    so a part before `..` is a folder, and both can be left out."""
    target = _read_link(folder, name)
    if target is None or target.startswith("/"):
        return None
    way = name.split("/")[:-1]
    parts = target.split("/")
    for at, part in enumerate(parts):
        if part == "..":
            if not way:
                return None
            way.pop()
        elif part not in {"", "."}:
            way.append(part)
            if at < len(parts) - 1 and not _is_folder(folder, "/".join(way)):
                return None
    return _straight(name, way) if climbs(target) else target


def _straight(name: str, way: list[str]) -> str:
    """An equal target that goes up first and then down: a reader cannot tell which folders on the way are links."""
    start = name.split("/")[:-1]
    shared = 0
    while shared < min(len(start), len(way)) and start[shared] == way[shared]:
        shared += 1
    return "/".join([".."] * (len(start) - shared) + way[shared:]) or "."


def open_found(folder: int, found: FoundFile) -> int:
    """Opens a file for reading. Raises FileNotFoundError if it is gone, or replaced; else OSError."""
    try:
        return open_beneath(folder, found.name, READ)
    except OSError as error:
        if error.errno in GONE:
            raise FileNotFoundError(error.errno, error.strerror) from None
        raise


def is_found(status: os.stat_result, found: FoundFile) -> bool:
    """Is it still a file of the same user? Of another user: is it the same file?"""
    if found.lent and not os.path.samestat(status, found.status):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == found.status.st_uid


def _is_folder(folder: int, name: str) -> bool:
    try:
        os.close(open_beneath(folder, name, _LOOK_AT_FOLDER))
    except OSError:
        return False
    return True


def _status(folder: int, name: str) -> os.stat_result | None:
    """Status of a folder below the open one; None if it is none any more."""
    try:
        file = open_beneath(folder, name, _LOOK_AT_FOLDER)
    except OSError:
        return None
    try:
        return os.fstat(file)
    finally:
        os.close(file)


def _read_link(folder: int, name: str) -> str | None:
    """Target of a link; None if it is none any more."""
    above, _, last = name.rpartition("/")
    try:
        file = open_beneath(folder, above or ".", _LOOK_AT_FOLDER)
        try:
            return os.readlink(last, dir_fd=file)
        finally:
            os.close(file)
    except OSError:
        return None


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
