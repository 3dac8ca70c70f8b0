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
from io import BytesIO
from typing import Final, TypeAlias

import msgspec

from wakugumi.adapters.beneath import GONE, open_beneath
from wakugumi.adapters.files import (
    NEW,
    READ,
    READ_FOLDER,
    Closing,
    Refusing,
    copy_new,
    empty,
    open_unlocked,
    read_all,
    remove_tree,
    write_new,
)
from wakugumi.adapters.jobdir.done_marks import DoneMarks
from wakugumi.adapters.jobdir.done_record import DONE, with_archive, with_request
from wakugumi.adapters.jobdir.large_parts import ARCHIVE, STDERR, STDOUT, copy_hashed
from wakugumi.adapters.programs.output_files import Capture
from wakugumi.adapters.programs.run_as import User
from wakugumi.adapters.zip.walk import FoundFile, walk
from wakugumi.adapters.zip.write import HashedFile, TooBig, ZipWriter
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
_USED_UP_FILES_MAX: Final = 1_000
"""Of more files, looking at all of them first would take longer than their space is worth."""
QUICKLY_REMOVED_BYTES: Final = 16 * MIB
"""Removing a larger file takes more than a millisecond."""
Bring: TypeAlias = Callable[[str, str, int], bool]
"""Puts the input of this name at that path, whose parent folder is given open. True if the file is the job's own."""


