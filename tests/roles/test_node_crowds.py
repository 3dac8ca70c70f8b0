"""Those who send before they read, who wait for what runs, who leave, and who hold what others need."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from tests.roles.a_node import a_node, ask, form, post, say, unzipped

from wakugumi.adapters import lines, web_connection, web_server
from wakugumi.limits import MIB

pytestmark = pytest.mark.anyio


def line(job: str, content: bytes = b"hello") -> bytes:
    return f"JOB {job} in.txt {len(content)}\n".encode() + content


@pytest.mark.spec("N4")
@pytest.mark.parametrize("command", ["large", "copy"])
async def test_a_large_result_reaches_who_sends_a_large_input_again_before_it_reads(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (web_server, web_connection, lines):
        monkeypatch.setattr(module, "BODY_RECEIVED_MIN_S", 3.0)
    content = bytes(60 * MIB)
    got: list[bytes] = []

    def by_line(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            sock.sendall(line("x", content))
            got.append(b"".join(iter(lambda: sock.recv(MIB), b"")).partition(b"\n")[2])

    def by_http(port: int) -> None:
        caller = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        caller.request("POST", "/run/x", form(content), {"Content-Type": "multipart/form-data; boundary=B"})
        got.append(caller.getresponse().read())
        caller.close()

    async with a_node(tmp_path, command) as at:
        first = await ask(at.http, post("/run/x", form(os.urandom(1000))))
        await asyncio.to_thread(by_line, at.lines)
        await asyncio.to_thread(by_http, at.http)
        assert got == [first.body, first.body]
        assert at.runs == 1


@pytest.mark.spec("N1")
async def test_who_waits_for_what_runs_sends_its_input_into_the_void(tmp_path: Path) -> None:
    async with a_node(tmp_path, "wait") as at, asyncio.TaskGroup() as group:
        first = group.create_task(say(at.lines, line("x", b"one")))
        await at.until("station.running == 1")
        more = [group.create_task(say(at.lines, line("x", bytes(5 * MIB)))) for _ in range(3)]
        await at.until("node.answering == 4")
        assert at.node.receiving == 0
        at.open_gate()
        assert unzipped((await first).partition(b"\n")[2])["stdout.txt"] == b"one"
        assert {await one for one in more} == {await first}
        assert at.runs == 1


@pytest.mark.spec("N1")
@pytest.mark.parametrize("half", [False, True])
async def test_who_leaves_while_its_job_runs_is_not_remembered(
    tmp_path: Path, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LINE_GONE_S", 0.05)
    async with a_node(tmp_path, "wait") as at:
        for number in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", at.lines)
            writer.write(line("x"))
            await at.until("node.answering == 1 and station.running == 1")
            await at.until("[len(waiting) for waiting in station._waiting.values()] == [1]")
            if half:  # Its end is seen first, and its reset later.
                writer.write_eof()
                await asyncio.sleep(0)
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
            await at.until("node.answering == 0")
            assert not any(at.node.station._waiting.values()), number
        assert at.runs == 1


@pytest.mark.spec("N1")
async def test_who_closes_its_half_and_waits_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_GONE_S", 0.01)
    async with a_node(tmp_path, "wait") as at, asyncio.TaskGroup() as group:
        first = group.create_task(say(at.lines, line("x"), end=True))
        await at.until("station.running == 1")
        second = group.create_task(say(at.lines, line("x"), end=True))
        await at.until("node.answering == 2")
        at.open_gate()
        assert (await first).startswith(b"OK ")
        assert await first == await second


async def test_head_is_answered_like_get_without_its_body(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        for path in ("/health", "/capacity", "/metrics", "/openapi.json"):
            got = await say(at.http, f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            head, _, body = got.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), path
            assert b"content-length: 0\r" not in head.lower() + b"\r"
            assert body == b""


async def test_an_origin_that_is_none_is_denied(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        got = await ask(at.http, b"GET /health HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[\r\n\r\n")
        assert (got.status, got.problem) == (403, "denied")


async def test_who_asks_for_a_page_that_is_not_there_is_told_where_all_are(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        for request, status in ((b"GET /nowhere", 404), (b"PUT /health", 405)):
            got = await ask(at.http, request + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (got.status, b"/openapi.json" in got.body) == (status, True)
