"""A node, called over HTTP and by lines: the same jobs, the same slots, the same results."""

from __future__ import annotations

import asyncio
import io
import os
import re
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.kit.a_node import a_node, ask, left_in, post, say, unzipped
from tests.kit.eventually import eventually
from tests.kit.form import form

from wakugumi.core.ids import job_id_from_name, show_job_id
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.job import InputFile, JobRequest
from wakugumi.wire.request_digest import request_digest

pytestmark = pytest.mark.anyio


def line(job: str, content: bytes = b"hello", name: str = "in.txt") -> bytes:
    return f"JOB {job} {name} {len(content)}\n".encode() + content


def run(job: str, content: bytes = b"hello", query: str = "") -> bytes:
    return post(f"/run/{job}{query}", form(content))


@pytest.mark.spec("N2", "W1")
async def test_a_job_by_http_is_answered_with_its_zip(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        got = await ask(at.http, run("monday-7"))
        assert got.status == 200
        assert got.headers["content-type"] == "application/zip"
        assert got.headers["content-disposition"] == 'attachment; filename="result-monday-7.zip"'
        assert (got.headers["waku-job"], got.headers["waku-status"]) == ("monday-7", "OK")
        assert got.headers["waku-exit-code"] == "0"
        assert got.files == {"copied": b"hello", "stdout.txt": b"5\n", "stderr.txt": b"warned\n"}


@pytest.mark.spec("N1", "W1")
@pytest.mark.parametrize("one_port", [False, True])
async def test_a_job_by_line_is_answered_with_its_zip(tmp_path: Path, one_port: bool) -> None:
    async with a_node(tmp_path, one_port=one_port) as at:
        head, _, body = (await say(at.lines, line("monday-7", name="a%20b.txt"))).partition(b"\n")
        assert head == b"OK %d" % len(body)
        assert unzipped(body) == {"copied": b"hello", "stdout.txt": b"5\n", "stderr.txt": b"warned\n"}
        assert (at.http == at.lines) is one_port


@pytest.mark.spec("N2")
async def test_a_program_that_fails_is_an_answer_and_runs_again(tmp_path: Path) -> None:
    async with a_node(tmp_path, "fail") as at:
        for runs in (1, 2):
            got = await ask(at.http, run("x"))
            assert (got.status, got.headers["waku-status"], got.headers["waku-exit-code"]) == (200, "FAILED", "3")
            assert got.headers["waku-reason"] == "exit"
            assert got.files == {"stdout.txt": b"", "stderr.txt": b"why\n"}
            assert at.runs == runs


@pytest.mark.spec("N1")
async def test_a_program_that_fails_is_told_in_a_line_and_runs_again(tmp_path: Path) -> None:
    async with a_node(tmp_path, "fail") as at:
        for runs in (1, 2):
            assert await say(at.lines, line("x")) == b"ERR exit=3\n"
            assert at.runs == runs


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


@pytest.mark.spec("L6", "N1", "N2")
async def test_an_answer_that_was_kept_says_so_and_since_when(tmp_path: Path) -> None:
    began = datetime.now(UTC).replace(microsecond=0)
    async with a_node(tmp_path) as at:
        first = await ask(at.http, run("x"))
        assert "waku-kept" not in first.headers
        fresh = (await say(at.lines, line("y"))).partition(b"\n")[2]
    async with a_node(tmp_path) as at:
        kept = (await ask(at.http, run("x", b"something else"))).headers["waku-kept"]
        assert began <= datetime.fromisoformat(kept) <= datetime.now(UTC)
        by_line = (await say(at.lines, line("x"))).partition(b"\n")[2]
        assert at.runs == 2
    for body, comment in ((by_line, f"Waku-Kept: {kept}"), (fresh, "")):
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            assert archive.comment.decode() == comment


@pytest.mark.spec("L6")
async def test_who_tells_the_digest_of_its_request_never_gets_the_answer_of_another(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        request = JobRequest("", args=[], files=[InputFile("in.txt", content=b"monday")])
        monday = f"Waku-Request: {request_digest(request).hex()}"
        first = await ask(at.http, post("/run/x", form(b"monday"), monday))
        again = await ask(at.http, post("/run/x", form(b"monday"), monday))
        assert (first.status, again.status, again.body) == (200, 200, first.body)
        other = f"Waku-Request: {bytes(range(16)).hex()}"
        for ask_with in (post("/run/x", form(b"tuesday"), other), post("/run/x", b"", other)):
            got = await ask(at.http, ask_with)
            assert (got.status, got.problem) == (409, "conflict")
        bad = await ask(at.http, post("/run/x", form(b"monday"), "Waku-Request: monday"))
        assert (bad.status, bad.problem) == (400, "bad-request")
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
        assert at.node.receive_busy == 2
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


@pytest.mark.spec("L10")
async def test_a_running_job_can_be_cancelled(tmp_path: Path) -> None:
    def delete(job: str) -> bytes:
        return f"DELETE /jobs/{job} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()

    async with a_node(tmp_path, "wait") as at, asyncio.TaskGroup() as group:
        by_http = group.create_task(ask(at.http, run("x")))
        by_line = group.create_task(say(at.lines, line("y")))
        await at.until("station.running == 2")
        for job in ("x", "y"):
            got = await ask(at.http, delete(job))
            assert (got.status, got.body) == (202, b'{"cancelled":true}')
        assert ((await by_http).status, (await by_http).problem) == (410, "cancelled")
        assert (await by_line).startswith(b"ERR cancelled: ")
        at.open_gate()
        assert (await ask(at.http, run("x"))).status == 200
        assert (await ask(at.http, delete("x"))).body == b'{"cancelled":false}'
        assert ((await ask(at.http, delete("z"))).status, (await ask(at.http, delete(".."))).status) == (404, 400)


@pytest.mark.spec("N2", "W1")
async def test_the_query_says_what_to_run(tmp_path: Path) -> None:
    async with a_node(tmp_path, "args --fast {input} -v") as at:
        got = await ask(at.http, run("a"))
        directory = Path(at.node.station.folder) / show_job_id(job_id_from_name("a"))
        assert got.files["stdout.txt"].decode().splitlines() == ["--fast", f"{directory}/in.txt", "-v"]
        got = await ask(at.http, run("b", query="?program=args&arg=x&arg={input}&client=me&priority=3"))
        assert got.files["stdout.txt"] == b"x\nin.txt\n"
        got = await ask(at.http, run("c", query="?program=nothing"))
        assert (got.status, got.problem) == (404, "unknown-program")
        got = await ask(at.http, run("d", query="?program=wait&timeout=0.05"))
        assert (got.status, got.problem) == (504, "timeout")
        got = await ask(at.http, run("e", query="?speed=9"))
        assert (got.status, got.problem) == (400, "bad-request")
        assert b"speed" in got.body


async def test_a_node_without_a_program_of_its_own_needs_to_be_told_one(tmp_path: Path) -> None:
    async with a_node(tmp_path, "") as at:
        assert (await ask(at.http, run("a"))).status in {400, 404}
        assert (await say(at.lines, line("b"))).startswith(b"ERR bad-name: ")
        assert (await ask(at.http, run("c", query="?program=copy"))).status == 200


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
        folder = at.node.folder
    (folder / "received-1").write_bytes(b"half of it")
    async with a_node(tmp_path):
        assert left_in(folder) == []


@pytest.mark.spec("N1")
async def test_the_few_lines_of_the_document_speak_to_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = (Path(__file__).parents[3] / "docs" / "use" / "http.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    (tmp_path / "input.txt").write_text("hello")
    monkeypatch.chdir(tmp_path)
    async with a_node(tmp_path) as at:
        names: dict[str, object] = {}
        await asyncio.to_thread(exec, code.replace("9099", str(at.lines)), names)
        assert capsys.readouterr().out.startswith("b'OK ")
        assert at.runs == 1


@pytest.mark.spec("N4", "G1")
async def test_who_sends_nothing_gets_what_is_there_and_is_told_if_there_is_nothing(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        nothing = b"POST /run/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        assert (await ask(at.http, nothing)).status == 400
        first = await ask(at.http, run("x"))
        again = await ask(at.http, nothing)
        assert (again.status, again.files, at.runs) == (200, first.files, 1)
