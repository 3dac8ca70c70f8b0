"""One port, two languages, on both loops: who speaks frames gets a Link, who speaks HTTP gets the routes."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.kit.eventually import eventually
from tests.kit.guards import OpenGuard
from tests.kit.http_peer import DEADLINE_S, HttpPeer, a_door, ask
from tests.kit.link_owner import Owner
from tests.kit.some_routes import some_routes
from tests.kit.tls_grid import TlsGrid

from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply
from wakugumi.adapters.net.connect import bound_port, listen
from wakugumi.adapters.port import port as web_module
from wakugumi.adapters.port.port import HttpPort
from wakugumi.limits.wire import FIRST_FRAME_BYTES_MAX
from wakugumi.wire import frame as fr

pytestmark = pytest.mark.anyio

FRAME = fr.encode(fr.HEARTBEAT)


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@asynccontextmanager
async def both(**options: float) -> AsyncIterator[tuple[Owner, HttpPort, int]]:
    """A port that speaks frames and HTTP."""
    owner = Owner()
    door = HttpPort([some_routes], OpenGuard(), **options)  # type: ignore[arg-type]
    server = await listen("127.0.0.1", 0, lambda: owner, door.at)
    try:
        yield owner, door, bound_port(server)
    finally:
        server.close()
        await door.close()


async def test_frames_and_http_come_to_the_same_port() -> None:
    async with both() as (owner, _, port), HttpPeer(port) as frames:
        await frames.say(FRAME + FRAME[:7])
        await owner.until(lambda: len(owner.frames) == 1)
        answer = await ask(port, "GET", "/hello")
        assert (answer.status, answer.body) == (200, b"hello ")
        await frames.say(FRAME[7:])
        await owner.until(lambda: len(owner.frames) == 2)


async def test_a_link_that_speaks_frames_is_the_protocol_itself_from_its_first_bytes_on() -> None:
    async with both() as (owner, _, port), HttpPeer(port) as peer:
        await peer.say(FRAME)
        await owner.until(lambda: owner.frames)
        assert owner.link._transport is not None
        assert owner.link._transport.get_protocol() is owner.link


@pytest.mark.parametrize("language", ["frames", "http"])
async def test_it_does_not_matter_how_the_first_bytes_are_cut(language: str) -> None:
    data = FRAME if language == "frames" else b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with both() as (owner, _, port), HttpPeer(port) as peer:
        for at in range(len(data)):
            await peer.say(data[at : at + 1])
            await asyncio.sleep(0.001)
        if language == "frames":
            await owner.until(lambda: owner.frames)
        else:
            assert (await peer.answer()).body == b"hello "
            assert owner.lost == 1, "to its owner it is a connection that went away"


async def test_a_frame_whose_length_looks_like_letters_is_a_frame() -> None:
    long = fr.encode(fr.HEARTBEAT, payload=b"x" * (0x4547 - 39))
    assert long[:2] == b"GE"
    async with both() as (owner, _, port), HttpPeer(port) as peer:
        await peer.say(long)
        await owner.until(lambda: owner.frames)


async def test_several_requests_use_one_connection_and_all_that_came_early_is_kept() -> None:
    async with both() as (_, door, port), HttpPeer(port) as peer:
        body = b"x" * (FIRST_FRAME_BYTES_MAX * 5)
        head = f"POST /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        await peer.say(head + body)
        assert (await peer.answer()).body == body
        for name in ("a", "b/c", "%2e%2e"):
            assert (await peer.ask("GET", f"/below/{name}")).body == f"hello {name}".encode()
        assert door.connections == 1


async def test_what_is_not_there_is_a_problem_with_a_code() -> None:
    async with both() as (_, _, port), HttpPeer(port) as peer:
        nothing, method, refused, failed = (
            await peer.ask("GET", "/nothing"),
            await peer.ask("DELETE", "/hello"),
            await peer.ask("GET", "/refuse"),
            await peer.ask("GET", "/fail"),
        )
    assert (nothing.status, nothing.code) == (404, "unknown-question")
    assert (method.status, method.head["allow"]) == (405, "GET, HEAD, POST")
    assert (refused.status, refused.code, refused.head["retry-after"]) == (503, "full", "1")
    assert refused.problem["detail"] == "there is no room"
    assert refused.problem["hint"]
    assert (failed.status, failed.code) == (500, "worker-error")
    assert b"our mistake" not in failed.body


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("Host: localhost:5000",), 200),
        (("Host: 127.0.0.1:5000",), 200),
        (("Host: [::1]:5000",), 200),
        (("Host: localhost:5000", "Origin: http://localhost:5000"), 200),
        (("Host: evil.example",), 403),
        (("Host: localhost.evil.example:5000",), 403),
        (("Host: 192.0.2.1",), 200),
        (("Host: [::1",), 403),
        (("Host: localhost@evil.example",), 403),
        (("Host: localhost:5000", "Origin: http://evil.example"), 403),
        (("Host: localhost:5000", "Origin: http://localhost:3000"), 403),
        (("Host: localhost:5000", "Origin: null"), 403),
    ],
)
async def test_no_page_of_elsewhere_is_answered(lines: tuple[str, ...], status: int) -> None:
    async with both() as (_, _, port), HttpPeer(port) as peer:
        await peer.say("\r\n".join(("GET /hello HTTP/1.1", *lines, "", "")).encode())
        answer = await peer.answer()
    assert answer.status == status
    assert status == 200 or answer.code == "denied"


async def test_who_begins_a_request_and_does_not_end_it_is_cut_off() -> None:
    async with both(idle_s=0.05) as (_, door, port), HttpPeer(port) as silent, HttpPeer(port) as idle:
        await silent.say(b"GET /hello HTTP/1.1\r\nX-Slow: ")
        assert (await idle.ask("GET", "/hello")).status == 200
        assert await silent.is_cut_off()
        assert await idle.is_cut_off()
        await eventually(lambda: door.connections == 0)


async def test_beyond_the_maximum_a_connection_is_closed_and_the_others_are_served() -> None:
    async with both(connections_max=1) as (_, door, port), HttpPeer(port) as first, HttpPeer(port) as second:
        assert (await first.ask("GET", "/hello")).status == 200
        await second.head("GET", "/hello")
        assert await second.is_cut_off()
        assert (await first.ask("GET", "/hello")).status == 200
        assert door.connections == 1


@pytest.mark.parametrize(
    "data",
    [
        b"GETX\x01\x02\x03\r\n\r\n",
        b"GET /hello HTTP/1.1\r\n" + b"X: " + b"y" * 20_000 + b"\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_broken_http_is_answered_with_400_or_cut_off_and_others_are_served(data: bytes) -> None:
    async with both() as (_, _, port):
        async with HttpPeer(port) as broken:
            await broken.say(data)
            async with asyncio.timeout(DEADLINE_S):
                assert (await broken.reader.read(12)) in {b"HTTP/1.1 400", b"HTTP/1.0 400", b""}
        assert (await ask(port, "GET", "/hello")).status == 200


async def test_a_door_that_closes_ends_what_it_serves() -> None:
    begun, asked = asyncio.Event(), asyncio.Event()

    def slow_routes() -> Sequence[PageRoute]:
        async def slow(_visit: HttpRequest) -> Reply:
            begun.set()
            await asyncio.wait_for(asked.wait(), DEADLINE_S)
            return Reply(200, b"done")

        return [PageRoute("GET", "/slow", slow)]

    async with a_door(slow_routes) as listener:
        async with HttpPeer(listener.port) as peer, HttpPeer(listener.port) as idle:
            await peer.head("GET", "/slow")
            await begun.wait()
            closing = asyncio.get_running_loop().create_task(listener.close())
            assert await idle.is_cut_off()
            asked.set()
            assert (await peer.answer()).body == b"done", "what is nearly done is finished"
            await closing
        assert listener.http_port.connections == 0


def kept_most(door: HttpPort) -> int:
    return max((len(step._kept) for step in door._waiting), default=0)


async def test_who_leaves_while_the_server_is_imported_harms_nobody() -> None:
    let_go = asyncio.Event()
    loop = asyncio.get_running_loop()

    def late_routes() -> Sequence[PageRoute]:
        wait: Callable[[], Awaitable[bool]] = let_go.wait
        asyncio.run_coroutine_threadsafe(wait(), loop).result(DEADLINE_S)  # type: ignore[arg-type]
        return some_routes()

    async with a_door(late_routes) as listener, HttpPeer(listener.port) as stays:
        await stays.head("GET", "/hello")
        async with HttpPeer(listener.port) as leaves:
            await leaves.head("POST", "/hello", "Content-Length: 99999999")
            leaves.writer.write(bytes(8 * FIRST_FRAME_BYTES_MAX))
            await eventually(lambda: kept_most(listener.http_port) > FIRST_FRAME_BYTES_MAX)
            await asyncio.sleep(0.05)  # in which it would read on
            assert kept_most(listener.http_port) < 2 * FIRST_FRAME_BYTES_MAX
            assert listener.http_port.connections == 2
        let_go.set()
        assert (await stays.answer()).body == b"hello "
        await eventually(lambda: listener.http_port.connections == 1)


async def test_a_server_that_could_not_be_loaded_is_loaded_for_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    failures, both_wait = 1, threading.Event()

    def routes() -> Sequence[PageRoute]:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            both_wait.wait(DEADLINE_S)
            raise OSError(errno.EMFILE, "Too many open files")
        return some_routes()

    async with a_door(routes) as listener:
        async with HttpPeer(listener.port) as one, HttpPeer(listener.port) as two:
            await two.head("GET", "/hello")
            await one.head("GET", "/hello")
            await eventually(lambda: len(listener.http_port._waiting) == 2)
            both_wait.set()
            for peer in (one, two):
                answer = await peer.answer()
                assert (answer.status, answer.code, answer.head["retry-after"]) == (503, "busy", "1")
        assert (await ask(listener.port, "GET", "/hello")).body == b"hello "
        assert failures == -1
    assert caplog.messages == ["the HTTP server could not be loaded"]


async def test_who_waits_too_long_for_the_server_is_told_so_and_the_next_one_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web_module, "HELLO_DEADLINE_S", 0.05)
    go_on = threading.Event()

    def late_routes() -> Sequence[PageRoute]:
        go_on.wait(DEADLINE_S)
        return some_routes()

    async with a_door(late_routes) as listener:
        answer = await ask(listener.port, "GET", "/hello")
        assert (answer.status, answer.code) == (503, "busy")
        monkeypatch.setattr(web_module, "HELLO_DEADLINE_S", DEADLINE_S)
        async with HttpPeer(listener.port) as peer:
            await peer.head("GET", "/hello")
            go_on.set()
            assert (await peer.answer()).body == b"hello "
        await eventually(lambda: listener.http_port.connections == 0)


WITHOUT_FILES = """
import asyncio, os, resource
from tests.kit.guards import OpenGuard
from wakugumi.adapters.http.page import PageRoute, Reply
from wakugumi.adapters.port.port import listen_http

