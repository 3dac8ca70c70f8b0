"""More for one connection than any buffer takes: a peer that reads gets all of it, over one connection.

A leader's core gives a peer so many bytes and waits until they are written (GIVEN_BYTES_MAX). Here are peers for which
much more is there at once: workers with many slots, clients with many results, and a worker's leader that reads late.
"""

from __future__ import annotations

import asyncio
import os
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
from wakugumi.adapters.net.compression import pack
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.wire import GIVEN_BYTES_MAX, WRITE_BACKLOG_BYTES_MAX
from wakugumi.roles.runner.settings import WorkerSettings
from wakugumi.roles.runner.worker import Worker
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.hello import HEARTBEATS, WANTS_CLIENT, WANTS_WORKER, ZSTD, Welcome
from wakugumi.wire.messages.job import JobRequest, read_credit
from wakugumi.wire.messages.payload import encode

pytestmark = pytest.mark.anyio

LARGE = "x" * 3_900_000
"""Nearly a frame."""
COUNT = 2 * WRITE_BACKLOG_BYTES_MAX // len(LARGE)
"""So many of them are twice as much as a peer that does not read is sent before it is cut off."""


@asynccontextmanager
async def leader_with(where: str, folder: Path) -> AsyncIterator[Running]:
    async with a_leader(journal=Journal.open(folder / "journal") if where == "journal" else None) as leader:
        yield leader
        assert leader.machine.lifecycle.counts.redelivered == 0
        assert leader.machine.lifecycle.counts.dead == 0


NO_HEARTBEATS = [want for want in WANTS_CLIENT if want != HEARTBEATS]
NO_HEARTBEATS_WORKER = [want for want in WANTS_WORKER if want != HEARTBEATS]
"""Scripts send none, and however slow this machine is, they are not to be taken as dead."""


class Reader(OwnPeer):
    """Reads whatever comes, as fast as it comes, and notes the ids of the jobs it is about."""

    async def read(self, kind: int, count: int) -> list[UUID]:
        found = []
        while len(found) < count:
            frame = await self.frame()
            if frame.type == kind:
                found.append(UUID(bytes_le=frame.msg_id))
        return found


async def submit_all(client: OwnPeer, jobs: list[UUID], **request: object) -> None:
    for job in jobs:
        await client.submit(job, **request)
        await client.expect_ids(fr.RECEIPT)


@pytest.mark.spec("L9", "L3")
@pytest.mark.parametrize("where", ["memory", "journal"])
async def test_a_worker_with_many_slots_gets_all_large_jobs_over_one_connection(where: str, tmp_path: Path) -> None:
    jobs = [uuid4() for _ in range(COUNT)]
    async with (
        leader_with(where, tmp_path) as leader,
        OwnPeer(leader.port) as client,
        Reader(leader.port) as worker,
    ):
        await client.hello_client("own", *NO_HEARTBEATS, cap=COUNT)
        await submit_all(client, jobs, Args=[LARGE])
        await worker.hello_worker(uuid4(), "", *NO_HEARTBEATS_WORKER, holds=Holding())
        await worker.credit(COUNT)
        assert await worker.read(fr.ASSIGN_JOB, COUNT) == jobs


@pytest.mark.spec("L9", "L3")
@pytest.mark.parametrize("where", ["memory", "journal"])
async def test_a_real_worker_runs_all_jobs_with_many_files_once(where: str, tmp_path: Path) -> None:
    programs, count = tmp_path / "programs", 64
    programs.mkdir()
    (programs / "nothing").write_text("#!/bin/sh\n")
    (programs / "nothing").chmod(0o755)
    files = {f"{number}.bin": os.urandom(INLINE_FILE_BYTES_MAX) for number in range(11)}
    async with leader_with(where, tmp_path) as leader, connect(f"127.0.0.1:{leader.port}", cap=count) as grid:
        jobs = [await grid.submit("nothing", files=files) for _ in range(count)]
        address = Address("127.0.0.1", leader.port)
        worker = Worker(
            WorkerSettings(leader=address, programs=programs, jobs=tmp_path / "jobs", slots=count, cpu_cap=None)
        )
        running = Tasks().start(worker.run(), name="worker")
        async with asyncio.timeout(6 * DEADLINE_S):
            results = [await job for job in jobs]
        assert {(result.ok, result.reason) for result in results} == {(True, "")}
        worker.request_stop()
        worker.request_stop()
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.wait([running])


@pytest.mark.spec("L9", "K6")
@pytest.mark.parametrize("where", ["memory", "journal"])
async def test_a_client_that_comes_back_gets_all_large_results_over_one_connection(where: str, tmp_path: Path) -> None:
    jobs = [uuid4() for _ in range(COUNT)]
    async with leader_with(where, tmp_path) as leader:
        async with OwnPeer(leader.port) as client:
            await client.hello_client("own", *NO_HEARTBEATS, cap=COUNT)
            await submit_all(client, jobs)
        await do_all(leader, len(jobs))
        async with Reader(leader.port) as client:
            await client.hello_client("own", *NO_HEARTBEATS, cap=COUNT)
            await client.say_ids(fr.CLAIM, *jobs)
            assert await client.read(fr.RESULT, COUNT) == jobs


