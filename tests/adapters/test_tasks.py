"""Tasks have an owner: closed with it, and heard when they fail."""

from __future__ import annotations

import asyncio

import pytest

from wakugumi.adapters.tasks import Tasks

pytestmark = pytest.mark.anyio

DEADLINE_S = 10.0


async def test_close_cancels_what_runs_and_waits_until_it_is_gone() -> None:
    tasks, begun, ended = Tasks(), asyncio.Event(), list[str]()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    task = tasks.start(forever(), name="forever")
    async with asyncio.timeout(DEADLINE_S):
        await begun.wait()
        await tasks.close()
    assert task.cancelled()
    assert ended == ["cleaned up"]
    assert task not in asyncio.all_tasks()


async def test_a_task_that_fails_is_heard_once_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks()

    async def fail() -> None:
        raise LookupError("why")

    task = tasks.start(fail(), name="fetch-7")
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([task])
        await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records] == ["task fetch-7 failed"]
    assert "LookupError: why" in caplog.text
    await tasks.close()
    assert len(caplog.records) == 1


async def test_a_task_that_ends_or_is_cancelled_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks()

    async def answer() -> int:
        return 7

    assert await tasks.start(answer(), name="answer") == 7
    tasks.start(asyncio.Event().wait(), name="never")
    await asyncio.sleep(0)
    await tasks.close()
    assert caplog.records == []


async def test_a_task_may_close_its_owner() -> None:
    tasks, other_ended = Tasks(), asyncio.Event()

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            other_ended.set()

    tasks.start(other(), name="other")
    await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE_S):
        await tasks.start(tasks.close(), name="closer")
    assert other_ended.is_set()
