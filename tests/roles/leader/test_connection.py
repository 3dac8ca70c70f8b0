"""Whatever comes in at the leader's port: one clear line, at most one connection lost, and nobody else is hurt (F3).

After each of these a bystander client and a bystander worker complete a job on the same leader.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import pytest
from tests.kit import old_peers as old
from tests.kit.a_leader import OwnPeer, Running, Stranger, a_leader
from tests.kit.old_peers import Message, OldClient, OldWorker, pack

from wakugumi.core.ids import JobId
from wakugumi.core.leader import events as ev
from wakugumi.limits.leader import CLIENT_CAP_MAX
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.limits.units import MIB
from wakugumi.limits.wire import FIRST_FRAME_BYTES_MAX, FRAME_BYTES_MAX, STRANGERS_TOLD_MAX
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.hello import write_cap
from wakugumi.wire.messages.job import read_refusal, unpack_ids
from wakugumi.wire.messages.payload import encode

pytestmark = pytest.mark.anyio

JOB = UUID("00112233-4455-6677-8899-aabbccddeeff")
DEEP = b'{"x":' + b"[" * 60_000
HELLO = pack(Message(old.HELLO_CLIENT, subject="stranger"))
HELLO_WORKER = pack(Message(old.HELLO_WORKER, JOB, subject="job.assign.nobody"))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that leaders run on; the other one stands in test_net and test_leader."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def leader() -> AsyncIterator[Running]:
    async with a_leader() as running:
        yield running


@asynccontextmanager
async def said_once(leader: Running, caplog: pytest.LogCaptureFixture, *words: str) -> AsyncIterator[None]:
    """What happens in here costs one line with these words, and a bystander is served afterwards."""
    yield
    await leader.serves()
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1, lines
    assert all(word in lines[0] for word in words), lines
    assert len(lines[0]) < 400


@asynccontextmanager
async def not_worth_a_line(leader: Running, caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    yield
    await leader.serves()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def raw(length: int, subject_size: int, subject: bytes, payload_size: int, payload: bytes) -> bytes:
    head = struct.pack("<IB16s16sH", length, old.SUBMIT_JOB, JOB.bytes_le, bytes(16), subject_size)
    return head + subject + struct.pack("<I", payload_size) + payload


# Bytes that are no frames.


@pytest.mark.spec("F3")
@pytest.mark.parametrize("greeted", [False, True], ids=["stranger", "client"])
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (raw(FRAME_BYTES_MAX + 1, 0, b"", 0, b""), "too large"),
        (raw(0xFFFFFFFF, 0, b"", 0, b""), "too large"),
        (raw(38, 0, b"", 0, b""), "inconsistent"),
        (raw(41, 3, b"ab", 0, b""), "inconsistent"),
        (raw(41, 0, b"", 3, b"ab"), "inconsistent"),
        (raw(41, 0, b"", 0xFFFFFFFF, b"ab"), "inconsistent"),
        (raw(41, 2, b"\xff\xfe", 0, b""), "not UTF-8"),
    ],
)
async def test_bytes_that_are_no_frame_end_the_connection(
    leader: Running, caplog: pytest.LogCaptureFixture, greeted: bool, data: bytes, why: str
) -> None:
    async with said_once(leader, caplog, "closing 127.0.0.1:", why), Stranger(leader.port) as stranger:
        await stranger.say(HELLO if greeted else b"", data)
        assert await stranger.is_cut_off()


async def test_who_has_spoken_frames_does_not_go_on_with_http(
    leader: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with said_once(leader, caplog, "looks like another protocol"), Stranger(leader.port) as stranger:
        await stranger.say(HELLO, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await stranger.is_cut_off()


@pytest.mark.spec("F3")
async def test_a_first_frame_above_64_kib_ends_the_connection_before_it_has_come(
    leader: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with said_once(leader, caplog, "65537 bytes is too large"), Stranger(leader.port) as stranger:
        await stranger.say(struct.pack("<I", FIRST_FRAME_BYTES_MAX + 1))
        assert await stranger.is_cut_off()


async def test_a_tls_greeting_is_called_so(leader: Running, caplog: pytest.LogCaptureFixture) -> None:
    async with said_once(leader, caplog, "begins like TLS"), Stranger(leader.port) as stranger:
        await stranger.say(bytes.fromhex("16030100c8010000c40303"))
        assert await stranger.is_cut_off()


@pytest.mark.spec("F3")
@pytest.mark.parametrize("how", ["end", "reset"])
@pytest.mark.parametrize("greeted", [False, True], ids=["stranger", "client"])
async def test_a_connection_that_ends_within_a_frame(
    leader: Running, caplog: pytest.LogCaptureFixture, greeted: bool, how: str
) -> None:
    submit = pack(Message(old.SUBMIT_JOB, JOB, payload=b'{"ExecName":"calcA"}'))
    async with said_once(leader, caplog, "ended in the middle of a frame, after 30 bytes"):
        async with Stranger(leader.port) as stranger:
            await stranger.say(HELLO if greeted else b"", submit[:30])
            await leader.until(lambda machine: bool(machine.clients.connections) == greeted and leader.leader.peers)
            if greeted:
                await leader.until(lambda machine: machine.clients.connections)
            peer = next(iter(leader.leader.peers.values()))
            await leader.until(lambda _machine: peer.link._decoder.held_bytes == 30)
            if how == "reset":
                stranger.die()
        await leader.until(lambda _machine: not leader.leader.peers)


# Frames that this peer must not send.


@pytest.mark.spec("F3", "F5")
@pytest.mark.parametrize("kind", [1, 3, 4, 5, 16, 20, 24, 8, 200])
async def test_a_first_frame_that_is_no_hello(leader: Running, caplog: pytest.LogCaptureFixture, kind: int) -> None:
    words = "the first frame must be HelloClient or HelloWorker, not", fr.NAMES.get(kind, f"type {kind}")
    async with said_once(leader, caplog, *words), Stranger(leader.port) as stranger:
        await stranger.say(fr.encode(kind, JOB.bytes_le))
        assert await stranger.is_cut_off()


@pytest.mark.spec("F3")
@pytest.mark.parametrize(
    ("hello", "kind", "why"),
    [
        (HELLO_WORKER, fr.SUBMIT_JOB, "a worker does not send SubmitJob"),
        (HELLO_WORKER, fr.CACHE_PUT, "a worker does not send CachePut"),
        (HELLO_WORKER, fr.ASK, "a worker does not send Ask"),
        (HELLO_WORKER, fr.CANCEL, "a worker does not send Cancel"),
        (HELLO, fr.ACK_JOB, "a client does not send AckJob"),
        (HELLO, fr.CREDIT, "a client does not send Credit"),
        (HELLO, fr.HOLDING, "a client does not send Holding"),
        (HELLO, fr.RESULT, "a client does not send Result"),
        (HELLO, fr.HELLO_CLIENT, "a client does not send HelloClient"),
        (HELLO, fr.HELLO_WORKER, "a client does not send HelloWorker"),
        (HELLO_WORKER, fr.HELLO_WORKER, "a worker does not send HelloWorker"),
    ],
)
async def test_a_frame_that_this_role_does_not_send(
    leader: Running, caplog: pytest.LogCaptureFixture, hello: bytes, kind: int, why: str
) -> None:
    async with said_once(leader, caplog, why), Stranger(leader.port) as stranger:
        await stranger.say(hello)
        await stranger.say(fr.encode(kind, JOB.bytes_le, JOB.bytes_le, "a", b"{}"))
        assert await stranger.is_cut_off()


@pytest.mark.spec("F4")
async def test_frames_of_unknown_types_are_ignored_with_one_line_for_all_of_them(
    leader: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with said_once(leader, caplog, "unknown type 8"), Stranger(leader.port) as stranger:
        await stranger.say(HELLO, *(fr.encode(kind, payload=b"?") for kind in (8, 11, 15, 40, 99, 255, 0)))
        await stranger.is_heard()


# Hellos.


@pytest.mark.spec("F5")
@pytest.mark.parametrize(
    ("subject", "payload", "why"),
    [
        ("", b"", "a client id is"),
        ("x" * 129, b"", "a client id is"),
        ("a\r\nINFO all is well", b"", "a client id is"),
        ("a\x1b[2J", b"", "a client id is"),
        ("a\u3164", b"", "a client id is"),
        ("a\u2800", b"", "a client id is"),
        ("", b'{"ClientId":"%s"}' % (b"x" * 50_000), "a client id is"),
        ("a", b'{"DesiredParallelism":0}', "DesiredParallelism is 1 to 100000, not 0"),
        ("a", b'{"DesiredParallelism":-5}', "DesiredParallelism is 1 to 100000, not -5"),
        ("a", b'{"DesiredParallelism":2147483647}', "DesiredParallelism is 1 to 100000"),
        ("a", b'{"DesiredParallelism":1' + b"0" * 5_000 + b"}", "the payload of HelloClient"),
        ("a", b'{"DesiredParallelism":1e999}', "the payload of HelloClient"),
        ("a", b'{"DesiredParallelism":"4"}', "the payload of HelloClient"),
        ("a", b'{"ClientId":["a"]}', "the payload of HelloClient"),
        ("a", b'{"Wants":{"receipts":true}}', "the payload of HelloClient"),
        ("a", b"4", "the payload of HelloClient"),
        ("a", b"\xff\xfe", "the payload of HelloClient"),
        ("a", DEEP, "the payload of HelloClient"),
    ],
)
async def test_a_client_whose_hello_cannot_be(
    leader: Running, caplog: pytest.LogCaptureFixture, subject: str, payload: bytes, why: str
) -> None:
    async with said_once(leader, caplog, why), Stranger(leader.port) as stranger:
        await stranger.say(pack(Message(old.HELLO_CLIENT, subject=subject, payload=payload)))
        assert await stranger.is_cut_off()


@pytest.mark.spec("F5")
@pytest.mark.parametrize(
    ("worker_id", "subject", "payload", "why"),
    [
        (old.NO_ID, "a", b"", "a worker's hello carries its id, not zeros"),
        (JOB, "job..assign", b"", "bad pattern"),
        (JOB, "job.>.assign", b"", "bad pattern"),
        (JOB, "a*", b"", "bad pattern"),
        (JOB, "a\nb", b"", "bad pattern"),
        (JOB, "x" * 2_000, b"", "bad pattern"),
        (JOB, " ".join(f"a{number}" for number in range(300)), b"", "300 patterns"),
        (JOB, " ".join(f"a.{number}" for number in range(300)), b"", "300 patterns"),
        (JOB, "a", b'{"Name":"%s"}' % (b"x" * 65), "a worker's name"),
        (JOB, "a", b'{"Name":"a\\nb"}', "a worker's name"),
        (JOB, "a", b'{"Name":"\\u001b[2J"}', "a worker's name"),
        (JOB, "a", b'{"Name":7}', "the payload of HelloWorker"),
        (JOB, "a", b'{"Slots":4097}', "a worker has at most 4096 slots"),
        (JOB, "a", b'{"Slots":-1}', "a worker has at most 4096 slots"),
        (JOB, "a", b"rack-1", "the payload of HelloWorker"),
        (JOB, "a", DEEP, "the payload of HelloWorker"),
    ],
)
async def test_a_worker_whose_hello_cannot_be(
    leader: Running, caplog: pytest.LogCaptureFixture, worker_id: UUID, subject: str, payload: bytes, why: str
) -> None:
    async with said_once(leader, caplog, why), Stranger(leader.port) as stranger:
        await stranger.say(pack(Message(old.HELLO_WORKER, worker_id, subject=subject, payload=payload)))
        assert await stranger.is_cut_off()


@pytest.mark.parametrize("begun", [b"", HELLO[:20]], ids=["nothing", "half of it"])
async def test_a_hello_that_never_comes_ends_the_connection(caplog: pytest.LogCaptureFixture, begun: bytes) -> None:
    async with (
        a_leader(hello_deadline_s=0.1) as leader,
        said_once(leader, caplog, "no hello within 0.1 s"),
        Stranger(leader.port) as stranger,
    ):
        await stranger.say(begun)
        assert await stranger.is_cut_off()


async def test_a_hundred_connections_that_say_nothing_are_in_nobodys_way(caplog: pytest.LogCaptureFixture) -> None:
    async with a_leader(hello_deadline_s=1.0) as leader:
        strangers = [await Stranger(leader.port).__aenter__() for _ in range(100)]
        await leader.serves()
        for stranger in strangers:
            assert await stranger.is_cut_off()
            await stranger.__aexit__(None, None, None)
        await leader.serves()
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == STRANGERS_TOLD_MAX, "further ones are counted, and told in one line later"
    assert all("no hello within 1 s" in line for line in lines)


# Jobs that are none: refused, each by its id, and not worth a line.


@pytest.mark.spec("F11")
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"process this",
        b"[]",
        b"null",
        b'{"JobId":"my job"}',
        b'{"JobId":null}',
        b'{"ExecName":["sh"]}',
        b'{"TimeoutS":-1}',
        b'{"TimeoutS":1e300}',
        b'{"TimeoutS":1e999}',
        b'{"Key":"%s"}' % (b"x" * 129),
        b'{"Key":"a\\nb"}',
        b'{"Key":7}',
        b'{"Priority":101}',
        b'{"Priority":-101}',
        b'{"Priority":0.5}',
        b'{"Slots":0}',
        b'{"Slots":-1}',
        b'{"Slots":4097}',
        b'{"Slots":1e99}',
        b'{"ExecName":"\xff"}',
        DEEP,
        DEEP + b"]" * 60_000 + b"}",
    ],
)
async def test_json_that_is_not_a_job_is_refused(
    leader: Running, caplog: pytest.LogCaptureFixture, payload: bytes
) -> None:
    async with not_worth_a_line(leader, caplog), OldClient(leader.port) as client:
        await client.hello("stranger")
        await client.send(Message(old.SUBMIT_JOB, JOB, payload=payload))
        found, result = await client.result()
        assert (found, result["Status"]) == (JOB, "FAILED")
        assert result["Stderr"]


@pytest.mark.spec("F11")
@pytest.mark.parametrize("subject", [".", "a..b", "job.submit", "job.assign.>", "a b", "a\x00b", "a/b", "x" * 60_000])
async def test_a_subject_that_is_none_is_refused(
    leader: Running, caplog: pytest.LogCaptureFixture, subject: str
) -> None:
    async with not_worth_a_line(leader, caplog), OldClient(leader.port) as client:
        await client.hello("stranger")
        job = await client.submit(subject)
        found, result = await client.result()
        assert (found, result["Status"], result["Reason"]) == (job, "FAILED", "bad-subject")


async def test_a_job_with_zeros_for_an_id_is_refused(leader: Running, caplog: pytest.LogCaptureFixture) -> None:
    async with not_worth_a_line(leader, caplog), OldClient(leader.port) as client:
        await client.hello("stranger")
        await client.send(Message(old.SUBMIT_JOB, payload=b'{"ExecName":"calcA"}'))
        await client.send(Message(old.SUBMIT_JOB, JOB, payload=b'{"JobId":"%s"}' % str(old.NO_ID).encode()))
        for _ in range(2):
            assert (await client.result())[1]["Stderr"] == "the job has no id"


@pytest.mark.spec("L6")
async def test_the_same_id_with_another_request_is_refused_and_the_first_is_done(
    leader: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        not_worth_a_line(leader, caplog),
        OldClient(leader.port) as client,
        OldWorker(leader.port) as worker,
    ):
        await client.hello("stranger")
        await client.submit("calcA", job_id=JOB, Args=["1"])
        await client.submit("calcA", job_id=JOB, Args=["2"])
        await client.submit("calcA", job_id=JOB, ExecName="calcB", Args=["1"])
        for _ in range(2):
            found, result = await client.result()
            assert (found, result["Status"], result["Reason"]) == (JOB, "FAILED", "conflict")
        await worker.hello(credit=1)
        job = await worker.assigned()
        assert job.json["Args"] == ["1"]
        await worker.ack(job, Stdout="1")
        assert (await client.result())[1]["Stdout"] == "1"


@pytest.mark.spec("F3")
@pytest.mark.parametrize("subject", ["", "x", "job.assign.x"])
async def test_a_request_that_fits_its_frame_but_not_the_one_to_a_worker_is_refused(
    leader: Running, caplog: pytest.LogCaptureFixture, subject: str
) -> None:
    """The routed subject may be longer than the one that came: some 12 bytes decide about the leader's life."""
    async with not_worth_a_line(leader, caplog), OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("stranger")
        await worker.hello(credit=2)
        most = fr.payload_max(subject)
        payload = b'{"ExecName":"x"}' + b" " * (most - 16)
        await client.send(Message(old.SUBMIT_JOB, JOB, subject=subject, payload=payload))
        if subject == "job.assign.x":
            assert (await worker.assigned()).msg_id == JOB
        else:
            found, result = await client.result()
            assert (found, result["Reason"]) == (JOB, "too-big")
            fitting = payload[: fr.payload_max("job.assign.x")]
            await client.send(Message(old.SUBMIT_JOB, JOB, subject=subject, payload=fitting))
            assert len((await worker.assigned()).payload) == len(fitting)


