"""What a page says is what the other side gets; what a page asks of its visit is what came."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.kit.eventually import eventually
from tests.kit.http_peer import DEADLINE_S, HttpPeer, a_door, ask

from wakugumi.adapters.http import connection
from wakugumi.adapters.http.page import HttpRefusal, HttpRequest, PageRoute, Reply, Stream
from wakugumi.adapters.port.port import HttpListener
from wakugumi.core.connections import pace
from wakugumi.errors import Lost, PeerError, Refused
from wakugumi.limits.units import MIB

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def page(
    answer: Callable[[HttpRequest], Awaitable[Reply]], *, method: str = "POST", quiet: bool = False
) -> AsyncIterator[HttpListener]:
    """A door with this one page, at /page and below it."""

    def pages() -> Sequence[PageRoute]:
        return [PageRoute(method, "/page", answer, quiet), PageRoute(method, "/page/", answer, quiet)]

    async with a_door(pages) as listener:
        yield listener


async def size_of_body(visit: HttpRequest) -> Reply:
    size = 0
    async for piece in visit.pieces():
        size += len(piece)
    return Reply(201, b"%d" % size, "text/plain; charset=utf-8", {"X-Size": str(size)})


async def test_a_reply_is_sent_as_it_is() -> None:
    async with page(size_of_body) as listener:
        answer = await ask(listener.port, "POST", "/page", body=b"abc")
    assert (answer.status, answer.body, answer.head["x-size"]) == (201, b"3", "3")
    assert answer.head["content-type"] == "text/plain; charset=utf-8"


async def test_a_visit_tells_what_was_asked() -> None:
    seen: list[object] = []

    async def look(visit: HttpRequest) -> Reply:
        seen[:] = [visit.method, visit.path, visit.rest, visit.query("a"), visit.query("b"), visit.query("c")]
        seen.extend([visit.header("x-some"), visit.header("X-None"), visit.content_length, visit.peer, visit.is_gone])
        return Reply()

    async with page(look) as listener:
        path = "/page/a%2fb/..;c"
        assert (
            await ask(listener.port, "POST", f"{path}?a=1&a=%C3%BC+x&b&", "X-Some: thing", body=b"xy")
        ).status == 200
    assert seen == ["POST", path, "a%2fb/..;c", ["1", "ü x"], [""], [], "thing", None, 2, "127.0.0.1", False]


async def test_a_query_that_is_no_text_is_a_problem() -> None:
    async def look(visit: HttpRequest) -> Reply:
        return Reply(200, str(visit.query("a")).encode())

    async with page(look) as listener:
        assert (await ask(listener.port, "POST", "/page?a=%ff")).code == "bad-request"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Refused("bad-name", "no"), 400, "bad-name"),
        (Refused("running", "wait"), 423, "running"),
        (HttpRefusal(418, "busy", "no coffee", {"X-Pot": "tea"}), 418, "busy"),
        (PeerError("it broke the protocol"), 400, "bad-request"),
        (Lost("who we asked is gone", "dead"), 502, "worker-lost"),
        (TimeoutError(), 500, "worker-error"),
    ],
)
async def test_what_a_page_raises_is_a_problem(error: Exception, status: int, code: str) -> None:
    async def fail(_visit: HttpRequest) -> Reply:
        raise error

    async with page(fail) as listener:
        answer = await ask(listener.port, "POST", "/page")
    assert (answer.status, answer.code, answer.problem["status"]) == (status, code, status)
    assert answer.head.get("x-pot") == ("tea" if status == 418 else None)
    assert answer.head.get("retry-after") == ("1" if status == 423 else None)


# Bodies that come.


async def test_who_waits_for_its_turn_is_told_to_go_on_when_the_page_reads_and_not_before() -> None:
    reads, waits = asyncio.Event(), asyncio.Event()

    async def late(visit: HttpRequest) -> Reply:
        waits.set()
        await reads.wait()
        return await size_of_body(visit)

    async with page(late) as listener, HttpPeer(listener.port) as peer:
        await peer.head("POST", "/page", "Content-Length: 3", "Expect: 100-continue")
        await waits.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.reader.read(1), 0.05)
        reads.set()
        async with asyncio.timeout(DEADLINE_S):
            assert await peer.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await peer.say(b"abc")
        assert (await peer.answer()).body == b"3"


async def test_who_waits_for_its_turn_and_is_refused_sends_nothing() -> None:
    async def refuse(_visit: HttpRequest) -> Reply:
        raise Refused("busy", "all slots are taken")

    async with page(refuse) as listener, HttpPeer(listener.port) as peer:
        await peer.head("POST", "/page", "Content-Length: 3", "Expect: 100-continue")
        answer = await peer.answer()
        assert (answer.code, answer.head["connection"]) == ("busy", "close")


async def test_little_is_read_of_a_body_before_the_page_wants_it() -> None:
    reads = asyncio.Event()

    async def late(visit: HttpRequest) -> Reply:
        await reads.wait()
        return await size_of_body(visit)

    async with page(late) as listener, HttpPeer(listener.port) as peer:
        await peer.head("POST", "/page", f"Content-Length: {64 * MIB}")
        peer.writer.write(bytes(64 * MIB))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.writer.drain(), 0.2)
        reads.set()
        assert (await peer.answer()).body == b"%d" % (64 * MIB)


async def test_a_body_in_chunks_comes_as_one() -> None:
    async with page(size_of_body) as listener, HttpPeer(listener.port) as peer:
        await peer.head("POST", "/page", "Transfer-Encoding: chunked")
        for size in (1, 70_000, 3):
            await peer.say(b"%x\r\n" % size + bytes(size) + b"\r\n")
        await peer.say(b"0\r\n\r\n")
        assert (await peer.answer()).body == b"70004"


async def test_broken_chunks_are_a_problem() -> None:
    begun = asyncio.Event()

    async def count(visit: HttpRequest) -> Reply:
        begun.set()
        return await size_of_body(visit)

    async with page(count) as listener, HttpPeer(listener.port) as peer:
        await peer.head("POST", "/page", "Transfer-Encoding: chunked")
        await begun.wait()
        await peer.say(b"5\r\nhello\r\nzz\r\n")
        assert (await peer.answer()).code == "bad-request"
        assert (await ask(listener.port, "POST", "/page", body=b"abc")).body == b"3"


async def test_who_stops_in_the_midst_of_its_body_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "BODY_RECEIVED_MIN_S", 0.05)
    monkeypatch.setattr(connection, "LINGER_S", 0.05)
    async with page(size_of_body) as listener, HttpPeer(listener.port) as peer:
        await peer.head("POST", "/page", "Content-Length: 10")
        await peer.say(b"abc")
        answer = await peer.answer()
        assert (answer.status, answer.code) == (408, "too-slow")
        assert await peer.is_cut_off()
        await eventually(lambda: listener.http_port.connections == 0)


async def test_who_leaves_in_the_midst_of_its_body_is_lost_to_the_page() -> None:
    ended: list[BaseException] = []
    begun = asyncio.Event()

    async def count(visit: HttpRequest) -> Reply:
        begun.set()
        try:
            return await size_of_body(visit)
        except BaseException as error:
            ended.append(error)
            assert visit.is_gone
            raise

    async with page(count) as listener:
        async with HttpPeer(listener.port) as peer:
            await peer.head("POST", "/page", "Content-Length: 10")
            await peer.say(b"abc")
            await begun.wait()
        await eventually(lambda: ended)
    assert isinstance(ended[0], Lost)


async def test_a_page_that_only_waits_hears_that_its_visitor_is_gone() -> None:
    visits: list[HttpRequest] = []
    gone = asyncio.Event()

    async def wait(visit: HttpRequest) -> Reply:
        visits.append(visit)
        await gone.wait()
        return Reply()

    async with page(wait, method="GET") as listener:
        async with HttpPeer(listener.port) as peer:
            await peer.head("GET", "/page")
            await eventually(lambda: visits)
            assert not visits[0].is_gone
        await eventually(lambda: visits[0].is_gone)
        gone.set()


# Answers that go.


async def stream_of(*pieces: bytes, closed: list[bool], fails: Exception | None = None) -> AsyncIterator[bytes]:
    try:
        for piece in pieces:
            yield piece
        if fails is not None:
            raise fails
    finally:
        closed.append(True)


@pytest.mark.parametrize("size", [6, None])
async def test_a_stream_is_sent_piece_by_piece_and_closed(size: int | None) -> None:
    closed: list[bool] = []

    async def some(_visit: HttpRequest) -> Reply:
        return Reply(200, Stream(size, stream_of(b"abc", b"def", closed=closed)))

    async with page(some) as listener, HttpPeer(listener.port) as peer:
        for _ in range(2):
            answer = await peer.ask("POST", "/page")
            assert (answer.body, answer.head.get("content-length")) == (b"abcdef", None if size is None else "6")
    assert closed == [True, True]


@pytest.mark.parametrize("fails", [None, OSError("disk"), Lost("upstream"), KeyError("bug"), Refused("busy", "late")])
async def test_a_stream_that_ends_early_ends_without_the_rest(fails: Exception | None) -> None:
    closed: list[bool] = []

    async def some(_visit: HttpRequest) -> Reply:
        return Reply(200, Stream(9, stream_of(b"abc", closed=closed, fails=fails)))

    async with page(some) as listener, HttpPeer(listener.port) as peer:
        await peer.head("POST", "/page")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await peer.answer()
        await eventually(lambda: listener.http_port.connections == 0)
    assert closed == [True]


# What is logged.


async def test_every_visit_is_a_line_of_the_access_log_with_its_job(caplog: pytest.LogCaptureFixture) -> None:
    async def named(visit: HttpRequest) -> Reply:
        visit.job = visit.rest
        if visit.rest == "bad":
            raise Refused("bad-name", "no")
        return Reply(200, b"abc")

    caplog.set_level(logging.INFO, "wakugumi.access")
    async with page(named) as listener:
        for method, path in [("POST", "/page/one"), ("POST", "/page/bad"), ("GET", "/page/two"), ("GET", "/none")]:
            await ask(listener.port, method, path)
    told = [record.__dict__["fields"] for record in caplog.records if record.name == "wakugumi.access"]
    assert [(it["method"], it["path"], it["status"], it["job"], it["sent"]) for it in told] == [
        ("POST", "/page/one", 200, "one", 3),
        ("POST", "/page/bad", 400, "bad", 0),
        ("GET", "/page/two", 405, "", 0),
        ("GET", "/none", 404, "", 0),
    ]
    assert {it["peer"] for it in told} == {"127.0.0.1"}


async def test_what_machines_ask_all_the_time_is_logged_for_debugging_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wakugumi.access")
    async with page(size_of_body, quiet=True) as listener:
        await ask(listener.port, "POST", "/page")
        assert caplog.records == []
        caplog.set_level(logging.DEBUG, "wakugumi.access")
        await ask(listener.port, "POST", "/page")
    assert [record.getMessage() for record in caplog.records] == ["POST /page 201"]


async def test_who_is_gone_before_the_answer_is_logged_as_499(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wakugumi.access")
    begun = asyncio.Event()

    async def count(visit: HttpRequest) -> Reply:
        begun.set()
        return await size_of_body(visit)

    async with page(count) as listener:
        async with HttpPeer(listener.port) as peer:
            await peer.head("POST", "/page", "Content-Length: 10")
            await begun.wait()
        await eventually(lambda: caplog.records)
    assert caplog.records[0].__dict__["fields"]["status"] == 499


def test_the_fields_of_a_line_are_keys_of_their_own_in_both_formats() -> None:
    from wakugumi.app.logs import _Json, _KeyValue

    record = logging.makeLogRecord(
        {"name": "wakugumi.access", "msg": "POST /x 200", "fields": {"job": "a b", "ms": 1.5}}
    )
    assert json.loads(_Json().format(record))["job"] == "a b"
    assert json.loads(_Json().format(record))["ms"] == 1.5
    assert _KeyValue().format(record).endswith('from=access msg="POST /x 200" job="a b" ms=1.5')
