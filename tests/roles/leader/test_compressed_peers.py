"""Payloads that travel packed (SPEC F10): between peers that asked for it, and past those that did not.

A leader on 127.0.0.2 is another machine to a peer that dials from 127.0.0.1: so real ones ask for packing here.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.kit.a_leader import OwnPeer, Running, a_leader
from tests.kit.old_peers import DEADLINE_S, OldClient, OldWorker

from wakugumi import connect
from wakugumi.adapters.journal.journal import Journal
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.compression import is_packed, pack, unpack
from wakugumi.core.ids import JobId
from wakugumi.roles.leader.leader import Leader
from wakugumi.roles.runner.settings import WorkerSettings
from wakugumi.roles.runner.worker import Worker
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.hello import WANTS_CLIENT, WANTS_WORKER, ZSTD, HelloClient, read_welcome
from wakugumi.wire.messages.job import read_refusal
from wakugumi.wire.messages.payload import encode

pytestmark = pytest.mark.anyio

LINES = "the same line again and again\n" * 1_000
FAR = "127.0.0.2"


class FarClient(OldClient):
    host = FAR


class FarWorker(OldWorker):
    host = FAR


class FarPeer(OwnPeer):
    host = FAR


@asynccontextmanager
async def a_far_leader(journal: Journal | None = None) -> AsyncIterator[Running]:
    """A leader that is far from those who dial FAR, and near to others."""
    leader = Leader(journal)
    running = Running(leader, await leader.listen("0.0.0.0", 0))
    try:
        yield running
        assert not leader.drive.failed.done()
        running.machine.check()
    finally:
        await leader.close()


@asynccontextmanager
async def our_worker(port: int, folder: Path) -> AsyncIterator[None]:
    programs = folder / "programs"
    programs.mkdir()
    (programs / "calcA").write_text("#!/bin/sh\ncat in.txt\n")
    (programs / "calcA").chmod(0o755)
    worker = Worker(
        WorkerSettings(leader=Address(FAR, port), programs=programs, jobs=folder / "jobs", slots=2, cpu_cap=None)
    )
    tasks = Tasks()
    running = tasks.start(worker.run(), name="worker")
    try:
        yield
    finally:
        worker.request_stop()
        worker.request_stop()
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.wait([running])


@pytest.mark.spec("F10")
async def test_our_peers_on_other_machines_pack_and_nobody_sees_it(tmp_path: Path) -> None:
    async with (
        a_far_leader() as leader,
        our_worker(leader.port, tmp_path),
        connect(f"{FAR}:{leader.port}", client_id="desk") as grid,
    ):
        job = await grid.submit("calcA", files={"in.txt": LINES.encode()})
        result = await job
        assert (result.ok, result.stdout) == (True, LINES)
        known = leader.machine.jobs[JobId(UUID(job.id).bytes_le)]
        assert isinstance(known.result, bytes)
        assert is_packed(known.result), "it came packed, and went on as it came"
        assert json.loads(unpack(known.result))["Stdout"] == LINES
        assert known.size < 5_000
        again = await grid.submit("calcA", files={"in.txt": LINES.encode()}, job_id=job.id)
        assert (await again).stdout == LINES


@pytest.mark.spec("F10", "F11")
async def test_an_old_worker_and_an_old_client_get_what_they_can_read(tmp_path: Path) -> None:
    async with a_far_leader() as leader, FarWorker(leader.port) as worker:
        await worker.hello("job.assign.old", credit=1)
        async with connect(f"{FAR}:{leader.port}", client_id="desk") as grid:
            job = await grid.submit("old", args=[LINES])
            assigned = await worker.assigned()
            assert is_packed(leader.machine.jobs[JobId(assigned.msg_id.bytes_le)].payload or b"")
            assert assigned.json["Args"] == [LINES]
            await worker.ack(assigned, Stdout=LINES)
            assert (await job).stdout == LINES
        async with our_worker(leader.port, tmp_path), FarClient(leader.port) as client:
            await client.hello("old")
            content = base64.b64encode(LINES.encode()).decode()
            job_id = await client.submit(Files=[{"Name": "in.txt", "Content": content}])
            found, result = await client.result()
            assert (found, result["Stdout"]) == (job_id, LINES)


def request(job: UUID, **more: object) -> bytes:
    return json.dumps({"JobId": str(job), "ExecName": "calcA", "Args": [LINES]} | more).encode()


async def submit(peer: OwnPeer, job: UUID, payload: bytes) -> fr.Frame:
    await peer.say(fr.encode(fr.SUBMIT_JOB, job.bytes_le, subject="job.submit.calcA", payload=payload))
    return await peer.frame()


@pytest.mark.spec("L6", "F10")
@pytest.mark.parametrize("first_packed", [False, True])
@pytest.mark.parametrize("done", [False, True])
async def test_a_request_is_the_same_packed_or_not(first_packed: bool, done: bool) -> None:
    async with a_leader() as leader, OwnPeer(leader.port) as client, OwnPeer(leader.port) as worker:
        await client.hello_client("own", *WANTS_CLIENT, ZSTD)
        job = uuid4()
        payloads = [request(job), pack(request(job))]
        if first_packed:
            payloads.reverse()
        assert (await submit(client, job, payloads[0])).type == fr.RECEIPT
        if done:
            await worker.hello_worker(uuid4(), "", *WANTS_WORKER, holds=Holding())
            await worker.credit(1)
            await worker.expect(fr.ASSIGN_JOB)
            await worker.ack(job)
            await client.expect(fr.RESULT)
        for again in payloads:
            frame = await submit(client, job, again)
            assert frame.type == fr.RECEIPT, frame.payload
            if done:
                await client.expect(fr.RESULT)
        other = request(job, Args=[LINES + "."])
        for payload in (other, pack(other)):
            refusal = await submit(client, job, payload)
            assert read_refusal(refusal.payload).code == "conflict"


@pytest.mark.spec("L6", "L7", "F10")
async def test_a_packed_request_survives_the_leader_as_it_came(tmp_path: Path) -> None:
    job = uuid4()
    for life in range(2):
        journal = Journal.open(tmp_path / "journal")
        async with a_far_leader(journal) as leader, FarPeer(leader.port) as client:
            await client.hello_client("own", *WANTS_CLIENT, ZSTD)
            payload = request(job) if life else pack(request(job))
            assert (await submit(client, job, payload)).type == fr.RECEIPT
            async with FarWorker(leader.port) as worker:
                await worker.hello(credit=life)
                if life:
                    assert (await worker.assigned()).json["Args"] == [LINES]


@pytest.mark.spec("F10", "F11")
@pytest.mark.parametrize("what", ["cut", "bomb", "not JSON"])
async def test_a_bad_packed_payload_hurts_only_who_sent_it(what: str) -> None:
    job = uuid4()
    payload = pack(request(job))
    if what == "cut":
        payload = payload[:-3]
    elif what == "bomb":
        payload = pack(b" " * 4_000_000)
        payload = payload + payload
    else:
        payload = pack(b"[" * 10_000)
    async with a_leader() as leader, OwnPeer(leader.port) as client, OwnPeer(leader.port) as worker:
        await client.hello_client("own", *WANTS_CLIENT, ZSTD)
        await worker.hello_worker(uuid4(), "job.assign.calcA", *WANTS_WORKER, ZSTD, holds=Holding())
        refusal = await submit(client, job, payload)
        assert read_refusal(refusal.payload).code == "bad-request"
        assert (await submit(client, job, request(job))).type == fr.RECEIPT
        await worker.credit(1)
        await worker.expect(fr.ASSIGN_JOB)
        await worker.say(fr.encode(fr.ACK_JOB, corr_id=job.bytes_le, payload=payload))
        result = json.loads((await client.expect(fr.RESULT)).payload)
        assert (result["Status"], result["Reason"]) == ("FAILED", "bad-result")
        await leader.serves()


@pytest.mark.spec("F4", "F10")
async def test_who_did_not_ask_for_packing_is_neither_offered_it_nor_read(tmp_path: Path) -> None:
    async with a_leader() as leader, OwnPeer(leader.port) as client:
        payload = encode(HelloClient("own", 4, list(WANTS_CLIENT)))
        await client.say(fr.encode(fr.HELLO_CLIENT, payload=payload))
        assert ZSTD not in read_welcome((await client.frame()).payload).wants
        job = uuid4()
        refusal = await submit(client, job, pack(request(job)))
        assert read_refusal(refusal.payload).code == "bad-request"


@pytest.mark.spec("F10")
async def test_peers_on_one_machine_do_not_ask_for_packing(tmp_path: Path) -> None:
    async with a_leader() as leader, connect(f"127.0.0.1:{leader.port}", client_id="desk") as grid:
        job = await grid.submit("calcA", files={"in.txt": LINES.encode()})
        await job.accepted()
        assert not any(peer.zstd for peer in leader.leader.peers.values())
        assert not is_packed(leader.machine.jobs[JobId(UUID(job.id).bytes_le)].payload or b"")
