"""How does one exchange with a node pass? A fake node on a socket, and for large files a real leader before it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from tests.kit.fake_node import a_node
from tests.kit.known_nodes import a_group

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.http.client import HttpClient
from wakugumi.core.ids import ConnId, job_id_from_name
from wakugumi.core.leader.events import SendAssign
from wakugumi.core.leader.nodes.events import NodeAnswered, NodeReply
from wakugumi.core.subject import parse_subject
from wakugumi.errors import Lost, PeerError, Refused
from wakugumi.limits.units import MIB
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.nodes import node_result
from wakugumi.roles.leader.nodes.node_exchange import NodeExchange
from wakugumi.wire.messages.job import InputFile, JobRequest, read_request, write_request
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.request_digest import request_digest

pytestmark = pytest.mark.anyio


def an_exchange(
    calls: HttpClient,
    url: str,
    *files: InputFile,
    write: Callable[[JobRequest], bytes] = encode,
    digest: bytes = b"",
) -> NodeExchange:
    name = str(uuid4())
    request = JobRequest(name, exec_name="calc", args=["in"], files=list(files))
    assigned = SendAssign(ConnId(1), job_id_from_name(name), parse_subject("calc"), write(request), digest)
    return NodeExchange(calls, url, None, assigned)


@pytest.mark.spec("N2")
@pytest.mark.parametrize("write", [encode, write_request])
async def test_an_envelope_goes_as_it_is_and_its_answer_is_kept_as_it_is(write: Callable[[JobRequest], bytes]) -> None:
    calls = HttpClient()
    async with a_node() as node:
        file = InputFile("in", content=b"te\0xt")
        exchange = an_exchange(calls, node.url, file, write=write)
        question = await exchange.ask(lambda: None, is_bare=True, as_form=False)
        assert isinstance(question, NodeReply)
        answer = await exchange.ask(lambda: None, is_bare=False, as_form=False)
        assert isinstance(answer, NodeAnswered)
        assert (answer.ok, answer.blobs) == (True, ())
        assert answer.payload in node.envelopes.values()
        bare, whole = node.asked
        assert (bare.body, bare.query, whole.query) == (b"", {}, {})
        assert read_request(whole.body).files == [file]
        exchange.close()
    await calls.close()


@pytest.mark.spec("N2")
@pytest.mark.parametrize("digest", [b"", bytes(range(16))])
async def test_a_known_digest_is_not_computed_again(digest: bytes) -> None:
    calls = HttpClient()
    async with a_node() as node:
        exchange = an_exchange(calls, node.url, InputFile("in", content=b"text"), write=write_request, digest=digest)
        assert isinstance(await exchange.ask(lambda: None, is_bare=False, as_form=False), NodeAnswered)
        (asked,) = node.asked
        assert asked.request == (digest or request_digest(read_request(asked.body))).hex()
        exchange.close()
    await calls.close()


@pytest.mark.spec("N2")
async def test_a_node_that_opens_no_envelopes_any_more_gets_the_form() -> None:
    async with a_node() as node:
        node.takes, node.opens = "job", False
        async with a_group(node) as (leader, grid):
            job = await grid.submit("calc", args=["in"], files={"in": b"text"})
            assert (await job).check().stdout == "printed\n"
            assert next(iter(leader.machine.jobs.values())).attempts == 1
        assert [b"WK1" in asked.body for asked in node.asked] == [True, False]


@pytest.mark.spec("N2")
async def test_a_refused_envelope_is_not_sent_again_as_a_form_if_its_node_knows_envelopes() -> None:
    async with a_node() as node:
        node.takes = "env, job"
        node.status = (400, {"code": "bad-request", "detail": "no such timeout"})
        async with a_group(node) as (_, grid):
            for _ in range(2):
                result = await (await grid.submit("calc", args=["in"], files={"in": b"text"}))
                assert (result.reason, result.stderr) == ("bad-request", "wakugumi: no such timeout\n")
        assert [b"WK1" in asked.body for asked in node.asked] == [True, True]


@pytest.mark.spec("N2")
async def test_a_node_says_in_its_capacity_whether_it_takes_envelopes() -> None:
    for takes, is_envelope in (("", False), ("env", False), ("env, job", True)):
        async with a_node() as node:
            node.takes = takes
            async with a_group(node) as (_, grid):
                job = await grid.submit("calc", args=["in"], files={"in": b"text"})
                result = (await job).check()
                assert (dict(result.files), result.stdout) == ({"out": b"TEXT"}, "printed\n")
            assert [b"WK1" in asked.body for asked in node.asked] == [is_envelope]


@pytest.mark.spec("C5")
async def test_a_blob_follows_its_envelope_and_large_parts_follow_the_answer(tmp_path: Path) -> None:
    blobs = LeaderBlobs(FolderPlace(tmp_path / "blobs"), url="")
    content = random.Random(1).randbytes(6 * MIB)
    async with a_node() as node:
        node.takes = "job"
        node.large = [b"out" * MIB, b"err" * MIB]
        node.files = lambda content: {"first": content[-3:]}
        async with a_group(node, blobs=blobs) as (_, grid):
            job = await grid.submit("calc", args=["in"], files={"in": content})
            result = (await job).check()
            assert await asyncio.to_thread(lambda: result.stdout) == "out" * MIB
            assert await asyncio.to_thread(lambda: result.stderr) == "err" * MIB
            assert dict(result.files) == {"first": content[-3:]}
    assert list((tmp_path / "blobs" / ".incoming").iterdir()) == []


@pytest.mark.spec("N2")
async def test_a_question_without_the_input_and_a_request_with_it() -> None:
    calls = HttpClient()
    async with a_node() as node:
        exchange = an_exchange(calls, node.url, InputFile("in", content=b"text"))
        begun: list[bool] = []
        question = await exchange.ask(lambda: begun.append(True), is_bare=True, as_form=True)
        assert isinstance(question, NodeReply)
        assert (question.status, question.code) == (400, "bad-request")
        answer = await exchange.ask(begun.clear, is_bare=False, as_form=True)
        assert isinstance(answer, NodeAnswered)
        assert (answer.ok, answer.blobs) == (True, ())
        assert [bool(asked.body) for asked in node.asked] == [False, True]
        node.tricks += ["cut", "no-zip", "busy"]
        with pytest.raises(Lost):
            await exchange.ask(lambda: begun.append(True), is_bare=False, as_form=True)
        assert begun == []
        with pytest.raises(PeerError):
            await exchange.ask(lambda: begun.append(True), is_bare=False, as_form=True)
        assert begun == [True]
        assert await exchange.ask(begun.clear, is_bare=False, as_form=True) == NodeReply(503, "busy", "no slot", 5.0)
        exchange.close()
    await calls.close()


async def test_a_job_without_its_one_file_is_refused() -> None:
    calls = HttpClient()
    with pytest.raises(Refused, match="one file"):
        await an_exchange(calls, "http://127.0.0.1:1").ask(lambda: None, is_bare=False, as_form=True)
    no_blob = InputFile("in", sha256="0" * 64, size=1)
    with pytest.raises(Refused, match="no blobs"):
        await an_exchange(calls, "http://127.0.0.1:1", no_blob).ask(lambda: None, is_bare=False, as_form=True)
    await calls.close()


@pytest.mark.spec("C5")
async def test_a_large_input_and_a_large_result_pass_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_result, "tempfile", None)
    blobs = LeaderBlobs(FolderPlace(tmp_path / "blobs"), url="")
    content = random.Random(1).randbytes(6 * MIB)
    async with a_node() as node, a_group(node, blobs=blobs) as (_, grid):
        node.files = lambda content: {"out": content[::-1]}
        job = await grid.submit("calc", args=["in"], files={"in": content})
        result = (await job).check()
        assert not result.is_complete
        await asyncio.to_thread(result.extract, tmp_path / "out")
        assert (tmp_path / "out" / "out").read_bytes() == content[::-1]
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["out"]
        assert await asyncio.to_thread(lambda: result.stdout) == "printed\n"
    assert list((tmp_path / "blobs" / ".incoming").iterdir()) == []


async def test_busy_in_the_midst_of_a_large_input_is_heard(tmp_path: Path) -> None:
    blobs = LeaderBlobs(FolderPlace(tmp_path / "blobs"), url="")
    async with a_node() as node, a_group(node, blobs=blobs) as (leader, grid):
        node.tricks.append("busy-early")
        job = await grid.submit("calc", args=["in"], files={"in": bytes(8 * MIB)})
        assert (await job).ok
        assert next(iter(leader.machine.jobs.values())).attempts == 1
