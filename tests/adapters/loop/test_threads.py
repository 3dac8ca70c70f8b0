"""Long work beside the loop, in threads that nobody waits for at the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from tests.kit.processes import no_new_thread

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.loop.threads import begin, beside, ended, is_no_thread, started_pool

pytestmark = pytest.mark.anyio


async def test_it_gives_what_the_work_gives_or_raises() -> None:
    assert await beside(lambda: threading.current_thread().name, "mine") == "mine"
    with pytest.raises(ZeroDivisionError):
        await beside(lambda: 1 // 0, "mine")


async def test_cancelled_it_leaves_the_thread_to_itself_and_the_loop_goes_on() -> None:
    go_on, is_over = threading.Event(), threading.Event()

    def work() -> None:
        assert go_on.wait(20)
        is_over.set()

    task = Tasks().start(beside(work, "slow"), name="slow")
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert await beside(lambda: is_over.wait(20), "looks")


async def test_the_end_of_work_is_awaited_however_often_the_call_is_cancelled() -> None:
    go_on, done = threading.Event(), list[int]()
    task = Tasks().start(ended(begin(lambda: done.append(go_on.wait(20)), "slow")), name="slow")
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]
    with pytest.raises(ZeroDivisionError):
        await ended(begin(lambda: 1 // 0, "mine"))


def test_a_program_ends_though_a_thread_has_not() -> None:
    script = """
import asyncio, threading
from wakugumi.adapters.loop.threads import beside, is_no_thread, started_pool
async def main():
    task = asyncio.ensure_future(beside(threading.Event().wait, "for ever"))
    await asyncio.sleep(0)
    task.cancel()
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_started_pool_needs_no_new_thread() -> None:
    with started_pool(3, "mine") as pool, no_new_thread():
        together = threading.Barrier(3)
        waits = [pool.submit(together.wait, 20) for _ in range(3)]
        assert sorted(wait.result(20) for wait in waits) == [0, 1, 2]


def test_a_pool_that_cannot_start_its_threads_says_so() -> None:
    with no_new_thread(), pytest.raises(RuntimeError) as caught:
        started_pool(3, "mine")
    assert is_no_thread(caught.value)
    assert not is_no_thread(RuntimeError("another one"))
