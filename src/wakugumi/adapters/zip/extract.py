"""How are the files of a stranger's archive written into a folder, and nowhere else?

All names and sizes are checked before the first byte is written (`honest_entries` decides which names are left out),
links come last and are never followed, and each file takes its place in one step. A download becomes its first large
content, which is not copied. Memory stays flat but for the folders, unless a list of the written files is wanted; zeros
become holes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from wakugumi.adapters.files import Closing, write_all
from wakugumi.adapters.zip.honest_entries import is_taken, link_target
from wakugumi.adapters.zip.read import Archive, ZipEntry
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.runner import RESULT_BYTES_MAX
from wakugumi.limits.units import KIB

_HOLE: Final = bytes(64 * KIB)
"""Shortest run of zeros that becomes a hole: smaller holes save little and cost calls."""


class Bound(NamedTuple):
    """Limit of the bytes to write."""

    bytes_max: int = RESULT_BYTES_MAX
    """Bytes of all files together."""
    why: str = "no worker packs more than that"
    code: str = "bad-result"
    """Code of the refusal, if the files have more."""
    dot_files: bool = False


ANY: Final = Bound()


class Checked(NamedTuple):
    """Content of an archive that may be unpacked."""

    links: int
    left_out: int
    """Entries that no honest worker sends."""
    size: int
    """Bytes of all files that are taken."""


def unpack(
    archive: Archive, folder: Path, go_on: Callable[[], None] = lambda: None, bound: Bound = ANY
) -> tuple[list[Path], int]:
    """The paths of files and links, and the number of entries that were left out. `go_on` is called between pieces, and
    its exception ends the work.

    Raises Refused before anything is written: `bad-name`, or the bound's code. Raises PeerError and OSError.
    """
    checked = check(archive, bound)
    return [Path(path) for path in _Unpacking(archive, folder, go_on, checked, bound).run()], checked.left_out


def unpack_counted(
    archive: Archive, folder: Path, go_on: Callable[[], None] = lambda: None, bound: Bound = ANY
) -> tuple[int, int]:
    """Unpacks, and returns numbers alone: a list of millions of files would fill the memory."""
    checked = check(archive, bound)
    return sum(1 for _ in _Unpacking(archive, folder, go_on, checked, bound).run()), checked.left_out


def check(archive: Archive, bound: Bound) -> Checked:
    """May the archive be unpacked? Raises Refused and PeerError."""
    links = left_out = size = 0
    folders: set[str] = set()
    for entry in archive.entries():
        if not is_taken(archive, entry, dot_files=bound.dot_files):
            left_out += 1
            continue
        _add_folders(entry, folders)
        size += entry.size
        if size > bound.bytes_max:
            raise Refused(
                bound.code,
                f"the result's files have more than {bound.bytes_max:,} bytes, and {bound.why}; nothing was written",
            )
        if not entry.is_folder and stat.S_ISLNK(entry.mode):
            links += 1
    _check_apart(archive, folders, bound)
    return Checked(links, left_out, size)


def _add_folders(entry: ZipEntry, folders: set[str]) -> None:
    parent = entry.name.rpartition("/")[0]
    while parent and parent not in folders:
        folders.add(parent)
        parent = parent.rpartition("/")[0]


def _check_apart(archive: Archive, folders: set[str], bound: Bound) -> None:
    """No file or link has the name of a folder. The list is read again: there may be too many names to remember."""
    for entry in archive.entries() if folders else ():
        if entry.name in folders and is_taken(archive, entry, dot_files=bound.dot_files):
            raise Refused("bad-name", f"the result holds {entry.name[:200]!r} as a file and as a folder")


class _Unpacking:
    def __init__(
        self, archive: Archive, folder: Path, go_on: Callable[[], None], checked: Checked, bound: Bound
    ) -> None:
        self._archive = archive
        self._go_on = go_on
        self._checked = checked
        self._bound = bound
        self._folder = os.fspath(folder)
        self._scratch = f".waku-{os.urandom(8).hex()}"
        self._numbers = count()
        self._parent: tuple[str, str] = ("", self._folder)
        """The folder of the last file, in the archive and on the disk."""

    def run(self) -> Iterator[str]:
        """Each path, once written."""
        written = 0
        last: ZipEntry | None = None
        try:
            for entry in self._taken():
                if entry.is_folder:
                    self._make(entry.name)
                elif last is None and not self._checked.links and self._archive.can_become(entry):
                    last = entry  # Then the list and the links cannot be read any more.
                elif not stat.S_ISLNK(entry.mode):
                    yield self._put(entry)
                    written += 1
            # Links come last: no file of this archive is ever written through one of its links.
            if self._checked.links:
                for entry in self._taken():
                    if not entry.is_folder and stat.S_ISLNK(entry.mode):
                        yield self._put(entry)
                        written += 1
            if last is not None:
                yield self._put(last, becomes=True)
                written += 1
        except PeerError as error:
            raise PeerError(f"{error}; {written:,} files were written before it") from None

    def _taken(self) -> Iterator[ZipEntry]:
        if not self._checked.left_out:
            return self._archive.entries()
        dot_files = self._bound.dot_files
        return (each for each in self._archive.entries() if is_taken(self._archive, each, dot_files=dot_files))

    def _make(self, inside: str) -> str:
        """Makes the folders of this path without following a link: its target is unchecked."""
        if self._parent[0] == inside:
            return self._parent[1]
        path = self._folder
        for part in inside.split("/")[:-1]:
            path = os.path.join(path, part)
            try:
                os.mkdir(path)
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    raise Refused("bad-name", f"{path} is there already, and is not a folder") from None
        self._parent = (inside, path)
        return path

    def _put(self, entry: ZipEntry, *, becomes: bool = False) -> str:
        """Puts a file in one step: readers see the old file or the new one. A folder in the way stays, and is an
        OSError. `becomes`: the archive's own file becomes this one, if possible."""
        self._go_on()
        at = entry.name.rfind("/") + 1
        parent, name = self._make(entry.name[:at]), entry.name[at:]
        scratch = os.path.join(parent, f"{self._scratch}-{next(self._numbers)}")
        path = os.path.join(parent, name)
        try:
            if stat.S_ISLNK(entry.mode):
                Path(scratch).symlink_to(link_target(self._archive, entry))
            else:
                self._write(entry, scratch, becomes)
            os.replace(scratch, path)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise
        return path

    def _write(self, entry: ZipEntry, path: str, becomes: bool) -> None:
        mode = 0o777 if entry.mode & 0o100 else 0o666
        with Closing(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)) as file:
            if becomes and self._has_become(entry, path):
                return
            holes = False
            for piece in self._archive.content(entry):
                holes |= _write_data(file, piece)
                self._go_on()
            if holes:
                os.ftruncate(file, entry.size)

    def _has_become(self, entry: ZipEntry, path: str) -> bool:
        """Verifies a content that is not copied. False if it has to be."""
        at = 0
        for piece in self._archive.content(entry, frees=False):
            for hole in range(0, len(piece), len(_HOLE)):
                if piece.startswith(_HOLE, hole):
                    self._archive.make_hole(at + hole, at + hole + len(_HOLE))
            at += len(piece)
            self._go_on()
        return self._archive.become(entry, path)


def _write_data(file: int, piece: bytes) -> bool:
    """Writes a piece without its long runs of zeros. True if there are any."""
    start = at = 0
    while at < len(piece):
        if piece.startswith(_HOLE, at):
            write_all(file, memoryview(piece)[start:at])
            os.lseek(file, len(_HOLE), os.SEEK_CUR)
            start = at + len(_HOLE)
        at += len(_HOLE)
    write_all(file, memoryview(piece)[start:])
    return start > 0
