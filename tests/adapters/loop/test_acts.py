"""Are acts performed, answered once, and stopped when they are abandoned?"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.kit.eventually import eventually

from wakugumi.adapters.loop.acts import ActPerformer
from wakugumi.core.flows import Abandon, Act, ActFailed, Answered, FlowEvent, Perform


class Double(Act[int], frozen=True):
    number: int


class World:
    """Doubles numbers: the even ones at once, the odd ones never."""

    def __init__(self) -> None:
        self.events: list[FlowEvent] = []
        self.stopped: list[int] = []
        self.acts = ActPerformer(self.perform, self.events.append)

    async def perform(self, act: Act[Any]) -> int:
        assert isinstance(act, Double)
        if act.number == 0:
            raise OSError("no")
        try:
            if act.number % 2:
                await asyncio.Event().wait()
        finally:
            self.stopped.append(act.number)
        return 2 * act.number


async def test_an_act_is_answered_under_its_number() -> None:
    world = World()
    world.acts.do(Perform(1, Double(4)))
    world.acts.do(Perform(2, Double(6)))
    await eventually(lambda: len(world.events) == 2)
    assert world.events == [Answered(1, 8), Answered(2, 12)]
    await world.acts.close()


async def test_an_act_that_raises_has_failed() -> None:
    world = World()
    world.acts.do(Perform(1, Double(0)))
    await eventually(lambda: len(world.events) == 1)
    (failed,) = world.events
    assert isinstance(failed, ActFailed)
    assert failed.number == 1
    assert isinstance(failed.error, OSError)
    await world.acts.close()


async def test_an_abandoned_act_is_stopped_and_not_answered() -> None:
    world = World()
    world.acts.do(Perform(1, Double(3)))
    world.acts.do(Perform(2, Double(5)))
    await asyncio.sleep(0)
    world.acts.do(Abandon(1))
    world.acts.do(Abandon(1))
    await eventually(lambda: world.stopped == [3])
    await world.acts.close()
    assert world.stopped == [3, 5]
    assert world.events == []


async def test_an_act_that_somebody_else_cancels_has_failed() -> None:
    events: list[FlowEvent] = []
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def perform(_act: Act[Any]) -> int:
        return await future

    acts = ActPerformer(perform, events.append)
    acts.do(Perform(1, Double(1)))
    await asyncio.sleep(0)
    future.cancel()
    await eventually(lambda: len(events) == 1)
    assert isinstance(events[0], ActFailed)
    await acts.close()
