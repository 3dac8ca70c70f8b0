"""How is a body of any size received once, read by several, and kept or dropped?

    filled by one         in memory up to `memory_max`, then in a file without a name: none is left on the disk,
                          whatever happens to the process. A small body costs no thread; of a large one a part is
                          written, and hashed if wished, in a thread while the next part is received
    read by any number    from the beginning or in part, and on as it grows
    kept, or not          a whole one can get a name in the folder

Gateways of one state share a folder; there a file's name begins with its job.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Final, TypeVar

from wakugumi.adapters.files import READ, Refusing, free_on_disk, refused, sync_folder, write_all
from wakugumi.adapters.loop.threads import ended
from wakugumi.core.gateway.rows import Content
from wakugumi.core.ids import JobId
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.runner import DISK_FREE_MIN_BYTES
from wakugumi.limits.units import KIB, MIB

T = TypeVar("T")

_WRITE_BYTES: Final = 1 * MIB
"""Bytes per write: a thread per piece of a socket would cost more than the disk."""
_READ_BYTES: Final = 256 * KIB
_THREADS: Final = 4
NAMELESS: Final = getattr(os, "O_TMPFILE", 0)
_OPEN_FILES: Final = "/proc/self/fd"
_TEMPORARY: Final = "tmp-"
"""Prefix where files without names cannot be used: such files are removed when they are a day old."""
_TEMPORARY_S: Final = 86_400.0


class Spools:
    """The folder, and the threads that write and read there. Close it."""

    def __init__(
        self,
        folder: Path,
        *,
        memory_max: int = INLINE_FILE_BYTES_MAX,
        free_bytes: Callable[[], int] | None = None,
        refuse: Callable[[OSError, str], Refused] = refused,
    ) -> None:
        """`free_bytes` returns the free room of the disk; `refuse` tells an error of the disk. Raises ConfigError."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"the folder {folder} cannot be used: {error.strerror}", "name another") from None
        self.folder = folder
        self.memory_max = memory_max
        self._refusing = Refusing("the body cannot be written", refuse)
        self._free_bytes = free_bytes or partial(free_on_disk, folder)
        self._pool = ThreadPoolExecutor(_THREADS, "spool")

    def new(self, bytes_max: int, *, is_answer: bool = False, is_hashed: bool = False) -> Spool:
        """An answer may use the room that is kept free for answers; a body may not."""
        return Spool(self, bytes_max, is_answer=is_answer, is_hashed=is_hashed)

    def open(self, content: Content, start: int = 0, size: int | None = None) -> bytes | SpoolReader:
        """The content of a row, or a part of it. Raises Lost if the file is gone, Refused if it cannot be opened."""
        if content.data is not None:
            return content.data[start : None if size is None else start + size]
        with self._refusing:  # Such as a lack of descriptors: the file may well be there.
            try:
                file = os.open(self.folder / content.file, READ)
            except FileNotFoundError:
                raise Lost("a stored content is gone") from None
        spool = Spool(self, content.size, file=file)
        reader = spool.pieces(start, size)
        spool.close()
        return reader

    def check_room(self, size: int) -> None:
        """Rows, the answers of accepted jobs and the output of programs need the rest of the disk. Raises Refused."""
        with self._refusing:
            if (free := self._free_bytes()) - size < DISK_FREE_MIN_BYTES:
                text = f"{size} bytes more would leave less than {DISK_FREE_MIN_BYTES} of the {free} that are free"
                raise OSError(errno.ENOSPC, text)

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
        Raises Refused for errors of the disk, or without a thread."""
        return await self.ended(self.begin(work))

    async def ended(self, working: asyncio.Future[T]) -> T:
        with self._refusing:
            return await ended(working)

    def begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        with self._refusing:
            try:
                return asyncio.get_running_loop().run_in_executor(self._pool, work)
            except RuntimeError as error:  # The machine has no thread to spare.
                raise OSError(errno.EAGAIN, str(error)) from None

    def close(self) -> None:
        self._pool.shutdown(wait=False)


class Spool:
    """One body or answer."""

    def __init__(
        self, spools: Spools, bytes_max: int, *, is_answer: bool = False, is_hashed: bool = False, file: int = -1
    ) -> None:
        """An open `file` is a whole body of `bytes_max`, which the spool closes."""
        self._spools = spools
        self._bytes_max = bytes_max
        self._is_answer = is_answer
        self._held: list[bytes] = []
        """Bytes in memory: all of a small body, or the end of a large one that is not written yet."""
        self._held_bytes = 0
        self._is_small = file < 0
        self._is_hashed = is_hashed
        self._file = file
        self._temporary = ""
        self._writing: asyncio.Future[None] | None = None
        self._users = 1
        """Users of the file, the writer included: the last one closes it."""
        self._has_ended = file >= 0
        self._failure: Exception | None = None
        self._more: asyncio.Event | None = None
        """Set when more bytes were received, for waiting readers."""
        self.size = bytes_max if file >= 0 else 0
        """Bytes received so far."""
        self.is_held = False
        """Readers do not get the last byte yet."""

    @property
    def is_whole(self) -> bool:
        return self._has_ended and self._failure is None

    @property
    def data(self) -> bytes | None:
        """All bytes, if the body is whole and small."""
        return self._joined() if self.is_whole and self._is_small else None

    @property
    def sha256(self) -> str:
        """Of a whole large body, if a hash was wished."""
        return self._digest.hexdigest() if self._is_hashed and not self._is_small else ""

    async def begin(self, pieces: AsyncIterator[bytes]) -> bool:
        """Receives until the body is whole, or too large for memory. True if it is whole. An error is raised here and
        at every reader."""
        return await self._receive(pieces, self._spools.memory_max, None)

    async def fill(self, pieces: AsyncIterator[bytes], came: Callable[[int], None] | None = None) -> None:
        """Receives the rest, or all. `came` is called with the size of each piece."""
        if not self._is_small or not await self._receive(pieces, self._spools.memory_max, came):
            await self._receive(pieces, _WRITE_BYTES - 1, came)

    def pieces(self, start: int = 0, size: int | None = None) -> SpoolReader:
        """All bytes, or a part, as they are received. Raises Lost if the spool is closed, or has failed."""
        if self._users == 0 or self._failure is not None:
            raise Lost(f"what was to be passed on ended: {self._failure or 'it is closed'}")
        self._users += 1
        return SpoolReader(self, start, size)

    def release(self, error: Exception | None = None) -> None:
        """Readers get the last byte; with an error they get that instead."""
        if error is None:
            self.is_held = False
        else:
            self._failure = error
        self._tell()

    async def keep(self, job: JobId) -> Content:
        """Gives the content a name, for good: it is on the disk before this returns. Raises Refused."""
        if (data := self.data) is not None:
            return Content(len(data), data)
        name = f"{job.hex()}-{secrets.token_hex(8)}"

        def link() -> None:
            os.fdatasync(self._file)
            self._link(name)
            sync_folder(self._spools.folder)

        await self._name(name, link)
        return Content(self.size, None, name)

    async def name(self) -> Path:
        """Gives the content a name, which is the caller's; a small body is written before. Raises Refused."""
        path = self._spools.folder / f"received-{secrets.token_hex(16)}"

        def link() -> None:
            if self._is_small:
                self._spill()
            self._link(path.name)

        await self._name(path.name, link)
        return path

    async def _name(self, name: str, link: Callable[[], None]) -> None:
        """A name that its caller does not learn, because it was cancelled or a sync failed, is removed."""
        try:
            await self._spools.beside(link)
        except BaseException:
            self._spools.remove(name)
            raise

    # In one thread of the caller, instead of `begin` and `fill`. All raise OSError.

    def write(self, data: bytes) -> None:
        """Also raises Refused if the body is too large."""
        self._take(data)
        if self._held_bytes > (self._spools.memory_max if self._is_small else _WRITE_BYTES):
            self._spill()

    def finish(self) -> None:
        """The body is whole."""
        if not self._is_small:
            self._spill()
        self._has_ended = True

    def end(self, size: int) -> bytes:
        """The last bytes of a whole body."""
        at = max(0, self.size - size)
        return self._joined()[at:] if self._is_small else os.pread(self._file, self.size - at, at)

    def file(self) -> IO[bytes]:
        """A whole large body, to be changed and closed by the caller before it gets a name."""
        return open(os.dup(self._file), "r+b")

    def in_use(self) -> contextlib.closing[Spool]:
        """A close meanwhile waits for the end of this use."""
        self._users += 1
        return contextlib.closing(self)

    def close(self) -> None:
        """Removes a user."""
        self._users -= 1
        if self._users == 0 and self._file >= 0:
            os.close(self._file)
            self._file = -1
            if self._temporary:
                with contextlib.suppress(OSError):
                    os.unlink(self._temporary)

    async def next_piece(self, at: int, size: int) -> bytes:
        """For a reader: at most `size` bytes at this position, once received; empty at the end. Raises Lost if the body
        ends before it is whole."""
        while size > 0:
            if (more := self._more) is None:
                more = self._more = asyncio.Event()
            end = min(at + size, self.size - self.is_held)
            piece = await self._read(at, end)
            if piece:
                return piece
            if self._failure is not None:
                raise Lost(f"what was to be passed on ended: {self._failure}")
            if self._has_ended and at < end:
                raise Lost("a stored content is shorter than it was")
            if self._has_ended and not self.is_held:
                break
            await more.wait()
        return b""

    async def _receive(self, pieces: AsyncIterator[bytes], held_max: int, came: Callable[[int], None] | None) -> bool:
        """Receives all, or of a small body more than `held_max`. A write goes on while the next bytes are received."""
        try:
            async for piece in pieces:
                if came is not None:
                    came(len(piece))
                self._take(piece)
                if self._held_bytes > held_max:
                    await self._write()
                    if self._is_small:
                        await self._written()
                        self._is_small = False
                        return False
            if not self._is_small:
                await self._write()
                await self._written()
        except BaseException as error:
            self._failure = error if isinstance(error, Exception) else Lost("it was given up")
            try:
                with contextlib.suppress(Refused):
                    await self._written()
            finally:
                self._held.clear()
                self._tell()
            raise
        self._has_ended = True
        self._tell()
        return True

    def _take(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self._bytes_max:
            text = f"more than {self._bytes_max} bytes were received"
            raise Refused("too-big", text, "send less, or by `waku submit --file`")
        self._held.append(piece)
        self._held_bytes += len(piece)

    def _spill(self) -> None:
        """Writes what is held, in this thread."""
        self._append(self._held)
        self._held, self._held_bytes, self._is_small = [], 0, False

    async def _write(self) -> None:
        """Begins to write what is held, after the write before."""
        await self._written()
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            self._writing = self._spools.begin(lambda: self._append(held))
            self._writing.add_done_callback(lambda _: self._tell())

    async def _written(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            await self._spools.ended(writing)
            self._tell()

    def _append(self, held: list[bytes]) -> None:
        """In a thread."""
        if not self._is_answer:
            self._spools.check_room(sum(map(len, held)))
        if self._file < 0:
            self._make_file(self._spools.folder)
        for piece in held:
            if self._is_hashed:
                self._digest.update(piece)
            write_all(self._file, piece)

    def _make_file(self, folder: Path) -> None:
        self._digest = hashlib.sha256()
        try:
            os.stat(_OPEN_FILES)  # Where /proc is not mounted, a file without a name cannot get one.
            self._file = os.open(folder, os.O_RDWR | NAMELESS | os.O_CLOEXEC, 0o600)
        except OSError:
            self._temporary = f"{folder}/{_TEMPORARY}{secrets.token_hex(16)}"
            self._file = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def _link(self, name: str) -> None:
        """Raises OSError."""
        assert self.is_whole
        target = self._spools.folder / name
        if self._temporary:
            os.link(self._temporary, target)
        else:
            # With a descriptor, which is ignored here, Python uses the call that follows the link in /proc.
            os.link(f"{_OPEN_FILES}/{self._file}", target, src_dir_fd=self._file, follow_symlinks=True)

    async def _read(self, at: int, end: int) -> bytes:
        if at >= end:
            return b""
        if self._is_small:
            return self._joined()[at:end]
        return await self._spools.beside(lambda: os.pread(self._file, min(_READ_BYTES, end - at), at))

    def _joined(self) -> bytes:
        if len(self._held) != 1:
            self._held = [b"".join(self._held)]
        return self._held[0]

    def _tell(self) -> None:
        if self._more is not None:
            self._more.set()
            self._more = None


class SpoolReader:
    """A reader of a spool. Close it, also if no piece was read. Another task may close it while a piece is being read:
    the close then waits for the piece."""

    def __init__(self, spool: Spool, start: int, size: int | None) -> None:
        self._spool: Spool | None = spool
        self._at = start
        self._left = sys.maxsize if size is None else size
        self._is_reading = self._is_closing = False

    def __aiter__(self) -> SpoolReader:
        return self

    async def __anext__(self) -> bytes:
        if self._spool is None or self._is_closing:
            raise StopAsyncIteration
        self._is_reading = True
        piece = b""
        try:
            piece = await self._spool.next_piece(self._at, self._left)
        finally:
            self._is_reading = False
            if not piece or self._is_closing:
                self.close()
        if not piece:
            raise StopAsyncIteration
        self._at += len(piece)
        self._left -= len(piece)
        return piece

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        self._is_closing = True
        if self._spool is not None and not self._is_reading:
            self._spool.close()
            self._spool = None
