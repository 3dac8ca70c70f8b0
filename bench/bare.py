"""An HTTP server of aiohttp that only answers: the yardstick for our own. python bench/bare.py, prints its port."""

import asyncio

from aiohttp import web

from wakugumi.adapters.loop.event_loop import run

BODY = b'{"running":0,"limit":2}'


async def _answer(_request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=BODY, content_type="application/json")


async def _serve() -> None:
    server = web.Server(_answer, access_log=None)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    run(_serve())
