"""Where is file content by its SHA-256? In a folder: each blob is written once, verified, then only read or removed.

    <folder>/ab/abcd…           a blob: complete and verified, or absent
    <folder>/.incoming/abcd…    a transfer in progress, or interrupted: it can be resumed

The disk is the truth: several processes may use one folder, and no state is cached. The access time of a file is the
time of the blob's last use; its other times and its content never change. All calls may be made from any thread and may
wait for the disk. Foreign errors become Refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from wakugumi.adapters.digest import Digest
from wakugumi.adapters.files import READ, Closing, Refusing, free_on_disk, refused, sync_folder, write_all
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.files import BLOB_RECENT_S
from wakugumi.limits.runner import DISK_FREE_MIN_BYTES
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.references import BlobRef

CHUNK_BYTES: Final = 1 * MIB
"""Bytes read, hashed and written at a time: with fewer, calls cost more than bytes."""
_TOUCH_S: Final = 60.0
"""Interval at which a use is noted: a thousand jobs with the same blob need not write its time a thousand times."""
LINKED_MIN_BYTES: Final = 4 * MIB
_LINKED_MAX_BYTES: Final = 64 * 1024 * MIB
"""Sizes of files that are linked and not copied. Verifying a larger one takes more than a minute, and its sender sees
no progress meanwhile."""
_INCOMING: Final = ".incoming"
_WRITE: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_HEX: Final = frozenset("0123456789abcdef")


def is_sha256(text: str) -> bool:
    """Whether it is a blob's name. No other text ever becomes part of a path."""
    return len(text) == 64 and _HEX.issuperset(text)


def ref_of_file(path: str | os.PathLike[str], on_bytes: Callable[[int], None] = lambda _: None) -> BlobRef:
    """Read a file once for its size and SHA-256. An exception of `on_bytes` ends it. Raises OSError."""
    with Closing(os.open(path, READ)) as file:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(0, "it is not a regular file")
        return ref_of_open(file, on_bytes)


def ref_of_open(file: int, on_bytes: Callable[[int], None]) -> BlobRef:
    """As `ref_of_file`, of an open file, whose position stays."""
    digest, at, room = hashlib.sha256(), 0, bytearray(CHUNK_BYTES)
    view = memoryview(room)
    while count := os.preadv(file, [room], at):
        digest.update(view[:count])
        at += count
        on_bytes(count)
    return BlobRef(digest.hexdigest(), at)


def ref_of_bytes(content: bytes) -> BlobRef:
    return BlobRef(hashlib.sha256(content).hexdigest(), len(content))


def link_into(folder: str, ref: BlobRef, source: Path) -> str | None:
    """Make a file that never changes the complete, unverified upload of a store: `begin` reads all of it. Returns its
    path; None if that cannot be: a transfer has begun, or the folder is on another file system, of another user, or no
    folder for uploads."""
    path = f"{folder}/{ref.sha256}"
    try:
        found = os.stat(folder, follow_symlinks=False)
        is_ours = found.st_mode == stat.S_IFDIR | stat.S_IRWXU and found.st_uid == os.geteuid()
        if (
            not is_ours
            or os.path.basename(folder) != _INCOMING
            or not LINKED_MIN_BYTES <= ref.size <= _LINKED_MAX_BYTES
        ):
            return None
        os.link(source, path, follow_symlinks=False)
    except OSError:
        return None
    return path


class StoredBlob(NamedTuple):
    """A blob in the folder."""

    sha256: str
    size: int
    used_at: float
    """Time of the last use, in seconds of the wall clock."""


