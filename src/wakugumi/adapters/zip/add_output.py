"""How do stdout and stderr get into the ZIP of a program's files, without writing it anew?

    the entries, as they stand │ stdout.txt │ stderr.txt │ their list, as it stands │ two more lines │ the end

New entries come after all others, so that no offset in the list changes. A small archive becomes one piece of bytes; a
large one is read from its file piece by piece, while it is sent. New entries have no time: equal results are equal
bytes, at any time and for any client.

Entries that no honest worker sends (`honest_entries`) are left out of the list, which every tool reads; their bytes
stay in place, so that no offset changes.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from io import FileIO
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

from wakugumi.adapters.files import READ
from wakugumi.adapters.sent_parts import SentPart, SentParts, read_parts
from wakugumi.adapters.zip.honest_entries import is_taken
from wakugumi.adapters.zip.names import OUTPUT_HINTS, first_folder, free_names, hints_at_output
from wakugumi.adapters.zip.read import Archive
from wakugumi.adapters.zip.records import STORED, WITHOUT_TIME, NewEntry, crc32, end_of, text_entry
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.runner import ARCHIVE_ENTRIES_IN_LOOP_MAX, HOSTILE_NAMES_MAX

Content: TypeAlias = bytes | Path | FileIO

_MODE: Final = stat.S_IFREG | 0o644


def has_few_entries(archive: bytes) -> bool:
    """Is the archive small enough for the loop? Raises PeerError if it is no archive."""
    return not archive or Archive.of_bytes(archive).count <= ARCHIVE_ENTRIES_IN_LOOP_MAX


def splice(archive: bytes, texts: Mapping[str, bytes], note: bytes = b"") -> bytes:
    return splice_counted(archive, texts, note)[0]


def splice_counted(archive: bytes, texts: Mapping[str, bytes], note: bytes = b"") -> tuple[bytes, int]:
    """An archive, which may be empty, with these texts added; and the number of entries that were left out. The `note`
    is its comment. Raises PeerError if it is no archive, or an entry leads outside."""
    if not archive:
        return _texts_alone(texts, note), 0
    with contextlib.ExitStack() as files:
        parts, _, left_out = _plan(archive, texts, note, files)
        return b"".join(read_parts(parts)), left_out


def _texts_alone(texts: Mapping[str, bytes], note: bytes) -> bytes:
    entries = lines = b""
    for name, text in texts.items():
        entry, packed = text_entry(name, text)
        lines += entry.line(len(entries))
        entries += entry.head() + packed
    return entries + lines + _noted(end_of(len(texts), len(lines), len(entries)), note)


def passed_on(archive: bytes, note: bytes = b"") -> tuple[bytes, int]:
    """An archive that has its texts already, as it is; and the number of entries that were left out. Written anew only
    for a `note`, or without those entries. Raises PeerError, as `splice_counted`."""
    if note or _Honest(Archive.of_bytes(archive)).left_out:
        return splice_counted(archive, {}, note)
    return archive, 0


class Spliced(SentParts):
    """A large archive with texts added."""

    def __init__(self, archive: Content, texts: Mapping[str, Content], note: bytes = b"") -> None:
        """Too slow for the loop. Raises OSError, and PeerError if it is no archive."""
        with contextlib.ExitStack() as files:
            parts, size, self.left_out = _plan(archive, texts, note, files)
            super().__init__(parts, size, files)


class _Honest:
    """The lines of the list that an honest worker sends."""

    def __init__(self, archive: Archive | None) -> None:
        """Raises PeerError if an entry leads outside, or if too many are hostile."""
        self._archive = archive
        self.bytes = self.count = self.left_out = 0
        if archive is not None:
            for start, end, count in _honest(archive):
                self.bytes += end - start
                self.count += count
            self.left_out = archive.count - self.count

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Where the lines begin and end in the archive. They are searched again: remembering them between millions of
        dot-files would take as much memory."""
        if self._archive is not None and self.left_out:
            yield from ((start, end) for start, end, _ in _honest(self._archive))
        elif self._archive is not None:
            yield self._archive.list_at, self._archive.list_at + self._archive.list_bytes


