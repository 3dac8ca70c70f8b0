"""A node, called over HTTP and by lines: the same jobs, the same slots, the same results."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.kit.a_node import a_node, ask, left_in, post, say, unzipped
from tests.kit.eventually import eventually
from tests.kit.form import form
from tests.kit.node_requests import line, run

from wakugumi.core.ids import job_id_from_name, show_job_id
from wakugumi.limits.units import MIB

pytestmark = pytest.mark.anyio


@pytest.mark.spec("N4")
async def test_a_finished_job_is_answered_at_once_in_both_languages(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        first = await ask(at.http, run("x"))
        again = await ask(at.http, run("x", b"something else"))
        by_line = await say(at.lines, line("x"))
        by_id = await ask(at.http, run(show_job_id(job_id_from_name("x"))))
        large = await ask(at.http, post("/run/x", form(b"")[:-20], length=900 * MIB))
        assert large.headers["connection"] == "close"
        assert first.body == again.body == by_id.body == large.body
        assert unzipped(by_line.partition(b"\n")[2]) == first.files
        assert at.runs == 1


@pytest.mark.spec("N2")
async def test_a_job_that_runs_is_locked_for_http_and_waited_for_by_lines(tmp_path: Path) -> None:
    async with a_node(tmp_path, "wait") as at, asyncio.TaskGroup() as group:
        first = group.create_task(ask(at.http, run("x", b"one")))
        await at.until("station.running == 1")
        locked = await ask(at.http, run("x", b"two"))
        assert (locked.status, locked.problem, locked.headers["retry-after"]) == (423, "running", "1")
        unread = await ask(at.http, post("/run/x", b"", length=900 * MIB))
        assert unread.status == 423
        waiting = group.create_task(say(at.lines, line("x", b"three")))
        await at.until("node.answering == 2 and node.receiving == 0")
        at.open_gate()
        assert (await first).files["stdout.txt"] == b"one"
        assert (await waiting).partition(b"\n")[2] == (await first).body
        assert at.runs == 1


@pytest.mark.spec("N2", "N3")
async def test_busy_is_told_in_both_languages_while_every_slot_is_taken(tmp_path: Path) -> None:
    async with a_node(tmp_path, "wait", slots=1, retry_after=7) as at, asyncio.TaskGroup() as group:
        first = group.create_task(ask(at.http, run("x")))
        await at.until("station.running == 1")
        capacity = await ask(at.http, b"GET /capacity HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert capacity.body == b'{"running":1,"limit":1}'
        busy = await ask(at.http, run("y"))
        assert (busy.status, busy.problem, busy.headers["retry-after"]) == (503, "busy", "7")
        assert await say(at.lines, line("y")) == b"BUSY retry=7\n"
        at.open_gate()
        assert (await first).status == 200
        assert (await ask(at.http, run("y"))).status == 200
        assert at.node.station.counts.busy == 2


@pytest.mark.spec("N3")
async def test_those_who_send_do_not_take_the_slots_of_those_who_run(tmp_path: Path) -> None:
    async with a_node(tmp_path, receive=2) as at:
        slow = [await asyncio.open_connection("127.0.0.1", at.http) for _ in range(2)]
        for number, (_, writer) in enumerate(slow):
            writer.write(post(f"/run/slow-{number}", form(b"x" * 100)[:-50], length=len(form(b"x" * 100))))
        await at.until("node.receiving == 2")
        assert at.node.station.free == 2
        assert (await ask(at.http, run("more"))).problem == "busy"
        assert await say(at.lines, line("more")) == b"BUSY retry=5\n"
        assert at.node.receive_slots.refused == 2
        slow[0][1].write(form(b"x" * 100)[-50:])
        await at.until("node.receiving == 1")
        assert (await ask(at.http, run("more"))).status == 200
        assert (await slow[0][0].read(-1)).startswith(b"HTTP/1.1 200")
        slow[1][1].close()
        slow[0][1].close()


@pytest.mark.spec("N3", "W1")
@pytest.mark.parametrize("by_line", [False, True])
async def test_a_large_input_and_a_large_result_pass(tmp_path: Path, by_line: bool) -> None:
    content = os.urandom(5 * MIB + 17)
    async with a_node(tmp_path) as at:
        if by_line:
            body = (await say(at.lines, line("x", content))).partition(b"\n")[2]
        else:
            got = await ask(at.http, run("x", content))
            assert int(got.headers["content-length"]) == len(got.body)
            body = got.body
        files = unzipped(body)
        assert files["copied"] == content
        assert files["stdout.txt"] == b"%d\n" % len(content)


async def test_who_leaves_in_the_midst_of_a_large_answer_holds_nothing(tmp_path: Path) -> None:
    async with a_node(tmp_path, "large") as at:
        for port, request in ((at.http, run("x")), (at.lines, line("y"))):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            assert await reader.read(1000)
            await at.until("node.answering == 1")
            writer.transport.abort()
            await at.until("node.answering == 0")
        assert len((await ask(at.http, run("x"))).body) > 20_000_000
        assert at.runs == 2


async def test_a_failed_job_with_a_large_result_runs_again_once_that_was_read(tmp_path: Path) -> None:
    async with a_node(tmp_path, "spoil") as at:
        for _ in range(2):
            got = await ask(at.http, run("x"))
            assert (got.status, got.headers["waku-status"]) == (200, "FAILED")
            assert len(got.files["made"]) == 20_000_000
            await at.until("node.answering == 0")
        for _ in range(2):
            assert await say(at.lines, line("y")) == b"ERR exit=4\n"
        assert at.runs == 4


@pytest.mark.spec("N2")
async def test_a_job_whose_caller_is_gone_goes_on_and_answers_the_next_one(tmp_path: Path) -> None:
    async with a_node(tmp_path, "wait") as at:
        for port, request in ((at.http, run("x")), (at.lines, line("y"))):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            await at.until(f"station.running == {1 if port == at.http else 2}")
            writer.transport.abort()
        at.open_gate()
        await at.until("station.running == 0")
        assert (await ask(at.http, run("x"))).status == 200
        assert (await say(at.lines, line("y"))).startswith(b"OK ")
        assert at.runs == 2


async def test_a_node_that_stops_takes_nothing_new_and_answers_who_waits(tmp_path: Path) -> None:
    async with a_node(tmp_path, "wait") as at, asyncio.TaskGroup() as group:
        first = group.create_task(ask(at.http, run("x")))
        await at.until("station.running == 1")
        at.node.station.request_stop()
        await at.until("station.stopping")
        got = await ask(at.http, run("y"))
        assert (got.status, got.problem, got.headers["retry-after"]) == (503, "stopping", "5")
        assert await say(at.lines, line("y")) == b"BUSY retry=5\n"
        health = await ask(at.http, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (health.status, b'"stopping"' in health.body) == (503, True)
        at.open_gate()
        assert (await first).status == 200


@pytest.mark.spec("N4")
async def test_a_job_whose_time_is_over_is_gone_and_runs_anew(tmp_path: Path) -> None:
    async with a_node(tmp_path, keep_s=0.1) as at:
        assert (await ask(at.http, run("x"))).status == 200
        done = Path(at.node.station.folder) / show_job_id(job_id_from_name("x")) / ".done"
        await eventually(lambda: not done.exists())
        assert (await ask(at.http, run("x"))).status == 200
        assert at.runs == 2


async def test_what_an_earlier_life_was_receiving_is_removed(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        folder = at.node.spools.folder
    (folder / "received-1").write_bytes(b"half of it")
    async with a_node(tmp_path):
        assert left_in(folder) == []
