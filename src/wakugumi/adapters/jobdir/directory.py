"""How does one job's directory hold its inputs, its program's files, and its result? (SPEC W1, W4, W5)

    place ─► the program runs there ─► reopen ─► pack or pack_large ─► seal or keep ─► `.done`

`.done` is written last: a directory without it belongs to an interrupted job. Files made by a program are never
trusted: see `files` and `zip`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from wakugumi.adapters.files import NEW, READ, READ_FOLDER, copy_new, empty, read_all, refused, remove_tree, write_new
from wakugumi.adapters.jobdir.done_marks import DoneMarks
from wakugumi.adapters.jobdir.done_record import DONE, with_archive, with_request
from wakugumi.adapters.jobdir.large_parts import ARCHIVE, STDERR, STDOUT, copy_hashed
from wakugumi.adapters.programs.output_files import Capture
from wakugumi.adapters.programs.run_as import User
from wakugumi.adapters.zip.write_memory import FoundFile, TooBig, ZipWriter, walk
from wakugumi.errors import Refused
from wakugumi.limits.runner import LARGE_WORK_BYTES, LARGE_WORK_FILES_MAX
from wakugumi.limits.units import KIB, MIB
from wakugumi.wire.messages.job import InputFile, JobResult
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

SMALL_BYTES: Final = 256 * KIB
SMALL_FILES: Final = 32
"""Most bytes and files packed, written or removed in the loop: about a millisecond of work."""
_IN_MEMORY_BYTES_MAX: Final = 16 * MIB
"""Most bytes packed in memory: larger output rarely fits a frame, and would be read twice."""
QUICKLY_REMOVED_BYTES: Final = 16 * MIB
"""Removing a larger file takes more than a millisecond."""
PLAIN: Final = stat.S_IFDIR | stat.S_IRWXU
"""Mode of a directory that no program has changed."""
Bring: TypeAlias = Callable[[str, str, int | None], bool]
"""Puts the input of this name at that path; its parent folder may be given open. True if the file is the job's own."""


