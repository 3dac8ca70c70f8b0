"""How is the one file of a form received? Small files in memory, larger ones on disk while they are received.

After a failure no part stays: neither a file nor a thread that writes one. A small file costs no thread; of a large one
a piece is written and hashed in a thread while the next one is received. Inputs may use the free room of the disk
beyond DISK_FREE_MIN_BYTES; the rest is for the output of running programs.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from wakugumi.adapters.files import NEW, free_on_disk, refused, write_all
from wakugumi.adapters.http.page import HttpRefusal, HttpRequest
from wakugumi.adapters.loop.threads import begin, beside
from wakugumi.core.names import check_file_name
from wakugumi.errors import Refused, bad_request
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.http import FORM_BYTES_MAX
from wakugumi.limits.runner import DISK_FREE_MIN_BYTES
from wakugumi.limits.units import MIB
from wakugumi.wire.form import Data, FormPart, Multipart, boundary_of

FIELD: Final = "file"
FILE_NAME: Final = "input"
"""Name of a file whose sender gave none."""
_WRITTEN_BYTES: Final = 1 * MIB
"""Bytes per write: enough to make the cost of the thread negligible."""


class Received(NamedTuple):
    """A received file. The caller owns the path, and removes it."""

    file_name: str
    content: bytes | None
    """None if the file is on disk."""
    path: Path | None
    sha256: str
    """Empty if the file is in memory: its hash is not needed then."""
    size: int


async def receive_file(
    visit: HttpRequest,
    folder: Path,
    *,
    bytes_max: int,
    inline_max: int = INLINE_FILE_BYTES_MAX,
    came: Callable[[int], None] | None = None,
) -> Received:
    """Receives the file of a form with the field `file` alone. A file larger than `inline_max` goes into the folder.
    `came` is called with the size of each piece.

    Raises Refused (too large, too slow, no such form, no room on disk), or Lost if the sender is gone.
    """
    form = FileForm(visit)
    length = visit.content_length
    if length is not None and length > bytes_max + FORM_BYTES_MAX:
        raise too_large(length, bytes_max)
    if length is not None and length > inline_max + FORM_BYTES_MAX:
        _check_room(folder, length - FORM_BYTES_MAX)
    total = 0
    async with Sink(folder, bytes_max=bytes_max, inline_max=inline_max) as sink:
        async for piece in visit.pieces():
            total += len(piece)
            if came is not None:
                came(len(piece))
            for data in form.feed(piece):
                sink.take(data)
            if total > bytes_max + FORM_BYTES_MAX:
                raise too_large(total, bytes_max)
            if sink.is_due:
                await sink.write()
        return await sink.finish(form.finish())


async def receive_pieces(
    pieces: AsyncIterator[bytes],
    size: int,
    file_name: str,
    folder: Path,
    *,
    bytes_max: int,
    inline_max: int = INLINE_FILE_BYTES_MAX,
    came: Callable[[int], None] | None = None,
) -> Received:
    """Receives a file without a form. Raises Refused, and the errors of the pieces."""
    if size > bytes_max:
        raise too_large(size, bytes_max)
    if size > inline_max:
        _check_room(folder, size)
    async with Sink(folder, bytes_max=bytes_max, inline_max=inline_max) as sink:
        async for piece in pieces:
            sink.take(piece)
            if came is not None:
                came(len(piece))
            if sink.is_due:
                await sink.write()
        return await sink.finish(file_name)


def too_large(size: int, bytes_max: int) -> HttpRefusal:
    """Refusal of a body for its size."""
    text = f"the file has {size} bytes or more, and {bytes_max} are allowed here"
    return HttpRefusal(
        413, "too-big", text, {"Connection": "close"}, "split it, or ask the operator for a higher limit"
    )


class FileForm:
    """A form with the field `file` alone, while it is received."""

    def __init__(self, visit: HttpRequest) -> None:
        """Raises Refused if the request has no form."""
        self._parser = Multipart(boundary_of(visit.header("Content-Type")))
        self._file_name: str | None = None

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Data of the file in the next piece of the body. Raises Refused."""
        for event in self._parser.feed(piece):
            if type(event) is Data:
                yield event.data
            elif type(event) is FormPart:
                if self._file_name is not None or event.name != FIELD:
                    what = f"two fields {FIELD!r}" if event.name == FIELD else f"a field {event.name[:80]!r}"
                    raise bad_request(f"the form has {what}: it takes one field {FIELD!r} and nothing else")
                self._file_name = check_file_name(event.file_name or FILE_NAME)

    def finish(self) -> str:
        """Name of the file. Raises Refused if the form is not whole."""
        self._parser.finish()
        if self._file_name is None:
            raise bad_request(f"the form has no field {FIELD!r}", "curl -F file=@input.txt sends one")
        return self._file_name


