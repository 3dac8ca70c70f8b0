"""Are acts performed, answered once, and stopped when they are abandoned? And does a task begin only for a wait?"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest
from tests.kit.eventually import eventually

from wakugumi.adapters.loop.acts import ActPerformer, first_step
from wakugumi.adapters.loop.drive import Drive
from wakugumi.core.flows import Abandon, Act, ActFailed, Answered, FlowDo, FlowEvent, Flows, Perform
from wakugumi.core.step import Step


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


@pytest.mark.filterwarnings("error")
async def test_an_act_that_is_abandoned_before_its_task_has_begun_is_never_begun() -> None:
    world = World()
    world.acts.do(Perform(1, Double(4)))
    world.acts.do(Abandon(1))
    await world.acts.close()
    gc.collect()  # A coroutine that is never awaited would warn.
    assert (world.stopped, world.events) == ([], [])


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


class Steps:
    """Coroutines whose first step is taken at once. An odd number waits for `done`, and adds its value."""

    def __init__(self) -> None:
        self.events: list[FlowEvent] = []
        self.cancelled: list[int] = []
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.acts = ActPerformer(self.perform, self.events.append)

    def perform(self, act: Act[Any]) -> int | Awaitable[int]:
        assert isinstance(act, Double)
        return first_step(self.double(act.number))

    async def double(self, number: int) -> int:
        if number == 0:
            raise OSError("no")
        try:
            return 2 * number + (await self.done if number % 2 else 0)
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise


async def test_an_act_that_does_not_wait_is_answered_without_a_task() -> None:
    steps = Steps()
    tasks = asyncio.all_tasks()
    steps.acts.do(Perform(1, Double(4)))
    steps.acts.do(Perform(2, Double(0)))
    steps.acts.do(Perform(3, Double(8)))
    assert asyncio.all_tasks() == tasks
    first, second, third = steps.events
    assert (first, third) == (Answered(1, 8), Answered(3, 16))
    assert isinstance(second, ActFailed)
    assert isinstance(second.error, OSError)
    await steps.acts.close()


async def test_a_plain_value_is_an_answer() -> None:
    events: list[FlowEvent] = []
    acts = ActPerformer(lambda _: None, events.append)
    acts.do(Perform(1, Double(1)))
    acts.do(Abandon(1))
    assert events == [Answered(1, None)]
    await acts.close()


async def test_the_rest_of_an_act_that_waits_is_done_in_a_task() -> None:
    steps = Steps()
    steps.acts.do(Perform(1, Double(3)))
    steps.acts.do(Perform(2, Double(4)))
    assert steps.events == [Answered(2, 8)]
    steps.done.set_result(100)
    await eventually(lambda: len(steps.events) == 2)
    assert steps.events[1] == Answered(1, 106)
    await steps.acts.close()


async def test_what_the_rest_of_an_act_raises_is_its_failure() -> None:
    steps = Steps()
    steps.acts.do(Perform(1, Double(3)))
    steps.done.set_exception(OSError("no"))
    await eventually(lambda: len(steps.events) == 1)
    assert isinstance(steps.events[0], ActFailed)
    assert isinstance(steps.events[0].error, OSError)
    await steps.acts.close()


@pytest.mark.parametrize("turns", [1, 2, 5])
async def test_the_rest_of_an_abandoned_act_is_cancelled(turns: int) -> None:
    steps = Steps()
    steps.acts.do(Perform(1, Double(3)))
    for _ in range(turns):
        await asyncio.sleep(0)
    steps.acts.do(Abandon(1))
    await eventually(lambda: steps.cancelled == [3])
    await steps.acts.close()
    assert steps.events == []


@pytest.mark.parametrize("is_abandoned", [True, False], ids=["abandoned", "closed"])
async def test_the_rest_of_an_act_is_cancelled_also_before_its_task_has_begun(is_abandoned: bool) -> None:
    steps = Steps()
    steps.acts.do(Perform(1, Double(3)))
    if is_abandoned:
        steps.acts.do(Abandon(1))
    await steps.acts.close()
    assert steps.cancelled == [3]
    assert steps.events == []


async def test_an_act_that_asks_for_a_mere_turn_of_the_loop_goes_on() -> None:
    async def rest() -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "rested"

    rested = first_step(rest())
    assert not isinstance(rested, str)
    assert await rested == "rested"


def double(act: Act[Any]) -> int:
    assert isinstance(act, Double)
    return 2 * act.number


class Sums:
    """A machine with one flow, which performs acts one after the other."""

    def __init__(self, count: int) -> None:
        self._flows = Flows(0.0)
        self._count = count
        self.depth = self.deepest = 0
        self.sum: int | None = None
        self._flows.start(self._add, name="add")

    def handle(self, events: Sequence[FlowEvent], now: float) -> Step[None, FlowDo]:
        self.depth += 1
        self.deepest = max(self.depth, self.deepest)
        for event in events:
            self._flows.hear(event)
        do = self._flows.run(now)
        self.depth -= 1
        return Step((), do)

    def tick(self, now: float) -> Step[None, FlowDo]:
        return self.handle([], now)

    def wake_at(self) -> float | None:
        return self._flows.wake_at()

    def check(self) -> None:
        self._flows.check()

    async def _add(self) -> None:
        total = 0
        for number in range(self._count):
            total += await Double(2 * number)
        self.sum = total


async def test_answers_are_events_of_later_turns_however_many_acts_follow_each_other() -> None:
    machine = Sums(3_000)

    def perform(effects: Sequence[FlowDo]) -> None:
        for effect in effects:
            acts.do(effect)

    drive: Drive[FlowEvent, None, FlowDo] = Drive(machine, perform, name="sums")
    acts = ActPerformer(double, drive.post)
    drive.post(Answered(0, None))
    await eventually(lambda: machine.sum is not None)
    assert machine.sum == sum(4 * number for number in range(3_000))
    assert machine.deepest == 1
    await acts.close()
    drive.close()
