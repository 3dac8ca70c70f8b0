"""How is the one file of a form, or of a line, received? Into a spool: a small file in memory, a larger one on disk.

After a failure no part stays. Inputs may use the free room of the disk beyond DISK_FREE_MIN_BYTES; the rest is for the
output of running programs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from wakugumi.adapters.http.page import HttpRefusal, HttpRequest
from wakugumi.adapters.spool import Spools
from wakugumi.core.names import check_file_name
from wakugumi.errors import bad_request
from wakugumi.limits.http import FORM_BYTES_MAX
from wakugumi.wire.form import Data, FormPart, Multipart, boundary_of

FIELD: Final = "file"
FILE_NAME: Final = "input"
"""Name of a file whose sender gave none."""


class Received(NamedTuple):
    """A received file. The caller owns the path, and drops it."""

    file_name: str
    content: bytes | None
    """None if the file is on disk."""
    path: Path | None
    sha256: str
    """Empty if the file is in memory: its hash is not needed then."""
    size: int

    def drop(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


async def receive_file(
    visit: HttpRequest, spools: Spools, bytes_max: int, came: Callable[[int], None] | None = None
) -> Received:
    """Receives the file of a form with the field `file` alone. `came` is called with the size of each of its pieces.

    Raises Refused (too large, too slow, no such form, no room on disk), or Lost if the sender is gone.
    """
    form = FileForm(visit)
    length = visit.content_length
    if length is not None:
        if length > bytes_max + FORM_BYTES_MAX:
            raise too_large(length, bytes_max)
        _check_room(spools, length - FORM_BYTES_MAX)
    return await _receive(_file_pieces(visit, form, bytes_max), form.finish, spools, bytes_max, came)


async def receive_pieces(
    pieces: AsyncIterator[bytes], size: int, file_name: str, spools: Spools, bytes_max: int, came: Callable[[int], None]
) -> Received:
    """Receives a file without a form. Raises Refused, and the errors of the pieces."""
    if size > bytes_max:
        raise too_large(size, bytes_max)
    _check_room(spools, size)
    return await _receive(pieces, lambda: file_name, spools, bytes_max, came)


async def _receive(
    pieces: AsyncIterator[bytes],
    name: Callable[[], str],
    spools: Spools,
    bytes_max: int,
    came: Callable[[int], None] | None,
) -> Received:
    """`name` is called when all pieces were received."""
    with closing(spools.new(bytes_max, is_hashed=True)) as spool:
        await spool.fill(pieces, came)
        file_name, content = name(), spool.data
        path = await spool.name() if content is None else None
        return Received(file_name, content, path, spool.sha256, spool.size)


async def _file_pieces(visit: HttpRequest, form: FileForm, bytes_max: int) -> AsyncIterator[bytes]:
    total = size = 0
    async for piece in visit.pieces():
        total += len(piece)
        for data in form.feed(piece):
            size += len(data)
            if size > bytes_max:
                raise too_large(size, bytes_max)
            yield data
        if total > bytes_max + FORM_BYTES_MAX:
            raise too_large(total, bytes_max)


def _check_room(spools: Spools, size: int) -> None:
    if size > spools.memory_max:
        spools.check_room(size)


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
        self.boundary = boundary_of(visit.header("Content-Type"))
        self._parser = Multipart(self.boundary)
        self.file_name: str | None = None
        """Name of the file, once its head was received."""

    @property
    def content_at(self) -> int:
        """Where the file begins in the body, once its head was received."""
        return self._parser.content_at

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Data of the file in the next piece of the body. Raises Refused."""
        for event in self._parser.feed(piece):
            if type(event) is Data:
                yield event.data
            elif type(event) is FormPart:
                if self.file_name is not None or event.name != FIELD:
                    what = f"two fields {FIELD!r}" if event.name == FIELD else f"a field {event.name[:80]!r}"
                    raise bad_request(f"the form has {what}: it takes one field {FIELD!r} and nothing else")
                self.file_name = check_file_name(event.file_name or FILE_NAME)

    def finish(self) -> str:
        """Name of the file. Raises Refused if the form is not whole."""
        self._parser.finish()
        if self.file_name is None:
            raise bad_request(f"the form has no field {FIELD!r}", "curl -F file=@input.txt sends one")
        return self.file_name