@pytest.mark.spec("L9", "F9")
async def test_an_old_client_that_comes_back_gets_all_large_results_over_one_connection() -> None:
    async with a_leader() as leader:
        async with OldClient(leader.port) as client:
            await client.hello("old", {"DesiredParallelism": COUNT})
            jobs = [await client.submit() for _ in range(COUNT)]
            await leader.until(lambda machine: len(machine.jobs) == COUNT)
        await do_all(leader, len(jobs))
        async with OldClient(leader.port) as client:
            await client.hello("old")
            assert [(await client.result())[0] for _ in jobs] == jobs


async def do_all(leader: Running, count: int) -> None:
    """A worker does all that is there, with large results."""
    async with OwnPeer(leader.port) as worker:
        await worker.hello_worker(uuid4(), "", *NO_HEARTBEATS_WORKER, holds=Holding())
        await worker.credit(count)
        jobs = [UUID(bytes_le=(await worker.expect(fr.ASSIGN_JOB)).msg_id) for _ in range(count)]
        for job in jobs:
            await worker.ack(job, Stdout=LARGE)
            await worker.expect(fr.CONFIRM)


@pytest.mark.spec("L9", "F10")
async def test_an_old_worker_gets_jobs_that_came_packed_over_one_connection() -> None:
    """They are small to the core, and large to who cannot unpack them."""
    jobs = [uuid4() for _ in range(COUNT)]
    async with a_leader() as leader, OwnPeer(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello_client("own", *NO_HEARTBEATS, ZSTD, cap=COUNT)
        for job in jobs:
            request = b'{"JobId": "%s", "ExecName": "calcA", "Args": ["%s"]}' % (str(job).encode(), LARGE.encode())
            subject = "job.submit.calcA"
            await client.say(fr.encode(fr.SUBMIT_JOB, job.bytes_le, subject=subject, payload=pack(request)))
            await client.expect(fr.RECEIPT)
        await worker.hello(credit=COUNT)
        assert [(await worker.assigned()).msg_id for _ in jobs] == jobs
        assert leader.machine.lifecycle.counts.redelivered == 0


@pytest.mark.spec("L9", "W7")
async def test_a_leader_that_reads_late_gets_all_large_results_of_a_worker_over_one_connection(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "much").write_text(f"#!/bin/sh\nhead -c {len(LARGE)} /dev/zero | tr '\\0' x\n")
    (programs / "much").chmod(0o755)
    connections: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.put_nowait((reader, writer))

    server = await asyncio.start_server(came, "127.0.0.1", 0, limit=4096)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    worker = Worker(
        WorkerSettings(leader=address, programs=programs, jobs=tmp_path / "jobs", slots=COUNT, cpu_cap=None)
    )
    running = Tasks().start(worker.run(), name="worker")
    leader = OwnPeer(address.port)
    async with asyncio.timeout(DEADLINE_S):
        leader.reader, leader.writer = await connections.get()
    await leader.expect(fr.HELLO_WORKER)
    await leader.say(fr.encode(fr.WELCOME, payload=encode(Welcome("1"))))
    await leader.expect(fr.HOLDING)
    assert read_credit((await leader.expect(fr.CREDIT)).payload) == COUNT
    jobs = [uuid4() for _ in range(COUNT)]
    for job in jobs:
        request = encode(JobRequest(str(job), exec_name="much"))
        await leader.say(fr.encode(fr.ASSIGN_JOB, job.bytes_le, subject="job.assign.much", payload=request))
    async with asyncio.timeout(6 * DEADLINE_S):
        while worker.station._slots.unconfirmed < COUNT:  # noqa: ASYNC110 - a state machine rings no bell
            await asyncio.sleep(0.01)
    acked, credit = set(), 0
    while len(acked) < COUNT or credit < COUNT:
        frame = await leader.frame()
        if frame.type == fr.ACK_JOB:
            acked.add(UUID(bytes_le=frame.corr_id))
            await leader.say_ids(fr.CONFIRM, UUID(bytes_le=frame.corr_id))
        elif frame.type == fr.CREDIT:
            credit += read_credit(frame.payload)
    assert acked == set(jobs)
    assert connections.empty()
    worker.request_stop()
    worker.request_stop()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([running])
    leader.writer.close()
    server.close()


@pytest.mark.spec("L9", "L5")
async def test_what_a_worker_has_not_been_written_goes_to_others_and_can_be_cancelled(tmp_path: Path) -> None:
    """A worker with a slow line holds up what it was given, and nothing else."""
    jobs = [uuid4() for _ in range(COUNT)]
    async with a_leader() as leader, OwnPeer(leader.port) as client, OwnPeer(leader.port) as slow:
        await client.hello_client("own", *NO_HEARTBEATS, cap=COUNT)
        await submit_all(client, jobs, Args=[LARGE])
        await slow.hello_worker(uuid4(), "", *NO_HEARTBEATS_WORKER, holds=Holding())
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await slow.credit(COUNT)
        await leader.until(lambda machine: all(worker.blocked for worker in machine.roster))
        given = [job for job in leader.machine.jobs.values() if job.worker is not None]
        assert sum(job.size for job in given) < 2 * GIVEN_BYTES_MAX
        left = len(jobs) - len(given)
        answer = await client.ask(b'{"ask":"explain","job":"%s"}' % str(jobs[-1]).encode())
        assert b"still being sent what it was given" in answer.payload
        await client.say_ids(fr.CANCEL, jobs[-1])
        await client.expect(fr.RESULT)
        async with Reader(leader.port) as quick:
            await quick.hello_worker(uuid4(), "", *NO_HEARTBEATS_WORKER, holds=Holding())
            await quick.credit(COUNT)
            assert len(await quick.read(fr.ASSIGN_JOB, left - 1)) == left - 1
