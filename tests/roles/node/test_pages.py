"""What does a node answer over HTTP? Real programs over real sockets."""

from __future__ import annotations

import asyncio
import io
import zipfile
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest
from tests.kit.a_node import a_node, ask, post, say, unzipped
from tests.kit.form import form
from tests.kit.node_requests import line, run

from wakugumi.core.ids import job_id_from_name, show_job_id
from wakugumi.wire.messages.envelope import JOB_TYPE, RESULT_TYPE, opened, seal
from wakugumi.wire.messages.job import InputFile, JobRequest, read_ack, read_result, write_request
from wakugumi.wire.request_digest import request_digest

pytestmark = pytest.mark.anyio


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


@pytest.mark.spec("N2")
async def test_a_program_that_fails_is_an_answer_and_runs_again(tmp_path: Path) -> None:
    async with a_node(tmp_path, "fail") as at:
        for runs in (1, 2):
            got = await ask(at.http, run("x"))
            assert (got.status, got.headers["waku-status"], got.headers["waku-exit-code"]) == (200, "FAILED", "3")
            assert got.headers["waku-reason"] == "exit"
            assert got.files == {"stdout.txt": b"", "stderr.txt": b"why\n"}
            assert at.runs == runs


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


def sealed(job: str, content: bytes, *lines: str, **fields: object) -> bytes:
    """A request with an envelope, as a leader sends it."""
    file = InputFile("in.txt", content=content)
    request = JobRequest(show_job_id(job_id_from_name(job)), "desk", files=[file], **fields)  # type: ignore[arg-type]
    body = write_request(request)
    head = f"POST /run/{job} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {JOB_TYPE}\r\n"
    more = "".join(f"{line}\r\n" for line in (f"Content-Length: {len(body)}", *lines))
    return f"{head}{more}\r\n".encode() + body


ACCEPT = f"Accept: {RESULT_TYPE}"


@pytest.mark.spec("N2")
@pytest.mark.parametrize("size", [5, 1_000_000])
async def test_an_envelope_is_answered_with_one_also_after_a_restart(tmp_path: Path, size: int) -> None:
    content = b"x" * size
    answers = []
    for runs in (1, 1):
        async with a_node(tmp_path) as at:
            assert at.node.station.free == 2
            got = await ask(at.http, sealed("x", content, ACCEPT))
            assert (got.status, got.headers["content-type"]) == (200, RESULT_TYPE)
            answers.append(got.body)
            result = read_result(job_id_from_name("x"), got.body)
            assert (result.stdout, result.stderr, result.client_id) == (f"{size}\n", "warned\n", "desk")
            assert unzipped(result.output_archive or b"") == {"copied": content}
            by_zip = await ask(at.http, run("x", content))
            assert by_zip.files == {"copied": content, "stdout.txt": f"{size}\n".encode(), "stderr.txt": b"warned\n"}
            assert at.runs == runs
    assert answers[0] == answers[1]


@pytest.mark.spec("N2", "C5")
async def test_large_parts_follow_the_envelope(tmp_path: Path) -> None:
    async with a_node(tmp_path, "large") as at:
        body = (await ask(at.http, sealed("x", b"hello", ACCEPT))).body
        head, end = opened(body)
        ref = read_ack(seal(head)).archive_blob
        assert ref is not None
        assert (ref.size, ref.sha256) == (len(body) - end, sha256(body[end:]).hexdigest())
        assert list(unzipped(body[end:])) == ["made"]


@pytest.mark.spec("N2")
async def test_a_node_says_that_it_takes_envelopes(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        got = await ask(at.http, b"GET /capacity HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert got.headers["waku-takes"] == "env, job"


@pytest.mark.spec("N2")
@pytest.mark.parametrize("fields", [{"slots": 2}, {"broadcast_s": 5.0}])
async def test_a_job_that_no_form_can_describe_is_refused(tmp_path: Path, fields: dict[str, object]) -> None:
    async with a_node(tmp_path) as at:
        got = await ask(at.http, sealed("x", b"hello", ACCEPT, **fields))
        assert (got.status, got.problem, at.runs) == (400, "bad-request", 0)
        assert got.headers["waku-takes"] == "job"


@pytest.mark.spec("N2")
async def test_a_failing_program_is_an_answer_in_an_envelope_too(tmp_path: Path) -> None:
    async with a_node(tmp_path, "fail") as at:
        got = await ask(at.http, sealed("x", b"hello", ACCEPT))
        result = read_result(job_id_from_name("x"), got.body)
        assert (result.status, result.reason, result.exit_code) == ("FAILED", "exit", 3)
        got = await ask(at.http, sealed("y", b"hello", ACCEPT, exec_name="nothing"))
        assert (got.status, got.problem) == (404, "unknown-program")
