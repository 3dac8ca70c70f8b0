"""HTTP routes and a line protocol that echo, refuse or fail, for the tests of ports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from aiohttp import web

from wakugumi.adapters.http.page import Stream
from wakugumi.adapters.http.routes import Route
from wakugumi.adapters.lines.server import LineCall, LineReply
from wakugumi.errors import Refused


def some_routes() -> Sequence[Route]:
    async def hello(_request: web.BaseRequest, rest: str) -> web.StreamResponse:
        return web.Response(text=f"hello {rest}")

    async def echo(request: web.BaseRequest, _rest: str) -> web.StreamResponse:
        return web.Response(body=await request.read())

    async def refuse(_request: web.BaseRequest, _rest: str) -> web.StreamResponse:
        raise Refused("full", "there is no room")

    async def fail(_request: web.BaseRequest, _rest: str) -> web.StreamResponse:
        raise KeyError("our mistake")

    return [
        Route("GET", "/hello", hello),
        Route("POST", "/hello", echo),
        Route("GET", "/below/", hello),
        Route("GET", "/refuse", refuse),
        Route("GET", "/fail", fail),
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
