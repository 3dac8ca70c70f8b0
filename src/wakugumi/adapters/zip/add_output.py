"""How do stdout and stderr get into the ZIP of a program's files, without writing it anew?

    the entries, as they stand │ stdout.txt │ stderr.txt │ their list, as it stands │ two more lines │ the end

New entries come after all others, so that no offset in the list changes. A small archive becomes one piece of bytes; a
large one is read from its file piece by piece, while it is sent. New entries have no time: equal results are equal
bytes, at any time and for any client.

Entries that no honest worker sends (`honest_entries`) are left out of the list, which every tool reads; their bytes
stay in place, so that no offset changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from weakref import finalize

from wakugumi.adapters.files import READ
from wakugumi.adapters.zip.honest_entries import is_taken
from wakugumi.adapters.zip.read import Archive
from wakugumi.adapters.zip.records import DEFLATED, LOCAL, STORED, UTF8_FLAG, VERSION, dos_time, end_of, line_of
from wakugumi.adapters.zip.write_memory import CHUNK_BYTES, WORTH_IT, crc32, packer
from wakugumi.core.names import fold_name
from wakugumi.errors import Lost, PeerError, Refused
from wakugumi.limits.runner import ARCHIVE_DEFLATE_FROM_BYTES, ARCHIVE_ENTRIES_IN_LOOP_MAX, HOSTILE_NAMES_MAX
from wakugumi.limits.units import KIB

Content: TypeAlias = bytes | Path

_WHEN: Final = dos_time(0.0)
_MODE: Final = stat.S_IFREG | 0o644
_SENT_BYTES: Final = 64 * KIB
"""Bytes of a large archive per piece: a slow reader is detected by the time that a piece takes."""
_HINTS: Final = (b"dout.", b"derr.")
"""Text in every name that equals one of ours where case is ignored, whatever letters its beginning is written in."""


def has_few_entries(archive: bytes) -> bool:
    """Is the archive small enough for the loop? Raises PeerError if it is no archive."""
    return not archive or Archive.of_bytes(archive).count <= ARCHIVE_ENTRIES_IN_LOOP_MAX


def splice(archive: bytes, texts: Mapping[str, bytes], note: bytes = b"") -> bytes:
    return splice_counted(archive, texts, note)[0]


def splice_counted(archive: bytes, texts: Mapping[str, bytes], note: bytes = b"") -> tuple[bytes, int]:
    """An archive, which may be empty, with these texts added; and the number of entries that were left out. The `note`
    is its comment. Raises PeerError if it is no archive, or an entry leads outside."""
    known = Archive.of_bytes(archive) if archive else None
    at = known.list_at if known else 0
    honest = _Honest(known)
    listed = b"".join(archive[start:end] for start, end in honest.ranges())
    names = _free_names(texts, known, known is not None and _hints_at(listed))
    entries: list[bytes] = [archive[:at]]
    lines = [listed]
    for name, content in zip(names, texts.values(), strict=True):
        entry = _entry_of(name, content)
        entries += [entry.head, entry.content]
        lines.append(entry.line(at))
        at += len(entry.head) + entry.packed_bytes
    end = end_of(honest.count + len(texts), sum(map(len, lines)), at)
    return b"".join([*entries, *lines, _noted(end, note)]), honest.left_out


class Spliced:
    """A large archive with texts added: an async iterator of pieces, whose `size` is known. Close it, read or not."""

    def __init__(self, archive: Content, texts: Mapping[str, Content], note: bytes = b"") -> None:
        """Too slow for the loop. Raises OSError, and PeerError if it is no archive."""
        self.done: Callable[[], None] = _nothing
        """Called once, when the iterator is closed."""
        self._kept: list[bytes] = []
        with contextlib.ExitStack() as files:
            parts, self.size, self.left_out = _plan(archive, texts, note, files)
            self._reader = _read(parts)
            self._close = finalize(self, files.pop_all().close)

    def __aiter__(self) -> Spliced:
        return self

    async def __anext__(self) -> bytes:
        if not self._kept:
            try:
                piece = await asyncio.to_thread(next, self._reader, b"")
            except (OSError, PeerError) as error:
                raise Lost(f"a result cannot be read: {error}") from None
            if not piece:
                await self.aclose()
                raise StopAsyncIteration
            self._kept = [piece[at : at + _SENT_BYTES] for at in range(0, len(piece), _SENT_BYTES)]
            self._kept.reverse()
        return self._kept.pop()

    async def aclose(self) -> None:
        """Called by the sender, after a success or a failure."""
        self._kept.clear()
        self._close()
        done, self.done = self.done, _nothing
        done()


class _Entry(NamedTuple):
    """A new entry. The content of a file is sent from the file."""

    name: bytes
    method: int
    crc: int
    raw_bytes: int
    packed_bytes: int
    content: bytes

    @property
    def head(self) -> bytes:
        fields = (*_WHEN, self.crc, self.packed_bytes, self.raw_bytes, len(self.name), 0)
        return LOCAL.pack(b"PK\3\4", VERSION, UTF8_FLAG, self.method, *fields) + self.name

    def line(self, at: int) -> bytes:
        sizes = self.packed_bytes, self.raw_bytes
        return line_of(self.name, _MODE, UTF8_FLAG, self.method, _WHEN, self.crc, *sizes, at)


class _Range(NamedTuple):
    """A part of an open file, or of bytes."""

    source: int | bytes
    at: int
    end: int


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
) -> tuple[Iterable[_Range], int, int]:
    """All parts to be sent, in order, their size, and the number of entries that were left out."""
    source, size = _opened(archive, files)
    known = None
    if size:
        known = Archive.of_bytes(source) if isinstance(source, bytes) else Archive.of_file(source)
    at = known.list_at if known else 0
    honest = _Honest(known)
    names = _free_names(texts, known, any(map(_hints_at, _windows(_listed(source, honest)))))
    entries = [_Range(source, 0, at)]
    lines = b""
    for name, content in zip(names, texts.values(), strict=True):
        text, text_bytes = _opened(content, files)
        if isinstance(text, bytes):
            entry = _entry_of(name, text)
            body = _Range(entry.content, 0, entry.packed_bytes)
        else:
            body = _Range(text, 0, text_bytes)
            entry = _Entry(name.encode(), STORED, _crc(body), text_bytes, text_bytes, b"")
        entries += [_Range(entry.head, 0, len(entry.head)), body]
        lines += entry.line(at)
        at += len(entry.head) + entry.packed_bytes
    tail = lines + _noted(end_of(honest.count + len(texts), honest.bytes + len(lines), at), note)
    parts = chain(entries, _listed(source, honest), [_Range(tail, 0, len(tail))])
    return parts, sum(part.end - part.at for part in entries) + honest.bytes + len(tail), honest.left_out


def _listed(source: int | bytes, honest: _Honest) -> Iterator[_Range]:
    return (_Range(source, start, end) for start, end in honest.ranges())


def _opened(content: Content, files: contextlib.ExitStack) -> tuple[int | bytes, int]:
    if isinstance(content, bytes):
        return content, len(content)
    file = os.open(content, READ)
    files.callback(os.close, file)
    return file, os.fstat(file).st_size


def _read(parts: Iterable[_Range]) -> Iterator[bytes]:
    """The bytes of all parts; small parts are joined. Raises Lost if a file has changed."""
    small = bytearray()
    for part in parts:
        at = part.at
        while at < part.end:
            if isinstance(part.source, bytes):
                piece = part.source[at : min(part.end, at + CHUNK_BYTES)]
            elif not (piece := os.pread(part.source, min(CHUNK_BYTES, part.end - at), at)):
                raise Lost("a result's file has become shorter")
            at += len(piece)
            if len(piece) < _SENT_BYTES:
                small += piece
                piece = b""
            if small and (piece or len(small) >= _SENT_BYTES):
                yield bytes(small)
                small.clear()
            if piece:
                yield piece
    if small:
        yield bytes(small)


def _entry_of(name: str, content: bytes) -> _Entry:
    raw, crc = len(content), crc32(content)
    if raw >= ARCHIVE_DEFLATE_FROM_BYTES:
        deflating = packer()
        packed = deflating.compress(content) + deflating.flush()
        if len(packed) < raw * WORTH_IT:
            return _Entry(name.encode(), DEFLATED, crc, raw, len(packed), packed)
    return _Entry(name.encode(), STORED, crc, raw, raw, content)


def _crc(part: _Range) -> int:
    crc = 0
    for piece in _read([part]):
        crc = crc32(piece, crc)
    return crc


def _free_names(texts: Mapping[str, Content], archive: Archive | None, look: bool) -> list[str]:
    """Names of the new entries: a program's own file keeps its name, and ours gets another."""
    if archive is None or not look:
        return list(texts)
    taken = {fold_name(entry.name.partition("/")[0]) for entry in archive.entries() if _hints_at(entry.name.encode())}
    names = []
    for wanted in texts:
        stem, _, ending = wanted.rpartition(".")
        name, count = wanted, 1
        while name in taken:
            name = f"{stem}.captured.{ending}" if count == 1 else f"{stem}.captured-{count}.{ending}"
            count += 1
        names.append(name)
    return names


def _hints_at(listed: bytes) -> bool:
    """May one of our names be in the list? A million other names are not compared one by one."""
    lower = listed.lower()
    return any(hint in lower for hint in _HINTS)


def _windows(parts: Iterable[_Range]) -> Iterator[bytes]:
    """The bytes of all parts, in overlapping pieces: a searched text lies whole in one of them."""
    end = b""
    for piece in _read(parts):
        yield end + piece
        end = piece[-max(map(len, _HINTS)) :]


def _noted(end: bytes, note: bytes) -> bytes:
    """The end of an archive without a comment, with this comment: its length stands last."""
    return end[:-2] + len(note).to_bytes(2, "little") + note


def _nothing() -> None:
    """Stands for a missing `done`."""
