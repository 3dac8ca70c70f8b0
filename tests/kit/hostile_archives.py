"""Archives that no honest worker sends: the bytes, what the worker says that they unpack to, and what may come of it.

A new trick is one more row of ARCHIVES.
"""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from io import BytesIO
from typing import NamedTuple

from tests.kit.hostile_text import TEXTS

FILE = stat.S_IFREG | 0o644
LINK = stat.S_IFLNK | 0o777
GOOD = ("good", b"fine", FILE)


class Hostile(NamedTuple):
    data: bytes
    unpacked_bytes: int | None = None
    """What the worker announces; None: it says nothing, as old ones do."""
    files: frozenset[str] | None = None
    """What may be written; None: nothing at all, for it is refused."""
    left_out: int = 0
    over_http: bool = True
    """False: a leader refuses it as well. What only unpacking finds out is passed on."""


def packed(*entries: tuple[str, bytes, int], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content, mode in entries:
            info = zipfile.ZipInfo("placeholder")
            info.filename = name
            info.external_attr = mode << 16
            info.compress_type = method
            archive.writestr(info, content)
    return buffer.getvalue()


def twice(name: str) -> bytes:
    """The same name for two files; `zipfile` itself only warns."""
    data = packed(("first", b"1", FILE), ("other", b"2", FILE))
    return data.replace(b"first", name.encode()).replace(b"other", name.encode())


def lying_about_size(said: int) -> bytes:
    """The list says that a file has so many bytes, and it unpacks to 1 000 000."""
    data = packed(("big", bytes(1_000_000), FILE), method=zipfile.ZIP_DEFLATED)
    raw = struct.pack("<I", 1_000_000)
    return data.replace(raw, struct.pack("<I", said))


def sharing_content(count: int) -> bytes:
    """Many entries in the list, and one content for all of them: a small archive that fills a disk."""
    data = packed(("a", bytes(100_000), FILE), method=zipfile.ZIP_DEFLATED)
    end = data.rfind(b"PK\5\6")
    at = struct.unpack_from("<I", data, end + 16)[0]
    line = data[at:end]
    lines = b"".join(line.replace(b"a", b"%c" % (65 + number), 1) for number in range(count))
    tail = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(lines), at, 0)
    return data[:at] + lines + tail


def claiming(count: int, size: int) -> bytes:
    """A ZIP64 end that claims so many entries in a list of so many bytes."""
    data = packed(GOOD)
    end = data.rfind(b"PK\5\6")
    at = struct.unpack_from("<I", data, end + 16)[0]
    end_64 = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, at)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    return data[:end] + end_64 + locator + data[end:]


def with_64_bit_size(size: int) -> bytes:
    """An entry whose size stands in the 64-bit field."""
    data = packed(GOOD)
    end = data.rfind(b"PK\5\6")
    at = struct.unpack_from("<I", data, end + 16)[0]
    line = bytearray(data[at:end])
    line[24:28] = b"\xff" * 4
    extra = struct.pack("<HHQ", 1, 8, size)
    line[30:32] = struct.pack("<H", len(extra))
    whole = bytes(line[:46]) + b"good" + extra
    tail = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(whole), at, 0)
    return data[:at] + whole + tail


def bomb(size: int) -> bytes:
    return packed(("zeros", bytes(size), FILE), method=zipfile.ZIP_DEFLATED)


ONLY_GOOD = frozenset({"good"})

