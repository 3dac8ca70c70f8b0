"""How does a folder become a ZIP? Written here, because the standard library deflates eight times slower than isal.

Small files are stored, larger ones deflated if that helps. What fits a frame is made in memory, here; what does not is
written to the disk, by `archive_file`. Neither holds more of a folder in memory than a part of it.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Container, Iterator
from itertools import islice
from typing import Final, NamedTuple, Protocol

from wakugumi.adapters.files import GONE, READ, READ_FOLDER, open_beneath
from wakugumi.adapters.zip.names import climbs, plain_name, plain_target
from wakugumi.limits.runner import ARCHIVE_DEFLATE_FROM_BYTES
from wakugumi.limits.units import MIB
from wakugumi.limits.wire import FILE_NAME_BYTES_MAX

try:
    from isal import isal_zlib as deflate
except ImportError:  # pragma: no cover - no wheel for this machine
    import zlib as deflate  # type: ignore[no-redef]

CHUNK_BYTES: Final = 1 * MIB
"""What is read of a file at a time; whether deflating helps is decided by the first chunk."""
_LEVEL: Final = 2
"""Of isal's four (0 to 3): half the size for a tenth of the time. Fine for zlib too."""
WORTH_IT: Final = 0.97
_BATCH: Final = 4_096
"""Entries of a folder that are held at once: sorted among themselves, as far as that costs no memory."""
_OPEN_MAX: Final = 8
"""Folders inside each other that are read bit by bit; of deeper ones all names are read, for files must not run out."""

_LOOK_AT_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC

STORED: Final = 0
DEFLATED: Final = 8
UTF8_FLAG: Final = 0x800
VERSION: Final = 20
BY_UNIX: Final = 3 << 8
LOCAL: Final = struct.Struct("<4s5H3I2H")
CENTRAL: Final = struct.Struct("<4s6H3I5H2I")
END: Final = struct.Struct("<4s4H2IH")
ENTRIES_MAX: Final = 0xFFFF

crc32: Final = deflate.crc32
NotDeflated: Final[type[Exception]] = deflate.error  # type: ignore[assignment]  # its stub says an instance
SYNC: Final = deflate.Z_SYNC_FLUSH


class Packer(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self, mode: int = ..., /) -> bytes: ...


class Unpacker(Protocol):
    unconsumed_tail: bytes
    eof: bool

    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


def packer() -> Packer:
    """For one file of an archive."""
    return deflate.compressobj(_LEVEL, deflate.DEFLATED, -15)


def unpacker() -> Unpacker:
    return deflate.decompressobj(-15)


class TooBig(Exception):
    """The archive would exceed what it was allowed."""


class Found(NamedTuple):
    """Something a program left in its directory."""

    name: str
    """Relative to the directory, with slashes."""
    status: os.stat_result
    target: str | None = None
    """Where it points, if it is a link."""
    lent: bool = False
    """It is another user's, and on loan to this job."""