def _honest(archive: Archive) -> Iterator[tuple[int, int, int]]:
    """Begin and end of lines that follow each other, and their number."""
    hostile, start, count = 0, archive.list_at, 0
    for entry, at, end in archive.located():
        try:
            if is_taken(archive, entry, dot_files=False):
                count += 1
                continue
            hostile += not is_taken(archive, entry, dot_files=True)
        except Refused as no:
            raise PeerError(no.message) from None
        if hostile > HOSTILE_NAMES_MAX:
            raise PeerError(f"the result holds more than {HOSTILE_NAMES_MAX:,} names that no worker sends")
        if count:
            yield start, at, count
        start, count = end, 0
    if count:
        yield start, archive.list_at + archive.list_bytes, count


def _plan(
    archive: Content, texts: Mapping[str, Content], note: bytes, files: contextlib.ExitStack
) -> tuple[Iterable[SentPart], int, int]:
    """All parts to be sent, in order, their size, and the number of entries that were left out."""
    source, size = _opened(archive, files)
    known = None
    if size:
        known = Archive.of_bytes(source) if isinstance(source, bytes) else Archive.of_file(source)
    at = known.list_at if known else 0
    honest = _Honest(known)
    names = _free_names(texts, known, any(map(hints_at_output, _windows(_listed(source, honest)))))
    entries = [SentPart(source, 0, at)]
    lines = b""
    for name, content in zip(names, texts.values(), strict=True):
        text, text_bytes = _opened(content, files)
        if isinstance(text, bytes):
            entry, packed = text_entry(name, text)
            body = SentPart(packed, 0, len(packed))
        else:
            body = SentPart(text, 0, text_bytes)
            entry = NewEntry(name.encode(), _MODE, WITHOUT_TIME, STORED, _crc(body), text_bytes, text_bytes)
        head = entry.head()
        entries += [SentPart(head, 0, len(head)), body]
        lines += entry.line(at)
        at += len(head) + entry.size
    tail = lines + _noted(end_of(honest.count + len(texts), honest.bytes + len(lines), at), note)
    parts = chain(entries, _listed(source, honest), [SentPart(tail, 0, len(tail))])
    return parts, sum(part.end - part.at for part in entries) + honest.bytes + len(tail), honest.left_out


def _listed(source: int | bytes, honest: _Honest) -> Iterator[SentPart]:
    return (SentPart(source, start, end) for start, end in honest.ranges())


def _opened(content: Content, files: contextlib.ExitStack) -> tuple[int | bytes, int]:
    if isinstance(content, bytes):
        return content, len(content)
    if isinstance(content, FileIO):  # Its owner closes it.
        file = content.fileno()
    else:
        file = os.open(content, READ)
        files.callback(os.close, file)
    return file, os.fstat(file).st_size


def _crc(part: SentPart) -> int:
    crc = 0
    for piece in read_parts([part]):
        crc = crc32(piece, crc)
    return crc


def _free_names(texts: Mapping[str, Content], archive: Archive | None, look: bool) -> list[str]:
    if archive is None or not look:
        return list(texts)
    names = [entry.name for entry in archive.entries() if hints_at_output(entry.name.encode())]
    return free_names(texts, {first_folder(name) for name in names})


def _windows(parts: Iterable[SentPart]) -> Iterator[bytes]:
    """The bytes of all parts, in overlapping pieces: a searched text lies whole in one of them."""
    end = b""
    for piece in read_parts(parts):
        yield end + piece
        end = piece[-max(map(len, OUTPUT_HINTS)) :]


def _noted(end: bytes, note: bytes) -> bytes:
    """The end of an archive without a comment, with this comment: its length stands last."""
    return end[:-2] + len(note).to_bytes(2, "little") + note
