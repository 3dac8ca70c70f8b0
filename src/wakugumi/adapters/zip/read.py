"""What is in a ZIP that a stranger made, and how is it read with flat memory?

The list of entries is read in parts, once for each pass, and each content as a stream that is verified at its end. Any
deviation from the format is a PeerError. The caller that unpacks checks the names.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from wakugumi.adapters.files import UsedUp, free_range
from wakugumi.adapters.zip.records import (
    CENTRAL,
    CHUNK_BYTES,
    DEFLATED,
    END,
    END_64,
    LOCAL,
    LOCATOR_64,
    MAX_32,
    STORED,
    UTF8_FLAG,
    NotDeflated,
    crc32,
    unpacker,
)
from wakugumi.errors import PeerError
from wakugumi.limits.runner import ARCHIVE_ENTRIES_MAX, ARCHIVE_LIST_BYTES_MAX

_COMMENT_BYTES_MAX: Final = 0xFFFF
_ENCRYPTED_FLAG: Final = 0x1
_PAGE_BYTES: Final = 256 * 1024


class ZipEntry(NamedTuple):
    """A file, a folder or a link, by its line in the list."""

    name: str
    """With slashes; a folder's name ends with one."""
    mode: int
    """Unix mode; 0 if the writer gave none."""
    size: int
    packed_bytes: int
    method: int
    crc: int
    at: int

    @property
    def is_folder(self) -> bool:
        return self.name.endswith("/")


class _Download(NamedTuple):
    """An archive's own file, which has all but its first bytes."""

    file: int
    path: str
    head_bytes: int


class Archive:
    """A ZIP of which any part can be read: `read_at(position, how many)`."""

    def __init__(self, read_at: Callable[[int, int], bytes], size: int) -> None:
        """Raises PeerError if it is no archive."""
        self._read_at = read_at
        self._size = size
        self._download: _Download | None = None
        self.list_at, self.list_bytes, self.count = self._find_list()
        """Begin and size of the list of entries, and their number."""

    @classmethod
    def of_bytes(cls, data: bytes) -> Archive:
        return cls(lambda at, count: data[at : at + count], len(data))

    @classmethod
    def of_file(cls, file: int) -> Archive:
        """An open file, which stays the caller's."""
        return cls(lambda at, count: os.pread(file, count, at), os.fstat(file).st_size)

    @classmethod
    def of_download(cls, file: int, path: str, head: bytes) -> Archive:
        """An open file that is used up, and lacks the archive's `head`. Each large content is read once, and its space
        is given back meanwhile; or the file becomes the content (`become`)."""
        archive = cls(partial(_read_download, file, head), len(head) + os.fstat(file).st_size)
        archive._download = _Download(file, path, len(head))
        return archive

    def entries(self) -> Iterator[ZipEntry]:
        """All entries, from the first."""
        return (entry for entry, _, _ in self.located())

    def located(self) -> Iterator[tuple[ZipEntry, int, int]]:
        """Each entry, with the begin and end of its line of the list, in the archive."""
        page, page_at, end = b"", self.list_at, self.list_at + self.list_bytes
        at = self.list_at
        claimed = 0
        for _ in range(self.count):
            start = at - page_at
            if len(page) - start < CENTRAL.size + 3 * 0xFFFF and page_at + len(page) < end:
                page, page_at, start = self._read_at(at, min(_PAGE_BYTES + 3 * 0xFFFF, end - at)), at, 0
            entry, length = _entry(page, start)
            if entry.at + LOCAL.size + entry.packed_bytes > self.list_at:
                raise PeerError(f"{entry.name[:200]!r} is not where the result's archive says")
            claimed += LOCAL.size + entry.packed_bytes
            if claimed > self.list_at:  # A small archive that would fill a disk.
                raise PeerError("the result's archive cannot be read: its entries overlap")
            yield entry, at, at + length
            at += length
        if at != end:
            raise PeerError("the result's archive cannot be read: its list of entries is longer than it says")

    def content(self, entry: ZipEntry, *, frees: bool = True) -> Iterator[bytes]:
        """The content of a file, in pieces. A fault may show only at the end. `frees`: a download is used up."""
        pieces = self._packed(entry, frees) if entry.method == STORED else self._inflated(entry)
        size = crc = 0
        for piece in pieces:
            size, crc = size + len(piece), crc32(piece, crc)
            if size > entry.size:
                break
            yield piece
        if size != entry.size or crc != entry.crc:
            raise PeerError(f"{entry.name[:200]!r} in the result's archive is broken")

    def read(self, entry: ZipEntry) -> bytes:
        return b"".join(self.content(entry))

    def can_become(self, entry: ZipEntry) -> bool:
        """Whether the download can become this file: its content is stored, and begins where the download does."""
        return (
            self._download is not None
            and entry.at == 0
            and entry.method == STORED
            and entry.size == entry.packed_bytes > CHUNK_BYTES
            and self._start(entry) == self._download.head_bytes
        )

    def become(self, entry: ZipEntry, path: str) -> bool:
        """Give the download this name, which a file has already, and make it that entry. False if the name is on
        another file system; otherwise no other entry can be read any more."""
        assert self._download is not None
        os.fchmod(self._download.file, stat.S_IMODE(os.lstat(path).st_mode))
        try:
            os.replace(self._download.path, path)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return False
        os.ftruncate(self._download.file, entry.size)
        return True

    def make_hole(self, at: int, end: int) -> None:
        """Give the space of zeros back, in a content that the download becomes."""
        assert self._download is not None
        free_range(self._download.file, at, end)

    def _find_list(self) -> tuple[int, int, int]:
        """Begin and size of the list of entries, and their number."""
        tail_at = max(0, self._size - END.size - _COMMENT_BYTES_MAX)
        tail = self._read_at(tail_at, self._size - tail_at)
        found = tail.rfind(b"PK\5\6")
        if found < 0 or len(tail) - found < END.size:
            raise PeerError("the result's archive cannot be read: it is not a ZIP, or only the beginning of one")
        _, _, _, _, count, size, at, _ = END.unpack_from(tail, found)
        end_at = tail_at + found
        locator = self._read_at(end_at - LOCATOR_64.size, LOCATOR_64.size) if end_at >= LOCATOR_64.size else b""
        if locator.startswith(b"PK\6\7"):
            end_at = LOCATOR_64.unpack(locator)[2]
            record = self._read_at(end_at, END_64.size) if end_at < self._size else b""
            if len(record) < END_64.size or not record.startswith(b"PK\6\6"):
                raise PeerError("the result's archive cannot be read: its end is broken")
            *_, count, size, at = END_64.unpack(record)
        if at + size > end_at or count * CENTRAL.size > size:
            raise PeerError("the result's archive cannot be read: its list of entries is not where it should be")
        if count > ARCHIVE_ENTRIES_MAX or size > ARCHIVE_LIST_BYTES_MAX:
            raise PeerError(f"the result's archive has too many entries: {count:,}, in a list of {size:,} bytes")
        return at, size, count

    def _start(self, entry: ZipEntry) -> int:
        head = self._read_at(entry.at, LOCAL.size)
        if len(head) < LOCAL.size or not head.startswith(b"PK\3\4"):
            raise PeerError(f"{entry.name[:200]!r} is not where the result's archive says")
        *_, name_bytes, extra_bytes = LOCAL.unpack(head)
        return int(entry.at + LOCAL.size + name_bytes + extra_bytes)

    def _packed(self, entry: ZipEntry, frees: bool = True) -> Iterator[bytes]:
        at = self._start(entry)
        end = at + entry.packed_bytes
        own = self._download if frees else None
        used = UsedUp(own.file, at - own.head_bytes) if own else None
        while at < end and (piece := self._read_at(at, min(CHUNK_BYTES, end - at))):
            yield piece
            at += len(piece)
            if own and used:
                used.read_to(at - own.head_bytes)

    def _inflated(self, entry: ZipEntry) -> Iterator[bytes]:
        if entry.method != DEFLATED:
            raise PeerError(f"{entry.name[:200]!r} in the result's archive is packed by method {entry.method}")
        inflating = unpacker()
        try:
            for packed in self._packed(entry):
                left = packed
                while left and not inflating.eof:
                    piece = inflating.decompress(left, CHUNK_BYTES)
                    if not piece and len(inflating.unconsumed_tail) == len(left):
                        return
                    yield piece
                    left = inflating.unconsumed_tail
            while not inflating.eof and (piece := inflating.decompress(b"", CHUNK_BYTES)):
                yield piece
        except NotDeflated:
            raise PeerError(f"{entry.name[:200]!r} in the result's archive is broken") from None


