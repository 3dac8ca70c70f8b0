"""Which files did a program make in its folder? All that can be packed, found without following a link. (SPEC W1, W5)

A folder of any size is walked without holding more than a part of its names in memory.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Container, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from wakugumi.adapters.beneath import GONE, LOOK_AT_FOLDER, open_beneath
from wakugumi.adapters.files import READ, READ_FOLDER, Closing, UsedUp
from wakugumi.adapters.zip.names import climbs
from wakugumi.adapters.zip.records import CHUNK_BYTES
from wakugumi.limits.wire import FILE_NAME_BYTES_MAX

_BATCH: Final = 4_096
"""Entries of a folder that are held at once: sorted among themselves, as far as that costs no memory."""
_OPEN_MAX: Final = 8
"""Folders inside each other that are read bit by bit; of deeper ones all names are read, for files must not run out."""
_ZEROS: Final = bytes(CHUNK_BYTES)


class FoundFile(NamedTuple):
    """A file, folder or link of a program in its directory."""

    name: str
    """Path relative to the directory, with slashes."""
    status: os.stat_result
    target: str | None = None
    """Target of a link."""
    lent: bool = False
    """The file belongs to another user, and is lent to this job."""


def walk(
    folder: int, inputs: frozenset[str], owner: int | None = None, lent: Container[tuple[int, int]] = ()
) -> Iterator[FoundFile]:
    """Output of a program below an open folder: files, empty folders, and links that stay inside.

    Left out: the inputs, hidden files and folders, links that lead out, pipes, sockets and devices, and names too long
    to be written elsewhere. With an `owner`, also files of other users, which may be there by a hard link; but not
    files that were `lent` to this job (device and inode): the job may rename its inputs.
    """
    brought = {name[:at] for name in inputs for at, char in enumerate(name) if char == "/"}
    inside, entries, nothing = "", _entries(folder, "", 0), True
    above: list[tuple[str, Iterator[tuple[str, os.stat_result]]]] = []
    while True:
        for name, status in entries:
            nothing = False
            kind = stat.S_IFMT(status.st_mode)
            if name in inputs or len(os.fsencode(name)) > FILE_NAME_BYTES_MAX:
                continue
            if kind == stat.S_IFDIR:
                above.append((inside, entries))
                inside, nothing = name + "/", True
                entries = _entries(folder, inside, len(above))
                break
            if kind == stat.S_IFREG and owner in {None, status.st_uid}:
                yield FoundFile(name, status)
            elif kind == stat.S_IFREG and (status.st_dev, status.st_ino) in lent:
                yield FoundFile(name, status, lent=True)
            elif kind == stat.S_IFLNK and (target := _target_inside(folder, name)) is not None:
                yield FoundFile(name, status, target)
        else:
            is_empty = nothing and inside and inside[:-1] not in brought
            if is_empty and (seen := _status(folder, inside[:-1])) is not None:
                yield FoundFile(inside, seen)
            if not above:
                return
            inside, entries = above.pop()
            nothing = False


def _entries(folder: int, inside: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    """Entries of a folder below the open one, without hidden ones. A folder that cannot be read has none."""
    try:
        file = open_beneath(folder, inside[:-1] or ".", READ_FOLDER)
    except OSError:
        return
    batch_max = _BATCH if depth < _OPEN_MAX else None
    try:
        with os.scandir(file) as entries:
            shown = _shown(entries, inside)
            batch = sorted(islice(shown, batch_max))
            while len(batch) == batch_max:
                yield from batch
                batch = sorted(islice(shown, batch_max))
    finally:
        os.close(file)
    yield from batch


def _shown(entries: Iterable[os.DirEntry[str]], inside: str) -> Iterator[tuple[str, os.stat_result]]:
    """Entries that are not hidden, and were not removed meanwhile."""
    for entry in entries:
        if not entry.name.startswith("."):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield inside + entry.name, status


def _target_inside(folder: int, name: str) -> str | None:
    """The target of a link, if it stays inside whatever other links there are. Only the last part may be a link itself:
    so a part before `..` is a folder, and both can be left out."""
    target = _read_link(folder, name)
    if target is None or target.startswith("/"):
        return None
    way = name.split("/")[:-1]
    parts = target.split("/")
    for at, part in enumerate(parts):
        if part == "..":
            if not way:
                return None
            way.pop()
        elif part not in {"", "."}:
            way.append(part)
            if at < len(parts) - 1 and not _is_folder(folder, "/".join(way)):
                return None
    return _straight(name, way) if climbs(target) else target


def _straight(name: str, way: list[str]) -> str:
    """An equal target that goes up first and then down: a reader cannot tell which folders on the way are links."""
    start = name.split("/")[:-1]
    shared = 0
    while shared < min(len(start), len(way)) and start[shared] == way[shared]:
        shared += 1
    return "/".join([".."] * (len(start) - shared) + way[shared:]) or "."


def open_found(folder: int, found: FoundFile, more: int = 0) -> int:
    """Opens a file for reading, with `more` flags. Raises FileNotFoundError if it is gone or replaced; else OSError."""
    try:
        return open_beneath(folder, found.name, READ | more)
    except OSError as error:
        if error.errno in GONE:
            raise FileNotFoundError(error.errno, error.strerror) from None
        raise


def is_found(status: os.stat_result, found: FoundFile) -> bool:
    """Is it still a file of the same user? Of another user: is it the same file?"""
    if found.lent and not os.path.samestat(status, found.status):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == found.status.st_uid


def _is_folder(folder: int, name: str) -> bool:
    try:
        os.close(open_beneath(folder, name, LOOK_AT_FOLDER))
    except OSError:
        return False
    return True


def _status(folder: int, name: str) -> os.stat_result | None:
    """Status of a folder below the open one; None if it is none any more."""
    try:
        with Closing(open_beneath(folder, name, LOOK_AT_FOLDER)) as file:
            return os.fstat(file)
    except OSError:
        return None


def _read_link(folder: int, name: str) -> str | None:
    """Target of a link; None if it is none any more."""
    above, _, last = name.rpartition("/")
    try:
        with Closing(open_beneath(folder, above or ".", LOOK_AT_FOLDER)) as file:
            return os.readlink(last, dir_fd=file)
    except OSError:
        return None


def pieces_of(file: int, status: os.stat_result) -> Iterator[bytes]:
    """A file's content, as much as it had when we looked. Its holes are not read: they are zeros."""
    size = status.st_size
    if status.st_blocks * 512 >= size:
        yield from _read(file, 0, size)
        return
    at = 0
    while at < size:
        data_at, hole_at = _next_data(file, at, size)
        while at < data_at:
            piece = _ZEROS[: data_at - at] if data_at - at < CHUNK_BYTES else _ZEROS
            yield piece
            at += len(piece)
        yield from _read(file, at, hole_at)
        at = hole_at


def pieces_used_up(file: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The content of a file, which has no other reader: what was read is given back, and reads as zeros then."""
    used, at = UsedUp(file), 0
    for piece in pieces:
        yield piece
        at += len(piece)
        used.read_to(at)


def _read(file: int, at: int, end: int) -> Iterator[bytes]:
    while at < end and (piece := os.pread(file, min(CHUNK_BYTES, end - at), at)):
        yield piece
        at += len(piece)


def _next_data(file: int, at: int, size: int) -> tuple[int, int]:
    """Where the next data begins and ends."""
    try:
        data_at = min(os.lseek(file, at, os.SEEK_DATA), size)
        return data_at, min(os.lseek(file, data_at, os.SEEK_HOLE), size) if data_at < size else size
    except OSError as error:
        if error.errno == errno.ENXIO:  # There is none: the rest is a hole.
            return size, size
        return at, size  # This file system does not tell.
