"""How is the file of a form sent without its form? A head, then the file's bytes, out of the body as it was received.

The size stands in the head, before the file. If it followed from the declared size of a body that is being received
(`roles/gateway/form.py`), the last byte waits until the body is whole: a wrong size ends the connection, and no group
takes a wrong file for a job.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from wakugumi.adapters.spool import SpoolReader
from wakugumi.core.gateway.rows import InputAt
from wakugumi.errors import Lost
from wakugumi.wire.messages.envelope import seal


def file_in(body: bytes, found: InputAt) -> bytes:
    """Head and file of a body in memory."""
    return seal(found.head, body[found.at : found.at + found.size])


class OtherSizeLost(Lost):
    """The file has another size than its head says: it can be sent again, with the right one."""


class FilePieces:
    """Head and file of a body that may still be received. Close it, read or not."""

    def __init__(self, body: SpoolReader, found: InputAt, known: Callable[[], InputAt | None]) -> None:
        """`known` returns what the end of the body has shown."""
        self._body = body
        self._found = found
        self._known = known
        self._start = seal(found.head)
        self.size = len(self._start) + found.size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Raises Lost if the body breaks off, OtherSizeLost if the file has another size."""
        yield self._start
        at, left, last = -self._found.at, self._found.size, b""
        async for piece in self._body:
            part = piece[max(0, -at) :][:left]
            at, left = at + len(piece), left - len(part)
            if part and not left:
                part, last = part[:-1], part[-1:]
            if part:
                yield part
        if self._known() != self._found:
            raise OtherSizeLost("the file has another size than the declared size of its body let expect")
        if last:
            yield last

    def close(self) -> None:
        self._body.close()