@pytest.mark.parametrize("cache_id", ["", "x" * (4 * MIB - 200), '"' * 1_000_000, "\n" * 1_000_000])
async def test_a_cache_put_of_any_size_is_answered(
    leader: Running, caplog: pytest.LogCaptureFixture, cache_id: str
) -> None:
    async with not_worth_a_line(leader, caplog), OldClient(leader.port) as client:
        await client.hello("stranger")
        payload = b'{"CacheId":%s}' % json.dumps(cache_id).encode()
        await client.send(Message(old.CACHE_PUT, JOB, subject="cache.put.>", payload=payload))
        answer = await client.receive()
        assert (answer.type, answer.corr_id, answer.json["Status"]) == (old.CACHE_ACK, JOB, "FAILED")


# Workers that overstep.


@pytest.mark.spec("F7")
@pytest.mark.parametrize(
    "payload",
    [
        *(struct.pack("<i", amount) for amount in (0, -1, -(2**31), 2**31 - 1, CREDIT_MAX + 1)),
        *(b"", b"\x01", b"\x01\x00\x00\x00\x00", b"one"),
    ],
)
async def test_a_credit_that_cannot_be_is_refused_and_a_good_one_still_counts(
    leader: Running, caplog: pytest.LogCaptureFixture, payload: bytes
) -> None:
    async with (
        said_once(leader, caplog, "a credit of", "is refused"),
        OldClient(leader.port) as client,
        OldWorker(leader.port) as worker,
    ):
        await client.hello("stranger")
        await worker.hello()
        for _ in range(50):
            await worker.send(Message(old.CREDIT, payload=payload))
        await worker.credit(1)
        first = await client.submit()
        await client.submit()
        assert (await worker.assigned()).msg_id == first
        await leader.until(lambda machine: machine.lanes.queued == 1)