def _read_download(file: int, head: bytes, at: int, count: int) -> bytes:
    start = head[at : at + count]
    return start + os.pread(file, count - len(start), at + len(start) - len(head)) if len(start) < count else start


def _entry(page: bytes, start: int) -> tuple[ZipEntry, int]:
    """The entry that begins here, and its length."""
    if len(page) - start < CENTRAL.size or not page.startswith(b"PK\1\2", start):
        raise PeerError("the result's archive cannot be read: its list of entries is broken")
    fields = CENTRAL.unpack_from(page, start)
    _, _, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes, comment_bytes, *_, attributes, at = fields
    if flags & _ENCRYPTED_FLAG:
        raise PeerError("the result's archive is encrypted")
    name_at = start + CENTRAL.size
    extra_at = name_at + name_bytes
    length = CENTRAL.size + name_bytes + extra_bytes + comment_bytes
    if len(page) - start < length:
        raise PeerError("the result's archive cannot be read: its list of entries is broken")
    try:
        name = page[name_at:extra_at].decode("utf-8" if flags & UTF8_FLAG else "cp437")
    except UnicodeDecodeError:
        raise PeerError("a name in the result's archive is not UTF-8, as it says") from None
    if MAX_32 in (size, packed, at):
        size, packed, at = _large(page[extra_at : extra_at + extra_bytes], size, packed, at)
    return ZipEntry(name, attributes >> 16, size, packed, method, crc, at), length


def _large(extra: bytes, *numbers: int) -> tuple[int, int, int]:
    """Numbers that do not fit 32 bits are in the extra field, in the same order."""
    while len(extra) >= 4:
        kind, count = struct.unpack_from("<HH", extra)
        if kind == 1:
            given = iter(struct.unpack_from(f"<{min(count, len(extra) - 4) // 8}Q", extra, 4))
            size, packed, at = (next(given, number) if number == MAX_32 else number for number in numbers)
            return size, packed, at
        extra = extra[4 + count :]
    size, packed, at = numbers
    return size, packed, at
