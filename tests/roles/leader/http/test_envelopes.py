"""A leader asked by HTTP in envelopes: the job is the one of a form, and its bytes stay as they are."""

from __future__ import annotations

import zipfile
from base64 import b64decode
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest
from tests.kit.a_group import Caller, a_group, files_of, get, nothing_is_left, post
from tests.kit.a_leader import OwnPeer, Running, a_leader
from tests.kit.a_node import a_node as a_real_node
from tests.kit.a_node import ask
from tests.kit.fake_node import a_node
from tests.kit.http_peer import Answer
from tests.kit.known_nodes import known_to
from tests.kit.node_requests import run
from tests.kit.old_peers import OldClient

from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.journal.journal import Journal
from wakugumi.core.ids import JobId, job_id_from_name, show_job_id
from wakugumi.core.leader.nodes.machine import NodeAt
from wakugumi.core.subject import worker_patterns
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.units import MIB
from wakugumi.roles.client.grid import connect
from wakugumi.roles.leader import old_peers
from wakugumi.roles.leader.nodes.remote_node import RemoteNodes
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.envelope import JOB_TYPE, is_envelope
from wakugumi.wire.messages.hello import RECEIPTS
from wakugumi.wire.messages.job import InputFile, JobRequest, read_request, read_result, write_request
from wakugumi.wire.messages.payload import encode

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G1")]

