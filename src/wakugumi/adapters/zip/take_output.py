"""How does what a program printed come out of the ZIP that a node answers with? The way back of `spliced`.

Ours are the last two of its list and of its file: cut off, they leave the archive as it was. Where somebody else has
put them in the midst, they are only taken from the list.

The list is gone through bit by bit, and moved within the file: however long a node makes it, memory stays flat.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import IO, Final, TypeAlias

from wakugumi.adapters.files import refused
from wakugumi.adapters.zip.read import Archive, ZipEntry
from wakugumi.adapters.zip.records import end_of
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.runner import OUTPUT_BYTES_MAX
from wakugumi.limits.units import MIB

_CHUNK_BYTES: Final = 1 * MIB

_Line: TypeAlias = tuple[ZipEntry, int, int]
"""An entry, and where its line of the list begins and ends."""


def unsplice(file: IO[bytes], texts: Mapping[str, IO[bytes]]) -> int:
    """Write each text, `stdout` or `stderr`, where it is wanted, and leave the rest in the file. Returns how many
    entries that has. Raises Refused: `bad-result`, or `disk` if it is ours that is full."""
    try:
        archive = _opened(file)
        lines = _lines_of(archive, texts)
        for stem, (entry, _, _) in lines.items():
            if entry.size > OUTPUT_BYTES_MAX:
                raise PeerError(f"{entry.name[:80]!r} has {entry.size} bytes")
            for piece in archive.content(entry):
                texts[stem].write(piece)
        return _cut(file, archive, list(lines.values()))
    except PeerError as error:
        raise Refused("bad-result", f"the node's answer is no ZIP that can be read: {str(error)[:200]}") from None
    except OSError as error:
        raise refused(error, "the node's answer cannot be written") from None


def _opened(file: IO[bytes]) -> Archive:
    def read_at(at: int, count: int) -> bytes:
        file.seek(at)
        return file.read(count)

    return Archive(read_at, file.seek(0, os.SEEK_END))


def _lines_of(archive: Archive, texts: Mapping[str, IO[bytes]]) -> dict[str, _Line]:
    """Each text's, which is the last one that is called so: a program may have made one of that name itself."""
    names = {stem: re.compile(rf"{stem}(\.captured(-[0-9]+)?)?\.txt") for stem in texts}
    found: dict[str, _Line] = {}
    for entry, at, end in archive.located():
        for stem, name in names.items():
            if name.fullmatch(entry.name):
                found[stem] = (entry, at, end)
    return found


def _cut(file: IO[bytes], archive: Archive, taken: list[_Line]) -> int:
    """Write the list anew without these. Returns how many entries it has."""
    gone = {at for _, at, _ in taken}
    cut = min((entry.at for entry, _, _ in taken), default=archive.list_at)
    in_the_midst = any(entry.at >= cut for entry, at, _ in archive.located() if at not in gone)
    new_at = archive.list_at if in_the_midst else cut
    starts = [archive.list_at, *sorted(end for _, _, end in taken)]
    ends = [*sorted(gone), archive.list_at + archive.list_bytes]
    size = 0
    # The new list stands before the old one or in its place, and is no longer: what is written over was read before.
    for start, end in zip(starts, ends, strict=True):
        for at in range(start, end, _CHUNK_BYTES):
            file.seek(at)
            piece = file.read(min(_CHUNK_BYTES, end - at))
            file.seek(new_at + size)
            file.write(piece)
            size += len(piece)
    count = archive.count - len(taken)
    file.seek(new_at + size)
    file.write(end_of(count, size, new_at))
    file.truncate()
    return count
