"""HTTP servers that only answer: the yardsticks for our own. `python bench/bare.py aiohttp|httptools` prints the port.

`aiohttp` is a handler of that library; `httptools` is a parser on a socket, which is as little as Python can do.
"""

import asyncio
import sys

import httptools
from aiohttp import web

from wakugumi.adapters.loop.event_loop import run

BODY = b'{"running":0,"limit":2}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


class Bare(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(ANSWER)


async def _answer(_request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=BODY, content_type="application/json")


async def _serve(library: str) -> None:
    server = Bare if library == "httptools" else web.Server(_answer, access_log=None)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    run(_serve(sys.argv[1]))
