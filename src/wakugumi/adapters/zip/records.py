"""Which bytes say what is in a ZIP? The head of each entry, its line in the list of all, and the end.

    head, content[, sizes]   for each entry
    line                     for each entry
    end

Numbers of more than 32 bits (4 GiB), or more than 65 535 entries, use the 64-bit form of ZIP.
"""

from __future__ import annotations

import struct
import time
from typing import Final

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


def dos_time(seconds: float) -> tuple[int, int]:
    """In UTC: a ZIP has no time zone, and workers have many. ZIP's years are 1980 to 2107, its seconds even."""
    year, month, day, hour, minute, second, *_ = time.gmtime(min(max(seconds, 315532800.0), 4354819198.0))
    return hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day


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