class JobDir:
    """One job's directory: `place`, run the program, `reopen`, `pack` or `pack_large`, then `seal` or `keep`.

    All of them raise Refused.
    """

    __slots__ = (
        "_folder",
        "_found",
        "_inputs",
        "_job",
        "_ledger",
        "_names",
        "_packed",
        "_user",
        "is_marked",
        "lent",
        "path",
        "request",
        "unpacked_bytes",
    )

    def __init__(self, job: str, path: str, ledger: DoneMarks, user: User | None = None) -> None:
        self.path = path
        self._user = user
        self.lent: Callable[[], Container[tuple[int, int]]] = frozenset
        """Devices and inodes of inputs that are links to files of ours. They are not output, even if a program of
        another user renames them."""
        self.is_marked = False
        """The job's own result is in the directory, not a forged one of its program."""
        self.request = b""
        """Digest of the request; empty if unknown."""
        self.unpacked_bytes = 0
        """Total size of the files that `pack` or `pack_large` archived."""
        self._job = job
        self._ledger = ledger
        self._inputs: frozenset[str] = frozenset()
        self._folder = -1
        self._names: list[str] = []
        self._found: list[FoundFile] | None = []
        self._packed = ""
        """Path of the archive on disk until the other files are removed; empty if there is none."""

    def place(self, files: Sequence[InputFile], bring: Bring | None = None) -> None:
        """Write the inputs, whose names were checked. `bring` places inputs that are not in the request."""
        self._inputs = frozenset(file.name for file in files)
        try:
            if self._user is not None:
                self._place_for(self._user, files, bring)
                return
            for file in files:
                path = f"{self.path}/{file.name}"
                if "/" in file.name:
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                if file.content is None and bring is not None:
                    bring(file.name, path, None)
                else:
                    write_new(path, file.content or b"", 0o666)
        except OSError as error:
            raise refused(error, "the job's inputs cannot be written") from None

    def place_program(self, program: str, source: int) -> str:
        """Copy an open program into the directory; returns its new path. It counts as an input."""
        name = os.path.basename(program)
        if name in self._inputs:
            raise Refused("bad-name", f"the input {name[:80]!r} has the name of the program, which is copied in")
        self._inputs |= {name}
        try:
            mode = os.fstat(source).st_mode
            if not stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, "it is not a file")
            folder = os.open(self.path, READ_FOLDER)
            try:
                copy_new(source, name, 0o600, folder)
                _give(folder, name, self._user, stat.S_IMODE(mode))
            finally:
                os.close(folder)
        except OSError as error:
            raise refused(error, "the program cannot be copied into the job's directory") from None
        return f"{self.path}/{name}"

    def hand_over(self) -> None:
        """Give the directory to its user, just before the program starts."""
        if self._user is not None:
            try:
                os.chown(self.path, self._user.uid, self._user.gid, follow_symlinks=False)
            except OSError as error:
                raise refused(error, "the job's directory cannot be given to its user") from None

    def _place_for(self, user: User, files: Sequence[InputFile], bring: Bring | None) -> None:
        """Write inputs and their folders for the program's user. No other process should be here yet; if one is, no
        link is followed, and no foreign file is given away. Raises OSError."""
        top = os.open(self.path, READ_FOLDER)
        try:
            if os.fstat(top).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "the directory is another user's", self.path)
            made: set[str] = set()
            for file in files:
                way, _, last = file.name.rpartition("/")
                at = _make_way(top, way, user, made)
                try:
                    if file.content is None and bring is not None:
                        if not bring(file.name, f"{self.path}/{file.name}", at):
                            continue
                    else:
                        write_new(last, file.content or b"", 0o666, at)
                    _give(at, last, user)
                finally:
                    os.close(at)
        finally:
            os.close(top)

    def reopen(self) -> bool:
        """Look at the directory after the job. True if it is small enough for the loop, False if it needs a thread."""
        try:
            self._reclaim()
            self._names = os.listdir(self.path)
            if self._names:
                self._folder = os.open(self.path, READ_FOLDER)
                self._found = self._look(SMALL_FILES, SMALL_BYTES)
        except OSError as error:
            raise refused(error, "the job's directory cannot be read") from None
        return self._found is not None and self._is_quickly_emptied()

    def pack(self, bytes_max: int) -> bytes | None:
        """Files made by the program as a ZIP; None if there are none. Raises TooBig, also if the ZIP might be small."""
        writer, left = None, _IN_MEMORY_BYTES_MAX
        try:
            for found in self._made():
                left -= found.status.st_size
                if left < 0:
                    raise TooBig
                if writer is None:
                    writer = ZipWriter(bytes_max)
                writer.add(self._folder, found)
        except OSError as error:
            raise refused(error, "the program's files cannot be read") from None
        if writer is None:
            return None
        self.unpacked_bytes = writer.unpacked_bytes
        return writer.finish()

    def pack_large(self, bytes_max: int, go_on: Callable[[], None]) -> BlobRef:
        """As `pack`, straight to disk. Raises TooBig above `bytes_max`, and exceptions of `go_on`."""
        from wakugumi.adapters.zip.write_file import FileZip

        path = f"{self.path}/.waku-{os.urandom(8).hex()}"  # Hidden files are not packed.
        try:
            file = os.open(path, NEW, 0o600)
            try:
                writer = FileZip(file, os.path.dirname(self.path), bytes_max, go_on)
                with contextlib.closing(writer):
                    for found in self._made():
                        writer.add(self._folder, found)
                    ref = writer.finish()
                    self.unpacked_bytes = writer.unpacked_bytes
            except BaseException:
                os.unlink(path)
                raise
            finally:
                os.close(file)
        except OSError as error:
            raise refused(error, "the program's files cannot be packed") from None
        self._packed = path
        return ref

    def packed(self) -> bytes:
        """The archive on disk as bytes, because it turned out small."""
        try:
            data = read_all(self._packed)
            os.unlink(self._packed)
        except OSError as error:
            raise refused(error, "the program's files cannot be packed") from None
        return data

    def is_large(self) -> bool:
        """Whether packing takes long. Stops looking as soon as that is sure."""
        left, count = LARGE_WORK_BYTES, 0
        try:
            for found in self._made():
                left, count = left - found.status.st_size, count + 1
                if left < 0 or count > LARGE_WORK_FILES_MAX:
                    return True
        except OSError as error:
            raise refused(error, "the program's files cannot be read") from None
        return False

    def produced_bytes(self) -> int:
        """Total size of the files that `pack` would archive."""
        try:
            return sum(found.status.st_size for found in self._made())
        except OSError as error:
            raise refused(error, "the program's files cannot be read") from None

    def seal(self, result: JobResult, payload: bytes, archive: bytes | None) -> bytes:
        """Remove all but the result and its archive, and mark the job as done.

        `payload` is the result encoded without an archive. Returns it with its archive.
        """
        try:
            if self._names:
                empty(self._folder, self._names)
            if archive is not None:
                write_new(f"{self.path}/{ARCHIVE}", archive, 0o600)
        except OSError as error:
            raise refused(error, "the job's files cannot be kept") from None
        if archive is None:
            self.mark(payload)
            return payload
        self.mark(encode(with_archive(result, archive)))
        return encode(msgspec.structs.replace(result, output_archive=archive))

    def seal_large(
        self, result: JobResult, archive: bytes | BlobRef | None, texts: Mapping[str, tuple[int, bytes]]
    ) -> bytes:
        """As `seal`, for a result with large parts: the archive on disk, and texts as open files, each with bytes to
        append."""
        try:
            if self._names:
                empty(self._folder, self._names)
            if isinstance(archive, BlobRef):
                os.replace(self._packed, f"{self.path}/{ARCHIVE}")
                result = msgspec.structs.replace(result, archive_blob=archive)
            elif archive is not None:
                write_new(f"{self.path}/{ARCHIVE}", archive, 0o600)
            for name, (file, more) in texts.items():
                field = {STDOUT: "stdout_blob", STDERR: "stderr_blob"}[name]
                result = msgspec.structs.replace(result, **{field: copy_hashed(file, more, f"{self.path}/{name}")})
        except OSError as error:
            raise refused(error, "the job's files cannot be kept") from None
        if not isinstance(archive, bytes):
            payload = encode(result)
            self.mark(payload)
            return payload
        self.mark(encode(with_archive(result, archive)))
        return encode(msgspec.structs.replace(result, output_archive=archive))

    def keep(self, result: JobResult, capture: Capture) -> bytes:
        """Leave all files in place, add stdout and stderr, and mark the job as done."""
        try:
            if self._names:
                empty(self._folder, [name for name in (DONE, STDOUT, STDERR) if name in self._names])
            copy_new(capture.out, f"{self.path}/{STDOUT}", 0o600)
            copy_new(capture.err, f"{self.path}/{STDERR}", 0o600)
        except OSError as error:
            raise refused(error, "the job's output cannot be kept") from None
        payload = encode(result)
        self.mark(payload)
        return payload

    def mark(self, content: bytes) -> None:
        """Mark the job as done. `content` is a record as JSON."""
        content = with_request(content, self.request)
        try:
            self._ledger.put(self._job, content, f"{self.path}/{DONE}")
            self.is_marked = True
        except OSError as error:
            raise refused(error, "the job's result cannot be kept") from None

    def close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def remove(self) -> None:
        """Remove the directory as far as possible."""
        self.close()
        with contextlib.suppress(OSError):
            remove_tree(self.path)

    def _reclaim(self) -> None:
        """Make the directory ours and readable: the program may have locked, removed or replaced it."""
        try:
            if self._user is not None:  # Other processes of that user lose access, too.
                os.chown(self.path, os.geteuid(), os.getegid(), follow_symlinks=False)
            mode = os.lstat(self.path).st_mode
        except FileNotFoundError:
            mode = 0
        if mode == PLAIN:
            return
        if stat.S_ISDIR(mode):
            os.chmod(self.path, stat.S_IRWXU)  # noqa: PTH101
        else:
            remove_tree(self.path)
            os.mkdir(self.path, 0o700)

    def _made(self) -> Iterable[FoundFile]:
        """Files made by the program. Many files are searched again on each call, as a list might be too long."""
        return self._walk() if self._found is None else self._found

    def _walk(self) -> Iterable[FoundFile]:
        if self._user is None:
            return walk(self._folder, self._inputs)
        return walk(self._folder, self._inputs, self._user.uid, self.lent())

    def _is_quickly_emptied(self) -> bool:
        """Whether inputs and hidden files can be removed quickly. Of a link only the name is removed."""
        if len(self._inputs) > SMALL_FILES:
            return not self._names
        left = QUICKLY_REMOVED_BYTES
        for name in (*self._inputs, *[name for name in self._names if name[0] == "."]):
            with contextlib.suppress(OSError):  # The program may have removed it.
                status = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
                left -= status.st_size if status.st_nlink == 1 else 0
        return left >= 0

    def _look(self, files_max: int, bytes_max: int) -> list[FoundFile] | None:
        """Files made by the program; None if there are more than these limits."""
        if len(self._names) > files_max:
            return None
        all_found: list[FoundFile] = []
        for found in self._walk():
            all_found.append(found)
            bytes_max -= found.status.st_size
            if bytes_max < 0 or len(all_found) > files_max:
                return None
        return all_found


def _make_way(top: int, way: str, user: User, made: set[str]) -> int:
    """Open the folder `way` below the open folder `top`, and make its parts that are not in `made`, for the user.
    Raises OSError, also if a part exists that is not in `made`."""
    at, name = os.dup(top), ""
    try:
        for part in way.split("/") if way else ():
            name = f"{name}/{part}"
            if name not in made:
                os.mkdir(part, dir_fd=at)
            inside = os.open(part, READ_FOLDER, dir_fd=at)
            os.close(at)
            at = inside
            if name not in made:
                os.fchown(at, user.uid, user.gid)
                made.add(name)
    except BaseException:
        os.close(at)
        raise
    return at


def _give(folder: int, name: str, user: User | None, mode: int | None = None) -> None:
    """Set owner and mode of a file that was just made. Raises OSError."""
    file = os.open(name, READ, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is not a file", name)
        if mode is not None:
            os.fchmod(file, mode)
        if user is not None:
            os.fchown(file, user.uid, user.gid)
    finally:
        os.close(file)
