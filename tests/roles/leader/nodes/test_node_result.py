"""How does a node's answer become a result? A real leader and nodes that answer as a test says."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from pathlib import Path
from uuid import UUID

import pytest
from tests.kit.a_leader import OwnPeer, a_leader
from tests.kit.fake_node import FakeNode, a_node, zipped
from tests.kit.hostile_answers import ODD, answers
from tests.kit.known_nodes import a_group, hand_in

from wakugumi.adapters.blobs.place import FolderPlace, OnBytes
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.core.ids import job_id_from_name, show_job_id
from wakugumi.core.leader.nodes import health, jobs
from wakugumi.core.leader.nodes.machine import NodeAt
from wakugumi.core.subject import worker_patterns
from wakugumi.limits.units import MIB
from wakugumi.roles.client.grid import connect
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.nodes.remote_node import RemoteNodes
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.envelope import RESULT_TYPE, seal
from wakugumi.wire.messages.hello import RECEIPTS
from wakugumi.wire.messages.job import JobResult, read_result, write_result
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for seconds here."""
    monkeypatch.setattr(health, "NODE_POLL_S", 0.02)
    monkeypatch.setattr(health, "backoff_s", lambda failures, _chance: min(0.02 * 2**failures, 0.2))
    monkeypatch.setattr(jobs, "NODE_AGAIN_S", 0.02)


@pytest.mark.spec("N2")
async def test_a_failing_program_is_an_answer_and_not_asked_for_again() -> None:
    async with a_node() as node, a_group(node) as (_, grid):
        node.heads |= {"Waku-Status": "FAILED", "Waku-Exit-Code": "3", "Waku-Reason": "exit"}
        result = await (await hand_in(grid))
        assert (result.ok, result.reason, result.exit_code, len(node.began)) == (False, "exit", 3, 1)


@pytest.mark.spec("N2")
@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [(404, "unknown-program", "unknown-program"), (400, "bad-name", "bad-name"), (413, "too-big", "too-big")],
)
async def test_a_problem_that_no_other_node_would_solve_is_the_answer(status: int, code: str, reason: str) -> None:
    async with a_node() as node, a_group(node) as (_, grid):
        node.status = status, {"code": code, "detail": "why it is so"}
        result = await (await hand_in(grid))
        assert (result.ok, result.reason) == (False, reason)
        assert "why it is so" in result.stderr


@pytest.mark.spec("W6")
async def test_a_timeout_is_the_answer_and_the_node_is_asked_once() -> None:
    async with a_node() as node, a_group(node) as (leader, grid):
        node.status = 504, {"code": "timeout", "detail": "it took too long"}
        result = await (await hand_in(grid))
        assert (result.ok, result.reason) == (False, "timeout")
        assert [asked.method for asked in node.asked].count("POST") == 1
        assert [attempt.outcome for attempt in next(iter(leader.machine.jobs.values())).history] == ["timeout"]


@pytest.mark.parametrize(("status", "outcome"), [(507, "disk"), (418, "worker-error")])
async def test_a_problem_that_may_pass_is_an_attempt(status: int, outcome: str) -> None:
    async with a_node() as node, a_group(node) as (leader, grid):
        node.status = status, {"code": outcome if status == 507 else "?"}
        job = await hand_in(grid)
        await leader.until(lambda machine: machine.lifecycle.backing_off)
        node.status = None
        assert (await job).ok
        assert next(iter(leader.machine.jobs.values())).history[0].outcome == outcome


async def test_an_answer_that_is_no_zip_is_no_result_but_an_attempt() -> None:
    async with a_node() as node, a_group(node) as (leader, grid):
        node.tricks.append("no-zip")
        assert (await (await hand_in(grid))).ok
        first, _ = next(iter(leader.machine.jobs.values())).history
        assert first.outcome == "worker-error"
        assert "no ZIP" in first.output


@pytest.mark.spec("N2")
@pytest.mark.parametrize("takes", ["job", ""])
@pytest.mark.parametrize(("name", "worker"), [("", "fake"), ("mill", "mill")])
async def test_a_result_is_of_the_job_and_the_node_that_were_asked(takes: str, name: str, worker: str) -> None:
    async with a_leader() as leader, a_node() as node, connect(f"127.0.0.1:{leader.port}", client_id="desk") as grid:
        node.takes = takes
        node.heads |= {"Waku-Status": "FAILED", "Waku-Exit-Code": "3", "Waku-Reason": "exit"}
        node.claims = {"client_id": "another", "exec_name": "another"}
        nodes = RemoteNodes(leader.leader.hub, None, [NodeAt(node.url, worker_patterns(""), name)])
        job = await hand_in(grid)
        async with OwnPeer(leader.port) as peer:
            result = await job
            assert (result.reason, result.worker) == ("exit", worker)
            (known,) = leader.machine.jobs
            await peer.hello_client("other", RECEIPTS)
            await peer.say_ids(fr.CLAIM, UUID(bytes_le=known))
            told = read_result(known, (await peer.expect(fr.RESULT)).payload)
            assert (told.job_id, told.client_id, told.exec_name) == (show_job_id(known), "desk", "calc")
        await nodes.close()


@pytest.mark.spec("N2")
@pytest.mark.parametrize("claimed", ["00000000-0000-0000-0000-000000000001", "", "night"])
async def test_the_result_of_another_job_is_no_result_but_an_attempt(claimed: str) -> None:
    async with a_node() as node:
        node.takes = "job"
        node.claims = {"job_id": claimed}
        async with a_group(node) as (leader, grid):
            job = await hand_in(grid)
            await leader.until(lambda machine: machine.lifecycle.backing_off)
            node.claims = {}
            node.done.clear()
            assert (await job).ok
            assert next(iter(leader.machine.jobs.values())).history[0].outcome == "worker-error"


