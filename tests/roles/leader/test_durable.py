"""A real leader with a real journal: what it says waits for the disk, and what it knew its successor knows."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.kit.a_group import get
from tests.kit.a_leader import OwnPeer, Running
from tests.kit.old_peers import DEADLINE_S, OldClient, OldWorker

from wakugumi.adapters.journal.journal import Journal
from wakugumi.errors import JournalError
from wakugumi.limits.journal import JOURNAL_FREE_MIN_BYTES
from wakugumi.limits.wire import AHEAD_BYTES_MAX
from wakugumi.roles.leader.leader import Leader
from wakugumi.roles.leader.settings import LeaderSettings
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.hello import REATTACH, RECEIPTS
from wakugumi.wire.messages.payload import encode

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L7")]

QUIET_S = 0.1
"""Long enough to hear what must not be said."""


@asynccontextmanager
async def a_leader(
    folder: Path, leader_options: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Running]:
    leader = Leader(Journal.open(folder, **options), settings=LeaderSettings(**(leader_options or {})))
    running = Running(leader, await leader.listen("127.0.0.1", 0))
    try:
        yield running
        running.machine.check()
    finally:
        await leader.close()


@asynccontextmanager
async def own_client(leader: Running, client_id: str = "desk") -> AsyncIterator[OwnPeer]:
    async with OwnPeer(leader.port) as peer:
        await peer.hello_client(client_id, RECEIPTS)
        yield peer


@asynccontextmanager
async def own_worker(
    leader: Running, worker_id: UUID, holds: Holding | None = None, credit: int = 1
) -> AsyncIterator[OwnPeer]:
    async with OwnPeer(leader.port) as peer:
        await peer.hello_worker(worker_id, "", RECEIPTS, REATTACH, holds=holds or Holding())
        if credit:
            await peer.credit(credit)
        yield peer


async def says_nothing(peer: OwnPeer) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(QUIET_S):
            await peer.reader.readexactly(1)


class SlowDisk(sqlite3.Connection):
    """Its inserts wait until the gate is open."""

    gate = threading.Event()

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql.startswith("INSERT INTO log"):
            assert self.gate.wait(DEADLINE_S)
        return super().execute(sql, *args)


class BrokenDisk(sqlite3.Connection):
    """Its flushes fail from a moment on."""

    broken = False

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if self.broken and sql.startswith("INSERT INTO log"):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return super().execute(sql, *args)


async def test_nothing_is_said_before_it_is_on_disk(tmp_path: Path) -> None:
    SlowDisk.gate.clear()
    job, worker_id = uuid4(), uuid4()
    async with (
        a_leader(tmp_path, factory=SlowDisk) as leader,
        own_client(leader) as client,
        own_worker(leader, worker_id) as worker,
    ):
        await client.submit(job)
        await leader.until(lambda machine: machine.jobs)
        await says_nothing(client)
        await says_nothing(worker)
        SlowDisk.gate.set()
        assert await client.expect_ids(fr.RECEIPT) == [job]
        await worker.expect(fr.ASSIGN_JOB)
        SlowDisk.gate.clear()
        await worker.ack(job)
        await leader.until(lambda machine: machine.clients.results.undelivered)
        await says_nothing(client)
        await says_nothing(worker)
        SlowDisk.gate.set()
        await client.expect(fr.RESULT)
        await worker.expect(fr.CONFIRM)


async def test_a_disk_that_fails_ends_the_leader_and_nobody_is_told_that_anything_is_safe(tmp_path: Path) -> None:
    BrokenDisk.broken = False
    leader = Leader(Journal.open(tmp_path, factory=BrokenDisk))
    running = Running(leader, await leader.listen("127.0.0.1", 0))
    safe, lost = uuid4(), uuid4()
    async with own_client(running) as client:
        await client.submit(safe)
        assert await client.expect_ids(fr.RECEIPT) == [safe]
        BrokenDisk.broken = True
        await client.submit(lost)
        with pytest.raises(JournalError, match="cannot be written"):
            async with asyncio.timeout(DEADLINE_S):
                await leader.drive.failed
        await says_nothing(client)
    await leader.close()
    BrokenDisk.broken = False
    async with a_leader(tmp_path) as again:
        assert [UUID(bytes_le=job) for job in again.machine.jobs] == [safe]


async def test_a_disk_without_room_refuses_what_is_new_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    free = [10 * JOURNAL_FREE_MIN_BYTES]
    first, refused = uuid4(), uuid4()
    async with (
        a_leader(tmp_path, free_bytes=lambda: free[0]) as leader,
        own_client(leader) as client,
        own_worker(leader, uuid4(), credit=0) as worker,
    ):
        await client.submit(first)
        await client.expect(fr.RECEIPT)
        free[0] = 0
        await _until_low(leader, client, low=True)
        await client.submit(refused)
        no = await client.expect(fr.REFUSAL)
        assert b"disk-full" in no.payload
        free[0] = 10 * JOURNAL_FREE_MIN_BYTES
        await worker.credit(1)
        await _until_low(leader, client, low=False)
        assert (await worker.expect(fr.ASSIGN_JOB)).msg_id == first.bytes_le
        await client.submit(refused)
        assert await client.expect_ids(fr.RECEIPT) == [refused]


async def _until_low(leader: Running, client: OwnPeer, *, low: bool) -> None:
    """The disk is looked at when something is written to it, at most once a second, and by itself while it is low."""
    async with asyncio.timeout(DEADLINE_S):
        while leader.machine.disk_low is not low:
            if low:
                await client.submit(uuid4(), subject="job.submit.elsewhere")
                await client.frame()
            await asyncio.sleep(0.05)


class FullDisk(sqlite3.Connection):
    """Nothing can be written while it is full."""

    full = False

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if self.full and sql.startswith("INSERT INTO log"):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(sql, *args)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system, of which the journal's folder has twice what it must have free."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={3 * JOURNAL_FREE_MIN_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.spec("L9")
@pytest.mark.parametrize("how", ["a real one", "SQLite says so"])
async def test_a_full_disk_silences_no_question_and_health_tells_of_it(
    how: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(FullDisk, "full", False)
    folder = tmp_path if how != "a real one" else request.getfixturevalue("small_disk")
    jobs = [uuid4() for _ in range(10)]

    def fill_up() -> None:
        with open(folder / "filler", "ab", buffering=0) as file, suppress(OSError):
            while how == "a real one":
                file.write(bytes(1 << 16))

    async with (
        a_leader(folder / "state", factory=FullDisk) as leader,
        own_client(leader) as client,
        own_worker(leader, uuid4(), credit=len(jobs)) as worker,
        own_client(leader, "another") as other,
    ):
        for job in jobs:
            await client.submit(job)
            await worker.expect(fr.ASSIGN_JOB)
        assert (await get(leader, "/health")).status == 200
        monkeypatch.setattr("wakugumi.adapters.journal.journal.SLOW_S", 0.2)
        FullDisk.full = how != "a real one"
        fill_up()
        for job in jobs:  # More than the write-ahead log and the reserve hold: not all of it is read now.
            payload = encode({"JobId": str(job), "Status": "OK", "Stdout": "x" * 3_000_000})
            worker.writer.write(fr.encode(fr.ACK_JOB, corr_id=job.bytes_le, payload=payload))
        async with asyncio.timeout(DEADLINE_S):
            while not leader.machine.stalled:
                await asyncio.sleep(0.01)
                fill_up()
        assert b"the journal's disk is full" in (await other.ask(b'{"ask":"status"}')).payload
        assert b'"workers"' in (await other.ask(b'{"ask":"workers"}')).payload
        health = await get(leader, "/health")
        assert health.status == 503
        assert b"disk is full" in health.body
        assert b'"free":0' in (await get(leader, "/capacity")).body
        await other.submit(uuid4())
        assert b"disk-full" in (await other.expect(fr.REFUSAL)).payload
        monkeypatch.setattr("wakugumi.adapters.journal.journal.SLOW_S", 60.0)  # A slow machine is no slow disk.
        (folder / "filler").unlink()
        FullDisk.full = False
        await leader.until(lambda machine: not machine.stalled)
        received: list[UUID] = []
        while len(received) < len(jobs):
            frame = await client.frame()
            received += [UUID(bytes_le=frame.corr_id)] if frame.type == fr.RESULT else []
        assert received == jobs
        assert (await get(leader, "/health")).status == 200
    told, over = (message for message in caplog.messages if "commit" in message)
    assert "nothing was committed" in told
    assert "disk is full" in told
    assert "commits go on" in over


async def test_a_leader_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    runs, queued, done = uuid4(), uuid4(), uuid4()
    worker_id = uuid4()
    async with (
        a_leader(tmp_path) as leader,
        own_client(leader) as client,
        own_worker(leader, worker_id, credit=2) as worker,
    ):
        for job in (done, runs, queued):
            await client.submit(job)
            await client.expect(fr.RECEIPT)
        await worker.expect(fr.ASSIGN_JOB)
        await worker.expect(fr.ASSIGN_JOB)
        await worker.ack(done, Stdout="made before")
        await client.expect(fr.RESULT)  # and not confirmed
        await worker.expect(fr.CONFIRM)
    async with (
        a_leader(tmp_path) as leader,
        own_worker(leader, worker_id, Holding(running=[runs.bytes_le])) as worker,
    ):
        assert (await worker.expect(fr.ASSIGN_JOB)).msg_id == queued.bytes_le
        await worker.ack(runs, Stdout="made meanwhile")
        await worker.expect(fr.CONFIRM)
        async with own_client(leader) as client:
            await client.say_ids(fr.CLAIM, done, runs)
            assert set(await client.expect_ids(fr.RECEIPT)) == {done, runs}
            results = [await client.expect(fr.RESULT), await client.expect(fr.RESULT)]
            assert {b"made before" in result.payload for result in results} == {True, False}
            await client.say_ids(fr.CONFIRM, done, runs)
            await leader.until(lambda machine: not machine.clients.results.undelivered)


async def test_old_peers_are_served_over_a_restart_as_well_as_their_protocol_allows(tmp_path: Path) -> None:
    async with a_leader(tmp_path) as leader, OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("old-desk")
        await worker.hello("job.assign.calcA", credit=1)
        first = await client.submit("job.submit.calcA")
        await worker.ack(await worker.assigned(), Stdout="one")
        assert (await client.result())[0] == first
        second = await client.submit("job.submit.calcA")
        await leader.until(lambda machine: len(machine.jobs) == 2)
        await leader.until(lambda machine: not machine.clients.results.undelivered)
    async with a_leader(tmp_path) as leader, OldWorker(leader.port) as worker:
        await worker.hello("job.assign.calcA", credit=1)
        await worker.ack(await worker.assigned(), Stdout="two")
        await leader.until(lambda machine: machine.clients.results.undelivered)
        async with OldClient(leader.port) as client:
            await client.hello("old-desk")
            assert (await client.result())[0] == second
    async with a_leader(tmp_path) as leader, OldClient(leader.port) as client:
        await client.hello("old-desk")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await client.receive()


async def test_requests_that_are_only_in_the_journal_reach_their_workers(tmp_path: Path) -> None:
    jobs = [uuid4() for _ in range(40)]
    async with a_leader(tmp_path, {"payload_memory_bytes": 0}) as leader, own_client(leader) as client:
        for number, job in enumerate(jobs):
            await client.submit(job, Args=[f"number {number}"])
        received: list[UUID] = []
        while len(received) < len(jobs):
            received += await client.expect_ids(fr.RECEIPT)
        assert leader.machine.lifecycle.memory_bytes == 0
        async with own_worker(leader, uuid4(), credit=len(jobs)) as worker:
            for number, job in enumerate(jobs):
                frame = await worker.expect(fr.ASSIGN_JOB)
                assert frame.msg_id == job.bytes_le
                assert f"number {number}".encode() in frame.payload


async def test_a_client_that_is_far_ahead_of_the_disk_is_not_read_from_and_others_are(tmp_path: Path) -> None:
    SlowDisk.gate.clear()
    jobs = [uuid4() for _ in range(8_000)]
    async with (
        a_leader(tmp_path, factory=SlowDisk) as leader,
        own_client(leader, "flood") as flood,
        own_client(leader, "small") as small,
    ):
        sent = b"".join(
            fr.encode(fr.SUBMIT_JOB, job.bytes_le, subject="flood", payload=b'{"Args":["%s"]}' % (b"x" * 150))
            for job in jobs
        )
        most = len(jobs) * (AHEAD_BYTES_MAX + 300_000) // len(sent)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(flood.say(sent), name="a client that never stops")
            await leader.until(lambda _: leader.leader.hub.held_back)
            own = uuid4()
            await small.submit(own)
            await leader.until(lambda machine: own.bytes_le in machine.jobs)
            assert b'"queued"' in (await small.ask(b'{"ask":"status"}')).payload
            assert len(leader.machine.jobs) <= most < len(jobs)
            SlowDisk.gate.set()
            assert await small.expect_ids(fr.RECEIPT) == [own]
            assert len(leader.machine.jobs) <= 2 * most
            received: list[UUID] = []
            while len(received) < len(jobs):
                received += await flood.expect_ids(fr.RECEIPT)
        assert received == jobs
        assert not leader.leader.hub.held_back


async def test_while_the_disk_does_not_keep_up_only_those_are_read_from_of_whom_it_has_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.adapters.journal.journal.JOURNAL_BACKLOG_BYTES_MAX", 1_000_000)
    SlowDisk.gate.clear()
    async with a_leader(tmp_path, factory=SlowDisk) as leader, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(own_client(leader, f"client {at}")) for at in range(4)]
        for client in clients:
            await client.submit(uuid4(), Args=["x" * 300_000])
        await leader.until(lambda _: leader.leader.hub.behind and len(leader.leader.hub.held_back) == len(clients))
        taken = len(leader.machine.jobs)
        for client in clients:
            await client.submit(uuid4())
        async with own_client(leader, "newcomer") as newcomer:
            await newcomer.submit(uuid4())
            await leader.until(lambda machine: len(machine.jobs) > taken)
            assert len(leader.machine.jobs) == taken + 1
            SlowDisk.gate.set()
            await newcomer.expect(fr.RECEIPT)
        for client in clients:
            received = await client.expect_ids(fr.RECEIPT)
            while len(received) < 2:
                received += await client.expect_ids(fr.RECEIPT)
        assert not leader.leader.hub.behind
        assert not leader.leader.hub.held_back


async def test_a_client_that_never_stops_is_read_from_again_when_the_disk_keeps_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.adapters.journal.journal.JOURNAL_BACKLOG_BYTES_MAX", 1_000_000)
    SlowDisk.gate.clear()
    big = "x" * 300_000
    async with a_leader(tmp_path, factory=SlowDisk) as leader, own_client(leader) as client:
        jobs = [uuid4() for _ in range(60)]

        async def submit_all() -> None:
            with suppress(ConnectionError):
                for job in jobs:
                    await client.submit(job, Args=[big])

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(submit_all(), name="a client that never stops")
            await leader.until(lambda _: leader.leader.hub.held_back)
            taken = len(leader.machine.jobs)
            await asyncio.sleep(QUIET_S)
            assert len(leader.machine.jobs) <= taken + 2, "what had been read before"
            assert len(leader.machine.jobs) < len(jobs)
            SlowDisk.gate.set()
            received: list[UUID] = []
            while len(received) < len(jobs):
                received += await client.expect_ids(fr.RECEIPT)
        assert received == jobs
        assert not leader.leader.hub.behind