@pytest.mark.parametrize(
    "payload", [*(struct.pack("<i", cap) for cap in (0, -1, -(2**31), CLIENT_CAP_MAX + 1)), b"", b"\x01", b"seven"]
)
async def test_a_cap_that_cannot_be_is_refused_and_a_good_one_still_counts(
    leader: Running, caplog: pytest.LogCaptureFixture, payload: bytes
) -> None:
    async with said_once(leader, caplog, "a cap of", "is refused"), OwnPeer(leader.port) as client:
        await client.hello_client("stranger", cap=3)
        for _ in range(50):
            await client.say(fr.encode(fr.CAP, payload=payload))
        await client.say(fr.encode(fr.CAP, payload=write_cap(7)))
        await leader.until(lambda machine: [one.cap for one in machine.clients.by_id.values()] == [7])


@pytest.mark.spec("F7")
async def test_credit_beyond_the_limit_in_all_is_refused(leader: Running, caplog: pytest.LogCaptureFixture) -> None:
    async with said_once(leader, caplog, "a credit of 1 to 4096 is refused"), OldWorker(leader.port) as worker:
        await worker.hello("job.assign.nobody", credit=CREDIT_MAX)
        await worker.credit(1)
        await leader.until(lambda machine: [one.credit for one in machine.roster] == [CREDIT_MAX])