def walk(
    folder: int, inputs: frozenset[str], owner: int | None = None, lent: Container[tuple[int, int]] = ()
) -> Iterator[Found]:
    """What a program produced below an open folder: files, empty folders, and links that stay inside.

    Left out: the inputs, hidden files and folders, links that lead out, pipes, sockets and devices, and names too long
    to be written down again elsewhere. With an `owner`, also files of other users, which may be there by a hard link;
    but not those that were `lent` to this job (device and inode): it may call its inputs as it likes.
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
                yield Found(name, status)
            elif kind == stat.S_IFREG and (status.st_dev, status.st_ino) in lent:
                yield Found(name, status, lent=True)
            elif kind == stat.S_IFLNK and (target := _target_inside(folder, name)) is not None:
                yield Found(name, status, target)
        else:
            is_empty = nothing and inside and inside[:-1] not in brought
            if is_empty and (seen := _status(folder, inside[:-1])) is not None:
                yield Found(inside, seen)
            if not above:
                return
            inside, entries = above.pop()
            nothing = False


class ZipWriter:
    """An archive in memory, of at most `bytes_max`. Its methods raise TooBig."""

    def __init__(self, bytes_max: int) -> None:
        self._parts: list[bytes] = []
        self._central: list[bytes] = []
        self._size = 0
        self._room = bytes_max - END.size
        self.unpacked_bytes = 0
        """Of all that is in it, as it was before packing."""

    def add(self, folder: int, found: Found) -> None:
        """One thing of an open folder. A file that is gone, or is no longer one, is left out."""
        if found.target is not None:
            target = plain_target(found.name, found.target).encode()
            self._write(found, STORED, crc32(target), len(target), [target])
        elif found.name.endswith("/"):
            self._write(found, STORED, 0, 0, [])
        else:
            self._add_file(folder, found)

    def finish(self) -> bytes:
        count = len(self._central)
        central = b"".join(self._central)
        end = END.pack(b"PK\5\6", 0, 0, count, count, len(central), self._size, 0)
        return b"".join([*self._parts, central, end])

    def _add_file(self, folder: int, found: Found) -> None:
        try:
            file = open_found(folder, found)
        except FileNotFoundError:
            return
        try:
            status = os.fstat(file)
            if is_found(status, found):
                self._write(found, *self._pack(file, status.st_size))
        finally:
            os.close(file)

    def _pack(self, file: int, size: int) -> tuple[int, int, int, list[bytes]]:
        """Method, checksum, size before and the bytes as they will stand in the archive."""
        chunk = os.read(file, min(size, CHUNK_BYTES))
        raw, crc = len(chunk), crc32(chunk)
        if size < ARCHIVE_DEFLATE_FROM_BYTES:
            return STORED, crc, raw, [chunk]
        packer = deflate.compressobj(_LEVEL, deflate.DEFLATED, -15)
        last = raw >= size
        packed = packer.compress(chunk) + packer.flush(deflate.Z_FINISH if last else deflate.Z_SYNC_FLUSH)
        helps = len(packed) < raw * WORTH_IT
        pieces = [packed if helps else chunk]
        length = len(pieces[0])
        while raw < size and (chunk := os.read(file, CHUNK_BYTES)):
            raw, crc = raw + len(chunk), crc32(chunk, crc)
            pieces.append(packer.compress(chunk) if helps else chunk)
            length += len(pieces[-1])
            self._check_room(length)
        if helps and not last:
            pieces.append(packer.flush())
        return DEFLATED if helps else STORED, crc, raw, pieces

    def _write(self, found: Found, method: int, crc: int, raw: int, pieces: list[bytes]) -> None:
        name = plain_name(found.name).encode()
        size = sum(map(len, pieces))
        when, day = dos_time(found.status.st_mtime)
        permissions = stat.S_IFMT(found.status.st_mode) | found.status.st_mode & 0o777
        attributes = permissions << 16 | (0x10 if found.name.endswith("/") else 0)
        fields = (UTF8_FLAG, method, when, day, crc, size, raw, len(name), 0)
        local = LOCAL.pack(b"PK\3\4", VERSION, *fields) + name
        central = CENTRAL.pack(b"PK\1\2", BY_UNIX | VERSION, VERSION, *fields, 0, 0, 0, attributes, self._size) + name
        self._room -= len(central)
        self._check_room(len(local) + size)
        if len(self._central) >= ENTRIES_MAX:
            raise TooBig
        self._parts += [local, *pieces]
        self._central.append(central)
        self.unpacked_bytes += raw
        self._size += len(local) + size

    def _check_room(self, size: int) -> None:
        if self._size + size > self._room:
            raise TooBig


def _entries(folder: int, inside: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    """What is in a folder below the open one, without hidden things. A folder we may not read has nothing."""
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
    """Where a link points, if that is inside whatever else is a link. Only its last part may be one itself: so what
    stands before `..` is a folder, and both can be left out."""
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
    """The same place, without going down first: whoever unpacks it cannot tell what is a link on the way."""
    start = name.split("/")[:-1]
    shared = 0
    while shared < min(len(start), len(way)) and start[shared] == way[shared]:
        shared += 1
    return "/".join([".."] * (len(start) - shared) + way[shared:]) or "."


def open_found(folder: int, found: Found) -> int:
    """To be read. Raises FileNotFoundError if it is gone, or something else is in its place; else OSError."""
    try:
        return open_beneath(folder, found.name, READ)
    except OSError as error:
        if error.errno in GONE:
            raise FileNotFoundError(error.errno, error.strerror) from None
        raise


def is_found(status: os.stat_result, found: Found) -> bool:
    """Is this a file still, of the same user? And what is another user's, the same file?"""
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
    """Of a folder below the open one; None if it is none any more."""
    try:
        file = open_beneath(folder, name, _LOOK_AT_FOLDER)
    except OSError:
        return None
    try:
        return os.fstat(file)
    finally:
        os.close(file)


def _read_link(folder: int, name: str) -> str | None:
    """Where a link points; None if it is none any more."""
    above, _, last = name.rpartition("/")
    try:
        file = open_beneath(folder, above or ".", _LOOK_AT_FOLDER)
        try:
            return os.readlink(last, dir_fd=file)
        finally:
            os.close(file)
    except OSError:
        return None


def dos_time(seconds: float) -> tuple[int, int]:
    """In UTC: a ZIP has no time zone, and workers have many. ZIP's years are 1980 to 2107, its seconds even."""
    year, month, day, hour, minute, second, *_ = time.gmtime(min(max(seconds, 315532800.0), 4354819198.0))
    return hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day
