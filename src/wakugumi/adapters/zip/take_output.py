"""How are stdout and stderr taken out of a ZIP that has them? The inverse of `add_output`.

They are the last two entries of the list and of the file: cut off, they leave the archive as it was. Entries of our
names in another place are only removed from the list.

The list is read in parts, and moved within the file: memory stays flat, however long the list is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from io import BytesIO
from typing import IO, Final, TypeAlias

from msgspec import UNSET, structs

from wakugumi.adapters.files import refused
from wakugumi.adapters.zip.read import Archive, ZipEntry
from wakugumi.adapters.zip.records import end_of
from wakugumi.adapters.zip.write import Output
from wakugumi.core.ids import JobId
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.runner import OUTPUT_BYTES_MAX
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.envelope import is_envelope
from wakugumi.wire.messages.job import read_result
from wakugumi.wire.messages.payload import encode

_CHUNK_BYTES: Final = 1 * MIB

_Line: TypeAlias = tuple[ZipEntry, int, int]
"""An entry, and the begin and end of its line in the list."""


def unsplice(file: IO[bytes], texts: Mapping[str, Output]) -> int:
    """Writes each text, `stdout` or `stderr`, to its output, and leaves the rest in the archive. Returns the number of
    entries left. Raises Refused: `bad-result`, or `disk` if our own disk is full."""
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


def result_for_frames(job: JobId, payload: bytes) -> bytes:
    """A result as peers by frames know it: JSON, without output in its archive. No text is inflated: the result has
    both. Raises PeerError."""
    if not is_envelope(payload):
        return payload
    result = read_result(job, payload)
    if result.archive_output is True:
        file = BytesIO(result.output_archive or b"")
        try:
            archive = _opened(file)
            left = _cut(file, archive, list(_lines_of(archive, ("stdout", "stderr")).values()))
        except PeerError:
            left = 1  # The reader of the files reports the error.
        content = file.getvalue() if left else None
        result = structs.replace(result, output_archive=content, archive_output=UNSET)
    return encode(result)


def _opened(file: IO[bytes]) -> Archive:
    def read_at(at: int, count: int) -> bytes:
        file.seek(at)
        return file.read(count)

    return Archive(read_at, file.seek(0, os.SEEK_END))


def _lines_of(archive: Archive, texts: Collection[str]) -> dict[str, _Line]:
    """The line of each text, which is the last one of its name: a program may have made a file of that name itself."""
    names = {stem: re.compile(rf"{stem}(\.captured(-[0-9]+)?)?\.txt") for stem in texts}
    found: dict[str, _Line] = {}
    for entry, at, end in archive.located():
        for stem, name in names.items():
            if name.fullmatch(entry.name):
                found[stem] = (entry, at, end)
    return found


def _cut(file: IO[bytes], archive: Archive, taken: list[_Line]) -> int:
    """Writes the list anew without these lines. Returns the number of entries left."""
    gone = {at for _, at, _ in taken}
    cut = min((entry.at for entry, _, _ in taken), default=archive.list_at)
    in_the_midst = any(entry.at >= cut for entry, at, _ in archive.located() if at not in gone)
    new_at = archive.list_at if in_the_midst else cut
    starts = [archive.list_at, *sorted(end for _, _, end in taken)]
    ends = [*sorted(gone), archive.list_at + archive.list_bytes]
    size = 0
    # The new list stands before the old one or in its place, and is no longer: overwritten bytes were read before.
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
