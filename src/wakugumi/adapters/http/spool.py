"""How is a body received once and read by several tries? It is written here while it is received, and readers follow.

    filled by one         in memory up to SPOOL_MEMORY_BYTES, then in a file without a name: none is left on the disk,
                          whatever happens to the process
    read by any number    from the beginning, and on as it grows
    kept, or not          a whole one can get a name in the folder, and is flushed before

The folder is shared by all gateways of one state; a file's name begins with its job.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

from wakugumi.adapters.files import READ, free_on_disk, write_all
from wakugumi.core.gateway.rows import Content
from wakugumi.core.ids import JobId
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.limits.gateway import GATEWAY_BODY_BYTES_MAX, SPOOL_MEMORY_BYTES
from wakugumi.limits.runner import DISK_FREE_MIN_BYTES
from wakugumi.limits.units import KIB, MIB

T = TypeVar("T")

_WRITE_BYTES: Final = 1 * MIB
"""Bytes per write: a thread per piece of a socket would cost more than the disk."""
_READ_BYTES: Final = 256 * KIB
_THREADS: Final = 4
NAMELESS: Final = getattr(os, "O_TMPFILE", 0)
_TEMPORARY: Final = "tmp-"
"""Prefix where a file system has no files without names: such files are removed when they are a day old."""
_TEMPORARY_S: Final = 86_400.0


class Spools:
    """The folder, and the threads that write and read there. Close it."""

    def __init__(
        self, folder: Path, *, memory_max: int = SPOOL_MEMORY_BYTES, free_bytes: Callable[[], int] | None = None
    ) -> None:
        """`free_bytes` returns the free room of the disk. Raises ConfigError."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"the folder {folder} cannot be used: {error.strerror}", "name another") from None
        self.folder = folder
        self.memory_max = memory_max
        self._free_bytes = free_bytes or partial(free_on_disk, folder)
        self._pool = ThreadPoolExecutor(_THREADS, "spool")

    def new(self, bytes_max: int = GATEWAY_BODY_BYTES_MAX, *, is_answer: bool = False) -> Spool:
        """An answer may use the room that is kept free for answers; a body may not."""
        return Spool(self, bytes_max, is_answer=is_answer)

    def read(self, content: Content) -> bytes | AsyncIterator[bytes]:
        """The content of a row. The pieces raise Lost if the file is gone."""
        return content.data if content.data is not None else SpoolReader(_Stored(self, content))

    def open(self, content: Content) -> bytes | SpoolReader:
        """The content of a row, opened. Raises Lost if the file is gone."""
        if content.data is not None:
            return content.data
        stored = _Stored(self, content)
        stored.open()
        return SpoolReader(stored)

    def check_room(self) -> None:
        """Rows and the answers of accepted jobs need the rest of the disk. Raises OSError."""
        if self._free_bytes() < DISK_FREE_MIN_BYTES:
            raise OSError(errno.ENOSPC, "no room")

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.folder / name)

    def names(self, older_than_s: float) -> Iterator[tuple[str, JobId]]:
        """Files without a write for `older_than_s`, and their jobs; old temporary files are removed."""
        now = time.time()
        for entry in list(os.scandir(self.folder)):
            with contextlib.suppress(OSError, ValueError):
                age_s = now - entry.stat(follow_symlinks=False).st_mtime
                if entry.name.startswith(_TEMPORARY):
                    if age_s > _TEMPORARY_S:
                        os.unlink(entry.path)
                elif age_s >= older_than_s:
                    yield entry.name, JobId(bytes.fromhex(entry.name.partition("-")[0]))

    async def beside(self, work: Callable[[], T]) -> T:
        """Runs in a thread. A cancelled call waits for the work: a file must not be closed while a thread uses it.
        Raises Refused for errors of the disk."""
        try:
            working = asyncio.get_running_loop().run_in_executor(self._pool, work)
        except RuntimeError as error:  # The machine has no thread to spare.
            raise Refused("worker-error", f"the gateway cannot use its disk: {error}", "come again") from None
        try:
            return await asyncio.shield(working)
        except OSError as error:
            raise _refused(error) from None
        except asyncio.CancelledError:
            while not working.done():  # However often it is cancelled.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([working])
            raise

    def close(self) -> None:
        self._pool.shutdown(wait=False)


