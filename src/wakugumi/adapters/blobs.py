"""Where is file content by its SHA-256? In a folder: each blob is written once, verified, then only read or removed.

    <folder>/ab/abcd…           a blob: whole and verified, or not there
    <folder>/.incoming/abcd…    on its way; whoever goes on with it later finds what has come so far

The disk is the truth: several processes may use one folder, and nothing is remembered that a look would tell. All calls
are made from any thread and may wait for the disk. Foreign errors become Refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wakugumi.adapters.files import READ, refused
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits import MIB
from wakugumi.wire.message import BlobRef

CHUNK_BYTES: Final = 1 * MIB
"""What is read, hashed and written at a time: with less, calls cost more than bytes."""
_INCOMING: Final = ".incoming"
_WRITE: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_HEX: Final = frozenset("0123456789abcdef")


def is_sha256(text: str) -> bool:
    """Is it the name of a blob? Nothing else ever becomes part of a path."""
    return len(text) == 64 and _HEX.issuperset(text)


def ref_of_file(path: str | os.PathLike[str], on_bytes: Callable[[int], None] = lambda _: None) -> BlobRef:
    """Read a file once, for its size and its SHA-256. What `on_bytes` raises ends it. Raises OSError."""
    digest = hashlib.sha256()
    size = 0
    with open(os.open(path, READ), "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "it is not a regular file")
        room = bytearray(CHUNK_BYTES)
        view = memoryview(room)
        while count := file.readinto(room):
            digest.update(view[:count])
            size += count
            on_bytes(count)
    return BlobRef(digest.hexdigest(), size)


def ref_of_bytes(content: bytes) -> BlobRef:
    return BlobRef(hashlib.sha256(content).hexdigest(), len(content))


class Incoming:
    """Content on its way to one place on the disk, of which the first `at` bytes have come. All calls raise Refused.

    It ends by `finish`, which verifies it and puts it in its place in one step, by `close`, after which someone may go
    on with it later, or by `abandon`.
    """

    def __init__(self, ref: BlobRef, scratch: str, path: str) -> None:
        """Raises Refused("blob-busy") if someone else is at it."""
        self.ref = ref
        self._scratch = scratch
        self._path = path
        self._digest = hashlib.sha256()
        self.at = 0
        try:
            self._file = os.open(scratch, _WRITE, 0o600)
            try:
                self._lock()
                self._read_on()
            except BaseException:
                os.close(self._file)
                self._file = -1
                raise
        except OSError as error:
            raise refused(error, "a blob cannot be written") from None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """The next bytes. More than was promised is refused, and what came before is kept."""
        if self.at + len(data) > self.ref.size:
            raise Refused("blob-broken", f"more than the {self.ref.size} bytes that were promised")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            os.ftruncate(self._file, self.at)
            raise refused(error, "a blob cannot be written") from None
        self._digest.update(data)
        self.at += len(data)

    def restart(self) -> None:
        """Forget what has come: it cannot be right."""
        try:
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
        except OSError as error:
            raise refused(error, "a blob cannot be written") from None
        self._digest = hashlib.sha256()
        self.at = 0

    def finish(self) -> None:
        """It has all come: verify it, and put it in its place. Broken content is removed."""
        if self.at < self.ref.size:
            self.close()
            raise Refused("blob-broken", f"{self.at} of {self.ref.size} bytes have come")
        if self._digest.hexdigest() != self.ref.sha256:
            self.abandon()
            raise Refused("blob-broken", "the content is not what its SHA-256 says")
        try:
            os.fdatasync(self._file)
            os.fchmod(self._file, 0o444)
            os.replace(self._scratch, self._path)
            _sync_folder(os.path.dirname(self._path))
        except OSError as error:
            self.close()
            raise refused(error, "a blob cannot be kept") from None
        self.close()

    def close(self) -> None:
        """Leave what has come for whoever goes on with it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def abandon(self) -> None:
        """Remove what has come."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._scratch)
            self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused("blob-busy", "the same content is just being written by someone else") from None
        found, named = os.fstat(self._file), None
        with contextlib.suppress(FileNotFoundError):
            named = os.stat(self._scratch, follow_symlinks=False)
        if named is None or found.st_ino != named.st_ino:  # who had it before us has just finished it
            raise Refused("blob-busy", "the same content has just been written by someone else")

    def _read_on(self) -> None:
        """What came in an earlier try counts, as far as it can be right: its hash begins anew."""
        if os.fstat(self._file).st_size > self.ref.size:
            os.ftruncate(self._file, 0)
        room = bytearray(CHUNK_BYTES)
        view = memoryview(room)
        while count := os.readv(self._file, [room]):
            self._digest.update(view[:count])
            self.at += count


class BlobStore:
    """All blobs of one folder."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigError if the folder cannot be used."""
        self.folder = os.path.abspath(folder)
        try:
            os.makedirs(f"{self.folder}/{_INCOMING}", 0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"the folder for blobs {self.folder} cannot be used: {error.strerror}") from None

    def path(self, sha256: str) -> str:
        """Where it is, if it is there."""
        assert is_sha256(sha256)
        return f"{self.folder}/{sha256[:2]}/{sha256}"

    def size(self, sha256: str) -> int | None:
        """How large it is; None if it is not there."""
        try:
            return os.stat(self.path(sha256), follow_symlinks=False).st_size
        except OSError:
            return None

    def has(self, ref: BlobRef) -> bool:
        return self.size(ref.sha256) == ref.size

    def begin(self, ref: BlobRef) -> Incoming:
        """Write a blob, or go on with it. Raises Refused."""
        path = self.path(ref.sha256)
        try:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        except OSError as error:
            raise refused(error, "a blob cannot be written") from None
        return Incoming(ref, f"{self.folder}/{_INCOMING}/{ref.sha256}", path)

    def open(self, sha256: str) -> int:
        """An open file of a blob: it can be read to its end, whatever is removed meanwhile. Raises Refused."""
        try:
            return os.open(self.path(sha256), READ)
        except FileNotFoundError:
            raise Refused("no-blob", f"there is no blob {sha256}") from None
        except OSError as error:
            raise refused(error, "a blob cannot be read") from None

    def remove(self, sha256: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(sha256))


def _sync_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
