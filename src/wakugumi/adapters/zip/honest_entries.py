"""Which entries of a stranger's archive would an honest worker have sent? (SPEC W1, W5)

    it leads elsewhere           `..`, an absolute path, a link that points out: the whole archive is refused
    no honest worker sends it    a dot-file, a name that hides something, that leads elsewhere on Windows (a backslash,
                                 a drive) or that no file system takes: it is left out
    undecidable                  a link that goes up from a folder that it names, which may be a link as well: it is
                                 left out. Older workers send such links, if they stay inside
    any other entry              is taken

All code that unpacks an archive or passes it on uses these rules. Stricter rules are for inputs (`core/names.py`): here
they would cost a user files of the program.
"""

from __future__ import annotations

import os
import posixpath
import stat
from typing import Final

from wakugumi.adapters.zip.names import climbs, has_drive
from wakugumi.adapters.zip.read import Archive, ZipEntry
from wakugumi.core.names import check_file_name
from wakugumi.core.visible_text import is_hostile
from wakugumi.errors import Refused
from wakugumi.limits.units import KIB
from wakugumi.limits.wire import FILE_NAME_BYTES_MAX, FILE_NAME_PART_BYTES_MAX

_LINK_BYTES_MAX: Final = 4 * KIB
_OWN_PREFIX: Final = ".waku"
"""Of the names that we write beside what was unpacked: no archive has them."""


def is_taken(archive: Archive, entry: ZipEntry, *, dot_files: bool) -> bool:
    """False: it is left out. Raises Refused("bad-name") for one that leads elsewhere, and PeerError."""
    name = entry.name.removesuffix("/")
    parts = name.replace(os.sep, "/").split("/")
    if "\0" in name or any(part in {"", ".", ".."} or (":" in part and os.name == "nt") for part in parts):
        raise Refused("bad-name", f"the result holds a file called {name[:200]!r}, which leads elsewhere")
    if not _is_honest(name, parts, dot_files=dot_files):
        return False
    if not entry.is_folder:
        kind = stat.S_IFMT(entry.mode)
        if kind == stat.S_IFLNK:
            target = link_target(archive, entry)
            return not (is_hostile(target) or climbs(target))
        if kind not in {0, stat.S_IFREG}:
            raise Refused("bad-name", f"{name[:200]!r} in the result is neither a file nor a link")
    return True


def link_target(archive: Archive, entry: ZipEntry) -> str:
    """Where a link points, which must be inside the folder. Raises Refused if it is not."""
    raw = archive.read(entry) if entry.size <= _LINK_BYTES_MAX else b""
    target = os.fsdecode(raw)
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(entry.name), target))
    if not target or "\0" in target or posixpath.isabs(target) or (reached + "/").startswith("../"):
        raise Refused("bad-name", f"{entry.name[:200]!r} in the result is a link that leads outside: {target[:200]!r}")
    return target


def _is_honest(name: str, parts: list[str], *, dot_files: bool) -> bool:
    if is_hostile(name) or "\\" in name or has_drive(name) or parts[0].startswith(_OWN_PREFIX):
        return False
    if not dot_files and any(part.startswith(".") for part in parts):
        return False
    if len(name) * 4 > FILE_NAME_PART_BYTES_MAX:  # Only then it may be too long in UTF-8.
        if len(name.encode()) > FILE_NAME_BYTES_MAX:
            return False
        if any(len(part.encode()) > FILE_NAME_PART_BYTES_MAX for part in parts):
            return False
    if os.name == "nt":
        try:
            check_file_name(name)
        except Refused:
            return False
    return True