class Spool:
    """One body or answer."""

    def __init__(self, spools: Spools, bytes_max: int, *, is_answer: bool) -> None:
        self._spools = spools
        self._bytes_max = bytes_max
        self._is_answer = is_answer
        self._memory: bytearray | None = bytearray()
        self._file = -1
        self._temporary = ""
        self._users = 1
        """Users of the file, the writer included: the last one closes it."""
        self._has_ended = False
        self._failure: Exception | None = None
        self._more: asyncio.Event | None = None
        """Set when more bytes were received, for waiting readers."""
        self.size = 0
        """Bytes received so far."""
        self.is_held = False
        """Readers do not get the last byte yet."""

    @property
    def is_whole(self) -> bool:
        return self._has_ended and self._failure is None

    @property
    def data(self) -> bytes | None:
        """All bytes, if the body is whole and small."""
        return bytes(self._memory) if self.is_whole and self._memory is not None else None

    async def begin(self, pieces: AsyncIterator[bytes]) -> bool:
        """Receives until the body is whole, or too large for memory. True if it is whole. An error is raised here and
        at every reader."""
        try:
            async for piece in pieces:
                self._count(piece)
                assert self._memory is not None
                self._memory += piece
                if self.size > self._spools.memory_max:
                    await self._spools.beside(self._spill)
                    self._tell()
                    return False
        except BaseException as error:
            self._fail(error)
            raise
        self._has_ended = True
        self._tell()
        return True

    async def fill(self, pieces: AsyncIterator[bytes]) -> None:
        """Receives the rest."""
        waiting = bytearray()
        try:
            async for piece in pieces:
                self._count(piece)
                waiting += piece
                if len(waiting) >= _WRITE_BYTES:
                    await self._write(waiting)
                    waiting = bytearray()
            await self._write(waiting)
        except BaseException as error:
            self._fail(error)
            raise
        self._has_ended = True
        self._tell()

    def pieces(self) -> SpoolReader:
        """All bytes from the beginning, as they are received. Raises Lost if the spool is closed, or has failed."""
        if self._users == 0 or self._failure is not None:
            raise Lost(f"what was to be passed on ended: {self._failure or 'it is closed'}")
        self._users += 1
        return SpoolReader(self)

    def release(self, error: Exception | None = None) -> None:
        """Readers get the last byte; with an error they get that instead."""
        if error is None:
            self.is_held = False
        else:
            self._failure = error
        self._tell()

    async def keep(self, job: JobId) -> Content:
        """Gives the content a name, for good: it is on the disk before this returns. Raises Refused."""
        assert self.is_whole
        if (data := self.data) is not None:
            return Content(len(data), data)
        name = f"{job.hex()}-{secrets.token_hex(8)}"

        def link() -> None:
            os.fdatasync(self._file)
            folder = os.open(self._spools.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                # Only with a folder's descriptor does Python use the call that follows the link to a nameless file.
                source = self._temporary or f"/proc/self/fd/{self._file}"
                os.link(source, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=True)
                os.fsync(folder)
            finally:
                os.close(folder)

        await self._spools.beside(link)
        return Content(self.size, None, name)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """A close meanwhile waits for the end of this use."""
        self._users += 1
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """Removes a user."""
        self._users -= 1
        if self._users == 0 and self._file >= 0:
            os.close(self._file)
            self._file = -1
            if self._temporary:
                with contextlib.suppress(OSError):
                    os.unlink(self._temporary)

    async def next_piece(self, at: int) -> bytes:
        """For a reader: the bytes at this position, once received; empty at the end. Raises Lost if the body ends
        before it is whole."""
        while True:
            if (more := self._more) is None:
                more = self._more = asyncio.Event()
            piece = await self._read(at)
            if self.is_held:
                piece = piece[: max(0, self.size - 1 - at)]
            if piece:
                return piece
            if self._failure is not None:
                raise Lost(f"what was to be passed on ended: {self._failure}")
            if self._has_ended and not self.is_held:
                return b""
            await more.wait()

    def _count(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self._bytes_max:
            raise Refused(
                "too-big", f"more than {self._bytes_max} bytes were received", "send less, or by `waku submit --file`"
            )

    def _spill(self) -> None:
        """Moves the content from memory to the disk. In a thread."""
        folder = self._spools.folder
        assert self._memory is not None
        self._check_room()
        try:
            self._file = os.open(folder, os.O_RDWR | NAMELESS | os.O_CLOEXEC, 0o600)
        except OSError:
            self._temporary = f"{folder}/{_TEMPORARY}{secrets.token_hex(16)}"
            self._file = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        write_all(self._file, self._memory)
        self._memory = None

    async def _write(self, data: bytearray) -> None:
        if data:
            await self._spools.beside(lambda: self._append(data))
            self._tell()

    def _append(self, data: bytearray) -> None:
        self._check_room()
        write_all(self._file, data)

    def _check_room(self) -> None:
        if not self._is_answer:
            self._spools.check_room()

    async def _read(self, at: int) -> bytes:
        if self._memory is not None:
            return bytes(self._memory[at:])
        return await self._spools.beside(lambda: os.pread(self._file, _READ_BYTES, at))

    def _fail(self, error: BaseException) -> None:
        self._failure = error if isinstance(error, Exception) else Lost("it was given up")
        self._has_ended = True
        self._tell()

    def _tell(self) -> None:
        if self._more is not None:
            self._more.set()
            self._more = None


class _SpoolSource(Protocol):
    """The source of a SpoolReader."""

    async def next_piece(self, at: int) -> bytes: ...

    def close(self) -> None: ...


class SpoolReader:
    """A reader of a spool. Close it, also if no piece was read. Another task may close it while a piece is being read:
    the close then waits for the piece."""

    def __init__(self, source: _SpoolSource) -> None:
        self._source: _SpoolSource | None = source
        self._at = 0
        self._is_reading = self._is_closing = False

    def __aiter__(self) -> SpoolReader:
        return self

    async def __anext__(self) -> bytes:
        if self._source is None or self._is_closing:
            raise StopAsyncIteration
        self._is_reading = True
        piece = b""
        try:
            piece = await self._source.next_piece(self._at)
        finally:
            self._is_reading = False
            if not piece or self._is_closing:
                self.close()
        if not piece:
            raise StopAsyncIteration
        self._at += len(piece)
        return piece

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        self._is_closing = True
        if self._source is not None and not self._is_reading:
            self._source.close()
            self._source = None


class _Stored:
    """Content that was kept under a name."""

    def __init__(self, spools: Spools, content: Content) -> None:
        self._spools = spools
        self._content = content
        self._file = -1

    def open(self) -> None:
        """Raises Lost if the file is gone, Refused if the machine cannot open it now."""
        if self._file < 0:
            try:
                self._file = os.open(self._spools.folder / self._content.file, READ)
            except FileNotFoundError:
                raise Lost("a stored content is gone") from None
            except OSError as error:  # Such as a lack of descriptors: the file may well be there.
                raise _refused(error) from None

    async def next_piece(self, at: int) -> bytes:
        """Raises Lost."""
        self.open()
        piece = await self._spools.beside(lambda: os.pread(self._file, _READ_BYTES, at))
        if not piece and at < self._content.size:
            raise Lost("a stored content is shorter than it was")
        return piece

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _refused(error: OSError) -> Refused:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return Refused("disk-full", "there is no room on the gateway's disk", "free room on it (--state DIR)")
    return Refused("disk", f"the gateway's disk failed: {error.strerror or error}", "look at the gateway's disk")
