"""Jobs of a node belong to clients: others get neither their results nor a way to end them, by HTTP and by lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from tests.kit.a_node import ANode, Got, a_node, ask, say
from tests.kit.guards import ANN, BOB, KeysAtHand, key_of, shows
from tests.kit.node_requests import line, run

from wakugumi.core.access.identity import Identity, Role, Rules
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.wire.messages.envelope import JOB_TYPE
from wakugumi.wire.messages.job import InputFile, JobRequest, write_request

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1", "N1", "N2")]

T = TypeVar("T")
LEADER = Identity("gate", Role.GATEWAY)
ONLOOKER = Identity("cid", Role.CLIENT, Rules(sees="all"))
PRICER = Identity("risk", Role.CLIENT, Rules(programs=("copy",)))


@asynccontextmanager
async def a_guarded_node(folder: Path, command: str = "copy") -> AsyncIterator[ANode]:
    guard = AccessGuard(keys=KeysAtHand(ANN, BOB, LEADER, ONLOOKER, PRICER))
    async with a_node(folder, command, guard=guard) as at:
        yield at


def begun(work: Coroutine[None, None, T]) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(work, name="a client that waits")


async def post(at: ANode, sender: Identity, job: str, content: bytes = b"hello", query: str = "") -> Got:
    return await ask(at.http, run(job, content, query, shows(sender)))


async def cancel(at: ANode, sender: Identity, job: str) -> Got:
    head = f"DELETE /jobs/{job} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{shows(sender)}\r\n\r\n"
    return await ask(at.http, head.encode())


@pytest.mark.parametrize("content", [b"hello", b"x" * 5_000_000])
@pytest.mark.parametrize("command", ["copy", "fail"])
async def test_a_kept_job_of_another_client_is_denied_and_unknown(tmp_path: Path, command: str, content: bytes) -> None:
    async with a_guarded_node(tmp_path, command) as at:
        assert (await post(at, ANN, "monday", content)).status == 200
        foreign = await post(at, BOB, "monday", content)
        assert (foreign.status, foreign.problem) == (403, "denied")
        assert b"ann" not in foreign.body
        by_line = await say(at.lines, line("monday", content, key=key_of(BOB)))
        assert by_line.startswith(b"ERR denied: ")
        unknown, never = await cancel(at, BOB, "monday"), await cancel(at, BOB, "never1")
        assert (unknown.status, unknown.problem) == (404, "unknown-job")
        assert unknown.body.replace(b"monday", b"never1") == never.body
        assert at.runs == 1
        assert (await cancel(at, ANN, "monday")).status == 202


async def test_a_running_job_of_another_client_is_neither_told_nor_joined_nor_ended(tmp_path: Path) -> None:
    async with a_guarded_node(tmp_path, "wait") as at:
        running = begun(post(at, ANN, "monday"))
        await at.until("station.running == 1")
        assert (await post(at, BOB, "monday")).problem == "denied"
        assert (await post(at, ANN, "monday")).problem == "running"
        assert (await say(at.lines, line("monday", key=key_of(BOB)))).startswith(b"ERR denied: ")
        assert (await cancel(at, BOB, "monday")).problem == "unknown-job"
        assert (await cancel(at, ONLOOKER, "monday")).problem == "denied"
        joined = begun(say(at.lines, line("monday", key=key_of(ANN))))
        at.open_gate()
        assert (await running).status == 200
        assert (await joined).startswith(b"OK ")


async def test_an_id_that_another_client_takes_while_the_input_comes_is_denied(tmp_path: Path) -> None:
    async with a_guarded_node(tmp_path, "wait") as at:
        whole = run("monday", b"late", "", shows(BOB))
        reader, writer = await asyncio.open_connection("127.0.0.1", at.http)
        writer.write(whole[:-3])
        await at.until("node.receiving == 1")
        running = begun(post(at, ANN, "monday"))
        await at.until("station.running == 1")
        writer.write(whole[-3:])
        assert b'"code":"denied"' in await reader.read()
        writer.close()
        at.open_gate()
        assert (await running).files["stdout.txt"] == b"hello"


async def test_a_gateway_sees_all_and_speaks_for_each_client(tmp_path: Path) -> None:
    async with a_guarded_node(tmp_path) as at:
        assert (await post(at, LEADER, "monday", query="?client=ann")).status == 200
        assert (await post(at, ANN, "monday")).headers["waku-kept"]
        assert (await post(at, ONLOOKER, "monday")).headers["waku-kept"]
        assert (await post(at, LEADER, "monday")).headers["waku-kept"]
        assert (await post(at, BOB, "monday")).problem == "denied"


async def test_a_failed_job_runs_anew_for_those_that_may_change_it(tmp_path: Path) -> None:
    async with a_guarded_node(tmp_path, "fail") as at:
        assert (await post(at, ANN, "monday")).status == 200
        assert (await post(at, ONLOOKER, "monday")).problem == "denied"
        assert (await post(at, ANN, "monday")).status == 200
        assert at.runs == 2


@pytest.mark.parametrize(
    ("sender", "query", "why"),
    [
        (BOB, "?client=ann", b"not for ann"),
        (PRICER, "?program=args", b"risk may run copy, not args"),
        (PRICER, "", b"not a job without a program"),
    ],
)
async def test_a_job_that_its_sender_may_not_submit_is_refused(
    tmp_path: Path, sender: Identity, query: str, why: bytes
) -> None:
    async with a_guarded_node(tmp_path) as at:
        got = await post(at, sender, "monday", query=query)
        assert (got.status, got.problem) == (403, "denied")
        assert why in got.body
        assert at.runs == 0


async def test_an_envelope_passes_the_same_checks(tmp_path: Path) -> None:
    async with a_guarded_node(tmp_path) as at:
        for program, client, is_taken in (("copy", "risk", True), ("args", "risk", False), ("copy", "ann", False)):
            request = JobRequest("", client, program, ["in.txt"], [InputFile("in.txt", content=b"hello")])
            body = write_request(request)
            head = f"POST /run/{program}-{client} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JOB_TYPE}\r\n"
            told = f"{head}Content-Length: {len(body)}\r\n{shows(PRICER)}\r\n\r\n".encode()
            got = await ask(at.http, told + body)
            assert got.status == (200 if is_taken else 403), got
        assert at.runs == 1


async def test_a_line_is_of_the_client_of_its_key(tmp_path: Path) -> None:
    async with a_guarded_node(tmp_path) as at:
        assert (await say(at.lines, line("monday", key=key_of(ANN)))).startswith(b"OK ")
        assert (await post(at, ANN, "monday")).headers["waku-kept"]
        assert (await post(at, BOB, "monday")).problem == "denied"
        assert (await say(at.lines, line("tuesday", key=key_of(PRICER)))).startswith(b"ERR denied: ")


async def test_each_denial_is_a_line_of_the_audit_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with a_guarded_node(tmp_path) as at:
        assert (await post(at, ANN, "monday")).status == 200
        assert (await post(at, BOB, "monday")).problem == "denied"
        await say(at.lines, line("monday", key=key_of(BOB)))
    said = [one.getMessage() for one in caplog.records if one.name == "wakugumi.audit"]
    assert said == [
        "denied who=bob peer=127.0.0.1 what=POST /run/monday: the job id belongs to another client",
        next(text for text in said if "what=JOB monday: the job id belongs to another client" in text),
    ]


async def test_no_page_of_a_node_names_a_client(tmp_path: Path) -> None:
    async with a_guarded_node(tmp_path) as at:
        assert (await post(at, ANN, "monday")).status == 200
        for path in ("/metrics", "/capacity", "/health", "/openapi.json"):
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{shows(BOB)}\r\n\r\n"
            said = (await say(at.http, head.encode())).decode()
            assert " 200 " in said.splitlines()[0]
            assert "ann" not in said.replace("cannot", "").replace("channel", ""), path