@pytest.mark.parametrize("acked", [old.NO_ID, uuid4(), JOB])
async def test_an_ack_of_what_it_was_never_given_changes_nothing(
    leader: Running, caplog: pytest.LogCaptureFixture, acked: UUID
) -> None:
    async with (
        said_once(leader, caplog, "acked a job that"),
        OldClient(leader.port) as client,
        OldWorker(leader.port) as worker,
        OldWorker(leader.port) as liar,
    ):
        await client.hello("stranger")
        await worker.hello(credit=1)
        await client.submit(job_id=JOB)
        job = await worker.assigned()
        await liar.hello()
        for _ in range(3):
            await liar.send(Message(old.ACK_JOB, corr_id=acked, payload=b'{"Status":"OK","Stdout":"lies"}'))
        await leader.until(lambda _machine: caplog.records and "acked" in caplog.text)
        await worker.ack(job, Stdout="truth")
        assert (await client.result())[1]["Stdout"] == "truth"


@pytest.mark.parametrize(
    "payload",
    [
        *(b"done", b"{}", b"[]", b'{"Status":7}', DEEP, b"\x00" * 1_000_000),
        *(b'{"Status":"WEIRD"}', b'{"Status":"FAILED","ExitCode":%d}' % 10**30),
    ],
)
async def test_an_ack_that_is_no_result_fails_that_job_alone(
    leader: Running, caplog: pytest.LogCaptureFixture, payload: bytes
) -> None:
    async with not_worth_a_line(leader, caplog), OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("stranger")
        await worker.hello(credit=1)
        job_id = await client.submit()
        await worker.assigned()
        await worker.send(Message(old.ACK_JOB, corr_id=job_id, payload=payload))
        found, result = await client.result()
        assert (found, result["Status"], result["Reason"]) == (job_id, "FAILED", "bad-result")


