"""How are jobs kept alive over connections that come and go? A real client against a scripted leader."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.kit.grid_and_peer import grid_and_peer, raises_later
from tests.kit.scripted_leader import Peer, ScriptedLeader, scripted

from wakugumi.core.client import leaders
from wakugumi.core.leader.questions import (
    AskStatus,
)
from wakugumi.errors import Refused
from wakugumi.roles.client.grid import connect
from wakugumi.wire import frame as fr

pytestmark = pytest.mark.anyio


@pytest.mark.spec("K6", "F9")
async def test_after_a_lost_connection_the_same_bytes_are_sent_again_and_the_result_comes_once() -> None:
    async with scripted() as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}") as grid:
            first = await coming
            done, lost = await grid.submit("p", args=["1"]), await grid.submit("p", args=["2"])
            keys = await first.submits(2)
            first.result(keys[0], stdout="one")
            assert (await done).stdout == "one"
            await first.next(fr.CONFIRM)
            first.hang_up()
            second = await leader.peer()
            assert (await second.next(fr.CONFIRM)).payload == keys[0], "it may have missed that"
            await second.knows_nothing()
            again = await second.next(fr.SUBMIT_JOB)
            assert again == next(frame for frame in first.seen if frame.msg_id == keys[1])
            second.result(keys[1], stdout="two")
            second.result(keys[1], stdout="three")
            assert (await lost).stdout == "two"
            assert (await second.next(fr.CONFIRM)).payload == keys[1] * 2
            assert grid.status().unfinished == 0


@pytest.mark.spec("L9")
async def test_a_full_leader_holds_back_submit_and_gets_the_refused_job_again() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        job = await grid.submit("p")
        (key,) = await peer.submits(1)
        peer.refuse(key, "full")
        assert await peer.submits(1) == [key]
        waiting = group.create_task(grid.submit("p", args=["later"]))
        await asyncio.sleep(0)
        assert not waiting.done()
        peer.send(fr.RECEIPT, payload=key)
        later = await waiting
        (next_key,) = await peer.submits(1)
        peer.result(key)
        peer.result(next_key)
        assert (await job).ok
        assert (await later).ok


async def test_a_leader_that_falls_silent_is_left_and_its_jobs_go_to_the_next_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaders, "SILENCE_MAX_S", 0.3)
    monkeypatch.setattr(leaders, "HEARTBEAT_S", 0.05)
    async with scripted() as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}") as grid:
            job = await grid.submit("p")
            silent = await coming
            await silent.submits(1)
            second = await leader.peer()
            assert any(frame.type == fr.HEARTBEAT for frame in silent.seen)
            await second.knows_nothing()
            peer_keys = await second.submits(1)
            second.result(peer_keys[0])
            assert (await job).ok


async def test_a_result_that_cannot_be_read_fails_its_job_and_no_other() -> None:
    async with grid_and_peer() as (grid, peer):
        jobs = [await grid.submit("p"), await grid.submit("p"), await grid.submit("p")]
        keys = await peer.submits(3)
        peer.send(fr.RESULT, keys[0], b"{nonsense")
        peer.send(fr.RESULT, keys[1], b"")
        peer.send(200, keys[2], b"a type of the future")
        peer.result(keys[2])
        assert (await jobs[0]).reason == "bad-result"
        assert (await jobs[1]).ok, "an empty payload means OK (F9)"
        assert (await jobs[2]).ok


async def test_submit_waits_while_too_many_jobs_are_unfinished_first_come_first_served() -> None:
    async with grid_and_peer(unfinished_max=2) as (grid, peer), asyncio.TaskGroup() as group:
        for _ in range(2):
            await grid.submit("p")
        keys = await peer.submits(2)
        waiting = [group.create_task(grid.submit("p", args=[number])) for number in range(3)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        waiting[1].cancel()
        peer.result(keys[0])
        await waiting[0]
        await peer.next(fr.CONFIRM)
        assert json.loads((await peer.next(fr.SUBMIT_JOB)).payload)["Args"] == ["0"]
        peer.result(keys[1])
        await waiting[2]
        await peer.next(fr.CONFIRM)
        assert json.loads((await peer.next(fr.SUBMIT_JOB)).payload)["Args"] == ["2"]


async def test_a_long_loop_of_submits_lets_its_jobs_leave() -> None:
    async with grid_and_peer(unfinished_max=2000) as (grid, peer):
        for _ in range(1000):
            await grid.submit("p")
        assert grid.status().unfinished == 1000
        await peer.submits(1000)


async def test_a_closed_client_ends_what_is_unfinished() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        done, left = await grid.submit("p"), await grid.submit("p")
        keys = await peer.submits(2)
        peer.result(keys[0])
        await done
        asking = group.create_task(raises_later(Refused, grid.ask(AskStatus())))
        await peer.next(fr.CONFIRM)
        await peer.next(fr.ASK)
        await grid.close()
        await asking
        for work in (left, grid.submit("p"), grid.wait("x"), grid.ask(AskStatus())):
            with pytest.raises(Refused) as caught:
                await work
            assert caught.value.code == "closed"
    await peer.end()


async def test_a_confirm_is_not_lost_by_leaving_at_once() -> None:
    async with grid_and_peer() as (grid, peer):
        job = await grid.submit("p")
        (key,) = await peer.submits(1)
        peer.result(key)
        await job
    await peer.end()
    assert [frame.payload for frame in peer.seen if frame.type == fr.CONFIRM] == [key]


class DeafLeader(ScriptedLeader):
    async def _serve(self, peer: Peer) -> None:
        peer.welcome()
        await asyncio.Event().wait()


async def test_a_leader_that_does_not_read_holds_back_submit() -> None:
    async with scripted(DeafLeader(own=False)) as leader, connect(f"127.0.0.1:{leader.port}") as grid:

        async def submit_for_ever() -> None:
            while True:
                await grid.submit("p", files={"x": bytes(1 << 20)})

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await submit_for_ever()
        assert grid.status().unfinished < 50
