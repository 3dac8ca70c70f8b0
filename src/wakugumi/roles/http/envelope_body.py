"""How is an envelope read from a body while it is received? Its head first; the head tells how many bytes follow."""

from __future__ import annotations

from collections.abc import AsyncIterator

from wakugumi.wire.messages.envelope import START_BYTES, contents_at
from wakugumi.wire.untrusted_json import Unreadable


class EnvelopeBody:
    """The body of a request or of an answer. All methods raise Unreadable, and the errors of the pieces."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self.held = b""
        """Bytes that were received and not taken."""

    async def head(self) -> tuple[bytes, int]:
        """The bytes up to the end of the head, and the offset of the head in them."""
        await self._hold(START_BYTES)
        return await self.take(contents_at(self.held)), START_BYTES

    async def take(self, size: int) -> bytes:
        """The next bytes, in memory."""
        await self._hold(size)
        taken, self.held = self.held[:size], self.held[size:]
        return taken

    async def content(self, size: int) -> AsyncIterator[bytes]:
        """The next bytes, as they are received."""
        while size:
            await self._hold(1)
            piece, self.held = self.held[:size], self.held[size:]
            size -= len(piece)
            yield piece

    async def end(self) -> None:
        """The body ends here."""
        if self.held or await anext(self._pieces, b""):
            raise Unreadable("it has more bytes than its head tells of")

    async def _hold(self, size: int) -> None:
        if len(self.held) >= size:
            return
        pieces, held = [self.held], len(self.held)
        while held < size:
            piece = await anext(self._pieces, b"")
            if not piece:
                raise Unreadable("it has fewer bytes than its head tells of")
            pieces.append(piece)
            held += len(piece)
        self.held = b"".join(pieces)
