"""HTTP routes and a line protocol that echo, refuse or fail, for the tests of ports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply, Stream
from wakugumi.adapters.lines.server import LineCall, LineReply
from wakugumi.errors import Refused


def some_routes() -> Sequence[PageRoute]:
    async def hello(visit: HttpRequest) -> Reply:
        return Reply(200, f"hello {visit.rest}".encode(), "text/plain; charset=utf-8")

    async def echo(visit: HttpRequest) -> Reply:
        return Reply(200, b"".join([piece async for piece in visit.pieces()]))

    async def refuse(_visit: HttpRequest) -> Reply:
        raise Refused("full", "there is no room")

    async def fail(_visit: HttpRequest) -> Reply:
        raise KeyError("our mistake")

    return [
        PageRoute("GET", "/hello", hello),
        PageRoute("POST", "/hello", echo),
        PageRoute("GET", "/below/", hello),
        PageRoute("GET", "/refuse", refuse),
        PageRoute("GET", "/fail", fail),
    ]


async def echo(call: LineCall) -> LineReply:
    """The job's name decides what happens."""
    if call.line.job == "busy":
        return LineReply(b"BUSY retry=5\n")
    if call.line.job == "bad":
        raise Refused("bad-name", "no\nsuch name")
    if call.line.job == "bug":
        raise ZeroDivisionError
    got = b"".join([piece async for piece in call.pieces()])
    if call.line.job == "short":

        async def little() -> AsyncIterator[bytes]:
            yield b"1234"

        return LineReply(b"OK 10\n", Stream(10, little()))
    return LineReply(b"OK %d\n" % len(got), got)
