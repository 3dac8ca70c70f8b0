"""Is every worker's answer a result, and every leader that was not asked named?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.client.events import LeaderNo
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.leader.jobs.broadcast import SILENT, BroadcastPart
from wakugumi.errors import PeerError, Refused
from wakugumi.roles.client.broadcast import AskedLeader, Broadcast, Summary
from wakugumi.roles.client.result import Result
from wakugumi.wire.messages.job import FAILED, JobResult

pytestmark = pytest.mark.anyio


def key(number: int) -> JobId:
    return JobId(bytes([number]) * 16)


class World:
    """A session whose leaders list these parts, and whose workers answer when a test says so."""

    def __init__(self) -> None:
        self.tasks = Tasks()
        self.answers: dict[JobId, asyncio.Future[Result]] = {}
        self.cancelled: list[object] = []
        self.unasked: list[str] = []
        self.asked: list[AskedLeader] = []
        jobs = SimpleNamespace(claim=self._claim, find=self._find, cancel=self.cancelled.extend)
        self.broadcast = Broadcast(cast(Any, SimpleNamespace(tasks=self.tasks, jobs=jobs)), self._begin)

    async def _begin(self) -> tuple[list[AskedLeader], list[str]]:
        return self.asked, self.unasked

    async def _claim(self, job: JobId, name: str, _leader: LeaderNo) -> Result:
        assert name == show_job_id(job)
        return await self.answers[job]

    def _find(self, job: JobId) -> JobId | None:
        return job

    def leader(self, name: str, parts: list[BroadcastPart] | Refused | str) -> None:
        list_of: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        if isinstance(parts, Refused):
            list_of.set_exception(parts)
        else:
            text = (
                parts if isinstance(parts, str) else str([[each.job, each.worker] for each in parts]).replace("'", '"')
            )
            list_of.set_result(Result(JobResult("list", stdout=text, exit_code=0), "list"))
        self.asked.append(AskedLeader(name, LeaderNo(len(self.asked) + 1), cast(Any, list_of)))

    def part(self, number: int, worker: str) -> BroadcastPart:
        self.answers[key(number)] = asyncio.get_running_loop().create_future()
        return BroadcastPart(key(number).hex(), worker)

    def answer(self, number: int, **fields: Any) -> None:
        self.answers[key(number)].set_result(Result(JobResult("x", **fields), show_job_id(key(number))))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.tasks.close()


async def test_each_answer_is_counted_by_how_it_ended(world: World) -> None:
    world.leader("a:1", [world.part(1, "w1"), world.part(2, "w2")])
    world.leader("b:2", [world.part(3, "w3"), world.part(4, "w4")])
    world.answer(1, exit_code=0)
    world.answer(2, status=FAILED, reason="exit", exit_code=7)
    world.answer(3, status=FAILED, reason=SILENT)
    world.answers[key(4)].set_exception(Refused("no-leader", "gone"))
    results, summary = await world.broadcast.gather()
    assert {result.item: result.reason for result in results} == {
        "w1": "",
        "w2": "exit",
        "w3": SILENT,
        "w4": "no-leader",
    }
    assert summary == Summary(sent=4, ok=1, failed=2, silent=1, unasked=[])
    assert summary.waiting == 0
    assert world.cancelled == []


async def test_leaders_that_were_not_asked_are_named(world: World) -> None:
    world.unasked.append("c:3")
    world.leader("a:1", [world.part(1, "w1")])
    world.leader("b:2", Refused("not-supported", "too old"))
    world.answer(1, exit_code=0)
    results, summary = await world.broadcast.gather()
    assert [result.item for result in results] == ["w1"]
    assert list(summary.unasked) == ["c:3", "b:2: too old"]


async def test_if_every_leader_refuses_so_does_the_broadcast(world: World) -> None:
    for name in ("a:1", "b:2"):
        world.leader(name, Refused("not-supported", "too old"))
    with pytest.raises(Refused, match="too old"):
        await world.broadcast.gather()


async def test_no_worker_is_no_result(world: World) -> None:
    world.leader("a:1", [])
    assert await world.broadcast.gather() == ([], Summary(0, unasked=[]))


async def test_leaving_early_cancels_the_rest(world: World) -> None:
    world.leader("a:1", [world.part(1, "w1"), world.part(2, "w2")])
    world.answer(1, exit_code=0)
    loop = aiter(world.broadcast)
    assert (await anext(loop)).item == "w1"
    assert world.broadcast.summary.waiting == 1
    await loop.aclose()  # type: ignore[attr-defined]
    assert world.cancelled == [key(2)]


async def test_a_broadcast_is_looped_over_once(world: World) -> None:
    world.leader("a:1", [])
    await world.broadcast.gather()
    with pytest.raises(RuntimeError, match="once"):
        await world.broadcast.gather()


@pytest.mark.parametrize("text", ["no list", '[["xyz", "w1"]]', '[["00", "w1"]]'])
async def test_a_list_that_is_none_is_the_leaders_fault(world: World, text: str) -> None:
    world.leader("a:1", text)
    with pytest.raises(PeerError):
        await world.broadcast.gather()