ARCHIVES: dict[str, Hostile] = {
    "nothing wrong": Hostile(packed(GOOD), 4, ONLY_GOOD),
    "nothing said": Hostile(packed(GOOD), None, ONLY_GOOD),
    # Bombs.
    "more than it announced": Hostile(bomb(50_000_000), 1_000),
    "announced less than nothing": Hostile(packed(GOOD), -1),
    "more than an old worker may": Hostile(with_64_bit_size(2**31), None),
    "1 EiB by a 64-bit field": Hostile(with_64_bit_size(2**60), 2**62),
    "the list says less": Hostile(lying_about_size(10), 10),
    "the list says more": Hostile(lying_about_size(2_000_000), 2_000_000),
    "entries that share content": Hostile(sharing_content(40), 40 * 100_000, over_http=False),
    "a list of billions": Hostile(claiming(2**40, 2**50), 4, over_http=False),
    "a list that is longer than the file": Hostile(claiming(2, 2**31), 4, over_http=False),
    "a folder in a folder in a folder": Hostile(packed(GOOD, ("a/" * 20_000 + "x", b"", FILE)), 4, ONLY_GOOD, 1),
    # Names that lead elsewhere.
    "up": Hostile(packed(GOOD, ("../evil", b"x", FILE)), 99, over_http=False),
    "up in the midst": Hostile(packed(GOOD, ("a/../../evil", b"x", FILE)), 99, over_http=False),
    "absolute": Hostile(packed(GOOD, ("/tmp/evil", b"x", FILE)), 99, over_http=False),
    "nowhere": Hostile(packed(GOOD, ("a//evil", b"x", FILE)), 99, over_http=False),
    "link out": Hostile(packed(GOOD, ("evil", b"/etc/passwd", LINK)), 99, over_http=False),
    "link up": Hostile(packed(GOOD, ("evil", b"../../x", LINK)), 99, over_http=False),
    "links that lead out together": Hostile(
        packed(GOOD, ("p/q/r", b"../s", LINK), ("evil", b"p/q/r/../../../secret", LINK)),
        *(99, frozenset({"good", "p/q/r"}), 1),
    ),
    "link that goes down and up": Hostile(packed(GOOD, ("a/l", b"b/../../good", LINK)), 99, ONLY_GOOD, 1),
    "link that goes down and out": Hostile(packed(GOOD, ("a/l", b"b/../../../x", LINK)), 99, over_http=False),
    "link of 1 MB": Hostile(packed(GOOD, ("evil", b"x" * 1_000_000, LINK)), 2_000_000, over_http=False),
    "device": Hostile(packed(GOOD, ("evil", b"", stat.S_IFBLK | 0o666)), 99, over_http=False),
    "file and folder": Hostile(packed(GOOD, ("good/evil", b"x", FILE)), 99),
    # Names that no honest worker sends.
    "shell start-up": Hostile(packed(GOOD, (".bashrc", b"x", FILE)), 99, ONLY_GOOD, 1),
    "keys": Hostile(packed(GOOD, (".ssh/authorized_keys", b"x", FILE), (".ssh/", b"", 0)), 99, ONLY_GOOD, 2),
    "hidden deep": Hostile(packed(GOOD, ("a/b/.git/hooks/post-checkout", b"x", FILE)), 99, ONLY_GOOD, 1),
    "hidden link": Hostile(packed(GOOD, (".link", b"good", LINK)), 99, ONLY_GOOD, 1),
    "a record of ours": Hostile(packed(GOOD, (".waku.json", b"{}", FILE)), 99, ONLY_GOOD, 1),
    "too long": Hostile(packed(GOOD, ("x" * 300, b"x", FILE), ("é" * 130, b"x", FILE)), 999, ONLY_GOOD, 2),
    "link to a hidden text": Hostile(packed(GOOD, ("link", "good\u202e".encode(), LINK)), 99, ONLY_GOOD, 1),
    **{
        f"name: {name}": Hostile(packed(GOOD, (text.replace("/", "_"), b"x", FILE)), 99, ONLY_GOOD, 1)
        for name, text in TEXTS.items()
        if "\0" not in text
    },
    "NUL in a name": Hostile(packed(GOOD, ("evil", b"x", FILE)).replace(b"evil", b"ev\0l"), 99, over_http=False),
    "drive letter": Hostile(packed(GOOD, ("C:", b"x", FILE), ("c:/evil", b"x", FILE)), 99, ONLY_GOOD, 2),
    "backslash": Hostile(packed(GOOD, ("..\\evil", b"x", FILE), ("a\\..\\b", b"x", FILE)), 99, ONLY_GOOD, 2),
    # Names that programs have, and that are no worse than odd.
    "device of Windows": Hostile(packed(("con.txt", b"x", FILE)), 99, frozenset({"con.txt"})),
    "time of day": Hostile(packed(("at 12:30?.txt", b"x", FILE)), 99, frozenset({"at 12:30?.txt"})),
    "a letter and a colon": Hostile(packed(("x:y", b"x", FILE), ("a/c:", b"", FILE)), 99, frozenset({"x:y", "a/c:"})),
    "the same name twice": Hostile(twice("same."), 99, frozenset({"same."})),
    # No archives.
    "cut off": Hostile(packed(GOOD)[:-10], 4, over_http=False),
    "text": Hostile(b"no archive at all", 4, over_http=False),
    "wrong checksum": Hostile(packed(GOOD).replace(b"fine", b"evil"), 4),
    "another method": Hostile(packed(GOOD, method=zipfile.ZIP_LZMA), 4),
    "wrong stream": Hostile(
        packed(("good", b"fine" * 100, FILE), method=zipfile.ZIP_DEFLATED).replace(
            zlib.compressobj(wbits=-15).compress(b""), b""
        )[:-60]
        + b"\0" * 60,
        4,
        over_http=False,
    ),
}
