"""How do a job's files travel: in its frame, as a blob beside it, or out of a cache? (SPEC C3–C5)

    up to 256 KiB             in the frame, while all of them fit one
    larger                    by reference; the bytes stay where they are until a leader asks for them (`uploads`)
    Cached("dataset-v1")      the worker's own copy, by the cache's id

The same files give the same entries in any run, whether they are bytes, text or a Path. All calls read the disk in the
calling thread.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from wakugumi.core.names import check_cache_id, check_file_names
from wakugumi.errors import Refused, bad_request
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.wire import FILES_PER_JOB_MAX, PAYLOAD_BYTES_MAX
from wakugumi.wire.messages.job import InputFile
from wakugumi.wire.messages.references import BlobRef

READ_IN_THREAD_BYTES: Final = 64 * 1024
"""Files up to this size are read in place: a thread would take longer."""
_READ_IN_THREAD_FILES: Final = 64
_REMEMBERED_MAX: Final = 10_000
"""Files whose SHA-256 is remembered: some 300 bytes each."""
SETTLED_S: Final = 0.1
"""A file written this recently may be written again with the same time stamp: clocks of file systems tick every 10 ms
at worst. Its SHA-256 is not remembered."""


class Cached(msgspec.Struct, frozen=True):
    """A file that the workers have already, in the cache with this id; its name there is its name in the job."""

    cache_id: str

    def __post_init__(self) -> None:
        check_cache_id(self.cache_id)


Mark: TypeAlias = tuple[int, int, int, int, int]
"""State of a file: device, inode, size, times of content and of inode."""


class LocalFile(msgspec.Struct, frozen=True, gc=False):
    """A file on this machine, as it was when it was read."""

    path: str
    mark: Mark

    def check(self, ref: BlobRef) -> None:
        """Raises Refused if the content has changed. A touched or replaced file is read again to find out."""
        try:
            found = os.stat(self.path)
            if _mark(found) == self.mark or (found.st_size == ref.size and ref_of_file(self.path, _ignore) == ref):
                return
        except OSError as error:
            raise bad_request(f"the input {self.path} is gone since it was handed in: {error.strerror}") from None
        raise bad_request(f"the input {self.path} was changed since it was handed in")


class InputBlob(msgspec.Struct, frozen=True, gc=False):
    """Content named by its SHA-256, and its source on this machine in case a leader asks for it."""

    name: str
    ref: BlobRef
    source: LocalFile | bytes

    @property
    def size(self) -> int:
        return self.ref.size

    @property
    def is_in_memory(self) -> bool:
        return isinstance(self.source, bytes)


Content: TypeAlias = bytes | str | Path | Cached | InputBlob
"""Content of a file: bytes, text, the file at this path at the time of the submit, the file of this name in a cache, or
a large file as it was when it was read."""

Attached: TypeAlias = Mapping[str, InputBlob]
"""Content by SHA-256."""
NOTHING: Final[Attached] = {}


class JobFiles(msgspec.Struct, frozen=True):
    """Files of a job, ready to be named in its request, in the order of their names."""

    entries: Sequence[InputFile] = ()
    attached: Attached = NOTHING

    def merged_with(self, other: JobFiles) -> JobFiles:
        """Both; if they share a name, the other's counts. Raises Refused if their names conflict."""
        merged = {entry.name: entry for entry in (*self.entries, *other.entries)}
        if len(merged) > len(other.entries):
            check_file_names(merged)
        entries = [merged[name] for name in sorted(merged)]
        known = {**self.attached, **other.attached}
        return JobFiles(entries, {entry.sha256: known[entry.sha256] for entry in entries if entry.sha256})

    def shrunk_by(self, excess_bytes: int) -> JobFiles | None:
        """Save this many bytes of JSON: the largest files become references. None if that is not enough."""
        inline = [entry for entry in self.entries if entry.content is not None]
        chosen: set[str] = set()
        for entry in sorted(inline, key=_largest_first):
            if excess_bytes <= 0:
                break
            assert entry.content is not None
            if (saved := _saved_bytes(len(entry.content))) > 0:
                chosen.add(entry.name)
                excess_bytes -= saved
        if excess_bytes > 0:
            return None
        attached = dict(self.attached)
        entries: list[InputFile] = []
        for entry in self.entries:
            if entry.name in chosen:
                assert entry.content is not None
                blob = InputBlob(entry.name, ref_of_bytes(entry.content), entry.content)
                attached.setdefault(blob.ref.sha256, blob)
                entries.append(_by_reference(blob))
            else:
                entries.append(entry)
        return JobFiles(entries, attached)


