"""Tasks have an owner: closed with it, and heard when they fail."""

from __future__ import annotations

import asyncio

import pytest

from wakugumi.adapters.loop.tasks import Tasks

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
    assert [record.getMessage() for record in caplog.records] == ["task failed task='fetch-7'"]
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


async def test_a_loop_that_must_live_goes_on_after_whatever_it_raises(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = list[float]()
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    tasks, failures = Tasks(), [LookupError("why"), RecursionError(), OSError(24, "too many"), *[ValueError()] * 4]
    begun = 0

    async def loop() -> None:
        nonlocal begun
        begun += 1
        if failures:
            raise failures.pop(0)

    async with asyncio.timeout(DEADLINE_S):
        await tasks.start_loop(loop, name="poll a")
    assert begun == 8
    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
    assert [record.getMessage() for record in caplog.records][:2] == [
        "task failed, restarts task='poll a' pause_s=0.5",
        "task failed, restarts task='poll a' pause_s=1",
    ]
    assert "LookupError: why" in caplog.text


async def test_a_loop_that_must_live_ends_with_its_owner(caplog: pytest.LogCaptureFixture) -> None:
    tasks, begun = Tasks(), asyncio.Event()

    async def loop() -> None:
        begun.set()
        raise LookupError("why")

    running, waiting = tasks.start_loop(loop, name="a"), tasks.start_loop(asyncio.Event().wait, name="b")  # type: ignore[arg-type]
    async with asyncio.timeout(DEADLINE_S):
        await begun.wait()
        await tasks.close()
    assert running.cancelled()
    assert waiting.cancelled()
    assert len(caplog.records) == 1