class JobDir:
    """One job's directory: `place`, run the program, `reopen`, `pack` or `pack_large`, then `seal` or `keep`.

    All of them raise Refused.
    """

    __slots__ = (
        "_folder",
        "_found",
        "_inputs",
        "_job",
        "_jobs",
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

    def __init__(
        self, job: str, path: str, ledger: DoneMarks, jobs: Callable[[], int], user: User | None = None
    ) -> None:
        """`jobs` gives the open folder of all jobs: files are opened below it, never by their path."""
        self.path = path
        self._jobs = jobs
        self._user = user
        self.lent: Callable[[], Container[tuple[int, int]]] = frozenset
        """Devices and inodes of inputs that are links to files of ours. They are not output, even if a program of
        another user renames them."""
        self.is_marked = False
        """The job's own result is in the directory, not a forged one of its program."""
        self.request = b""
        """Digest of the request; empty if unknown."""
        self.unpacked_bytes: int | None = None
        """Total size of the files that `pack` or `pack_large` archived; None if there are none."""
        self._job = job
        self._ledger = ledger
        self._inputs: frozenset[str] = frozenset()
        self._folder = -1
        self._names: list[str] = []
        self._found: list[FoundFile] | None = []
        self._packed = ""
        """Name of the archive on disk until the other files are removed; empty if there is none."""

    def place(self, files: Sequence[InputFile], bring: Bring | None = None) -> None:
        """Write the inputs, whose names were checked. `bring` places inputs that are not in the request.

        No other process should be here yet; if one is, no link is followed, and no foreign file is given away."""
        self._inputs = frozenset(file.name for file in files)
        if not files:
            return
        with Refusing("the job's inputs cannot be written"), Closing(self._opened()) as top:
            made: set[str] = set()
            for file in files:
                way, _, last = file.name.rpartition("/")
                at = _make_way(top, way, self._user, made) if way else top
                try:
                    is_own = True
                    if file.content is None and bring is not None:
                        is_own = bring(file.name, f"{self.path}/{file.name}", at)
                    else:
                        write_new(last, file.content or b"", 0o666, at)
                    if is_own and self._user is not None:
                        _give(at, last, self._user)
                finally:
                    if at != top:
                        os.close(at)

    def place_program(self, program: str, source: int) -> str:
        """Copy an open program into the directory; returns its new path. It counts as an input."""
        name = os.path.basename(program)
        if name in self._inputs:
            raise Refused("bad-name", f"the input {name[:80]!r} has the name of the program, which is copied in")
        self._inputs |= {name}
        with Refusing("the program cannot be copied into the job's directory"):
            mode = os.fstat(source).st_mode
            if not stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, "it is not a file")
            with Closing(self._opened()) as folder:
                copy_new(source, name, 0o600, folder)
                _give(folder, name, self._user, stat.S_IMODE(mode))
        return f"{self.path}/{name}"

    def hand_over(self) -> None:
        """Give the directory to its user, just before the program starts."""
        if self._user is not None:
            with Refusing("the job's directory cannot be given to its user"), Closing(self._opened()) as folder:
                os.fchown(folder, self._user.uid, self._user.gid)

    def _opened(self) -> int:
        """The directory before its program starts. Raises OSError."""
        folder = open_beneath(self._jobs(), self._job, READ_FOLDER)
        if os.fstat(folder).st_uid == os.geteuid():
            return folder
        os.close(folder)
        raise PermissionError(errno.EPERM, "the directory is another user's", self.path)

    def reopen(self) -> bool:
        """Look at the directory after the job. True if it is small enough for the loop, False if it needs a thread."""
        with Refusing("the job's directory cannot be read"):
            self._folder = self._reclaimed()
            self._names = os.listdir(self._folder)
            if self._names:
                self._found = self._look(SMALL_FILES, SMALL_BYTES)
        return self._found is not None and self._is_quickly_emptied()

    def pack(self, bytes_max: int, texts: Mapping[str, bytes] = {}) -> bytes | None:
        """Files made by the program as a ZIP, and `texts` behind them; None if there are no files. Raises TooBig, also
        if the ZIP might be small."""
        writer, left, archive = None, _IN_MEMORY_BYTES_MAX, BytesIO()
        with Refusing("the program's files cannot be read"):
            for found in self._made():
                left -= found.status.st_size
                if left < 0:
                    raise TooBig
                if writer is None:
                    writer = ZipWriter(archive, bytes_max=bytes_max)
                writer.add(self._folder, found)
        if writer is None:
            return None
        self.unpacked_bytes = writer.unpacked_bytes
        writer.add_texts(texts)
        writer.finish()
        return archive.getvalue()

    def pack_large(self, bytes_max: int, go_on: Callable[[], None]) -> BlobRef:
        """As `pack`, straight to disk. Raises TooBig above `bytes_max`, and exceptions of `go_on`. Few large files are
        used up meanwhile, if the result cannot be too big: then they are not needed any more."""
        name = f".waku-{os.urandom(8).hex()}"  # Hidden files are not packed.
        with Refusing("the program's files cannot be packed"):
            file = open_beneath(self._folder, name, NEW, 0o600)
            try:
                out = HashedFile(file, go_on)
                few = self._look(_USED_UP_FILES_MAX, bytes_max) is not None
                scratch = os.path.dirname(self.path)
                writer = ZipWriter(out, files_bytes_max=bytes_max, scratch=scratch, uses_up=few)
                with contextlib.closing(writer):
                    for found in self._made():
                        writer.add(self._folder, found)
                    writer.finish()
                ref, self.unpacked_bytes = out.finish(), writer.unpacked_bytes
            except BaseException:
                os.unlink(name, dir_fd=self._folder)
                raise
            finally:
                os.close(file)
        self._packed = name
        return ref

    def packed(self) -> bytes:
        """The archive on disk as bytes, because it turned out small."""
        with Refusing("the program's files cannot be packed"):
            data = read_all(self._packed, self._folder)
            os.unlink(self._packed, dir_fd=self._folder)
        return data

    def is_large(self) -> bool:
        """Whether packing takes long. Stops looking as soon as that is sure."""
        left, count = LARGE_WORK_BYTES, 0
        with Refusing("the program's files cannot be read"):
            for found in self._made():
                left, count = left - found.status.st_size, count + 1
                if left < 0 or count > LARGE_WORK_FILES_MAX:
                    return True
        return False

    def produced_bytes(self) -> int:
        """Total size of the files that `pack` would archive."""
        with Refusing("the program's files cannot be read"):
            return sum(found.status.st_size for found in self._made())

    def seal(
        self,
        result: JobResult,
        payload: bytes,
        archive: bytes | BlobRef | None,
        texts: Mapping[str, tuple[int, bytes]] = {},
    ) -> JobResult:
        """Remove all but the result and its archive, and mark the job as done.

        `payload` is the result as JSON, without an archive. Large texts are open files, each with bytes to append.
        Returns the result with its archive, or with its large parts.
        """
        with Refusing("the job's files cannot be kept"):
            if self._names:
                empty(self._folder, self._names)
            if isinstance(archive, BlobRef):
                os.replace(self._packed, ARCHIVE, src_dir_fd=self._folder, dst_dir_fd=self._folder)
                result = msgspec.structs.replace(result, archive_blob=archive)
            elif archive is not None:
                write_new(ARCHIVE, archive, 0o600, self._folder)
            for name, (file, more) in texts.items():
                field = {STDOUT: "stdout_blob", STDERR: "stderr_blob"}[name]
                result = msgspec.structs.replace(result, **{field: copy_hashed(file, more, name, self._folder)})
        if isinstance(archive, bytes):
            self.mark(encode(with_archive(result, archive)))
            return msgspec.structs.replace(result, output_archive=archive)
        self.mark(encode(result) if texts or archive is not None else payload)
        return result

    def keep(self, result: JobResult, capture: Capture) -> bytes:
        """Leave all files in place, add stdout and stderr, and mark the job as done."""
        with Refusing("the job's output cannot be kept"):
            if self._names:
                empty(self._folder, [name for name in (DONE, STDOUT, STDERR) if name in self._names])
            copy_new(capture.out, STDOUT, 0o600, self._folder)
            copy_new(capture.err, STDERR, 0o600, self._folder)
        payload = encode(result)
        self.mark(payload)
        return payload

    def mark(self, content: bytes) -> None:
        """Mark the job as done. `content` is a record as JSON."""
        content = with_request(content, self.request)
        with Refusing("the job's result cannot be kept"):
            self._ledger.put(self._job, content, DONE, self._folder)
            self.is_marked = True

    def close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def remove(self) -> None:
        """Remove the directory as far as possible."""
        self.close()
        with contextlib.suppress(OSError):
            remove_tree(self._job, self._jobs())

    def _reclaimed(self) -> int:
        """The open directory, ours and readable: the program may have locked, removed or replaced it. Raises
        OSError."""
        jobs = self._jobs()
        try:
            if self._user is not None:  # Other processes of that user lose access, too.
                os.chown(self._job, os.geteuid(), os.getegid(), dir_fd=jobs, follow_symlinks=False)
            return open_unlocked(self._job, jobs)
        except OSError as error:
            if error.errno not in GONE:
                raise
        remove_tree(self._job, jobs)
        os.mkdir(self._job, 0o700, dir_fd=jobs)
        return open_unlocked(self._job, jobs)

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


def _make_way(top: int, way: str, user: User | None, made: set[str]) -> int:
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
                made.add(name)
                if user is not None:
                    os.fchown(at, user.uid, user.gid)
    except BaseException:
        os.close(at)
        raise
    return at


def _give(folder: int, name: str, user: User | None, mode: int | None = None) -> None:
    """Set owner and mode of a file that was just made. Raises OSError."""
    with Closing(os.open(name, READ, dir_fd=folder)) as file:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is not a file", name)
        if mode is not None:
            os.fchmod(file, mode)
        if user is not None:
            os.fchown(file, user.uid, user.gid)