async def test_a_worker_that_comes_twice_is_served_where_it_came_last(
    leader: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        said_once(leader, caplog, "the same worker connected anew"),
        OldClient(leader.port) as client,
        OldWorker(leader.port) as first,
        OldWorker(leader.port) as second,
    ):
        second.id = first.id
        await client.hello("stranger")
        await first.hello(credit=1)
        job_id = await client.submit()
        assert (await first.assigned()).msg_id == job_id
        await second.hello(credit=1)
        assert await first.is_cut_off()
        job = await second.assigned()
        assert job.msg_id == job_id
        await second.ack(job)
        await client.result()


@pytest.mark.spec("L4")
async def test_a_worker_that_does_not_read_gets_no_more_and_its_jobs_are_done_elsewhere(
    leader: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with not_worth_a_line(leader, caplog), OldClient(leader.port) as client:
        await client.hello("stranger", {"DesiredParallelism": 1000})
        async with OldWorker(leader.port) as deaf, OldWorker(leader.port) as worker:
            deaf.writer.transport.pause_reading()
            await deaf.hello("calcA", credit=CREDIT_MAX)
            jobs = {await client.submit(Args=["x" * MIB]) for _ in range(24)}
            await leader.until(lambda machine: any(one.blocked for one in machine.roster))
            await leader.until(lambda machine: machine.lanes.queued > 0)
            await worker.hello("calcA", credit=CREDIT_MAX)
            first = await worker.assigned()
            deaf.die()
            found = {first.msg_id} | {(await worker.assigned()).msg_id for _ in range(23)}
            assert found == jobs


# Clients that overstep.


@pytest.mark.spec("L9")
async def test_a_client_that_does_not_read_waits_alone_and_gets_everything_when_it_reads(
    leader: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        not_worth_a_line(leader, caplog),
        OldClient(leader.port) as deaf,
        OldClient(leader.port) as other,
        OldWorker(leader.port) as worker,
    ):
        total = 60
        await worker.hello("calcA", credit=total + 1)
        await deaf.hello("deaf", {"DesiredParallelism": 1000})
        deaf.writer.transport.pause_reading()
        jobs = [await deaf.submit() for _ in range(total)]
        for number in range(total):
            await worker.ack(await worker.assigned(), Stdout=f"{number}:" + "x" * MIB)
        await leader.until(lambda machine: machine.lifecycle.counts.finished_ok == total)
        door = next(iter(leader.machine.clients.connections.values()))
        assert door.blocked
        assert len(door.pending) > total // 3
        transports = [peer.link._transport for peer in leader.leader.peers.values()]
        # The bound of the buffer, and what one turn of the loop can bring on top of it.
        assert sum(transport.get_write_buffer_size() for transport in transports if transport) < 20 * MIB
        await other.hello("other")
        done = await other.submit()
        await worker.ack(await worker.assigned())
        assert (await other.result())[0] == done
        deaf.writer.transport.resume_reading()
        results = await deaf.results(total)
        assert list(results) == jobs
        assert sorted(int(result["Stdout"].split(":")[0]) for result in results.values()) == list(range(total))


def as_large_as_can_be(start: bytes, piece: bytes, end: bytes) -> bytes:
    """A payload that just fits its frame: what quotes it in full no longer does."""
    return start + piece * ((fr.payload_max("") - len(start) - len(end)) // len(piece)) + end


@pytest.mark.parametrize(
    "question",
    [
        b"",
        b"{}",
        b'{"ask":"weather"}',
        as_large_as_can_be(b'{"ask":"', b"x", b'"}'),
        as_large_as_can_be(b'{"ask":"job","job":"', b"x", b'"}'),
        as_large_as_can_be(b'{"ask":"drain","worker":"', b"x", b'"}'),
        as_large_as_can_be(b'{"ask":"drain","worker":"', "\ue000".encode(), b'"}'),
        as_large_as_can_be(b'{"ask":"jobs","state":"', b"x", b'"}'),
        as_large_as_can_be(b'{"ask":"jobs","pattern":"', b"a.", b'"}'),
        b'{"ask":"jobs","limit":-99999}',
        b'{"ask":"cancel"}',
        as_large_as_can_be(b'{"ask":"cancel","jobs":["a"', b',"a"', b"]}"),
        DEEP,
    ],
)
async def test_a_question_of_any_kind_and_size_is_answered(
    leader: Running, caplog: pytest.LogCaptureFixture, question: bytes
) -> None:
    async with not_worth_a_line(leader, caplog), OwnPeer(leader.port) as peer:
        await peer.hello_client()
        answer = await peer.ask(question)
        if answer.subject:
            assert answer.subject == "refused"
            assert read_refusal(answer.payload).code in {
                *("unknown-question", "unknown-job", "unknown-worker", "bad-request", "bad-subject", "too-big"),
            }
        else:
            assert b"jobs" in answer.payload or b"cancelled" in answer.payload


@pytest.mark.parametrize(
    ("kind", "payload", "why"),
    [
        (fr.CONFIRM, b"x" * 17, "a row of ids"),
        (fr.CANCEL, b"x", "a row of ids"),
        (fr.CLAIM, b"x" * 31, "a row of ids"),
        (fr.FIND, b"x" * 15, "a row of ids"),
        (fr.HEARTBEAT, b"tick", "the payload of Heartbeat"),
        (fr.HEARTBEAT, DEEP, "the payload of Heartbeat"),
    ],
)
async def test_an_own_frame_of_a_client_that_cannot_be_read(
    leader: Running, caplog: pytest.LogCaptureFixture, kind: int, payload: bytes, why: str
) -> None:
    async with said_once(leader, caplog, why), OwnPeer(leader.port) as peer:
        await peer.hello_client()
        await peer.say(fr.encode(kind, payload=payload))
        assert await peer.is_cut_off()


@pytest.mark.parametrize("payload", [b"", b"{", b'{"Running":["AAAA"]}', b'{"Finished":[7]}', DEEP])
async def test_a_worker_that_cannot_say_what_it_holds(
    leader: Running, caplog: pytest.LogCaptureFixture, payload: bytes
) -> None:
    async with said_once(leader, caplog, "the payload of Holding"), OwnPeer(leader.port) as peer:
        await peer.say(fr.encode(fr.HELLO_WORKER, JOB.bytes_le, payload=b'{"Wants":["reattach"]}'))
        assert (await peer.frame()).type == fr.WELCOME
        await peer.say(fr.encode(fr.HOLDING, payload=payload))
        assert await peer.is_cut_off()


async def test_claims_of_one_job_in_many_frames_are_answered_in_frames_that_fit(
    leader: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with not_worth_a_line(leader, caplog), OwnPeer(leader.port) as peer:
        await peer.hello_client()
        await peer.say(fr.encode(fr.SUBMIT_JOB, JOB.bytes_le, payload=b"{}"))
        assert unpack_ids((await peer.frame()).payload) == (JOB.bytes_le,)
        (conn,) = leader.machine.clients.connections
        for _ in range(2):  # Said in one turn of the loop: two frames from the peer might fall into two.
            leader.leader.drive.post(ev.Claimed(conn, [JobId(JOB.bytes_le)] * 150_000))
        receipts = 0
        while receipts < 300_000:
            frame = await peer.frame()
            assert frame.type == fr.RECEIPT
            receipts += len(frame.payload) // 16
        assert receipts == 300_000


@pytest.mark.parametrize("seed", range(12))
async def test_a_leader_outlives_any_sequence_of_frames(leader: Running, seed: int) -> None:
    """Well-formed frames, mostly such as the peer's role may send, with good and bad payloads, from several at once."""
    chance = random.Random(seed)
    jobs = [uuid4().bytes_le for _ in range(6)]
    workers = [uuid4().bytes_le for _ in range(3)]
    texts = ["", "a", "job.submit.a", "job.assign.a", "job.assign.>", "a b", "*", "desk-1", "refused", "\u202e"]
    bodies = [
        *(b"", b"{}", b"null", DEEP[:2_000], b"\x01\x00\x00\x00", b"\x00\x10\x00\x00", b"\xff" * 4, b"\xff" * 7),
        *(b'{"ExecName":"a"}', b'{"ExecName":"a","Args":["x"]}', b'{"Status":"OK"}', b'{"Status":"FAILED"}'),
        *(b'{"Status":"FAILED","Reason":"%s"}' % code for code in (b"timeout", b"cancelled", b"exit", b"?")),
        *(b'{"ask":"%s"}' % tag for tag in (b"status", b"workers", b"jobs", b"cancel")),
        *(b'{"ask":"cancel","client":"desk-1"}', b'{"ask":"drain","worker":"rack"}', b'{"Cpu":0.5}'),
        *(*jobs, b"".join(jobs), encode(Holding(jobs[:2], jobs[2:4])), encode(Holding([], []))),
    ]
    hello_client, hello_worker = fr.HELLO_CLIENT, fr.HELLO_WORKER
    of_client = [fr.SUBMIT_JOB] * 6 + [fr.CONFIRM, fr.CANCEL, fr.CLAIM, fr.FIND, fr.ASK, fr.HEARTBEAT, fr.CACHE_PUT]
    of_worker = [fr.ACK_JOB, fr.CREDIT] * 3 + [fr.HOLDING, fr.LEAVING, fr.HEARTBEAT, fr.CACHE_ACK]
    wants = [b"", b'{"Wants":["receipts","heartbeats"]}', b'{"Wants":["receipts","reattach","cancels"],"Name":"rack"}']
    there: list[tuple[Stranger, list[int]]] = []
    for _ in range(150):
        if len(there) < 3 or chance.random() < 0.1:
            stranger = await Stranger(leader.port).__aenter__()
            if chance.random() < 0.5:
                await stranger.say(fr.encode(hello_client, subject="desk-1", payload=chance.choice(wants[:2])))
                there.append((stranger, of_client))
            else:
                await stranger.say(fr.encode(hello_worker, chance.choice(workers), payload=chance.choice(wants)))
                there.append((stranger, of_worker))
        stranger, kinds = chance.choice(there)
        if chance.random() < 0.05:
            there.remove((stranger, kinds))
            stranger.die()
        elif not stranger.writer.is_closing():
            kind = chance.choice(kinds) if chance.random() < 0.95 else chance.randrange(256)
            msg_id, corr_id = chance.choice([*jobs, *jobs, bytes(16)]), chance.choice([*jobs, *jobs, bytes(16)])
            with contextlib.suppress(ConnectionError):
                await stranger.say(fr.encode(kind, msg_id, corr_id, chance.choice(texts), chance.choice(bodies)))
        if chance.random() < 0.3:
            await asyncio.sleep(0)
            leader.machine.check()
    for stranger, _ in there:
        stranger.die()
    await leader.until(lambda _machine: not leader.leader.peers)
    await leader.serves()