async def test_an_odd_head_is_no_reason_to_lose_a_result() -> None:
    async with a_node() as node, a_group(node) as (_, grid):
        node.tricks += ["odd-head"]
        result = await (await hand_in(grid))
        assert (result.ok, result.worker) == (True, "??")


async def test_a_text_that_fits_a_frame_is_whole_beside_a_larger_archive() -> None:
    async with a_node() as node, a_group(node) as (_, grid):
        text = "".join(f"line {number}\n" for number in range(10_000))
        files = {"out": random.Random(1).randbytes(5 * MIB // 4)}
        body = zipped(files, text.encode())
        head = f"HTTP/1.1 200 -\r\nWaku-Status: OK\r\nContent-Length: {len(body)}\r\n\r\n"
        node.raw.append(head.encode() + body)
        assert (await (await hand_in(grid))).stdout == text


class Elsewhere:
    """A place that is no folder of the leader's own, as an object store. It looks at what it is given."""

    def __init__(self, there: FolderPlace) -> None:
        self.there = there
        self.url = there.url
        self.has = there.has
        self.fetch = there.fetch
        self.remove = there.remove
        self.modes: list[int] = []

    def put(self, ref: BlobRef, source: Path, on_bytes: OnBytes = lambda _: None) -> None:
        self.modes.append(source.stat().st_mode & 0o777)
        self.there.put(ref, source, on_bytes)


@pytest.mark.spec("O1")
async def test_an_answer_on_its_way_to_an_object_store_is_for_no_other_user_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = Elsewhere(FolderPlace(tmp_path / "blobs"))
    before = os.umask(0o022)
    try:
        async with a_node() as node, a_group(node, blobs=LeaderBlobs(place, url=place.url)) as (_, grid):
            node.files = lambda _: {"out": random.Random(1).randbytes(6 * MIB)}
            assert (await (await hand_in(grid))).ok
    finally:
        os.umask(before)
    assert set(place.modes) == {0o600}


@pytest.mark.spec("G1")
@pytest.mark.parametrize("status", ["200", "423", "500"])
async def test_whatever_a_node_answers_to_a_job_the_job_ends(caplog: pytest.LogCaptureFixture, status: str) -> None:
    """Every node is hostile once, and honest from then on."""
    hostile = [*answers(f"{status} X".encode()).values(), *(ODD.values() if status == "200" else ())]
    nodes = [FakeNode() for _ in hostile]
    for node, answer in zip(nodes, hostile, strict=True):
        node.limit = 1
        node.raw = [answer]
        await node.start()
    try:
        async with a_group(*nodes) as (leader, grid):
            await leader.until(lambda machine: len(machine.roster.by_id) == len(nodes))
            jobs = [await hand_in(grid, retries=3) for _ in hostile]
            async with asyncio.timeout(60):
                results = [await job for job in jobs]
            assert all(result.ok for result in results)
            asked = [node.polls for node in nodes]
            for node, polls in zip(nodes, asked, strict=True):
                await node.until(lambda node, polls=polls: node.polls > polls)  # type: ignore[misc]
    finally:
        for node in nodes:
            await node.stop()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


NIGHT = show_job_id(job_id_from_name("night"))
GOOD = JobResult(NIGHT, output_archive=b"PK", stdout_blob=ref_of_bytes(b"out"))


def lying() -> dict[str, tuple[bytes, str]]:
    """Answers in envelopes that are none, each with what is said of it."""
    whole = write_result(GOOD) + b"out"
    no_status = seal(b'{"JobId":"%s","Status":"WHO"}' % NIGHT.encode())
    large = JobResult(NIGHT, archive_size=10**7)
    return {
        "cut": (whole[:-1], "fewer bytes"),
        "cut head": (whole[:20], "fewer bytes"),
        "longer": (whole + b"!", "more bytes"),
        "other": (whole[:-3] + b"OUT", "another content"),
        "no envelope": (b"PK" * 20, "does not begin"),
        "no result": (no_status, "Status"),
        "negative": (seal(encode(JobResult(NIGHT, archive_size=-1))), "does not fit"),
        "too large": (seal(encode(large)), "does not fit"),
        "no hash": (write_result(JobResult(NIGHT, stdout_blob=BlobRef("0", 1))), "64 lower-case"),
    }


@pytest.mark.parametrize("kind", lying())
async def test_an_envelope_that_lies_is_the_nodes_fault(tmp_path: Path, kind: str) -> None:
    body, said = lying()[kind]
    head = f"HTTP/1.1 200 -\r\nContent-Type: {RESULT_TYPE}\r\nContent-Length: {len(body)}\r\n\r\n"
    blobs = LeaderBlobs(FolderPlace(tmp_path / "blobs"), url="")
    async with a_node() as node:
        node.takes = "job"
        async with a_group(node, blobs=blobs) as (leader, grid):
            node.raw.append(head.encode() + body)
            await hand_in(grid, "night")
            await leader.until(lambda machine: machine.lifecycle.backing_off)
            (first,) = next(iter(leader.machine.jobs.values())).history
            assert first.outcome == "worker-error"
            assert said in first.output
    assert list((tmp_path / "blobs" / ".incoming").iterdir()) == []


async def test_an_answer_cut_in_the_midst_is_asked_for_again() -> None:
    async with a_node() as node:
        node.takes = "job"
        async with a_group(node) as (_, grid):
            node.tricks.append("cut-answer")
            assert (await (await hand_in(grid))).ok
            assert len(node.began) == 1