async def hello(visit):
    return Reply(200, b"hello")

async def take_all(taken):
    while True:  # Also those that are closed by others meanwhile.
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            await asyncio.sleep(0)

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    listener = await listen_http("127.0.0.1", 0, [lambda: [PageRoute("GET", "/", hello)]], OpenGuard())
    for turn in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        while not listener.http_port.connections:
            await asyncio.sleep(0.01)
        taken = []
        taking = asyncio.ensure_future(take_all(taken)) if turn == 0 else None
        while taking and not taken:
            await asyncio.sleep(0)
        writer.write(b"GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
        print((await asyncio.wait_for(reader.read(), 20))[:12].decode())
        if taking:
            taking.cancel()
        for file in taken:
            os.close(file)
        writer.close()
    await listener.close()

asyncio.run(main())
"""


def test_a_port_that_had_no_file_to_spare_for_the_first_request_speaks_http_later() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_FILES], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["HTTP/1.1 503", "HTTP/1.1 200", "HTTP/1.1 200"], done.stderr


def test_the_server_is_not_imported_before_somebody_asks() -> None:
    code = (
        "import sys; import wakugumi.roles.leader.leader, wakugumi.roles.runner.worker, wakugumi.adapters.blobs.place;"
        "heavy = ('aiohttp', 'httptools', 'http.client', 'obstore', 'backports.zstd', 'prometheus_client');"
        "print([name for name in heavy if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert said.stdout == "[]\n", said.stderr


@pytest.mark.spec("N5", "O1")
async def test_records_of_tls_that_arrive_together_are_read_in_their_order(tmp_path: Path) -> None:
    """The buffer of a port is shared: a part that is not read would be bytes of another connection."""
    grid = TlsGrid(tmp_path)
    parts = [b"POST /echo HTTP/1.1\r\nHost: localhost\r\n", b"Content-Length: 12000\r\n\r\n", b"a" * 6000, b"b" * 6000]

    async def echo(visit: HttpRequest) -> Reply:
        return Reply(200, b"".join([piece async for piece in visit.pieces()]))

    def talk(port: int) -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=grid.ca.certificate.decode())
        into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(into, out, server_hostname="leader.wakugumi")
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:

            def until(step: Callable[[], bytes | int | None]) -> bytes | int | None:
                while True:
                    try:
                        done = step()
                    except ssl.SSLWantReadError:
                        done = b""
                    if data := out.read():
                        sock.sendall(data)
                    if done != b"":
                        return done
                    into.write(sock.recv(65536))

            until(client.do_handshake)
            for part in parts:
                client.write(part)
            sock.sendall(out.read())  # All records in one go.
            answer = b""
            while not answer.endswith(b"b") and b" 400 " not in answer:
                answer += until(lambda: client.read(65536))  # type: ignore[operator]
            return answer

    async with a_door(lambda: [PageRoute("POST", "/echo", echo)], tls=grid.server()) as listener:
        for _ in range(3):
            answer = await asyncio.to_thread(talk, listener.port)
            assert answer.endswith(b"\r\n\r\n" + b"a" * 6000 + b"b" * 6000)
