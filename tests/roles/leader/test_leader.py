"""A leader and peers that speak our own types, over real sockets: what is said, to whom, and in which order.

What it decides is tested in tests/core; what it makes of bad input, in test_leader_bad_input.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from uuid import UUID, uuid4
from zlib import crc32

import msgspec
import pytest
from tests.kit.a_leader import OwnPeer, Running, Stranger, a_leader
from tests.kit.old_peers import OldClient, OldWorker

from wakugumi import __version__
from wakugumi.core.ids import JobId
from wakugumi.core.leader import answer_records as an
from wakugumi.errors import ConfigError
from wakugumi.limits.units import MIB
from wakugumi.limits.wire import CLOSE_DEADLINE_S
from wakugumi.roles.leader import submit as submit_module
from wakugumi.roles.leader.leader import Leader
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.hello import CAPS, ENV, FINDS, RECEIPTS, read_welcome
from wakugumi.wire.messages.job import read_refusal, read_result, unpack_ids

pytestmark = pytest.mark.anyio


NOTHING = Holding()


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture
async def leader() -> AsyncIterator[Running]:
    async with a_leader() as running:
        yield running


@pytest.fixture
async def client(leader: Running) -> AsyncIterator[OwnPeer]:
    async with OwnPeer(leader.port) as peer:
        await peer.hello_client("desk-1")
        yield peer


@pytest.fixture
async def worker(leader: Running) -> AsyncIterator[OwnPeer]:
    async with OwnPeer(leader.port) as peer:
        await peer.hello_worker(uuid4(), holds=NOTHING)
        yield peer


@pytest.mark.spec("F4")
async def test_a_peer_that_wants_something_is_welcomed_first(leader: Running) -> None:
    for hello in (
        fr.encode(fr.HELLO_CLIENT, subject="a", payload=b'{"Wants":["receipts"]}'),
        fr.encode(fr.HELLO_CLIENT, subject="a", payload=b'{"Wants":["heartbeats"]}'),
        fr.encode(fr.HELLO_WORKER, uuid4().bytes, payload=b'{"Wants":["cancels"]}'),
    ):
        async with OwnPeer(leader.port) as peer:
            await peer.say(hello)
            welcome = read_welcome((await peer.expect(fr.WELCOME)).payload)
            assert welcome.version == __version__
            assert welcome.wants == ([CAPS, FINDS, ENV] if hello[4] == fr.HELLO_CLIENT else [])


@pytest.mark.spec("F4", "F9", "W7")
async def test_a_job_passes_with_a_receipt_a_result_and_confirmations(
    leader: Running, client: OwnPeer, worker: OwnPeer
) -> None:
    job = uuid4()
    await client.submit(job, Args=["a"])
    assert await client.expect_ids(fr.RECEIPT) == [job]
    await worker.credit(1)
    assigned = await worker.expect(fr.ASSIGN_JOB)
    assert (assigned.msg_id, assigned.subject) == (job.bytes_le, "job.assign.calca")
    assert json.loads(assigned.payload) == {"JobId": str(job), "ExecName": "calcA", "Args": ["a"]}
    await worker.ack(job, Stdout="42")
    assert await worker.expect_ids(fr.CONFIRM) == [job]
    result = await client.expect(fr.RESULT)
    assert (result.msg_id, result.corr_id) == (job.bytes_le, job.bytes_le)
    assert json.loads(result.payload)["Stdout"] == "42"
    assert leader.machine.clients.results.undelivered
    await client.say_ids(fr.CONFIRM, job)
    await leader.until(lambda machine: not machine.clients.results.undelivered)


@pytest.mark.spec("F9")
async def test_the_payload_reaches_worker_and_client_as_the_same_bytes(client: OwnPeer, worker: OwnPeer) -> None:
    request = b'{ "ExecName" :"calcA",\n"Later":[1,2 ],"Args":["\\u00e9"]}'
    answer = b'{"Status" : "OK","Later":null, "Stdout":"\\u00e9"}'
    await client.say(fr.encode(fr.SUBMIT_JOB, uuid4().bytes_le, payload=request))
    await client.expect(fr.RECEIPT)
    await worker.credit(1)
    assigned = await worker.expect(fr.ASSIGN_JOB)
    assert assigned.payload == request
    await worker.say(fr.encode(fr.ACK_JOB, corr_id=assigned.msg_id, payload=answer))
    assert (await client.expect(fr.RESULT)).payload == answer


async def test_receipts_of_one_turn_come_together(client: OwnPeer) -> None:
    jobs = [uuid4() for _ in range(20)]
    frames = [fr.encode(fr.SUBMIT_JOB, job.bytes_le, payload=b'{"ExecName":"a"}') for job in jobs]
    await client.say(*frames)
    receipts: list[UUID] = []
    while len(receipts) < 20:
        receipts += await client.expect_ids(fr.RECEIPT)
    assert receipts == jobs


@pytest.mark.spec("F11", "L6", "L9")
async def test_an_own_client_is_refused_with_the_code(client: OwnPeer, leader: Running) -> None:
    job = uuid4()
    await client.submit(job)
    await client.expect(fr.RECEIPT)
    bad = [
        (fr.encode(fr.SUBMIT_JOB, job.bytes_le, subject="job.submit.calcA", payload=b"{}"), "conflict"),
        (fr.encode(fr.SUBMIT_JOB, job.bytes_le, payload=b"?"), "bad-request"),
        (fr.encode(fr.SUBMIT_JOB, job.bytes_le, subject="a..b", payload=b"{}"), "bad-subject"),
        (fr.encode(fr.SUBMIT_JOB, job.bytes_le, payload=b'{"ExecName":"%s"}' % (b"x" * 129)), "bad-name"),
        (fr.encode(fr.SUBMIT_JOB, job.bytes_le, payload=b'{"TimeoutS":0}'), "bad-request"),
    ]
    for frame, code in bad:
        await client.say(frame)
        refusal = await client.expect(fr.REFUSAL)
        assert refusal.corr_id == job.bytes_le
        assert read_refusal(refusal.payload).code == code


@pytest.mark.spec("L9")
async def test_a_full_leader_tells_an_own_client_so_and_takes_its_job_later() -> None:
    async with a_leader(queue_jobs_max=2) as leader, OwnPeer(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello_client()
        jobs = [uuid4() for _ in range(3)]
        for job in jobs:
            await client.submit(job)
        accepted: list[UUID] = []
        while (frame := await client.frame()).type == fr.RECEIPT:
            accepted += [UUID(bytes_le=job) for job in unpack_ids(frame.payload)]
        assert accepted == jobs[:2]
        assert (frame.type, frame.corr_id) == (fr.REFUSAL, jobs[2].bytes_le)
        assert read_refusal(frame.payload).code == "full"
        await worker.hello(credit=2)
        for _ in range(2):
            await worker.assigned()
        await client.submit(jobs[2])
        assert await client.expect_ids(fr.RECEIPT) == [jobs[2]]


@pytest.mark.spec("L6")
async def test_a_claim_brings_another_clients_result_or_a_refusal(
    leader: Running, client: OwnPeer, worker: OwnPeer
) -> None:
    job, unknown = uuid4(), uuid4()
    await client.submit(job)
    await client.expect(fr.RECEIPT)
    async with OwnPeer(leader.port) as other:
        await other.hello_client("desk-2")
        await other.say_ids(fr.CLAIM, job, unknown)
        assert await other.expect_ids(fr.RECEIPT) == [job]
        refusal = await other.expect(fr.REFUSAL)
        assert (refusal.corr_id, read_refusal(refusal.payload).code) == (unknown.bytes_le, "unknown-job")
        await worker.credit(1)
        await worker.expect(fr.ASSIGN_JOB)
        await worker.ack(job, Stdout="for both")
        for peer in (client, other):
            assert json.loads((await peer.expect(fr.RESULT)).payload)["Stdout"] == "for both"


@pytest.mark.spec("L10")
async def test_a_cancel_ends_the_job_for_its_client_and_on_its_worker(client: OwnPeer, worker: OwnPeer) -> None:
    queued, running = uuid4(), uuid4()
    await client.submit(running)
    await worker.credit(1)
    await worker.expect(fr.ASSIGN_JOB)
    await client.submit(queued)
    assert await client.expect_ids(fr.RECEIPT) == [running]
    assert await client.expect_ids(fr.RECEIPT) == [queued]
    await client.say_ids(fr.CANCEL, queued, running)
    for job in (queued, running):
        result = await client.expect(fr.RESULT)
        assert result.corr_id == job.bytes_le
        record = read_result(JobId(job.bytes_le), result.payload)
        assert (record.job_id, record.client_id, record.exec_name) == (str(job), "desk-1", "calcA")
        assert (record.status, record.reason) == ("FAILED", "cancelled")
    cancel = await worker.expect(fr.CANCEL)
    assert (cancel.corr_id, cancel.payload) == (running.bytes_le, running.bytes_le)


@pytest.mark.spec("L10")
async def test_another_clients_job_is_not_cancelled_by_a_cancel(leader: Running, client: OwnPeer) -> None:
    job = uuid4()
    await client.submit(job)
    await client.expect(fr.RECEIPT)
    async with OwnPeer(leader.port) as other:
        await other.hello_client("desk-2")
        await other.say_ids(fr.CANCEL, job)
        answer = await other.ask(b'{"ask":"status"}')
        assert msgspec.json.decode(answer.payload, type=an.StatusAnswer).queued == 1


@pytest.mark.spec("L4")
async def test_a_worker_that_comes_back_keeps_what_it_runs_and_what_it_has_finished(
    leader: Running, client: OwnPeer
) -> None:
    me, running, finished, dropped = uuid4(), uuid4(), uuid4(), uuid4()
    async with OwnPeer(leader.port) as worker:
        await worker.hello_worker(me, holds=NOTHING)
        await worker.credit(3)
        for job in (running, finished, dropped):
            await client.submit(job)
            await worker.expect(fr.ASSIGN_JOB)
        worker.die()
    await leader.until(lambda machine: not machine.roster.by_conn)
    async with OwnPeer(leader.port) as worker:
        holds = Holding([running.bytes_le], [finished.bytes_le])
        await worker.hello_worker(me, holds=holds)
        await worker.ack(finished, Stdout="from before")
        await worker.credit(1)
        frames = [await worker.frame() for _ in range(2)]
        told = {frame.type: frame.payload if frame.type == fr.CONFIRM else frame.msg_id for frame in frames}
        assert told == {fr.CONFIRM: finished.bytes_le, fr.ASSIGN_JOB: dropped.bytes_le}
        await worker.ack(running)
        await worker.ack(dropped)
        for _ in range(3):
            assert await client.expect_ids(fr.RECEIPT)
        done = {UUID(bytes_le=(await client.expect(fr.RESULT)).corr_id) for _ in range(3)}
        assert done == {running, finished, dropped}


@pytest.mark.spec("L4", "F5")
async def test_a_worker_gets_nothing_before_it_has_said_what_it_holds(leader: Running, client: OwnPeer) -> None:
    async with OwnPeer(leader.port) as silent, OldWorker(leader.port) as other:
        await silent.hello_worker(uuid4())
        await silent.credit(10)
        await leader.until(lambda machine: [one.credit for one in machine.roster] == [10])
        await client.submit(uuid4())
        await other.hello(credit=1)
        await other.assigned()
        await silent.say(fr.encode(fr.HOLDING, payload=b"{}"))
        job = uuid4()
        await client.submit(job)
        assert (await silent.expect(fr.ASSIGN_JOB)).msg_id == job.bytes_le


async def test_a_worker_that_is_leaving_gets_no_more_and_may_finish(
    leader: Running, client: OwnPeer, worker: OwnPeer
) -> None:
    first, second = uuid4(), uuid4()
    await worker.credit(5)
    await client.submit(first)
    await worker.expect(fr.ASSIGN_JOB)
    await worker.say(fr.encode(fr.LEAVING))
    await leader.until(lambda machine: all(one.leaving for one in machine.roster))
    await client.submit(second)
    await leader.until(lambda machine: machine.lanes.queued == 1)
    await worker.ack(first)
    assert await worker.expect_ids(fr.CONFIRM) == [first]
    assert leader.machine.lanes.queued == 1


@pytest.mark.spec("L2")
async def test_what_a_heartbeat_tells_is_known(leader: Running, worker: OwnPeer) -> None:
    await worker.say(fr.encode(fr.HEARTBEAT, payload=b'{"Cpu":0.25}'))
    await leader.until(lambda machine: [one.cpu for one in machine.roster] == [0.25])
    await worker.say(fr.encode(fr.HEARTBEAT))
    await leader.until(lambda machine: [one.cpu for one in machine.roster] == [0.0])


async def test_a_leader_takes_a_socket_that_is_connected_already(leader: Running) -> None:
    ours, theirs = socket.socketpair()
    await leader.leader.adopt(theirs)
    reader, writer = await asyncio.open_connection(sock=ours)
    writer.write(fr.encode(fr.HELLO_CLIENT, subject="within", payload=b'{"Wants":["receipts"]}'))
    async with asyncio.timeout(20):
        assert (await reader.readexactly(5))[4] == fr.WELCOME
    assert list(leader.machine.clients.by_id) == ["within"]
    writer.close()
    await leader.until(lambda machine: not machine.clients.by_id)


async def test_a_port_that_is_taken_is_a_config_error(leader: Running) -> None:
    second = Leader()
    with pytest.raises(ConfigError, match=f"port {leader.port} on 127.0.0.1 is taken"):
        await second.listen("127.0.0.1", leader.port)
    await second.close()


async def test_connections_beyond_the_limit_are_turned_away(
    leader: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader.leader.hub.connections_max = 2
    async with OldClient(leader.port) as one, OldClient(leader.port) as two:
        await one.hello("desk-1")
        await two.hello("desk-2")
        await leader.until(lambda machine: len(machine.clients.by_id) == 2)
        async with Stranger(leader.port) as third:
            assert await third.is_cut_off()
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert "more than 2 connections" in lines[0]
    await leader.until(lambda _machine: not leader.leader.peers)
    await leader.serves()


@pytest.mark.spec("O6")
async def test_the_oldest_stranger_makes_room_for_a_known_client_that_comes_back(leader: Running) -> None:
    leader.leader.hub.connections_max = 3
    async with OldClient(leader.port) as one, Stranger(leader.port) as two:
        await one.hello("desk-1")
        await leader.until(lambda machine: len(leader.leader.peers) == 2 and machine.clients.by_id)
        async with Stranger(leader.port), OldClient(leader.port) as again:
            assert await two.is_cut_off()
            await again.hello("desk-1")
            await leader.until(lambda machine: len(machine.clients.connections) == 2)


async def test_routes_are_remembered_up_to_a_bound(leader: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit_module, "ROUTES_REMEMBERED_MAX", 3)
    async with OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk-1", {"DesiredParallelism": 100})
        await worker.hello(credit=100)
        for number in range(10):
            await client.submit(f"job.submit.a{number}")
            assert (await worker.assigned()).subject == f"job.assign.a{number}"
            assert leader.leader.submissions.remembered_routes <= 3


async def test_a_drain_waits_for_what_runs_and_assigns_nothing_more() -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk-1")
        await worker.hello(credit=5)
        first = await client.submit()
        job = await worker.assigned()
        assert await leader.leader.drain(deadline_s=0.01) is False
        late = await client.submit()
        found, result = await client.result()
        assert (found, result["Reason"]) == (late, "stopping")
        await worker.ack(job, Stdout="in time")
        assert (await client.result())[0] == first
        assert await leader.leader.drain(deadline_s=20) is True


async def test_a_leader_that_drains_takes_no_new_connections() -> None:
    async with a_leader() as leader:
        assert await leader.leader.drain() is True
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", leader.port)


async def test_close_lets_go_of_everyone_also_of_those_who_do_not_read() -> None:
    leader = Leader()
    running = Running(leader, await leader.listen("127.0.0.1", 0))
    async with OldClient(running.port) as client, OldClient(running.port) as deaf, OldWorker(running.port) as worker:
        await client.hello("desk-1")
        await deaf.hello("desk-2", {"DesiredParallelism": 100})
        await worker.hello(credit=100)
        deaf.writer.transport.pause_reading()
        for _ in range(30):
            await deaf.submit()
        for _ in range(30):
            await worker.ack(await worker.assigned(), Stdout="x" * MIB)
        await running.until(lambda machine: any(door.blocked for door in machine.clients.connections.values()))
        async with asyncio.timeout(20 * CLOSE_DEADLINE_S):
            await leader.close()
        assert await client.is_cut_off()
    assert leader.peers == {}
    assert leader.drive.failed.cancelled()


@pytest.mark.spec("L6")
async def test_requests_that_no_worker_can_read_are_told_apart_by_more_than_a_checksum(leader: Running) -> None:
    one, other = b'{"ExecName":"calcA","Args":"b8a5b6213584"}', b'{"ExecName":"calcA","Args":"baa888a42e75"}'
    assert (len(one), crc32(one)) == (len(other), crc32(other))
    job = uuid4()
    async with OwnPeer(leader.port) as client, OwnPeer(leader.port) as worker:
        await client.hello_client("own", RECEIPTS)
        await worker.hello_worker(uuid4(), "job.assign.calcA", RECEIPTS)
        await worker.credit(1)
        await client.say(fr.encode(fr.SUBMIT_JOB, job.bytes_le, payload=one))
        await worker.expect(fr.ASSIGN_JOB)
        await worker.ack(job, Stdout="of the first")
        assert await client.expect_ids(fr.RECEIPT) == [job]
        await client.expect(fr.RESULT)
        await client.say(fr.encode(fr.SUBMIT_JOB, job.bytes_le, payload=other))
        assert read_refusal((await client.expect(fr.REFUSAL)).payload).code == "conflict"
        await client.say(fr.encode(fr.SUBMIT_JOB, job.bytes_le, payload=one))
        assert await client.expect_ids(fr.RECEIPT) == [job]
        assert b"of the first" in (await client.expect(fr.RESULT)).payload
