"""A page sees the request as it was sent, however it was framed."""

from __future__ import annotations

import pytest
from tests.kit.http_peer import HttpPeer, a_door

from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply

pytestmark = pytest.mark.anyio

UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"


async def show(visit: HttpRequest) -> Reply:
    body = b"".join([piece async for piece in visit.pieces()])
    return Reply(200, f"{visit.method} {visit.path} {visit.query_text} ".encode() + body)


def pages() -> list[PageRoute]:
    return [PageRoute(method, "/page", show) for method in ("GET", "POST")]


@pytest.mark.parametrize(
    ("head", "body"),
    [(b"", b""), (b"Content-Length: 3\r\n", b"abc"), (b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n")],
    ids=["none", "length", "chunks"],
)
@pytest.mark.parametrize("cut", [1, 30, 10_000])
async def test_a_wish_for_another_protocol_is_ignored(head: bytes, body: bytes, cut: int) -> None:
    first = b"POST /page?one HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + head + b"\r\n" + body
    data = first + b"GET /page?two HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with a_door(pages) as listener, HttpPeer(listener.port) as peer:
        for at in range(0, len(data), cut):
            await peer.say(data[at : at + cut])
        got = b"abc" if body else b""
        assert [(await peer.answer()).body for _ in range(2)] == [b"POST /page one " + got, b"GET /page two "]


@pytest.mark.parametrize(
    ("target", "seen"),
    [
        (b"/page?a=1#part", b"GET /page a=1 "),
        (b"http://localhost/page?a=1", b"GET /page a=1 "),
        (b"/page", b"GET /page  "),
    ],
)
async def test_a_target_may_be_a_path_or_a_url(target: bytes, seen: bytes) -> None:
    async with a_door(pages) as listener, HttpPeer(listener.port) as peer:
        await peer.say(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await peer.answer()).body == seen


@pytest.mark.parametrize("name", ["Host", "Content-Type", "Origin", "Content-Range", "Authorization"])
async def test_a_header_that_decides_stands_there_once(name: str) -> None:
    async with a_door(pages) as listener, HttpPeer(listener.port) as peer:
        await peer.head("GET", "/page", f"{name}: localhost", f"{name}: localhost")
        assert (await peer.answer()).code == "bad-request"
        assert await peer.is_cut_off()
