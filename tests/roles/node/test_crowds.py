"""Those who send before they read, who wait for what runs, who leave, and who hold what others need."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.kit.a_node import a_node, answer_from, ask, post, say, unzipped
from tests.kit.eventually import eventually
from tests.kit.fake_group import open_files
from tests.kit.form import DELIMITER, FORM_HEADERS, form

from wakugumi.adapters.port.port import HttpListener
from wakugumi.core.connections import line_connection, pace
from wakugumi.errors import ConfigError
from wakugumi.limits.units import MIB
from wakugumi.roles.node.node import emptied
from wakugumi.roles.node.settings import NodeSettings
from wakugumi.roles.runner.station import Station

pytestmark = pytest.mark.anyio


def line(job: str, content: bytes = b"hello") -> bytes:
    return f"JOB {job} in.txt {len(content)}\n".encode() + content


@pytest.mark.spec("N4")
@pytest.mark.parametrize("command", ["large", "copy"])
async def test_a_large_result_reaches_who_sends_a_large_input_again_before_it_reads(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "BODY_RECEIVED_MIN_S", 3.0)
    content = bytes(60 * MIB)
    got: list[bytes] = []

    def by_line(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            sock.sendall(line("x", content))
            got.append(b"".join(iter(lambda: sock.recv(MIB), b"")).partition(b"\n")[2])

    def by_http(port: int) -> None:
        caller = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        caller.request("POST", "/run/x", form(content), FORM_HEADERS)
        got.append(caller.getresponse().read())
        caller.close()

    async with a_node(tmp_path, command) as at:
        first = await ask(at.http, post("/run/x", form(os.urandom(1000))))
        await asyncio.to_thread(by_line, at.lines)
        await asyncio.to_thread(by_http, at.http)
        assert [unzipped(body) for body in got] == 2 * [unzipped(first.body)]
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
    monkeypatch.setattr(line_connection, "LINE_GONE_S", 0.05)
    async with a_node(tmp_path, "wait") as at:
        for _ in range(3):
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
            await at.until("node.answering == 0 and not any(station._waiting.values())")
        assert at.runs == 1


@pytest.mark.spec("N1")
async def test_who_closes_its_half_and_waits_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_connection, "LINE_GONE_S", 0.01)
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


@pytest.mark.spec("N3")
async def test_when_all_receive_slots_are_taken_a_slow_sender_has_to_go(tmp_path: Path) -> None:
    async with a_node(tmp_path, receive=1) as at, asyncio.TaskGroup() as group:
        at.node.receive_slots.grace_s = 0.1
        head = post("/run/slow", form(bytes(MIB))[:1000], length=len(form(bytes(MIB))))
        for request, port, large in (
            (head, at.http, post("/run/a", form(bytes(MIB)))),
            (b"JOB slow in.txt %d\nx" % MIB, at.lines, post("/run/b", form(bytes(MIB)))),
        ):
            slow = group.create_task(say(port, request))
            await at.until("node.receiving == 1")
            while (got := await ask(at.http, large)).status != 200:
                assert (got.status, got.problem) == (503, "busy"), "it is not slow yet"
            told = await slow
            assert told.startswith((b"HTTP/1.1 408 ", b"ERR too-slow: others wait")), told
        assert at.runs == 2


@pytest.mark.spec("N3")
async def test_a_small_input_does_not_wait_for_large_ones(tmp_path: Path) -> None:
    async with a_node(tmp_path, receive=1) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.lines)
        writer.write(b"JOB large in.txt %d\nx" % MIB)
        await at.until("node.receiving == 1")
        assert await say(at.lines, b"JOB more in.txt %d\nx" % MIB) == b"BUSY retry=5\n"
        assert (await ask(at.http, post("/run/small", form(b"small")))).status == 200
        writer.close()
        del reader


@pytest.mark.spec("N3", "N4")
async def test_a_kept_result_needs_no_receive_slot(tmp_path: Path) -> None:
    async with a_node(tmp_path, receive=1) as at:
        first = await ask(at.http, post("/run/done", form(b"small")))
        _, writer = await asyncio.open_connection("127.0.0.1", at.lines)
        writer.write(b"JOB slow in.txt 5\nx")
        await at.until("node.receiving == 1")
        assert (await ask(at.http, post("/run/other", form(b"small")))).problem == "busy"
        assert (await ask(at.http, post("/run/done", form(b"small")))).files == first.files
        assert (await say(at.lines, b"JOB done in.txt 5\nsmall")).startswith(b"OK ")
        writer.close()


@pytest.mark.spec("N3")
async def test_what_is_received_leaves_room_for_what_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 100 * MIB
    real = os.statvfs

    def statvfs(path: object) -> object:
        there = real(path)  # type: ignore[arg-type]
        return SimpleNamespace(
            f_bavail=free // there.f_frsize, f_frsize=there.f_frsize, f_files=there.f_files, f_favail=there.f_favail
        )

    async with a_node(tmp_path) as at:
        monkeypatch.setattr(os, "statvfs", statvfs)
        content = bytes(40 * MIB)
        got = await ask(at.http, post("/run/x", form(content)[:1000], length=len(content) + 200))
        assert (got.status, got.problem) == (507, "disk")
        assert (await say(at.lines, b"JOB x in.txt %d\n" % len(content))).startswith(b"ERR disk: ")
        free = 64 * MIB + 5 * MIB  # It shrinks while one comes whose size nobody said.
        chunks = b"".join(b"%x\r\n%s\r\n" % (MIB, bytes(MIB)) for _ in range(3))
        head = form(b"")[: -len(b"\r\n" + DELIMITER + b"--\r\n")]
        request = post("/run/x", b"%x\r\n%s\r\n" % (len(head), head), "Transfer-Encoding: chunked", length=-1)
        reader, writer = await asyncio.open_connection("127.0.0.1", at.http)
        writer.write(request + chunks)
        await eventually(lambda: open_files(at.node.spools.folder, ""))
        free = 64 * MIB
        writer.write(chunks)
        assert (await reader.readline()).startswith(b"HTTP/1.1 507 ")
        writer.close()
        assert (await ask(at.http, post("/run/small", form(b"small")))).status == 200


@pytest.mark.spec("N4")
async def test_a_job_whose_failure_is_still_read_says_so(tmp_path: Path) -> None:
    async with a_node(tmp_path, "spoil") as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.http, limit=1024)
        writer.write(post("/run/x", form(b"x")))
        await reader.readline()
        got = await ask(at.http, post("/run/x", form(b"x")))
        assert (got.status, got.problem, b"still read" in got.body) == (503, "busy", True)
        assert b"all slots are taken" not in got.body
        writer.transport.abort()


async def test_a_folder_for_what_is_received_is_no_link_to_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine").touch()
    (tmp_path / "jobs" / ".receiving").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError):
        emptied(tmp_path / "jobs" / ".receiving")
    assert (tmp_path / "elsewhere" / "mine").exists()


@pytest.mark.spec("N4")
async def test_a_node_does_not_share_its_folder(tmp_path: Path) -> None:
    async with a_node(tmp_path):
        with pytest.raises(ConfigError, match="another process has the jobs folder"):
            Station(NodeSettings(programs=tmp_path / "bin", jobs=tmp_path / "jobs"))


@pytest.mark.spec("N2")
async def test_two_who_send_the_same_job_run_it_once(tmp_path: Path) -> None:
    """Both were told to send; the second finds that the first was quicker."""
    async with a_node(tmp_path, "wait") as at, asyncio.TaskGroup() as group:
        whole = post("/run/x", form(bytes(MIB)))
        reader, writer = await asyncio.open_connection("127.0.0.1", at.http)
        writer.write(whole[:-10])
        await at.until("node.receiving == 1")
        first = group.create_task(ask(at.http, post("/run/x", form(b"first"))))
        await at.until("station.running == 1")
        writer.write(whole[-10:])
        got = await answer_from(reader)
        assert (got.status, got.problem) == (423, "running")
        writer.close()
        at.open_gate()
        assert (await first).files["stdout.txt"] == b"first"
        assert at.runs == 1


async def test_a_stop_waits_for_answers_unless_somebody_is_in_a_hurry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[HttpListener] = []
    close = HttpListener.close

    async def noted(self: HttpListener) -> None:
        closed.append(self)
        await close(self)

    monkeypatch.setattr(HttpListener, "close", noted)
    for hurry in (False, True):
        (tmp_path / "gate").unlink(missing_ok=True)
        async with a_node(tmp_path, "wait") as at, asyncio.TaskGroup() as group:
            first = group.create_task(say(at.lines, line(f"x{hurry}")))
            await at.until("station.running == 1 and node.answering == 1")
            closing = group.create_task(at.ports.close())
            done, _ = await asyncio.wait([closing], timeout=0.1)
            assert not done
            assert len(closed) == 2 * hurry  # The first round's, by itself and in the end.
            if hurry:
                at.ports.hurry()
                await closing
                assert await first == b""
            else:
                at.open_gate()
                assert (await first).startswith(b"OK ")
                await closing


async def test_an_answer_before_the_body_ends_the_connection(tmp_path: Path) -> None:
    async with a_node(tmp_path, "wait", slots=1) as at, asyncio.TaskGroup() as group:
        first = group.create_task(ask(at.http, post("/run/x", form(b"x"))))
        await at.until("station.running == 1")
        request = post("/run/y", b"", "Expect: 100-continue", length=MIB).replace(b"Connection: close\r\n", b"")
        got = await ask(at.http, request)
        assert (got.status, got.headers["connection"]) == (503, "close")
        at.open_gate()
        await first
