"""Do flows rest, go on, and end as `core/flows.py` says?"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.flows import (
    Abandon,
    Act,
    ActFailed,
    Answered,
    Deadline,
    Flow,
    FlowCancelled,
    FlowDo,
    Flows,
    Perform,
    Promise,
)


class Ask(Act[int], frozen=True):
    """Ask the world for a number."""

    text: str


def test_an_act_is_performed_and_its_answer_goes_on() -> None:
    flows, heard = Flows(0.0), []

    async def work() -> None:
        heard.append(await Ask("a"))
        heard.append(await Ask("b"))

    flows.start(work, "work")
    assert flows.run(0.0) == [Perform(1, Ask("a"))]
    flows.hear(Answered(1, 7))
    assert flows.run(0.0) == [Perform(2, Ask("b"))]
    flows.hear(Answered(2, 8))
    assert flows.run(0.0) == []
    assert heard == [7, 8]
    assert flows.count == 0


def test_a_failed_act_raises_where_it_was_awaited() -> None:
    flows = Flows(0.0)

    async def work() -> str:
        try:
            await Ask("a")
        except OSError as error:
            return str(error)
        return "answered"

    flow = flows.start(work, "work")
    flows.run(0.0)
    flows.hear(ActFailed(1, OSError("no")))
    flows.run(0.0)
    assert flow.ended.value == "no"


def test_an_answer_that_comes_twice_or_late_is_ignored() -> None:
    flows = Flows(0.0)

    async def work() -> int:
        return await Ask("a") + await Ask("b")

    flow = flows.start(work, "work")
    flows.run(0.0)
    flows.hear(Answered(1, 1))
    flows.hear(Answered(1, 100))
    flows.run(0.0)
    flows.hear(Answered(1, 100))
    flows.run(0.0)
    flows.hear(Answered(2, 2))
    flows.run(0.0)
    assert flow.ended.value == 3


def test_a_pause_ends_at_its_time_and_not_before() -> None:
    flows, ended = Flows(10.0), []

    async def work(seconds: float) -> None:
        await flows.pause(seconds)
        ended.append(seconds)

    for seconds in (3.0, 1.0, 2.0):
        flows.start(partial(work, seconds), "work")
    flows.run(10.0)
    assert flows.wake_at() == 11.0
    flows.run(11.5)
    assert ended == [1.0]
    assert flows.wake_at() == 12.0
    flows.run(20.0)
    assert ended == [1.0, 2.0, 3.0]
    assert flows.wake_at() is None


def test_all_who_wait_for_a_promise_get_its_first_value() -> None:
    flows, heard = Flows(0.0), []
    promise: Promise[str] = Promise(flows)

    async def work() -> None:
        heard.append(await promise)

    flows.start(work, "before")
    flows.start(work, "before")
    flows.run(0.0)
    promise.keep("first")
    promise.keep("second")
    flows.start(work, "after")
    flows.run(0.0)
    assert heard == ["first"] * 3


@pytest.mark.parametrize("rest", ["act", "pause", "promise"])
def test_a_cancelled_flow_cleans_up_and_ends(rest: str) -> None:
    flows, cleaned = Flows(0.0), []
    promise: Promise[None] = Promise(flows)

    async def work() -> int:
        try:
            if rest == "act":
                await Ask("a")
            elif rest == "pause":
                await flows.pause(60.0)
            else:
                await promise
        except FlowCancelled:
            cleaned.append(await Ask("clean"))
            raise
        return 1

    flow = flows.start(work, "work")
    flows.run(0.0)
    flow.cancel()
    done = flows.run(0.0)
    assert done[:-1] == ([Abandon(1)] if rest == "act" else [])
    assert isinstance(done[-1], Perform)
    assert done[-1].act == Ask("clean")
    flows.hear(Answered(done[-1].number, 5))
    flows.run(0.0)
    assert cleaned == [5]
    assert flow.ended.is_kept
    assert flow.ended.value is None
    assert flows.wake_at() is None
    promise.keep(None)
    flows.run(0.0)
    flows.check()


def test_a_flow_that_is_about_to_go_on_is_interrupted_as_well() -> None:
    flows = Flows(0.0)

    async def work() -> str:
        try:
            await Ask("a")
        except TimeoutError:
            return "interrupted"
        return "answered"

    flow = flows.start(work, "work")
    flows.run(0.0)
    flows.hear(Answered(1, 1))
    flow.interrupt(TimeoutError())
    flow.interrupt(ValueError("the first interruption counts"))
    flows.run(0.0)
    assert flow.ended.value == "interrupted"


def test_a_flow_that_interrupts_itself_is_interrupted_where_it_rests_next() -> None:
    flows = Flows(0.0)
    me: list[Flow[None]] = []

    async def work() -> None:
        me[0].cancel()
        await Ask("never performed")

    me.append(flows.start(work, "work"))
    assert flows.run(0.0) == []
    assert flows.count == 0


def test_a_flow_that_has_not_begun_begins_and_is_interrupted_where_it_first_rests() -> None:
    flows, cleaned = Flows(0.0), []

    async def work() -> None:
        try:
            await Ask("never performed")
        finally:
            cleaned.append(True)

    flows.start(work, "work").cancel()
    assert flows.run(0.0) == []
    assert cleaned == [True]
    assert flows.count == 0


def test_an_ended_flow_is_not_interrupted() -> None:
    flows = Flows(0.0)

    async def work() -> int:
        return 1

    flow = flows.start(work, "work")
    flows.run(0.0)
    flow.cancel()
    assert flows.run(0.0) == []
    assert flow.ended.value == 1


def test_an_unforeseen_error_of_a_flow_reaches_the_machine() -> None:
    flows = Flows(0.0)

    async def work() -> None:
        raise KeyError("a bug")

    flows.start(work, "work")
    with pytest.raises(KeyError):
        flows.run(0.0)


def test_a_timer_is_called_once_unless_it_is_cancelled() -> None:
    flows, called = Flows(0.0), []
    kept = flows.call_at(1.0, lambda: called.append("kept"))
    flows.call_at(1.0, lambda: called.append("cancelled")).cancel()
    flows.run(1.0)
    flows.run(2.0)
    kept.cancel()
    assert called == ["kept"]
    assert flows.wake_at() is None
    flows.check()


def test_cancelled_timers_do_not_stay() -> None:
    flows = Flows(0.0)
    flows.call_at(1.0, lambda: None)
    for number in range(10_000):
        flows.call_at(1e6 + number, lambda: None).cancel()
    assert flows.timers < 200


@pytest.mark.parametrize("closes", [False, True])
def test_a_deadline_interrupts_its_own_flow_unless_it_is_closed(closes: bool) -> None:
    flows = Flows(0.0)

    async def work() -> str:
        deadline = Deadline(flows, 5.0, TimeoutError("late"))
        try:
            await Ask("a")
            if closes:
                deadline.close()
            await Ask("b")
        except TimeoutError as error:
            return str(error)
        finally:
            deadline.close()
        return "answered"

    flow = flows.start(work, "work")
    flows.run(0.0)
    flows.hear(Answered(1, 1))
    flows.run(4.9)
    assert flows.wake_at() == (None if closes else 5.0)
    flows.run(5.0)
    flows.hear(Answered(2, 1))
    flows.run(6.0)
    assert flow.ended.value == ("answered" if closes else "late")


@pytest.mark.parametrize("kept", ["before", "one", "both"])
def test_the_first_of_several_promises_is_enough(kept: str) -> None:
    flows = Flows(0.0)
    one: Promise[int] = Promise(flows)
    two: Promise[int] = Promise(flows)
    if kept == "before":
        two.keep(2)
    flow = flows.start(partial(flows.first_of, one, two), "work")
    flows.run(0.0)
    assert flow.ended.is_kept == (kept == "before")
    one.keep(1)
    if kept == "both":
        two.keep(2)
    flows.run(0.0)
    assert flow.ended.is_kept


def test_a_closed_machine_ends_its_flows_where_they_rest() -> None:
    flows, cleaned = Flows(0.0), []

    async def work() -> None:
        try:
            await Ask("a")
        finally:
            cleaned.append(True)

    flows.start(work, "rests")
    flows.run(0.0)
    flows.start(work, "has not begun")
    flows.close()
    assert cleaned == [True]
    assert flows.count == 0
    flows.hear(Answered(1, 1))
    assert flows.run(0.0) == []


@given(st.data())
def test_whatever_happens_every_flow_ends_and_nothing_stays(data: st.DataObject) -> None:
    flows = Flows(0.0)
    try:
        _live_through(flows, data)
    finally:
        flows.close()


def _live_through(flows: Flows, data: st.DataObject) -> None:
    now = 0.0
    promise: Promise[int] = Promise(flows)
    ended: list[str] = []
    steps: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        _ask,
        lambda: flows.pause(1.0),
        lambda: _await(promise),
    ]

    async def work(name: str, plan: list[int]) -> None:
        try:
            for step in plan:
                await steps[step]()
        except OSError:
            with suppress(TimeoutError):
                await flows.pause(0.5)
        ended.append(name)

    started = []
    for number in range(data.draw(st.integers(1, 6))):
        plan = data.draw(st.lists(st.integers(0, 2), max_size=5))
        started.append(flows.start(partial(work, str(number), plan), str(number)))
    asked: list[int] = []
    cancelled = set()
    for _ in range(data.draw(st.integers(0, 30))):
        asked += [do.number for do in flows.run(now) if isinstance(do, Perform)]
        flows.check()
        match data.draw(st.sampled_from(["answer", "fail", "interrupt", "cancel", "wait", "promise"])):
            case "answer" if asked:
                flows.hear(Answered(data.draw(st.sampled_from(asked)), 1))
            case "fail" if asked:
                flows.hear(ActFailed(data.draw(st.sampled_from(asked)), OSError()))
            case "interrupt":
                data.draw(st.sampled_from(started)).interrupt(TimeoutError())
            case "cancel":
                flow = data.draw(st.sampled_from(started))
                cancelled.add(flow.name)
                flow.cancel()
            case "wait":
                now += 1.0
            case "promise":
                promise.keep(1)
    promise.keep(1)
    while flows.count:
        do: list[FlowDo] = flows.run(now)
        flows.check()
        for one in do:
            if isinstance(one, Perform):
                flows.hear(Answered(one.number, 1))
        for number in asked:
            flows.hear(Answered(number, 1))
        now += 1.0
    assert all(flow.ended.is_kept for flow in started)
    assert {flow.name for flow in started} - cancelled <= set(ended)
    assert flows.wake_at() is None


async def _ask() -> int:
    return await Ask("x")


async def _await(promise: Promise[int]) -> int:
    return await promise