JOB = job_id_from_name("night")
NIGHT = UUID(bytes_le=JOB)
LARGE = bytes(range(256)) * (INLINE_FILE_BYTES_MAX // 128)


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[Running]:
    async with a_group(tmp_path, program="pricer") as leader:
        yield leader


def a_job(content: bytes = b"1,2,3", **fields: object) -> JobRequest:
    file = InputFile("in.csv", content=content)
    return msgspec.structs.replace(JobRequest(show_job_id(JOB), "http", "calc", ["in.csv"], [file]), **fields)


async def send(caller: Caller, body: bytes, query: str = "", length: int | None = None) -> None:
    size = len(body) if length is None else length
    await caller.head("POST", f"/dispatch/night{query}", f"Content-Type: {JOB_TYPE}", f"Content-Length: {size}")
    await caller.say(body)


async def dispatched(leader: Running, body: bytes, query: str = "") -> Answer:
    async with Caller(leader.port) as caller:
        await send(caller, body, query)
        return await caller.answer()


async def a_worker(peer: OwnPeer) -> None:
    await peer.hello_worker(uuid4(), "job.assign.>", holds=Holding())
    await peer.credit(1)


async def test_a_leader_says_that_it_takes_envelopes(leader: Running) -> None:
    assert (await get(leader, "/capacity")).head["waku-takes"] == "job"


async def test_a_job_is_kept_as_it_came_and_a_worker_by_frames_gets_it_as_json(leader: Running) -> None:
    request = a_job(b"\0\1\2", retries=2, client_id="desk")
    async with Caller(leader.port) as caller, OwnPeer(leader.port) as worker:
        await send(caller, write_request(request), "?subject=job.submit.eu&async=1")
        await leader.until(lambda machine: machine.lanes.queued)
        (job,) = leader.machine.jobs.values()
        assert (job.subject, job.client.id, job.retries) == ("job.assign.eu", "desk", 2)
        assert job.payload is not None
        assert is_envelope(job.payload)
        await a_worker(worker)
        assigned = await worker.expect(fr.ASSIGN_JOB)
        assert msgspec.json.decode(assigned.payload)["Files"] == [{"Name": "in.csv", "Content": "AAEC"}]
        assert read_request(assigned.payload).args == ["in.csv"]
        await worker.ack(NIGHT, ExitCode=0, Stdout="ok")
        assert files_of(await caller.answer()) == {"stdout.txt": b"ok", "stderr.txt": b""}
    await nothing_is_left(leader)


async def test_a_form_and_an_envelope_are_the_same_job(leader: Running) -> None:
    """The leader's program is named, with the input as its argument, in both."""
    async with Caller(leader.port) as caller, OwnPeer(leader.port) as worker:
        await caller.send("/dispatch/night")
        await a_worker(worker)
        first = await worker.expect(fr.ASSIGN_JOB)
        assert read_request(first.payload).exec_name == "pricer"
        await worker.ack(NIGHT, ExitCode=0, Stdout="once")
        body = (await caller.answer()).body
        unnamed = a_job(exec_name="", args=[])
        assert (await dispatched(leader, write_request(unnamed))).body == body
        ref = ref_of_bytes(b"1,2,3")
        by_hash = msgspec.structs.replace(unnamed, files=[InputFile("in.csv", sha256=ref.sha256, size=ref.size)])
        assert (await dispatched(leader, write_request(by_hash) + b"1,2,3")).body == body
        other = await dispatched(leader, write_request(a_job(b"4,5,6", exec_name="")))
        assert (other.status, other.code) == (409, "conflict")
        assert leader.machine.lifecycle.counts.submitted == 1
    await nothing_is_left(leader)


@pytest.mark.spec("C5")
async def test_a_large_file_goes_into_the_leaders_place(leader: Running) -> None:
    ref = ref_of_bytes(LARGE)
    async with Caller(leader.port) as caller, OwnPeer(leader.port) as worker:
        await send(caller, write_request(a_job(LARGE)))
        await a_worker(worker)
        (file,) = read_request((await worker.expect(fr.ASSIGN_JOB)).payload).files
        assert (file.content, file.sha256, file.size) == (None, ref.sha256, ref.size)
        assert leader.leader.blobs is not None
        assert leader.leader.blobs.place.has(ref)
        await worker.ack(NIGHT, ExitCode=0, Stdout="ok")
        assert (await caller.answer()).status == 200
    await nothing_is_left(leader)


@pytest.mark.parametrize("content", [b"1,2,3", LARGE])
async def test_a_body_that_lies_or_is_cut_leaves_no_trace(leader: Running, content: bytes) -> None:
    whole = write_request(a_job(content))
    ref = ref_of_bytes(content)
    by_hash = write_request(a_job(files=[InputFile("in.csv", sha256=ref.sha256, size=ref.size)]))
    for body in (whole + b"x", whole[:-1], by_hash + b"?" * len(content), encode(a_job()), b""):
        answer = await dispatched(leader, body)
        assert (answer.status, answer.code) == (400, "bad-request")
        assert "envelopes.md" in answer.problem["hint"]
        assert answer.head["waku-takes"] == "job"
    async with Caller(leader.port) as caller:
        await send(caller, whole[:-1], length=len(whole))
    await nothing_is_left(leader)
    assert leader.machine.lifecycle.counts.submitted == 0


async def test_a_program_in_the_query_beside_an_envelope_is_refused(leader: Running) -> None:
    answer = await dispatched(leader, write_request(a_job()), "?program=other")
    assert (answer.status, answer.code) == (400, "bad-request")
    answer = await dispatched(leader, write_request(a_job(timeout_s=-1.0)))
    assert (answer.status, answer.code, answer.head["waku-takes"]) == (400, "bad-request", "job")
    answer = await post(leader, "/dispatch/night?timeout=-1", b"1,2,3")
    assert (answer.status, answer.code, "waku-takes" in answer.head) == (400, "bad-request", False)


@pytest.mark.spec("L7")
async def test_a_leader_that_was_started_again_has_the_job_and_its_result_as_they_came(tmp_path: Path) -> None:
    request = a_job(b"\0\1\2")
    async with a_leader(Journal.open(tmp_path)) as leader, Caller(leader.port) as caller:
        await send(caller, write_request(request))
        await leader.until(lambda machine: machine.lanes.queued)
    async with a_leader(Journal.open(tmp_path)) as leader, a_node() as node:
        node.takes = "job"
        async with known_to(leader, node):
            first = await post(leader, "/dispatch/night?program=calc", b"\0\1\2")
        assert files_of(first) == {"out": b"\0\1\2", "stdout.txt": b"printed\n", "stderr.txt": b"said\n"}
        assert [read_request(asked.body).files for asked in node.asked if asked.body] == [request.files]
    async with a_leader(Journal.open(tmp_path)) as leader, OwnPeer(leader.port) as client:
        assert (await get(leader, "/result/night")).body == first.body
        await client.hello_client("desk", RECEIPTS)
        await client.say_ids(fr.CLAIM, NIGHT)
        result = await client.expect(fr.RESULT)
        assert msgspec.json.decode(result.payload)["OutputArchive"]
        assert read_result(JobId(result.corr_id), result.payload).stdout == "printed\n"


@pytest.mark.spec("N2", "L6")
async def test_the_zip_of_a_node_is_passed_on_and_a_client_by_frames_gets_its_parts(
    leader: Running, tmp_path: Path
) -> None:
    (tmp_path / "node").mkdir()
    async with a_real_node(tmp_path / "node") as node:
        nodes = RemoteNodes(
            leader.leader.hub, leader.leader.blobs, [NodeAt(f"http://127.0.0.1:{node.http}", worker_patterns(""))]
        )
        try:
            first = await post(leader, "/dispatch/night?program=copy", b"1,2,3")
            assert files_of(first) == {"copied": b"1,2,3", "stdout.txt": b"5\n", "stderr.txt": b"warned\n"}
            assert first.body == (await ask(node.http, run(show_job_id(JOB), b"1,2,3"))).body
            async with connect(f"127.0.0.1:{leader.port}", client_id="http") as grid:
                job = await grid.submit("copy", args=["in.csv"], files={"in.csv": b"1,2,3"}, job_id="night")
                result = (await job).check()
                assert (dict(result.files), result.stdout, result.stderr) == ({"copied": b"1,2,3"}, "5\n", "warned\n")
                by_frames = await grid.submit("copy", args=["in.csv"], files={"in.csv": b"1,2,3"}, job_id="day")
                result = (await by_frames).check()
                assert (dict(result.files), result.stdout) == ({"copied": b"1,2,3"}, "5\n")
            assert files_of(await get(leader, "/result/day")) == files_of(first)
            assert node.runs == 2
        finally:
            await nodes.close()


@pytest.mark.spec("N2", "F10")
@pytest.mark.parametrize("at_once", [True, False])
async def test_no_peer_by_frames_gets_output_among_the_files(
    leader: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """Peers of earlier versions do not know the field `ArchiveOutput`, and would unpack two files too many."""
    monkeypatch.setattr(old_peers, "ENVELOPE_IN_LOOP_BYTES_MAX", MIB if at_once else 0)
    (tmp_path / "node").mkdir()
    async with a_real_node(tmp_path / "node") as node, OldClient(leader.port) as old, OwnPeer(leader.port) as own:
        nodes = RemoteNodes(
            leader.leader.hub, leader.leader.blobs, [NodeAt(f"http://127.0.0.1:{node.http}", worker_patterns(""))]
        )
        try:
            first = await post(leader, "/dispatch/night?program=copy", b"1,2,3")
            assert "stdout.txt" in files_of(first)
            files = [{"Name": "in.csv", "Content": "MSwyLDM="}]
            await old.hello("http")
            await old.submit("", job_id=NIGHT, ExecName="copy", Args=["in.csv"], Files=files)
            _, told = await old.result()
            await own.hello_client("desk", RECEIPTS)
            await own.say_ids(fr.CLAIM, NIGHT)
            claimed = msgspec.json.decode((await own.expect(fr.RESULT)).payload)
            for result in (told, claimed):
                with zipfile.ZipFile(BytesIO(b64decode(result["OutputArchive"]))) as archive:
                    assert archive.namelist() == ["copied"]
                assert (result["Stdout"], result["Stderr"], result["UnpackedBytes"]) == ("5\n", "warned\n", 5)
                assert "ArchiveOutput" not in result
            assert (await get(leader, "/result/night")).body == first.body
            assert node.runs == 1
        finally:
            await nodes.close()
