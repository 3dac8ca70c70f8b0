"""Which bytes say what is in a ZIP? The head of each entry, its line in the list of all, and the end.

    head, content[, sizes]   for each entry
    line                     for each entry
    end

Numbers of more than 32 bits (4 GiB), or more than 65 535 entries, use the 64-bit form of ZIP. Content is deflated by
isal: the standard library is eight times slower.
"""

from __future__ import annotations

import stat
import struct
import time
from typing import Final, NamedTuple, Protocol

from wakugumi.limits.runner import ARCHIVE_DEFLATE_FROM_BYTES
from wakugumi.limits.units import MIB

try:
    from isal import isal_zlib as deflate
except ImportError:  # pragma: no cover - no wheel for this machine
    import zlib as deflate  # type: ignore[no-redef]

CHUNK_BYTES: Final = 1 * MIB
"""Bytes of a file per read; the first chunk decides whether deflating helps."""
_TEXT_MODE: Final = stat.S_IFREG | 0o644
_LEVEL: Final = 2
"""Of isal's four (0 to 3): half the size for a tenth of the time. Fine for zlib too."""
WORTH_IT: Final = 0.97
"""Deflated content is kept below this part of its size."""
STORED: Final = 0
DEFLATED: Final = 8
UTF8_FLAG: Final = 0x800
SIZES_FOLLOW_FLAG: Final = 0x8
VERSION: Final = 20
VERSION_64: Final = 45
BY_UNIX: Final = 3 << 8
LOCAL: Final = struct.Struct("<4s5H3I2H")
CENTRAL: Final = struct.Struct("<4s6H3I5H2I")
END: Final = struct.Struct("<4s4H2IH")
END_64: Final = struct.Struct("<4sQ2H2I4Q")
LOCATOR_64: Final = struct.Struct("<4sIQI")
EXTRA_64: Final = struct.Struct("<HHQQ")
ENTRIES_MAX: Final = 0xFFFF
MAX_32: Final = 0xFFFFFFFF

crc32: Final = deflate.crc32
NotDeflated: Final[type[Exception]] = deflate.error  # type: ignore[assignment]  # its stub says an instance
SYNC: Final = deflate.Z_SYNC_FLUSH


def missing_of_head(head: bytes | bytearray) -> int:
    """Bytes that the head of an entry lacks, as far as its beginning tells; none if it is no head."""
    if len(head) < LOCAL.size:
        return LOCAL.size - len(head)
    *_, name_bytes, extra_bytes = LOCAL.unpack_from(head)
    return LOCAL.size + name_bytes + extra_bytes - len(head) if head.startswith(b"PK\3\4") else 0


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


class NewEntry(NamedTuple):
    """An entry that is being written."""

    name: bytes
    mode: int
    when: tuple[int, int]
    method: int
    crc: int = 0
    size: int = 0
    """Bytes of its content in the archive."""
    raw: int = 0
    """Bytes of its content."""
    flags: int = UTF8_FLAG

    def head(self, *, is_large: bool = False) -> bytes:
        """`is_large`: sizes of more than 32 bits follow the content."""
        version, sizes, extra = VERSION, (self.size, self.raw), b""
        if is_large:
            version, sizes, extra = VERSION_64, (MAX_32, MAX_32), EXTRA_64.pack(1, 16, 0, 0)
        fields = (version, self.flags, self.method, *self.when, self.crc, *sizes, len(self.name), len(extra))
        return LOCAL.pack(b"PK\3\4", *fields) + self.name + extra

    def line(self, at: int) -> bytes:
        """Its line in the list, if its head is at `at`."""
        sizes = self.crc, self.size, self.raw
        return line_of(self.name, self.mode, self.flags, self.method, self.when, *sizes, at)


def entry_of(name: bytes, mode: int, when: tuple[int, int], data: bytes) -> tuple[NewEntry, bytes]:
    """An entry, and its content as it stands in the archive: deflated if that helps."""
    method, content = STORED, data
    if len(data) >= ARCHIVE_DEFLATE_FROM_BYTES:
        deflating = packer()
        packed = deflating.compress(data) + deflating.flush()
        if len(packed) < len(data) * WORTH_IT:
            method, content = DEFLATED, packed
    return NewEntry(name, mode, when, method, crc32(data), len(content), len(data)), content


def text_entry(name: str, content: bytes) -> tuple[NewEntry, bytes]:
    """As `entry_of`, for stdout or stderr. Without a time: equal results are equal bytes, at any time."""
    return entry_of(name.encode(), _TEXT_MODE, WITHOUT_TIME, content)


def dos_time(seconds: float) -> tuple[int, int]:
    """In UTC: a ZIP has no time zone, and workers have many. ZIP's years are 1980 to 2107, its seconds even."""
    year, month, day, hour, minute, second, *_ = time.gmtime(min(max(seconds, 315532800.0), 4354819198.0))
    return hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day


WITHOUT_TIME: Final = dos_time(0.0)


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
    """The line of one entry in the list."""
    attributes = mode << 16 | (0x10 if name.endswith(b"/") else 0)
    version, extra = VERSION, b""
    if size >= MAX_32 or raw >= MAX_32 or at >= MAX_32:
        large = [number for number in (raw, size, at) if number >= MAX_32]
        version, extra = VERSION_64, struct.pack(f"<HH{len(large)}Q", 1, 8 * len(large), *large)
        size, raw, at = min(size, MAX_32), min(raw, MAX_32), min(at, MAX_32)
    sizes = (crc, size, raw, len(name), len(extra))
    head = CENTRAL.pack(b"PK\1\2", BY_UNIX | version, version, flags, method, *when, *sizes, 0, 0, 0, attributes, at)
    return head + name + extra


def end_of(count: int, size: int, at: int) -> bytes:
    """The end of an archive, behind a list of `count` entries and `size` bytes at `at`."""
    end = b""
    if count >= ENTRIES_MAX or at >= MAX_32 or size >= MAX_32:
        end = END_64.pack(b"PK\6\6", 44, BY_UNIX | VERSION_64, VERSION_64, 0, 0, count, count, size, at)
        end += LOCATOR_64.pack(b"PK\6\7", 0, at + size, 1)
    count = min(count, ENTRIES_MAX)
    return end + END.pack(b"PK\5\6", 0, 0, count, count, min(size, MAX_32), min(at, MAX_32), 0)
