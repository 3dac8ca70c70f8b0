"""How is a reply written to its connection? Head and small bodies at once; streams as fast as the other side reads."""

from __future__ import annotations

import asyncio
import contextlib
import time
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from wakugumi.adapters.http.page import Reply, Stream
from wakugumi.adapters.http.request import WebRequest
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.errors import Lost, Refused
from wakugumi.limits.units import KIB

SAFE_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Headers of every answer: a browser trusts the declared type, runs none of it and shows it in no other page."""
_SAFE: Final = "".join(f"{name}: {value}\r\n" for name, value in SAFE_HEADERS.items())
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_CONNECTION: Final = "Connection"
_ONE_WRITE_BYTES: Final = 64 * KIB
"""A smaller body is written together with its head."""
_date = (0, "")
"""A second, and the line for it: each is made once."""


async def send(request: WebRequest, reply: Reply) -> None:
    """Raises ConnectionError if the client has left, or has only a part of the reply: it must not take that for all."""
    body = reply.body
    size = len(body) if isinstance(body, bytes) else body.size
    if (
        _CONNECTION in reply.headers
        # The client need not send its body, and must not take the reply for `100 Continue`.
        or (request.awaits_continue and not request.is_whole)
        or (size is None and request.version != "1.1")
    ):
        request.keeps_alive = False
    wish = "" if request.keeps_alive == (request.version == "1.1") else "keep-alive" if request.keeps_alive else "close"
    head = head_of(request.version, reply, size, wish)
    if request.method == "HEAD":
        try:
            request.connection.write(head)
        finally:
            if isinstance(body, Stream):
                await _close(body)
    elif reply.hear_out and not request.is_whole:
        await _write_and_drop(request, head, body)
    else:
        await _write(request, head, body)
    if reply.on_sent is not None and request.method != "HEAD":
        reply.on_sent()


def head_of(version: str, reply: Reply, size: int | None, connection: str = "") -> bytes:
    """The head of a reply. A body without a size is sent in chunks, or ends with an old connection."""
    global _date
    second = int(time.time())
    if second != _date[0]:
        _date = second, f"Date: {formatdate(second, usegmt=True)}\r\n"
    lines = ""
    for name, value in reply.headers.items():
        if "\n" in value or "\r" in value:
            raise ValueError(f"the value of {name} has more than one line")
        if name != _CONNECTION:
            lines += f"{name}: {value}\r\n"
    if size is not None:
        lines += f"Content-Length: {size}\r\n"
    elif version == "1.1":
        lines += "Transfer-Encoding: chunked\r\n"
    if connection:
        lines += f"Connection: {connection}\r\n"
    return (
        f"HTTP/{version} {reply.status} {_PHRASES.get(reply.status, '')}\r\n"
        f"Content-Type: {reply.content_type}\r\n{_SAFE}{_date[1]}{lines}\r\n"
    ).encode()


async def _write(request: WebRequest, head: bytes, body: bytes | Stream) -> None:
    connection = request.connection
    if isinstance(body, bytes):
        if len(body) <= _ONE_WRITE_BYTES:
            connection.write(head + body)
        else:
            connection.write(head)
            connection.write(body)
        await connection.drain()
        return
    is_chunked = body.size is None and request.version == "1.1"
    try:
        connection.write(head)
        async for piece in body.pieces:
            if piece:
                connection.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
                request.sent_bytes += len(piece)
                await connection.drain()
        if body.size is not None and request.sent_bytes != body.size:
            raise Lost(f"{body.size - request.sent_bytes} bytes of the answer are missing")
        if is_chunked:
            connection.write(b"0\r\n\r\n")
    except BaseException as error:
        request.cut_off()
        if isinstance(error, OSError | Lost | Refused):
            raise ConnectionResetError(str(error)) from None
        raise
    finally:
        await _close(body)


async def _write_and_drop(request: WebRequest, head: bytes, body: bytes | Stream) -> None:
    """Writes to a client that may read only once its own body is sent. A client that waits for `100 Continue` need not
    send."""
    tasks = Tasks()
    dropping = tasks.start(_drop(request), name="drop a body")
    try:
        await _write(request, head, body)
        if not request.awaits_continue:
            await asyncio.wait([dropping])
    finally:
        await tasks.close()


async def _drop(request: WebRequest) -> None:
    """Drops the body until it is whole, stalls, or the client is gone."""
    with contextlib.suppress(Refused, Lost):
        await request.drop()


async def _close(body: Stream) -> None:
    close = getattr(body.pieces, "aclose", None)
    if close is not None:
        await close()
