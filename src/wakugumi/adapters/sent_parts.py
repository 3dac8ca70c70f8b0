"""How is a body sent that consists of bytes and of parts of files? Piece by piece: files are read in threads, while the
pieces before are sent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple
from weakref import finalize

from wakugumi.adapters.loop.threads import ended
from wakugumi.errors import Lost, PeerError
from wakugumi.limits.units import KIB, MIB

READ_BYTES: Final = 1 * MIB
_SENT_BYTES: Final = 64 * KIB
"""Bytes per piece: a slow reader is detected by the time that a piece takes."""


class SentPart(NamedTuple):
    """A part of an open file, or of bytes."""

    source: int | bytes
    at: int
    end: int


class SentParts:
    """A body, as an async iterator of pieces. Close it, read or not."""

    def __init__(self, parts: Iterable[SentPart], size: int, files: ExitStack) -> None:
        """`size` is the sum of all parts; `files` is closed in the end."""
        self.size = size
        self.done: Callable[[], None] = _nothing
        """Called once, when the iterator is closed."""
        self._close = finalize(self, files.pop_all().close)
        self._reader = read_parts(parts)
        self._kept: list[bytes] = []

    def __aiter__(self) -> SentParts:
        return self

    async def __anext__(self) -> bytes:
        """Raises Lost if a file has changed."""
        if not self._kept:
            reading = asyncio.get_running_loop().run_in_executor(None, next, self._reader, b"")
            try:
                piece = await ended(reading)
            except (OSError, PeerError) as error:
                raise Lost(f"a file cannot be read: {error}") from None
            if not piece:
                await self.aclose()
                raise StopAsyncIteration
            self._kept = [piece[at : at + _SENT_BYTES] for at in range(0, len(piece), _SENT_BYTES)]
            self._kept.reverse()
        return self._kept.pop()

    async def aclose(self) -> None:
        """Called by the sender, after a success or a failure."""
        self._kept.clear()
        self._close()
        done, self.done = self.done, _nothing
        done()


def read_parts(parts: Iterable[SentPart]) -> Iterator[bytes]:
    """The bytes of all parts; small parts are joined. Raises Lost if a file has changed."""
    small = bytearray()
    for part in parts:
        at = part.at
        while at < part.end:
            if isinstance(part.source, bytes):
                piece = part.source[at : min(part.end, at + READ_BYTES)]
            elif not (piece := os.pread(part.source, min(READ_BYTES, part.end - at), at)):
                raise Lost("a file has become shorter")
            at += len(piece)
            if len(piece) < _SENT_BYTES:
                small += piece
                piece = b""
            if small and (piece or len(small) >= _SENT_BYTES):
                yield bytes(small)
                small.clear()
            if piece:
                yield piece
    if small:
        yield bytes(small)


def _nothing() -> None:
    """Stands for a missing `done`."""
