"""How are the files of a stranger's archive written into a folder, and nowhere else?

All names are checked before the first byte is written, links come last and are never stepped through, and each file
takes its place in one step. Memory stays flat but for its folders, unless a list of what was written is wanted; zeros
become holes.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from itertools import count, dropwhile
from pathlib import Path
from typing import Final

from wakugumi.adapters.unzip import Archive, Entry
from wakugumi.errors import Refused
from wakugumi.limits import KIB

_HOLE: Final = bytes(64 * KIB)
"""What is left out of a file if it is all zeros: smaller holes save little and cost calls."""
_LINK_BYTES_MAX: Final = 4 * KIB


def unpack(archive: Archive, folder: Path, go_on: Callable[[], None] = lambda: None) -> list[Path]:
    """Where the files and links are. `go_on` is called all along, and what it raises ends it.

    Raises Refused("bad-name") before anything is written, PeerError and OSError.
    """
    links = _checked_links(archive)
    return [Path(path) for path in _Unpacking(archive, folder, go_on).run(links)]


def unpack_counted(archive: Archive, folder: Path, go_on: Callable[[], None] = lambda: None) -> int:
    """The same, and only how many there are: a list of millions of files would fill the memory."""
    links = _checked_links(archive)
    return sum(1 for _ in _Unpacking(archive, folder, go_on).run(links))


def _checked_links(archive: Archive) -> int:
    """How many entries are links, if none of all entries leads elsewhere."""
    links = 0
    folders: set[str] = set()
    for entry in archive.entries():
        _check_name(entry.name.removesuffix("/"))
        _add_folders(entry, folders)
        if entry.is_folder:
            continue
        kind = stat.S_IFMT(entry.mode)
        if kind == stat.S_IFLNK:
            _link_target(archive, entry)
            links += 1
        elif kind not in {0, stat.S_IFREG}:
            raise Refused("bad-name", f"{entry.name!r} in the result is neither a file nor a link")
    _check_apart(archive, folders)
    return links


def _add_folders(entry: Entry, folders: set[str]) -> None:
    parent = entry.name.rpartition("/")[0]
    while parent and parent not in folders:
        folders.add(parent)
        parent = parent.rpartition("/")[0]


def _check_apart(archive: Archive, folders: set[str]) -> None:
    """No file or link is called as a folder. They are gone through again: there may be too many names to remember."""
    for entry in archive.entries() if folders else ():
        if entry.name in folders:
            raise Refused("bad-name", f"the result holds {entry.name[:200]!r} as a file and as a folder")


class _Unpacking:
    def __init__(self, archive: Archive, folder: Path, go_on: Callable[[], None]) -> None:
        self._archive = archive
        self._go_on = go_on
        self._folder = os.fspath(folder)
        self._scratch = f".waku-{os.urandom(8).hex()}"
        self._numbers = count()
        self._parent: tuple[str, str] = ("", self._folder)
        """The folder that the last file was put in, as the archive calls it, and where it is."""

    def run(self, links: int) -> Iterator[str]:
        """Each path, once it is there."""
        for entry in self._archive.entries():
            if entry.is_folder:
                self._make(entry.name)
            elif not stat.S_ISLNK(entry.mode):
                yield self._put(entry)
        # Links come last: no file of this archive is ever written through one of its links.
        if links:
            yield from (self._put(entry) for entry in self._archive.entries() if stat.S_ISLNK(entry.mode))

    def _make(self, inside: str) -> str:
        """Make the folders of this path, stepping through no link: where a link leads, nobody checked."""
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

    def _put(self, entry: Entry) -> str:
        """One step: whoever looks sees the old file or the new one. A folder in the way stays, and is an OSError."""
        self._go_on()
        at = entry.name.rfind("/") + 1
        parent, name = self._make(entry.name[:at]), entry.name[at:]
        scratch = os.path.join(parent, f"{self._scratch}-{next(self._numbers)}")
        path = os.path.join(parent, name)
        try:
            if stat.S_ISLNK(entry.mode):
                Path(scratch).symlink_to(_link_target(self._archive, entry))
            else:
                self._write(entry, scratch)
            os.replace(scratch, path)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise
        return path

    def _write(self, entry: Entry, path: str) -> None:
        mode = 0o777 if entry.mode & 0o100 else 0o666
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            holes = False
            for piece in self._archive.content(entry):
                holes |= _write_data(file, piece)
                self._go_on()
            if holes:
                os.ftruncate(file, entry.size)
        finally:
            os.close(file)


def _write_data(file: int, piece: bytes) -> bool:
    """All of a piece but its long runs of zeros. True if there are any."""
    start = at = 0
    while at < len(piece):
        if piece.startswith(_HOLE, at):
            _write_all(file, piece, start, at)
            os.lseek(file, len(_HOLE), os.SEEK_CUR)
            start = at + len(_HOLE)
        at += len(_HOLE)
    _write_all(file, piece, start, len(piece))
    return start > 0


def _write_all(file: int, piece: bytes, start: int, end: int) -> None:
    with memoryview(piece) as view:
        while start < end:
            start += os.write(file, view[start:end])


def _check_name(name: str) -> None:
    """May a program have made this name? Stricter rules are for inputs: here they would cost a user his files."""
    parts = name.replace(os.sep, "/").split("/")
    if "\0" in name or any(part in {"", ".", ".."} or (":" in part and os.name == "nt") for part in parts):
        raise Refused("bad-name", f"the result holds a file called {name[:200]!r}, which leads elsewhere")


def _link_target(archive: Archive, entry: Entry) -> str:
    """Where a link points, which must be inside the folder: whatever the links mean that it steps through."""
    raw = archive.read(entry) if entry.size <= _LINK_BYTES_MAX else b""
    target = os.fsdecode(raw)
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(entry.name), target))
    named = dropwhile({"", ".", ".."}.__contains__, target.split("/"))
    climbs = ".." in named  # From where a link may have led, up is anywhere.
    if climbs or not target or "\0" in target or posixpath.isabs(target) or (reached + "/").startswith("../"):
        raise Refused("bad-name", f"{entry.name!r} in the result is a link that leads outside: {target[:200]!r}")
    return target
