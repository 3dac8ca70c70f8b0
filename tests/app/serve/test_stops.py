"""How often was a server asked to stop, and what else ends its wait?"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from wakugumi.adapters.loop.signals import STOP_SIGNALS, handlers_restored
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.app.serve.stops import Stops

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    with handlers_restored():
        yield


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    tasks = Tasks()
    yield tasks
    await tasks.close()


@pytest.mark.parametrize("number", STOP_SIGNALS)
async def test_each_signal_counts_once(number: signal.Signals, tasks: Tasks) -> None:
    stops = Stops()
    for count in (1, 2):
        waiting = tasks.start(stops.wait(count), name="wait")
        await asyncio.sleep(0)
        assert not waiting.done()
        signal.raise_signal(number)
        await waiting
        assert stops.count == count
    await stops.wait(1)


async def test_something_else_that_is_done_ends_the_wait(tasks: Tasks) -> None:
    stops, other = Stops(), asyncio.get_running_loop().create_future()
    waiting = tasks.start(stops.wait(1, other), name="wait")
    await asyncio.sleep(0)
    assert not waiting.done()
    other.set_result(None)
    await waiting
    assert stops.count == 0
    await stops.wait(1, other)


async def test_an_exception_of_something_else_is_raised() -> None:
    stops, other = Stops(), asyncio.get_running_loop().create_future()
    other.set_exception(OSError("no disk"))
    with pytest.raises(OSError, match="no disk"):
        await stops.wait(1, other)