class Incoming:
    """Content being written to disk, of which the first `at` bytes are there. All calls raise Refused.

    End it with `finish`, which verifies the content and moves it to its place in one step, with `close`, after which it
    can be resumed, or with `abandon`.
    """

    def __init__(self, ref: BlobRef, scratch: str, path: str) -> None:
        """Raises Refused("blob-busy") if another writer has it."""
        self.ref = ref
        self._scratch = scratch
        self._path = path
        self._digest = Digest()
        self.at = 0
        with self.refusing("a blob cannot be written"):
            self._file = os.open(scratch, _WRITE, 0o600)
            try:
                self._lock()
                self.read_received()
            except BaseException:
                os.close(self._file)
                self._file = -1
                raise

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes. More bytes than the size are refused; earlier bytes are kept."""
        if self.at + len(data) > self.ref.size:
            raise Refused("blob-broken", f"more than the {self.ref.size} bytes that were announced")
        with self.refusing("a blob cannot be written"):
            try:
                write_all(self._file, self.for_file(data))
            except OSError:
                with contextlib.suppress(OSError):
                    self.cut(self.at)
                raise
        self._digest.update(data)
        self.at += len(data)

    def restart(self) -> None:
        """Drop all received bytes."""
        with self.refusing("a blob cannot be written"):
            self._leave_link()
            self.cut(0)
        self._digest = Digest()
        self.at = 0

    def for_file(self, data: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview:
        """The part of the next bytes that belongs into the file: all."""
        return data

    def cut(self, size: int) -> None:
        """Drop all but the first bytes. Raises OSError."""
        os.ftruncate(self._file, size)
        os.lseek(self._file, size, os.SEEK_SET)

    def finish(self) -> None:
        """Verify the complete content and move it to its place. Broken content is removed."""
        if self.at < self.ref.size:
            self.close()
            raise Refused("blob-broken", f"{self.at} of {self.ref.size} bytes were received")
        if self._digest.hexdigest() != self.ref.sha256:
            self.abandon()
            raise Refused("blob-broken", "the content is not what its SHA-256 says")
        with contextlib.closing(self), self.refusing("a blob cannot be kept"):
            self.move(self._file, self._scratch, self._path)

    @staticmethod
    def move(file: int, scratch: str | Path, path: str) -> None:
        """Make a complete open file a blob. Raises OSError."""
        os.fdatasync(file)  # Once, at the end: an earlier start was measured, and is no faster.
        os.fchmod(file, 0o444)
        os.utime(file)  # Its times are those of the begun upload, which may be long ago.
        os.replace(scratch, path)
        sync_folder(os.path.dirname(path))

    @staticmethod
    def refusing(what: str) -> Refusing:
        """A context for work on the disk."""
        return Refusing(what)

    def close(self) -> None:
        """Leave the received bytes for a later resume."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def abandon(self) -> None:
        """Remove the received bytes."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._scratch)
            self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused("blob-busy", "another writer is writing the same content") from None
        found, named = os.fstat(self._file), None
        with contextlib.suppress(FileNotFoundError):
            named = os.stat(self._scratch, follow_symlinks=False)
        if named is None or found.st_ino != named.st_ino:  # The previous writer has just finished it.
            raise Refused("blob-busy", "another writer has just written the same content")

    def _leave_link(self) -> None:
        """Begin with a new file if this one is a link (`BlobStore.link`): the other owner needs its content."""
        if os.fstat(self._file).st_nlink > 1:
            os.unlink(self._scratch)
            os.close(self._file)
            self._file = os.open(self._scratch, _WRITE, 0o600)
            self._lock()

    def read_received(self) -> None:
        """Hash the bytes of earlier tries; drop them if they are too many."""
        received = os.fstat(self._file).st_size
        if received != self.ref.size:
            self._leave_link()
        if received > self.ref.size:
            os.ftruncate(self._file, 0)
        room = bytearray(CHUNK_BYTES)
        view = memoryview(room)
        while count := os.readv(self._file, [room]):
            self._digest.update(view[:count])
            self.at += count


class BlobStore:
    """All blobs of one folder."""

    def __init__(self, folder: Path, *, free_min_bytes: int = DISK_FREE_MIN_BYTES) -> None:
        """Raises ConfigError if the folder cannot be used."""
        self.folder = os.path.abspath(folder)
        self.sent_bytes = 0
        """Bytes sent over HTTP since the store was opened."""
        self.swept_bytes = self.budget_bytes = 0
        """Bytes of all blobs after the last `evict`, and the limit that it was called with."""
        self._free_min_bytes = free_min_bytes
        try:
            os.makedirs(f"{self.folder}/{_INCOMING}", 0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the folder for blobs {self.folder} cannot be used: {error.strerror}", "name one that you may write to"
            ) from None

    def path(self, sha256: str) -> str:
        """Path of the blob, present or not."""
        assert is_sha256(sha256)
        return f"{self.folder}/{sha256[:2]}/{sha256}"

    def scratch(self, sha256: str) -> str:
        """Path of the blob's transfer."""
        assert is_sha256(sha256)
        return f"{self.folder}/{_INCOMING}/{sha256}"

    def size(self, sha256: str) -> int | None:
        """Size of the blob; None if it is absent. Counts as a use."""
        path = self.path(sha256)
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError:
            return None
        if time.time() - status.st_atime > _TOUCH_S:
            with contextlib.suppress(OSError):
                os.utime(path, ns=(time.time_ns(), status.st_mtime_ns), follow_symlinks=False)
        return status.st_size

    def has(self, ref: BlobRef) -> bool:
        return self.size(ref.sha256) == ref.size

    def received(self, sha256: str) -> int:
        """Bytes received so far of a transfer; 0 if there is none."""
        try:
            return os.stat(self.scratch(sha256), follow_symlinks=False).st_size
        except OSError:
            return 0

    def begin(self, ref: BlobRef) -> Incoming:
        """Begin or resume a transfer. Raises Refused, also if there is no space for it."""
        path = self.path(ref.sha256)
        with Refusing("a blob cannot be written"):
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            free = free_on_disk(self.folder) - self._free_min_bytes
        if free < ref.size - self.received(ref.sha256):
            raise Refused("disk", f"no room for a blob of {ref.size} bytes: {max(0, free)} bytes are free")
        return Incoming(ref, self.scratch(ref.sha256), path)

    @property
    def incoming(self) -> Path:
        """Folder for files in progress. Files in it that were not written to for a while are removed."""
        return Path(self.folder, _INCOMING)

    def adopt(self, ref: BlobRef, source: Path) -> None:
        """Make a file in `incoming`, hashed while it was written, a blob. Raises Refused."""
        path = self.path(ref.sha256)
        with Refusing("a blob cannot be kept"):
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            with Closing(os.open(source, READ)) as file:
                Incoming.move(file, source, path)

    def open(self, sha256: str) -> int:
        """Open a blob: it can be read to its end even if it is removed meanwhile. Raises Refused."""
        try:
            self.size(sha256)
            return os.open(self.path(sha256), READ)
        except FileNotFoundError:
            raise Refused("no-blob", f"there is no blob {sha256}") from None
        except OSError as error:
            raise refused(error, "a blob cannot be read") from None

    def remove(self, sha256: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(sha256))

    def entries(self) -> Iterator[StoredBlob]:
        """All blobs, in no order. Blobs that are removed meanwhile may be left out."""
        with contextlib.suppress(OSError), os.scandir(self.folder) as folders:
            for folder in folders:
                if len(folder.name) != 2:
                    continue
                with contextlib.suppress(OSError), os.scandir(folder.path) as files:
                    for file in files:
                        if is_sha256(file.name):
                            with contextlib.suppress(OSError):
                                status = file.stat(follow_symlinks=False)
                                yield StoredBlob(file.name, status.st_size, status.st_atime)

    def begun(self) -> Iterator[StoredBlob]:
        """Received bytes of incomplete transfers, in no order. `used_at` is the time of the last byte."""
        with contextlib.suppress(OSError), os.scandir(f"{self.folder}/{_INCOMING}") as files:
            for file in files:
                if is_sha256(file.name):
                    with contextlib.suppress(OSError):
                        status = file.stat(follow_symlinks=False)
                        yield StoredBlob(file.name, status.st_size, status.st_mtime)

    @property
    def used_bytes(self) -> int:
        """Bytes of all blobs. Looks at each of them."""
        return sum(entry.size for entry in self.entries())

    def evict(
        self,
        bytes_max: int,
        is_held: Callable[[str], bool],
        now: float,
        unused_s: float | None = None,
        recent_s: float = BLOB_RECENT_S,
    ) -> list[StoredBlob]:
        """Remove blobs not used for `unused_s`, then the least recently used until the rest fits `bytes_max`.

        Held blobs stay, and blobs used in the last `recent_s`: their callers may be about to name them. `now` is of the
        wall clock. Returns the removed blobs.
        """
        found = sorted(self.entries(), key=lambda entry: entry.used_at)
        total = sum(entry.size for entry in found)
        removed: list[StoredBlob] = []
        for entry in found:
            is_old = unused_s is not None and now - entry.used_at > unused_s
            if now - entry.used_at < recent_s or not (is_old or total > bytes_max):
                break
            if is_held(entry.sha256) or not self._remove_unused(entry, now - recent_s):
                continue
            total -= entry.size
            removed.append(entry)
        self.swept_bytes, self.budget_bytes = total, bytes_max
        return removed

    def remove_abandoned(self, now: float, age_s: float) -> int:
        """Remove transfers without progress for so long. Returns their number."""
        removed = 0
        with contextlib.suppress(OSError):
            for name in os.listdir(f"{self.folder}/{_INCOMING}"):
                with contextlib.suppress(OSError):
                    removed += _remove_idle(f"{self.folder}/{_INCOMING}/{name}", now - age_s)
        return removed

    def _remove_unused(self, entry: StoredBlob, before: float) -> bool:
        """False if the blob was used since it was listed."""
        path = self.path(entry.sha256)
        try:
            if os.stat(path, follow_symlinks=False).st_atime > max(before, entry.used_at):
                return False
            os.unlink(path)
        except OSError:
            return False
        return True


def _remove_idle(path: str, before: float) -> bool:
    """Remove an old transfer unless a writer has it locked, in any process. Raises OSError then."""
    if os.stat(path, follow_symlinks=False).st_mtime > before:
        return False
    with Closing(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    return True
