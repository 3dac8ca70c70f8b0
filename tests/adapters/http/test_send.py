"""A reply is framed so that each client knows where it ends, and whether the connection goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.kit.http_peer import DEADLINE_S, HttpPeer, a_door

from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply, Stream

pytestmark = pytest.mark.anyio

sent: list[str] = []


async def two() -> AsyncIterator[bytes]:
    yield b"abc"
    yield b""
    yield b"def"


async def plain(_visit: HttpRequest) -> Reply:
    return Reply(200, b"abcdef", on_sent=lambda: sent.append("plain"))


async def stream(_visit: HttpRequest) -> Reply:
    return Reply(200, Stream(None, two()))


async def lines(_visit: HttpRequest) -> Reply:
    return Reply(200, b"", headers={"X-Some": "one\r\nX-Other: two"})


def pages() -> list[PageRoute]:
    some = [PageRoute("GET", "/plain", plain), PageRoute("GET", "/stream", stream), PageRoute("POST", "/plain", plain)]
    return [*some, PageRoute("GET", "/lines", lines)]


async def old(peer: HttpPeer, path: str, *lines: str) -> None:
    await peer.say("".join(f"{line}\r\n" for line in (f"GET {path} HTTP/1.0", *lines, "")).encode())


async def test_an_old_client_reads_a_stream_to_the_end_of_the_connection() -> None:
    async with a_door(pages) as listener, HttpPeer(listener.port) as peer, asyncio.timeout(DEADLINE_S):
        await old(peer, "/stream", "Connection: keep-alive")
        head = await peer.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200 OK\r\n")
        assert b"chunked" not in head
        assert await peer.reader.read() == b"abcdef"


async def test_an_old_client_keeps_its_connection_if_it_says_so() -> None:
    async with a_door(pages) as listener, HttpPeer(listener.port) as peer:
        for _ in range(2):
            await old(peer, "/plain", "Connection: keep-alive")
            answer = await peer.answer()
            assert (answer.body, answer.head["connection"]) == (b"abcdef", "keep-alive")
        await old(peer, "/plain")
        assert (await peer.answer()).body == b"abcdef"
        assert await peer.is_cut_off()


@pytest.mark.parametrize(("path", "framing"), [("/plain", "content-length"), ("/stream", "transfer-encoding")])
async def test_head_is_get_without_the_body(path: str, framing: str) -> None:
    sent.clear()
    async with a_door(pages) as listener, HttpPeer(listener.port) as peer:
        assert framing in (await peer.ask("HEAD", path)).head
        assert sent == [], "nobody has the body"
        assert (await peer.ask("GET", path)).body == b"abcdef"


async def test_a_reply_before_the_word_to_send_ends_the_connection() -> None:
    async with a_door(pages) as listener, HttpPeer(listener.port) as peer:
        await peer.head("POST", "/plain", "Content-Length: 3", "Expect: 100-continue")
        answer = await peer.answer()
        assert (answer.body, answer.head["connection"]) == (b"abcdef", "close")
        assert await peer.is_cut_off()


async def test_a_value_of_two_lines_is_never_sent(caplog: pytest.LogCaptureFixture) -> None:
    async with a_door(pages) as listener, HttpPeer(listener.port) as peer:
        await peer.head("GET", "/lines")
        assert await peer.is_cut_off()
    assert "more than one line" in caplog.text


async def test_each_answer_has_a_date_and_the_headers_that_make_browsers_careful() -> None:
    async with a_door(pages) as listener, HttpPeer(listener.port) as peer:
        head = (await peer.ask("GET", "/plain")).head
    assert head["date"].endswith(" GMT")
    assert (head["x-content-type-options"], "default-src 'none'" in head["content-security-policy"]) == (
        "nosniff",
        True,
    )
