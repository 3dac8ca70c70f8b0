"""What is said between a machine and its leader? A real worker against a leader on a bare socket."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.kit.eventually import eventually
from tests.kit.tls_grid import TlsGrid
from tests.kit.worker_bench import Bench
from tests.kit.workers_leader import (
    ASSIGN,
    CACHE_ACK,
    CACHE_PUT,
    CREDIT,
    FETCH,
    HEARTBEAT,
    HELLO_WORKER,
    HOLDING,
    REFUSAL,
    Connection,
    WorkersLeader,
    new_id,
)

from wakugumi.adapters.net.connect import adopt, dial
from wakugumi.adapters.net.link import Link, LinkOwner
from wakugumi.core.runner.programs.separation import Separation
from wakugumi.errors import ConfigError, Lost
from wakugumi.wire.frame import WELCOME
from wakugumi.wire.messages.hello import Welcome
from wakugumi.wire.messages.payload import encode

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quickly")]


@pytest.mark.spec("C1", "F4")
async def test_what_a_worker_does_not_know_is_ignored_and_what_it_cannot_do_is_answered(
    leader: WorkersLeader, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.worker(leader.address)
    link = await leader.connection()
    await link.expect(HELLO_WORKER)
    await link.expect(CREDIT)
    for kind in (200, 200, 5):
        link.send(kind, b"whatever")
    put = new_id()
    link.send(CACHE_PUT, b'{"CacheId":"data-1","Entries":[]}', msg_id=put, subject="cache.put")
    answer = await link.expect(CACHE_ACK)
    assert (answer.corr_id, answer.subject, answer.json["Status"]) == (put, "cache.ack.data-1", "FAILED")
    ignored = [line for line in caplog.messages if "ignored" in line]
    assert len(ignored) == 2
    assert "type=200" in ignored[0]
    assert "Result" in ignored[1]
    link.close()
    again = await leader.connection()
    again.send(200)
    await eventually(lambda: len([line for line in caplog.messages if "type=200" in line]) == 2)


@pytest.mark.spec("F3")
async def test_garbage_from_the_leader_costs_the_connection_and_no_job(
    leader: WorkersLeader, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.worker(leader.address)
    link = await leader.connection()
    await link.welcome()
    await link.expect(CREDIT)
    job = new_id()
    link.assign(job, "wait")
    await bench.until_run()
    link.send_raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await link.ended()
    assert len([line for line in caplog.messages if "not a frame" in line]) == 1
    again = await leader.connection()
    assert (await again.welcome())["Running"] == [base64.b64encode(job.bytes_le).decode()]
    bench.gate.touch()
    assert (await again.expect(CREDIT)).credit == 1
    assert (await again.ack_of(job))["Status"] == "OK"


@pytest.mark.spec("F9")
async def test_an_assignment_without_an_id_ends_the_connection(leader: WorkersLeader, bench: Bench) -> None:
    bench.worker(leader.address)
    link = await leader.connection()
    await link.welcome()
    link.send(ASSIGN, b"{}")
    await link.ended()
    assert (await leader.connection()) is not link


@pytest.mark.spec("L3")
async def test_heartbeats_tell_the_load_and_silence_ends_the_connection(
    leader: WorkersLeader, bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wakugumi.core.runner.leader_line.HEARTBEAT_S", 0.05)
    monkeypatch.setattr("wakugumi.core.runner.leader_line.SILENCE_MAX_S", 1.0)
    bench.worker(leader.address)
    link = await leader.connection()
    await link.welcome()
    await link.expect(CREDIT)
    beat = await link.expect(HEARTBEAT)
    assert 0 <= beat.json.get("Cpu", 0.0) <= 1
    for _ in range(30):  # Longer than the silence that would end it.
        link.send(HEARTBEAT)
        await link.expect(HEARTBEAT)
    await link.ended()
    again = await leader.connection()
    assert await again.welcome() == {}
    assert any("no leader: nothing heard" in line for line in caplog.messages)


@pytest.mark.spec("K6")
async def test_it_dials_with_growing_pauses_until_a_leader_serves_it(
    leader: WorkersLeader, bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.core.connections.redial.WORKER_RECONNECT_FIRST_S", 0.1)
    tries = 0

    async def dial_late(owner: LinkOwner) -> Link:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise Lost("not yet")
        return await dial(leader.address, owner)

    bench.worker(dial_late)
    link = await leader.connection()
    await link.welcome()
    link.close()
    await leader.connection()
    pauses = [float(line.rpartition("retry_s=")[2]) for line in caplog.messages if "retry_s=" in line]
    assert len(pauses) == 4
    assert pauses[0] <= pauses[1] < pauses[2] > pauses[3]


async def test_a_worker_can_serve_a_leader_in_the_same_process(bench: Bench) -> None:
    ours, theirs = socket.socketpair()

    async def hand_over(owner: LinkOwner) -> Link:
        return await adopt(theirs, owner, trusted=True)

    bench.worker(hand_over)
    reader, writer = await asyncio.open_connection(sock=ours)
    link = Connection(reader, writer)
    await link.welcome()
    await link.expect(CREDIT)
    link.assign(job := new_id(), "count")
    assert (await link.ack_of(job))["Status"] == "OK"
    link.confirm(job)
    await link.closed()


async def test_a_row_to_fetch_that_is_not_of_ids_ends_the_connection(leader: WorkersLeader, bench: Bench) -> None:
    bench.worker(leader.address)
    link = await leader.connection()
    await link.welcome()
    await link.expect(CREDIT)
    link.send(FETCH, bytes(15))
    assert await link.ended() == []


@pytest.fixture(autouse=True)
def every_word(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


async def test_a_worker_dials_again_after_a_failure_that_nobody_foresaw(
    leader: WorkersLeader, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    worker = bench.worker(leader.address)
    link: Any = worker.station.link
    connect, failures = link._connect, [RecursionError("nobody thought of this")]

    async def fails_once() -> object:
        if failures:
            raise failures.pop()
        return await connect()

    link._connect = fails_once
    await (await leader.connection()).expect(HELLO_WORKER)
    assert not failures
    assert 'task failed, restarts task="worker\'s connection" pause_s=0.5' in caplog.messages


@pytest.mark.spec("O1")
async def test_a_worker_shows_its_key_to_the_leader_of_its_grid_alone(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid, other = TlsGrid(tmp_path / "grid"), TlsGrid(tmp_path / "other")
    key, tls = grid.key("rack-1"), other.server()
    leader = WorkersLeader()
    await leader.open(tls)
    access = grid.write_access(tmp_path / "access" / "access.toml", grid.entry(leader.address.port, key))
    bench.worker(leader.address, access=access)
    await eventually(lambda: "is not believed" in caplog.text)
    grid.certify(tls)  # From now on the right one.
    link = await leader.connection()
    hello = await link.expect(HELLO_WORKER)
    assert hello.json["Key"] == key.text
    link.close()
    assert key.secret not in caplog.text
    await leader.close()


@pytest.mark.spec("O1")
async def test_a_refused_worker_says_why_and_dials_again_after_its_usual_pauses(
    leader: WorkersLeader, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.worker(leader.address)
    for _ in range(2):
        link = await leader.connection()
        await link.expect(HELLO_WORKER)
        link.send(REFUSAL, b'{"Code":"denied","Message":"the key is not valid here"}')
        await link.ended()
    await eventually(lambda: "it refuses this worker: the key is not valid here; retry_s=" in caplog.text)
    link = await leader.connection()
    await link.welcome()
    await link.expect(CREDIT)


@pytest.mark.spec("O1")
async def test_an_access_file_that_cannot_be_used_is_told_and_read_again(
    leader: WorkersLeader, bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access = tmp_path / "access.toml"
    access.touch(0o600)
    bench.worker(leader.address, access=access)
    link = await leader.connection()
    await link.expect(HELLO_WORKER)
    access.unlink()
    link.close()
    await eventually(lambda: "access.toml does not exist" in caplog.text)
    access.touch(0o600)
    await (await leader.connection()).expect(HELLO_WORKER)


@pytest.mark.spec("O1")
async def test_a_worker_does_not_start_with_an_access_file_that_cannot_be_used(
    leader: WorkersLeader, bench: Bench, tmp_path: Path
) -> None:
    worker = bench.worker(leader.address, access=tmp_path / "missing")
    with pytest.raises(ConfigError, match="does not exist"):
        await bench.stopped(worker)


@pytest.mark.spec("O1")
@pytest.mark.parametrize("refused", ["keys have rules here", ""])
async def test_a_worker_too_near_to_its_programs_leaves_a_leader_whose_keys_have_rules(
    leader: WorkersLeader, bench: Bench, refused: str
) -> None:
    worker = bench.worker(leader.address, where_rules=Separation("", refused, "say --run-as"))
    link = await leader.connection()
    await link.expect(HELLO_WORKER)
    link.send(WELCOME, encode(Welcome("1", keys_have_rules=True)))
    if not refused:
        await link.expect(HOLDING)
        await link.expect(CREDIT)
        return
    with pytest.raises(ConfigError, match=refused) as told:
        await bench.stopped(worker)
    assert told.value.hint == "say --run-as"
    assert CREDIT not in [frame.type for frame in await link.ended()]
