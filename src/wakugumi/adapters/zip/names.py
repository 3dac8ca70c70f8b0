"""What is a file of a program called in a ZIP, and where does a link to it point there? (SPEC W1, W5)

A program may name its files freely, and nearly every name stays as it is. Characters that hide something, a backslash
and a drive (`C:/x`) do not: readers leave such names out. They are percent-encoded here, and a hash of the name
follows, so that no two names become one:

    a\b.txt                 a%5cb~c9474d3bbd481924.txt
    link to ../a\b.txt      link to ../a%5cb~c9474d3bbd481924.txt

Each part of a path is encoded by itself. So a link finds its file, and no list of names is needed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterable
from itertools import dropwhile
from posixpath import splitext
from typing import Final

from wakugumi.core.names import fold_name
from wakugumi.core.visible_text import is_hostile
from wakugumi.limits.wire import FILE_NAME_PART_BYTES_MAX

_ENDING_BYTES_MAX: Final = 30
"""Of a name that is encoded: a longer ending counts as a part of the name before it."""
_HASH_CHARS: Final = 16
OUTPUT_HINTS: Final = (b"dout.", b"derr.")
"""Text in every name that equals stdout.txt or stderr.txt where case is ignored, whatever letters its beginning is
written in."""


def free_names(wanted: Iterable[str], taken: Container[str]) -> list[str]:
    """Names of stdout.txt and stderr.txt beside these folded names: a program's own file keeps its name."""
    names = []
    for first in wanted:
        stem, _, ending = first.rpartition(".")
        name, count = first, 1
        while name in taken:
            name = f"{stem}.captured.{ending}" if count == 1 else f"{stem}.captured-{count}.{ending}"
            count += 1
        names.append(name)
    return names


def hints_at_output(listed: bytes) -> bool:
    """May the name of stdout.txt or stderr.txt be in this list? A million other names are not compared one by one."""
    lower = listed.lower()
    return any(hint in lower for hint in OUTPUT_HINTS)


def first_folder(name: str) -> str:
    """The first part of a path, as `free_names` compares it."""
    return fold_name(name.partition("/")[0])


def plain_name(name: str) -> str:
    """The name of a file, or of a folder with a slash at its end, as it stands in an archive."""
    if name.isascii() and name.isprintable() and "\\" not in name and name[1:2] != ":":  # Nearly always.
        return name
    return _plain(name.split("/"), 0)


def plain_target(name: str, target: str) -> str:
    """Where the link of this name points in an archive. It goes up only at its beginning."""
    return _plain(target.split("/"), name.count("/"))


def has_drive(name: str) -> bool:
    """Is the name an absolute path on Windows? A name such as `x:y` is none."""
    return name[1:3] in {":", ":/"} and name[0].isascii() and name[0].isalpha()


def climbs(target: str) -> bool:
    """Does a link go up from a folder that it names? That folder may be a link as well, and the way up from it leads
    anywhere."""
    return ".." in dropwhile({"", ".", ".."}.__contains__, target.split("/"))


def _plain(parts: list[str], depth: int) -> str:
    """`depth` is the number of the archive's folders above the first part."""
    plain = []
    for part in parts:
        if part in {"", "."}:
            plain.append(part)
        elif part == "..":
            plain.append(part)
            depth -= 1
        else:
            is_drive = depth == 0 and has_drive(part)
            plain.append(_encoded(part) if is_drive or is_hostile(part) or "\\" in part else part)
            depth += 1
    return "/".join(plain)


def _encoded(part: str) -> str:
    raw = os.fsencode(part)
    text = raw.decode(errors="surrogateescape")
    drive = ":" if has_drive(text) else ""
    text = "".join(_percent(char) if char in {"\\", drive} or is_hostile(char) else char for char in text)
    stem, ending = splitext(text)
    if len(ending.encode()) > _ENDING_BYTES_MAX:
        stem, ending = text, ""
    ending = f"~{hashlib.sha256(raw).hexdigest()[:_HASH_CHARS]}{ending}"
    return stem.encode()[: FILE_NAME_PART_BYTES_MAX - len(ending.encode())].decode(errors="ignore") + ending


def _percent(char: str) -> str:
    return "".join(f"%{byte:02x}" for byte in char.encode(errors="surrogateescape"))