class Sink:
    """Destination of one file: memory, and from `inline_max` on a new file of the folder. A context that an error
    leaves removes the file."""

    def __init__(self, folder: Path, *, bytes_max: int, inline_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._inline_max = inline_max
        self._pieces: list[bytes] = []
        self._held = 0
        """Bytes in `_pieces`."""
        self._file: _UploadedFile | None = None
        self._writing: asyncio.Future[None] | None = None
        self.size = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        if isinstance(error, asyncio.CancelledError):
            self.discard()
        elif error is not None and self._file is not None:
            await beside(self.discard, "receive")  # Bytes may be being written now.

    def take(self, data: bytes) -> None:
        """Raises HttpRefusal if the file is too large."""
        self.size += len(data)
        if self.size > self._bytes_max:
            raise too_large(self.size, self._bytes_max)
        self._pieces.append(data)
        self._held += len(data)

    @property
    def is_due(self) -> bool:
        """Enough bytes wait for a write."""
        return self._held >= _WRITTEN_BYTES or (self._file is None and self._held > self._inline_max)

    async def write(self) -> None:
        """Writes the waiting bytes, after the write before; more may be received meanwhile. Raises Refused."""
        if self._writing is not None:
            await self._writing
        if self._file is None:
            self._file = _UploadedFile(self._folder)
        file, pieces = self._file, self._pieces
        self._pieces, self._held = [], 0
        self._writing = begin(lambda: file.write(pieces), "receive")
        self._writing.add_done_callback(_heard)

    async def finish(self, file_name: str) -> Received:
        """The file is whole. Raises Refused."""
        if self._file is None and self._held <= self._inline_max:
            content = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            return Received(file_name, content, None, "", self.size)
        await self.write()
        if self._writing is not None:
            await self._writing
        assert self._file is not None
        sha256 = self._file.close()
        return Received(file_name, None, self._file.path, sha256, self.size)

    def discard(self) -> None:
        """Removes the file at once."""
        self._pieces.clear()
        if self._file is not None:
            self._file.discard()


class _UploadedFile:
    """A new file that is hashed while it is written. Its lock prevents a write after `discard`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"received-{os.urandom(16).hex()}"
        self._digest = hashlib.sha256()
        self._file: int | None = None
        self._given_up = False
        self._lock = threading.Lock()

    def write(self, pieces: list[bytes]) -> None:
        with self._lock:
            if self._given_up:
                return
            try:
                if self._file is None:
                    self._file = os.open(self.path, NEW, 0o600)
                _check_room(self.path.parent, sum(map(len, pieces)))
                for piece in pieces:
                    self._digest.update(piece)
                    write_all(self._file, piece)
            except OSError as error:
                raise refused(error, "the input cannot be written") from None

    def close(self) -> str:
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None
            return self._digest.hexdigest()

    def discard(self) -> None:
        with self._lock:
            self._given_up = True
            if self._file is not None:
                os.close(self._file)
                self._file = None
        with suppress(FileNotFoundError):
            self.path.unlink()


def _check_room(folder: Path, size: int) -> None:
    """Raises Refused if `size` more bytes would leave too little room."""
    try:
        free = free_on_disk(folder)
    except OSError as error:
        raise refused(error, "the input cannot be written") from None
    if free - size < DISK_FREE_MIN_BYTES:
        text = f"{size} bytes more would leave less than {DISK_FREE_MIN_BYTES} of the {free} that are free on the disk"
        raise Refused("disk", text)


def _heard(writing: asyncio.Future[None]) -> None:
    """The waiting caller gets the error; without one, the file was given up."""
    if not writing.cancelled():
        writing.exception()
