"""Where does a job live on disk, and what is left of it? (SPEC W1, W4, W5)

    <jobs>/<job id>/             while it runs: its inputs and what it makes; its current directory
    <jobs>/<job id>/.done        when it has ended: its result as JSON, without the archive
    <jobs>/<job id>/result.zip   and the archive, if it made any files
    <jobs>/<job id>/.stdout      and .stderr, if they do not fit a frame
    <jobs>/.worker               whose folder this is: by the same id its worker comes back after a restart

`.done` comes last, so a directory without it is what an interrupted job left behind. Nothing is synced: where power was
lost, a torn `.done` is not JSON or does not fit its archive's checksum, and counts as none.
What a program made of its directory is never trusted; see `files` and `archive`.

A directory whose time is over is used again under a new name, and `.done` files are shared: `ledger` says why.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias
from uuid import UUID, uuid4

import msgspec

from wakugumi.adapters.files import NEW, READ, READ_FOLDER, copy_new, empty, read_all, refused, remove_tree, write_new
from wakugumi.adapters.folder_lock import FolderLock
from wakugumi.adapters.jobdir.done_marks import DoneMarks, read_entry
from wakugumi.adapters.jobdir.folder_claim import claim
from wakugumi.adapters.jobdir.large_parts import ARCHIVE, STDERR, STDOUT, Whole, copy_hashed, parts_of
from wakugumi.adapters.programs.output_files import Capture, Captures
from wakugumi.adapters.programs.run_as import User
from wakugumi.adapters.zip.write_memory import FoundFile, TooBig, ZipWriter, crc32, walk
from wakugumi.core.ids import JobId, WorkerId, parse_job_id
from wakugumi.errors import ConfigError, Refused, Sick
from wakugumi.limits.runner import LARGE_WORK_BYTES, LARGE_WORK_FILES_MAX
from wakugumi.limits.units import KIB, MIB
from wakugumi.wire.messages.job import InputFile, JobResult
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef
from wakugumi.wire.untrusted_json import JsonReader, Unreadable, read_json

DONE: Final = ".done"
WORKER: Final = ".worker"
SMALL_BYTES: Final = 256 * KIB
SMALL_FILES: Final = 32
"""What is packed, written or removed without leaving the loop: about a millisecond of work."""
SPARE_MAX: Final = 1_000
"""Directories whose time is over and that wait to be used again: a second's worth."""
_IN_MEMORY_BYTES_MAX: Final = 16 * MIB
"""What is tried to pack in memory: most of what is larger does not fit a frame, and would be read twice."""
_QUICKLY_REMOVED_BYTES: Final = 16 * MIB
"""A larger file takes a file system more than a millisecond to give up."""


class Done(JobResult, frozen=True, rename="pascal"):
    """What `.done` holds: without an archive, the result that was sent, and of which request it is."""

    archive_bytes: int | None = None
    archive_crc: int | None = None
    request: str = ""
    """The digest of the request that was run. It comes last, and is not sent: a frame says it otherwise."""


class FolderOwner(msgspec.Struct, frozen=True, rename="pascal"):
    """What `.worker` holds: an id, and where it is good. On a cloned disk or in a copied folder it is another's."""

    worker_id: UUID
    node: str
    inode: int


_PLAIN: Final = stat.S_IFDIR | stat.S_IRWXU
_done: Final = JsonReader(Done)
Bring: TypeAlias = Callable[[str, str, int | None], bool]
"""Puts the input of this name at that path, whose folder may be open, and says whether the file is the job's own."""