NO_FILES: Final = JobFiles()


def ref_of_bytes(content: bytes) -> BlobRef:
    from wakugumi.adapters.blobs import store

    return store.ref_of_bytes(content)


def ref_of_file(path: str, on_bytes: Callable[[int], None]) -> BlobRef:
    from wakugumi.adapters.blobs import store

    return store.ref_of_file(path, on_bytes)


class Reading(msgspec.Struct, eq=False):
    """A file that is being read for its SHA-256."""

    name: str
    total_bytes: int
    done_bytes: int = 0


class InputContents:
    """Reads files for the jobs of one client. Any number of threads may call it at once."""

    def __init__(self) -> None:
        self.readings: dict[int, Reading] = {}
        self._known: OrderedDict[Mark, str] = OrderedDict()
        self._busy: dict[Mark, Future[str]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Threads that read a file stop soon."""
        self._closed = True

    def load(self, files: Mapping[str, Content]) -> JobFiles:
        """Raises Refused, or TypeError for a value that is no content."""
        if len(files) > FILES_PER_JOB_MAX:
            raise bad_request(f"{len(files)} files: at most {FILES_PER_JOB_MAX} can go with a job")
        check_file_names(files)
        names = sorted(files)
        sizes = {name: size for name in names if (size := _size(name, files[name])) is not None}
        inline = _inline(sizes)
        entries: list[InputFile] = []
        attached: dict[str, InputBlob] = {}
        for name in names:
            content = files[name]
            if isinstance(content, Cached):
                entries.append(InputFile(name, content.cache_id))
                continue
            if isinstance(content, InputBlob):
                attached.setdefault(content.ref.sha256, content)
                entries.append(InputFile(name, sha256=content.ref.sha256, size=content.ref.size))
                continue
            data = _read(content) if name in inline else None
            if data is not None:
                entries.append(InputFile(name, None, data))
            else:
                blob = self.by_reference(name, content)
                attached.setdefault(blob.ref.sha256, blob)
                entries.append(_by_reference(blob))
        return JobFiles(entries, attached)

    def by_reference(self, name: str, content: bytes | str | Path) -> InputBlob:
        """Content by reference, however small. Raises Refused."""
        if isinstance(content, os.PathLike):
            ref, file = self.ref_of(content)
            return InputBlob(name, ref, file)
        data = _bytes(content)
        return InputBlob(name, ref_of_bytes(data), data)

    def ref_of(self, path: str | os.PathLike[str]) -> tuple[BlobRef, LocalFile]:
        """A file's SHA-256, read once while the file does not change. Raises Refused."""
        real = os.path.realpath(path)
        mark = _mark_of(real)
        with self._lock:
            known = self._known.get(mark)
            if known is not None:
                self._known.move_to_end(mark)
                return BlobRef(known, mark[2]), LocalFile(real, mark)
            reading = self._busy.get(mark)
            is_ours = reading is None
            if reading is None:
                reading = self._busy[mark] = Future()
        if is_ours:
            try:
                reading.set_result(self._hash(real, mark))
            except BaseException as error:
                reading.set_exception(error)
            finally:
                with self._lock:
                    del self._busy[mark]
        return BlobRef(reading.result(), mark[2]), LocalFile(real, mark)

    def _hash(self, real: str, mark: Mark) -> str:
        row = self.readings[id(mark)] = Reading(os.path.basename(real), mark[2])
        began = time.time_ns()

        def on_bytes(count: int) -> None:
            row.done_bytes += count
            if self._closed:
                raise Refused("closed", "the client was closed while it read a file")

        try:
            ref = ref_of_file(real, on_bytes)
        except OSError as error:
            raise bad_request(f"the input {real} cannot be read: {error.strerror or error}") from None
        finally:
            del self.readings[id(mark)]
        if _mark_of(real) != mark or ref.size != mark[2]:
            raise bad_request(f"the input {real} was changed while it was read")
        if max(mark[3], mark[4]) < began - SETTLED_S * 1e9:
            with self._lock:
                self._known[mark] = ref.sha256
                if len(self._known) > _REMEMBERED_MAX:
                    self._known.popitem(last=False)
        return ref.sha256


def must_wait_for_disk(files: Mapping[str, Content]) -> bool:
    """Are there so many or so large files that reading them would hold up a loop?"""
    if len(files) > _READ_IN_THREAD_FILES:
        return True
    total = 0
    for content in files.values():
        if isinstance(content, os.PathLike):
            try:
                total += os.stat(content).st_size
            except OSError:
                continue  # `load` reports the error.
        elif isinstance(content, bytes | str) and len(content) > INLINE_FILE_BYTES_MAX:
            return True
    return total > READ_IN_THREAD_BYTES


def _inline(sizes: Mapping[str, int]) -> set[str]:
    """Names for the frame: small files, without the largest of them if together they do not fit."""
    small = sorted((-size, name) for name, size in sizes.items() if size <= INLINE_FILE_BYTES_MAX)
    total = sum(_base64_bytes(-size) for size, _ in small)
    at = 0
    while total > PAYLOAD_BYTES_MAX:
        total -= _base64_bytes(-small[at][0])
        at += 1
    return {name for _, name in small[at:]}


def _size(name: str, content: object) -> int | None:
    """None for content that never goes into a frame. Raises TypeError for other types, Refused for what is no file."""
    match content:
        case Cached() | InputBlob():
            return None
        case str() | bytes() | bytearray() | memoryview():
            return len(_bytes(content))
        case os.PathLike():
            return _mark_of(os.fspath(content))[2]
        case _:
            raise TypeError(f"the content of {name!r} is bytes, text, a Path or Cached, not {type(content).__name__}")


def _read(content: object) -> bytes | None:
    """None if the file has grown too large for a frame."""
    if not isinstance(content, os.PathLike):
        return _bytes(content)
    path = os.fspath(content)
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise bad_request(f"the input {path} is not a regular file")
            data = file.read(INLINE_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    return data if len(data) <= INLINE_FILE_BYTES_MAX else None


def _bytes(content: object) -> bytes:
    if isinstance(content, str):
        return content.encode(errors="surrogateescape")
    assert isinstance(content, bytes | bytearray | memoryview)
    return bytes(content)


def _mark_of(path: str) -> Mark:
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(found.st_mode):
        raise bad_request(f"the input {path} is not a regular file")
    return _mark(found)


def _mark(found: os.stat_result) -> Mark:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _ignore(_count: int) -> None:
    """Progress that is not shown."""


def _by_reference(blob: InputBlob) -> InputFile:
    return InputFile(blob.name, sha256=blob.ref.sha256, size=blob.ref.size)


def _largest_first(entry: InputFile) -> tuple[int, str]:
    return -len(entry.content or b""), entry.name


def _base64_bytes(size: int) -> int:
    return (size + 2) // 3 * 4


def _saved_bytes(size: int) -> int:
    """Bytes saved if an entry becomes a reference."""
    return len('"Content":""') + _base64_bytes(size) - len(f'"Sha256":"{"":64}","Size":{size}')


def _open_without_waiting(path: str, flags: int) -> int:
    """Opening a pipe would wait for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _unreadable(path: str, error: OSError | ValueError) -> Refused:
    why = error.strerror if isinstance(error, OSError) else None
    return bad_request(f"the input {path} cannot be read: {why or error}")