class JobsFolder:
    """All job directories of one worker, which no other process uses meanwhile."""

    def __init__(self, path: Path, user: User | None = None) -> None:
        """Claim the folder or, if another worker has it, one in it. A directory is the `user`'s while their program
        runs, and ours before and after. Raises ConfigError."""
        self._user = user
        self.path, self._lock = self._claim(path)
        self._claiming = threading.Lock()
        self._gone: list[FolderLock] = []
        """Locks of folders that somebody removed."""
        self.captures = Captures(self.path, user)
        self.is_new = False
        """Nobody had this folder before: nothing is left of an earlier life."""
        self.interrupted: list[tuple[JobId, float]] = []
        """What `kept` has left of interrupted jobs, and how many seconds ago it was changed last."""
        self._spare: dict[str, None] = {}
        self._ledger = DoneMarks(self.path)

    def worker_id(self) -> WorkerId:
        """The id of the worker whose folder this is: as in its earlier lives here, or a new one."""
        known = owner_of(self.path)
        if known is not None:
            return known
        self.is_new = True
        path = f"{self.path}/{WORKER}"
        owner = FolderOwner(uuid4(), os.uname().nodename, os.stat(self.path).st_ino)
        with contextlib.suppress(OSError):  # then it is good for this life
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{path}.new")
            write_new(f"{path}.new", encode(owner), 0o600)
            os.replace(f"{path}.new", path)
        return WorkerId(owner.worker_id.bytes_le)

    def make(self, job: str) -> JobDir:
        """A fresh, empty directory; what an earlier run of the same job left is removed. Raises Refused."""
        path = f"{self.path}/{job}"
        self._spare.pop(job, None)
        if self._spare and self._reuse(job):
            return JobDir(job, path, self._ledger, self._user)
        try:
            try:
                self._mkdir(job)
            except FileExistsError:
                remove_tree(path)
                self._mkdir(job)
            except FileNotFoundError:  # someone cleaned up /tmp
                self._claim_again()
                self._mkdir(job)
        except ConfigError as error:
            raise Sick("worker-error", f"the job's directory cannot be made: {error}") from None
        except OSError as error:
            raise refused(error, "the job's directory cannot be made") from None
        return JobDir(job, path, self._ledger, self._user)

    def record(self, job: str, payload: bytes, request: bytes = b"") -> JobDir:
        """Mark a job as done of which there is nothing but this result. Raises Refused."""
        directory = self.make(job)
        directory.request = request
        try:
            directory.reopen()
            directory.mark(payload)
        except Refused:
            directory.remove()
            raise
        finally:
            directory.close()
        return directory

    def load(self, job: str) -> bytes | None:
        """The whole encoded result of a finished job. None if there is none that can be trusted."""
        whole = self.load_whole(job)
        return None if whole is None else whole.payload

    def load_whole(self, job: str) -> Whole | None:
        """The same, and the files that it names: they are there, and have their size."""
        path = f"{self.path}/{job}"
        try:
            if self._user is not None and not self._is_ours(os.lstat(path)):
                return None
            data = read_entry(job, f"{path}/{DONE}")
            if data is None:
                return None
            done = _done.read(data)
            parts = parts_of(done, path)
            request = bytes.fromhex(done.request)
            if done.archive_bytes is None:
                mark = _marked(request)
                return Whole(data[: -len(mark)] + b"}" if data.endswith(mark) else data, parts, request)
            archive = read_all(f"{path}/{ARCHIVE}")
        except (OSError, ValueError):
            return None
        if len(archive) != done.archive_bytes or crc32(archive) != done.archive_crc:
            return None
        result = JobResult(**{name: getattr(done, name) for name in JobResult.__struct_fields__})
        return Whole(encode(msgspec.structs.replace(result, output_archive=archive)), parts, request)

    def done_at(self, job: str) -> float | None:
        """When a finished job was marked as done, by the machine's clock. None if it is not there."""
        try:
            return os.stat(f"{self.path}/{job}/{DONE}", follow_symlinks=False).st_mtime
        except OSError:
            return None

    def unmark(self, job: str) -> None:
        """Its result answers for nothing any more. What is beside it stays until the job's time is over."""
        with contextlib.suppress(OSError):
            os.unlink(f"{self.path}/{job}/{DONE}")

    def finished(self, interrupted_ttl_s: float = 0.0) -> list[tuple[JobId, float]]:
        """What ended before, and how many seconds ago. What was interrupted goes now, or after its TTL.

        Only names that are job ids are touched: the folder may hold things that are none of our business.
        """
        self._ledger.close()
        now = time.time()
        found: list[tuple[JobId, float]] = []
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in names:
            try:
                job_id = parse_job_id(name)
            except ValueError:
                continue
            path = f"{self.path}/{name}"
            try:
                directory = os.lstat(path)
            except OSError:
                continue
            is_ours = self._is_ours(directory)  # If not, a program had it last, and can have made its `.done`.
            try:
                status = os.stat(f"{path}/{DONE}", follow_symlinks=False)
                if status.st_uid != os.geteuid() or not is_ours:
                    raise FileNotFoundError
                found.append((job_id, max(0.0, now - status.st_mtime)))
            except OSError:
                with contextlib.suppress(OSError):
                    age_s = max(0.0, now - directory.st_mtime) if interrupted_ttl_s else 0.0
                    if age_s < interrupted_ttl_s:
                        if not is_ours:
                            _take_back(path)
                        self.interrupted.append((job_id, age_s))
                    else:
                        remove_tree(path)
        return found

    def retire(self, job: str) -> bool:
        """A finished job's time is over: its directory may serve another. If not, as `remove`."""
        if len(self._spare) < SPARE_MAX:
            path = f"{self.path}/{job}"
            with contextlib.suppress(OSError):
                is_ours = self._user is None or self._is_ours(os.lstat(path))
                if is_ours and os.listdir(path) == [DONE]:
                    self._spare[job] = None
                    return True
        return self.remove(job)

    def remove(self, job: str) -> bool:
        """Forget a finished job. False if more than two small files is there: `remove_tree` may take its time."""
        path = f"{self.path}/{job}"
        try:
            with contextlib.suppress(FileNotFoundError):
                if os.stat(f"{path}/{ARCHIVE}", follow_symlinks=False).st_size > _QUICKLY_REMOVED_BYTES:
                    return False
            for name in (DONE, ARCHIVE):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{path}/{name}")
            os.rmdir(path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def close(self) -> None:
        self.captures.close()
        self._ledger.close()
        for lock in (*self._gone, self._lock):
            lock.release()

    def _claim(self, path: Path) -> tuple[str, FolderLock]:
        hint = "choose another one with --jobs"
        return claim(path, what="jobs folder", inside="worker-", hint=hint, user=self._user)

    def _mkdir(self, job: str) -> None:
        """With a user, in the folder that was claimed, whatever has its name now. Raises OSError."""
        if self._user is None:
            os.mkdir(f"{self.path}/{job}", 0o700)
        else:
            os.mkdir(job, 0o700, dir_fd=self._lock.folder)

    def _claim_again(self) -> None:
        """The folder is gone. One that somebody else made in its place is not taken. Raises ConfigError, OSError."""
        with self._claiming:
            with contextlib.suppress(FileNotFoundError):
                if self._lock.is_on(os.stat(self.path)):  # Another thread was faster.
                    return
            path, lock = self._claim(Path(self.path))
            if path != self.path:
                lock.release()
                raise ConfigError(f"another process has the jobs folder {self.path} now")
            self._gone.append(self._lock)  # Not released before the end: a thread may just use it.
            self._lock = lock

    def _reuse(self, job: str) -> bool:
        """Its `.done` leaves first: at no time does a directory seem to hold another job's result."""
        try:
            old = self._spare.popitem()[0]
        except KeyError:  # a thread was faster
            return False
        try:
            if self._user is None:
                os.unlink(f"{self.path}/{old}/{DONE}")
                os.replace(f"{self.path}/{old}", f"{self.path}/{job}")
            else:
                self._check_spare(old)
                os.replace(old, job, src_dir_fd=self._lock.folder, dst_dir_fd=self._lock.folder)
        except OSError:  # the new one is there already, and has to be emptied
            with contextlib.suppress(OSError):
                os.rmdir(f"{self.path}/{old}")
            return False
        return True

    def _check_spare(self, job: str) -> None:
        """It is ours, and empty without its `.done`: the next job trusts what it finds there. Raises OSError."""
        folder = os.open(job, READ_FOLDER, dir_fd=self._lock.folder)
        try:
            if not self._is_ours(os.fstat(folder)):
                raise PermissionError(errno.EPERM, "the directory is another user's", job)
            os.unlink(DONE, dir_fd=folder)
            if os.listdir(folder):
                raise OSError(errno.ENOTEMPTY, "the directory is not empty", job)
        finally:
            os.close(folder)

    def _is_ours(self, directory: os.stat_result) -> bool:
        """Has no program of another user had it since we did? A job can make a `.done` of a linked input, which is
        ours as a file; the directory itself is the job's."""
        if directory.st_uid != os.geteuid():
            return False
        return self._user is None or directory.st_mode == _PLAIN


def owner_of(folder: str) -> WorkerId | None:
    """The id of the worker whose jobs folder this is or was. None if nobody had it, or it was copied from elsewhere."""
    with contextlib.suppress(OSError, Unreadable):
        owner = read_json(read_all(f"{folder}/{WORKER}"), FolderOwner)
        if (owner.node, owner.inode) == (os.uname().nodename, os.stat(folder).st_ino) and owner.worker_id.int:
            return WorkerId(owner.worker_id.bytes_le)
    return None


def _take_back(path: str) -> None:
    """From the user of a program that was interrupted. What it calls its result is none. Raises OSError."""
    folder = os.open(path, READ_FOLDER)
    try:
        os.fchown(folder, os.geteuid(), os.getegid())
        os.fchmod(folder, stat.S_IRWXU)
        empty(folder, [DONE])
    finally:
        os.close(folder)


class JobDir:
    """One job's directory: place, run elsewhere, then `reopen`, `pack` or `pack_large`, and `seal` or `keep`.

    All raise Refused.
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
        """Inputs that are links to files of ours: their devices and inodes. Those come back, whatever a program of
        another user calls them."""
        self.is_marked = False
        """The job's result is here: ours, and not what its program calls so."""
        self.request = b""
        """The digest of what runs here, if it is known."""
        self.unpacked_bytes = 0
        """What the files have together that `pack` or `pack_large` put into an archive."""
        self._job = job
        self._ledger = ledger
        self._inputs: frozenset[str] = frozenset()
        self._folder = -1
        self._names: list[str] = []
        self._found: list[FoundFile] | None = []
        self._packed = ""
        """Where the archive is until the rest is removed, if it was written to the disk."""

    def place(self, files: Sequence[InputFile], bring: Bring | None = None) -> None:
        """Write the inputs, whose names were checked. What came beside the frame is put there by `bring`, which says
        whether the file is the job's own."""
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
        """Copy a program in that is open; returns where it is now. It counts as an input."""
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
        """All is in place, and the program begins: from now on the directory is its user's."""
        if self._user is not None:
            try:
                os.chown(self.path, self._user.uid, self._user.gid, follow_symlinks=False)
            except OSError as error:
                raise refused(error, "the job's directory cannot be given to its user") from None

    def _place_for(self, user: User, files: Sequence[InputFile], bring: Bring | None) -> None:
        """Inputs, and the folders on their way, are the program's user's. Nobody but us should be here yet; if that is
        wrong, still no link is followed, and nothing that was here is given away. Raises OSError."""
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
        """See what is there after the job. True if all of it may be handled at once, False if it takes a thread."""
        try:
            self._mend()
            self._names = os.listdir(self.path)
            if self._names:
                self._folder = os.open(self.path, READ_FOLDER)
                self._found = self._look(SMALL_FILES, SMALL_BYTES)
        except OSError as error:
            raise refused(error, "the job's directory cannot be read") from None
        return self._found is not None and self._is_quickly_emptied()

    def pack(self, bytes_max: int) -> bytes | None:
        """What the program made, as a ZIP; None if it made nothing. Raises TooBig, also for what may become small."""
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
            raise refused(error, "what the program made cannot be read") from None
        if writer is None:
            return None
        self.unpacked_bytes = writer.unpacked_bytes
        return writer.finish()

    def pack_large(self, bytes_max: int, go_on: Callable[[], None]) -> BlobRef:
        """The same, straight to the disk. Raises TooBig if that is more than `bytes_max`, and what `go_on` raises."""
        from wakugumi.adapters.zip.write_file import FileZip

        path = f"{self.path}/.waku-{os.urandom(8).hex()}"  # Hidden: it is not packed itself.
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
            raise refused(error, "what the program made cannot be packed") from None
        self._packed = path
        return ref

    def packed(self) -> bytes:
        """The archive that was written to the disk, as it is small after all."""
        try:
            data = read_all(self._packed)
            os.unlink(self._packed)
        except OSError as error:
            raise refused(error, "what the program made cannot be packed") from None
        return data

    def is_large(self) -> bool:
        """Does it take long to pack what the program made? That is found out quickly: not all of it is looked at."""
        left, count = LARGE_WORK_BYTES, 0
        try:
            for found in self._made():
                left, count = left - found.status.st_size, count + 1
                if left < 0 or count > LARGE_WORK_FILES_MAX:
                    return True
        except OSError as error:
            raise refused(error, "what the program made cannot be read") from None
        return False

    def produced_bytes(self) -> int:
        """What `pack` would put into the archive, before packing."""
        try:
            return sum(found.status.st_size for found in self._made())
        except OSError as error:
            raise refused(error, "what the program made cannot be read") from None

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
        done = Done(**msgspec.structs.asdict(result), archive_bytes=len(archive), archive_crc=crc32(archive))
        self.mark(encode(done))
        return encode(msgspec.structs.replace(result, output_archive=archive))

    def seal_large(
        self, result: JobResult, archive: bytes | BlobRef | None, texts: Mapping[str, tuple[int, bytes]]
    ) -> bytes:
        """The same where some of it does not fit a frame: the archive that was packed to the disk, and those of stdout
        and stderr that are given here as open files, and what is to be added to them."""
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
        done = Done(**msgspec.structs.asdict(result), archive_bytes=len(archive), archive_crc=crc32(archive))
        self.mark(encode(done))
        return encode(msgspec.structs.replace(result, output_archive=archive))

    def keep(self, result: JobResult, capture: Capture) -> bytes:
        """Leave everything where it is, stdout and stderr beside it, and mark the job as done."""
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
        """The job is done. `content` is a record as JSON."""
        if self.request:
            content = content[:-1] + _marked(self.request)
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
        """All of it, as far as that is possible."""
        self.close()
        with contextlib.suppress(OSError):
            remove_tree(self.path)

    def _mend(self) -> None:
        """The program may have locked its directory, removed it, or put something else in its place."""
        try:
            if self._user is not None:  # Whoever is that user, too, cannot get in any more.
                os.chown(self.path, os.geteuid(), os.getegid(), follow_symlinks=False)
            mode = os.lstat(self.path).st_mode
        except FileNotFoundError:
            mode = 0
        if mode == _PLAIN:
            return
        if stat.S_ISDIR(mode):
            os.chmod(self.path, stat.S_IRWXU)  # noqa: PTH101
        else:
            remove_tree(self.path)
            os.mkdir(self.path, 0o700)

    def _made(self) -> Iterable[FoundFile]:
        """Everything the program made. If it is much, it is looked for again: a list of it might be too long."""
        return self._walk() if self._found is None else self._found

    def _walk(self) -> Iterable[FoundFile]:
        if self._user is None:
            return walk(self._folder, self._inputs)
        return walk(self._folder, self._inputs, self._user.uid, self.lent())

    def _is_quickly_emptied(self) -> bool:
        """What is no output has to be removed all the same. Of a link only the name is."""
        if len(self._inputs) > SMALL_FILES:
            return not self._names
        left = _QUICKLY_REMOVED_BYTES
        for name in (*self._inputs, *[name for name in self._names if name[0] == "."]):
            with contextlib.suppress(OSError):  # the program may have removed it
                status = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
                left -= status.st_size if status.st_nlink == 1 else 0
        return left >= 0

    def _look(self, files_max: int, bytes_max: int) -> list[FoundFile] | None:
        """Everything the program made; None if there is more than that."""
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
    """The folder of this name below an open one, open; `made` are those that we made and gave to the user. Raises
    OSError, also if one is there that we did not make."""
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
    """A file that we just put there gets this owner and mode. Raises OSError."""
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


def _marked(request: bytes) -> bytes:
    """How a `.done` ends that says of which request it is."""
    return b',"Request":"%s"}' % request.hex().encode()
