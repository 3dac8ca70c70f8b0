"""The drive: one batch per turn, on disk before done, in the order of deciding, ticks in time, bugs that stop it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

import pytest

from wakugumi.adapters.loop.drive import Drive
from wakugumi.core.step import Step
from wakugumi.limits.wire import READ_EVENTS_MAX

pytestmark = pytest.mark.anyio

DEADLINE_S = 10.0


class Echo:
    """A machine that does whatever it hears, and keeps what begins with `keep`. Its clock is what it was told."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.times: list[float] = []
        self.ticks: list[float] = []
        self.ticked = asyncio.Event()
        self.wakes: deque[float] = deque()

    def handle(self, events: Sequence[str], now: float) -> Step[str, str]:
        self.batches.append(list(events))
        self.times.append(now)
        if "bug" in events:
            raise KeyError("bug")
        keep = [event for event in events if event.startswith("keep")]
        patient = all(event.endswith("patiently") for event in events)
        return Step(keep, [event for event in events if not event.endswith("quietly")], patient=patient)

    def tick(self, now: float) -> Step[str, str]:
        self.ticks.append(now)
        while self.wakes and self.wakes[0] <= now:
            self.wakes.popleft()
        self.ticked.set()
        return Step((), ["ticked"])

    def wake_at(self) -> float | None:
        return self.wakes[0] if self.wakes else None

    def check(self) -> None:
        pass


class SlowDisk:
    """A keeper whose commits are done when the test says so."""

    def __init__(self) -> None:
        self.commits: list[tuple[list[str], Callable[[], None] | None]] = []
        self.asked: list[list[str]] = []
        self.patient: list[bool] = []

    @property
    def idle(self) -> bool:
        return not self.commits

    def commit(self, records: Sequence[str], done: Callable[[], None] | None, *, patient: bool = False) -> None:
        self.asked.append(list(records))
        self.patient.append(patient)
        self.commits.append((list(records), done))

    def finish_one(self) -> None:
        _, done = self.commits.pop(0)
        if done is not None:
            done()


async def turn() -> None:
    """Everything that was waiting for its turn of the loop has had it."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_events_of_one_turn_are_one_batch_in_their_order() -> None:
    machine, done = Echo(), list[str]()
    drive = Drive(machine, done.extend, name="echo")
    for event in "abc":
        drive.post(event)
    assert machine.batches == []
    await turn()
    drive.post("d")
    await turn()
    assert machine.batches == [["a", "b", "c"], ["d"]]
    assert done == ["a", "b", "c", "d"]
    assert machine.times[0] <= machine.times[1] <= asyncio.get_running_loop().time()
    drive.close()


async def test_a_flood_is_taken_in_pieces_within_the_turn() -> None:
    machine, done = Echo(), list[str]()
    drive = Drive(machine, done.extend, name="echo")
    for number in range(READ_EVENTS_MAX + 3):
        drive.post(str(number))
    assert [len(batch) for batch in machine.batches] == [READ_EVENTS_MAX]
    await turn()
    assert [len(batch) for batch in machine.batches] == [READ_EVENTS_MAX, 3]
    assert done == [str(number) for number in range(READ_EVENTS_MAX + 3)]
    drive.close()


async def test_what_is_large_is_handled_at_once_and_alone() -> None:
    machine, done = Echo(), list[str]()
    drive = Drive(machine, done.extend, name="echo")
    drive.post("small")
    drive.post("large")
    drive.flush()
    assert done == ["small", "large"]
    drive.flush()
    drive.post("next")
    await turn()
    assert machine.batches == [["small", "large"], ["next"]]
    drive.close()


async def test_what_performing_causes_is_handled_afterwards_and_not_inside() -> None:
    machine, done = Echo(), list[str]()

    def perform(effects: Sequence[str]) -> None:
        if "first" in effects:
            for number in range(READ_EVENTS_MAX + 1):
                drive.post(str(number))
            assert len(machine.batches) == 1
        done.extend(effects)

    drive = Drive(machine, perform, name="echo")
    drive.post("first")
    await turn()
    assert done[0] == "first"
    assert len(done) == 1 + READ_EVENTS_MAX + 1
    drive.close()


async def test_a_step_is_safe_when_it_and_all_before_it_are_on_disk_and_done() -> None:
    machine, disk, done = Echo(), SlowDisk(), list[str]()
    drive = Drive(machine, done.extend, name="echo", keeper=disk)
    safe: list[int] = []
    drive.on_safe = lambda: safe.append(drive.safe_step)
    for event in ("at once", "keep 1", "keep 2", "keep 3 quietly", "said quietly", "keep 4"):
        drive.post(event)
        await turn()
    assert drive.steps == 6
    assert safe == [1]
    for _ in disk.commits.copy():
        disk.finish_one()
    # Nobody waits for the two quiet ones: they count with the one before them.
    assert safe == [1, 2, 5, 6]
    drive.post("keep 5 quietly")
    await turn()
    assert safe[-1] == 7
    drive.close()


@pytest.mark.spec("L7")
async def test_nothing_is_done_before_it_is_on_disk() -> None:
    machine, disk, done = Echo(), SlowDisk(), list[str]()
    drive = Drive(machine, done.extend, name="echo", keeper=disk)
    drive.post("keep 1")
    drive.post("and say so")
    await turn()
    assert disk.asked == [["keep 1"]]
    assert done == []
    disk.finish_one()
    assert done == ["keep 1", "and say so"]
    drive.close()


@pytest.mark.spec("L7")
async def test_while_the_disk_is_slow_events_are_handled_and_what_they_ask_for_waits_its_turn() -> None:
    machine, disk, done = Echo(), SlowDisk(), list[str]()
    drive = Drive(machine, done.extend, name="echo", keeper=disk)
    for event in ("keep 1", "nothing to keep", "keep 2"):
        drive.post(event)
        await turn()
    assert machine.batches == [["keep 1"], ["nothing to keep"], ["keep 2"]]
    assert done == []
    disk.finish_one()
    assert done == ["keep 1"]
    disk.finish_one()
    assert done == ["keep 1", "nothing to keep"]
    disk.finish_one()
    assert done == ["keep 1", "nothing to keep", "keep 2"]
    drive.close()


async def test_with_nothing_to_keep_and_nothing_waiting_the_disk_is_not_asked() -> None:
    machine, disk, done = Echo(), SlowDisk(), list[str]()
    drive = Drive(machine, done.extend, name="echo", keeper=disk)
    drive.post("a")
    await turn()
    assert done == ["a"]
    assert disk.asked == []
    drive.close()


async def test_the_disk_is_told_who_is_in_no_hurry() -> None:
    machine, disk, done = Echo(), SlowDisk(), list[str]()
    drive = Drive(machine, done.extend, name="echo", keeper=disk)
    for event in ("keep 1 patiently", "keep 2"):
        drive.post(event)
        await turn()
    assert disk.patient == [True, False]
    drive.close()


@pytest.mark.spec("L7")
async def test_nobody_waits_for_a_commit_after_which_nothing_is_to_be_done_but_what_comes_later_does() -> None:
    machine, disk, done = Echo(), SlowDisk(), list[str]()
    drive = Drive(machine, done.extend, name="echo", keeper=disk)
    drive.post("keep 1 quietly")
    await turn()
    assert disk.commits == [(["keep 1 quietly"], None)]
    drive.post("say what follows from it")
    await turn()
    assert done == []
    disk.finish_one()
    assert done == []
    disk.finish_one()
    assert done == ["say what follows from it"]
    drive.close()


async def test_what_a_performed_commit_causes_is_handled_after_it_and_keeps_its_place() -> None:
    machine, disk, done = Echo(), SlowDisk(), list[str]()

    def perform(effects: Sequence[str]) -> None:
        done.extend(effects)
        if effects == ["keep 1"]:
            for number in range(READ_EVENTS_MAX + 1):
                drive.post(str(number))
            assert machine.batches == [["keep 1"], ["keep 2"]]

    drive = Drive(machine, perform, name="echo", keeper=disk)
    for event in ("keep 1", "keep 2"):
        drive.post(event)
        await turn()
    disk.finish_one()
    disk.finish_one()
    await turn()
    assert done[:3] == ["keep 1", "keep 2", "0"]
    drive.close()


async def test_a_drive_that_cannot_go_on_says_why_and_does_nothing_more() -> None:
    machine, disk, done = Echo(), SlowDisk(), list[str]()
    drive = Drive(machine, done.extend, name="echo", keeper=disk)
    drive.post("keep 1")
    await turn()
    drive.fail(OSError("the disk is gone"))
    drive.fail(OSError("and again"))
    disk.finish_one()
    drive.post("more")
    await turn()
    assert done == []
    assert machine.batches == [["keep 1"]]
    with pytest.raises(OSError, match="the disk is gone"):
        drive.failed.result()


async def test_every_keep_of_a_batch_is_one_commit() -> None:
    machine, disk, done = Echo(), SlowDisk(), list[str]()
    drive = Drive(machine, done.extend, name="echo", keeper=disk)
    for event in ("keep 1", "x", "keep 2", "keep 3"):
        drive.post(event)
    await turn()
    assert disk.asked == [["keep 1", "keep 2", "keep 3"]]
    drive.close()


async def test_a_tick_that_falls_into_a_commit_waits_for_it_too() -> None:
    machine, disk, done = Echo(), SlowDisk(), list[str]()
    machine.wakes.append(asyncio.get_running_loop().time() + 0.01)
    drive = Drive(machine, done.extend, name="echo", keeper=disk)
    drive.post("keep 1")
    async with asyncio.timeout(DEADLINE_S):
        await machine.ticked.wait()
    assert done == []
    disk.finish_one()
    disk.finish_one()
    assert done == ["keep 1", "ticked"]
    drive.close()


async def test_what_was_posted_before_a_tick_is_handled_before_it_by_the_next_step() -> None:
    machine, done, steps = Echo(), list[str](), list[int]()
    loop = asyncio.get_running_loop()
    now = loop.time()
    machine.wakes.append(now)

    def post() -> None:
        steps.append(drive.steps)
        drive.post("news")

    loop.call_at(now - 1.0, post)  # Both timers are due: they run one after the other, and the next turn comes later.
    drive = Drive(machine, lambda effects: done.extend(f"{effect} {drive.steps}" for effect in effects), name="echo")
    async with asyncio.timeout(DEADLINE_S):
        await machine.ticked.wait()
    assert steps == [0]
    assert done == ["news 1", "ticked 2"]
    drive.close()


async def test_the_machine_is_woken_when_it_asked_to_be_and_not_before() -> None:
    machine, done = Echo(), list[str]()
    wake_at = asyncio.get_running_loop().time() + 0.02
    machine.wakes.append(wake_at)
    drive = Drive(machine, done.extend, name="echo")
    await turn()
    assert machine.ticks == []
    async with asyncio.timeout(DEADLINE_S):
        while machine.wakes:
            machine.ticked.clear()
            await machine.ticked.wait()
    assert machine.ticks[-1] >= wake_at
    assert done[-1] == "ticked"
    drive.close()


async def test_an_earlier_time_replaces_a_later_one_and_the_later_one_still_comes() -> None:
    machine = Echo()
    now = asyncio.get_running_loop().time()
    machine.wakes.append(now + 3600)
    drive = Drive(machine, lambda _effects: None, name="echo")
    machine.wakes.appendleft(now + 0.03)
    machine.wakes.appendleft(now + 0.01)
    drive.post("news")
    async with asyncio.timeout(DEADLINE_S):
        while len(machine.wakes) > 1:
            machine.ticked.clear()
            await machine.ticked.wait()
    assert machine.wakes[0] == now + 3600
    drive.close()


async def test_a_machine_that_raises_stops_its_drive_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    machine, done = Echo(), list[str]()
    drive = Drive(machine, done.extend, name="echo")
    drive.post("bug")
    await turn()
    with pytest.raises(KeyError, match="bug"):
        await drive.failed
    drive.post("more")
    await turn()
    assert machine.batches == [["bug"]]
    assert done == []
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("CRITICAL", "state machine failed by an internal error machine=echo")
    ]
    drive.close()


@pytest.mark.parametrize("with_disk", [False, True])
async def test_an_effect_that_raises_stops_the_drive_too(with_disk: bool) -> None:
    machine, disk = Echo(), SlowDisk()

    def perform(effects: Sequence[str]) -> None:
        raise LookupError(effects[0])

    drive = Drive(machine, perform, name="echo", keeper=disk if with_disk else None)
    drive.post("keep 1")
    await turn()
    drive.post("keep 2")
    if with_disk:
        await turn()
        disk.finish_one()
        disk.finish_one()
    with pytest.raises(LookupError, match="keep 1"):
        await drive.failed
    drive.close()


async def test_after_close_nothing_is_handled_or_performed() -> None:
    machine, disk, done = Echo(), SlowDisk(), list[str]()
    drive = Drive(machine, done.extend, name="echo", keeper=disk)
    drive.post("keep 1")
    await turn()
    machine.wakes.append(asyncio.get_running_loop().time())
    drive.post("too late")
    drive.close()
    await turn()
    disk.finish_one()
    await turn()
    assert machine.batches == [["keep 1"]]
    assert machine.ticks == []
    assert done == []
    assert drive.failed.cancelled()


async def test_a_trace_tells_what_was_heard_kept_and_done(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "wakugumi.drive")
    machine, disk = Echo(), SlowDisk()
    drive = Drive(machine, lambda _effects: None, name="echo", keeper=disk)
    drive.post("keep " + "x" * 1000)
    await turn()
    signs = [record.getMessage()[:12] for record in caplog.records]
    assert signs == ["echo < 'keep", "echo = 'keep", "echo > 'keep"]
    assert all(len(record.getMessage()) < 300 for record in caplog.records)
    drive.close()


async def test_an_event_can_be_handled_at_once_but_never_while_the_machine_is_at_work() -> None:
    echo, done = Echo(), list[str]()

    def perform(effects: Sequence[str]) -> None:
        done.extend(effects)
        if "one" in effects:
            drive.post_now("two")
            assert done == ["zero", "one"]

    drive: Drive[str, str, str] = Drive(echo, perform, name="echo")
    drive.post("zero")
    drive.post_now("one")
    assert echo.batches == [["zero", "one"]]
    await asyncio.sleep(0)
    assert echo.batches == [["zero", "one"], ["two"]]
    drive.close()
    drive.post_now("three")
    assert done == ["zero", "one", "two"]


async def test_events_that_performing_posts_are_handled_in_the_same_turn_up_to_so_many_rounds() -> None:
    machine = Echo()

    def perform(effects: Sequence[str]) -> None:
        for effect in effects:
            if len(effect) < 6:
                drive.post(effect + "!")

    drive = Drive(machine, perform, name="echo", rounds=3)
    drive.post_now("a")
    assert machine.batches == [["a"], ["a!"], ["a!!"]]
    await turn()
    assert machine.batches[3:] == [["a!!!"], ["a!!!!"], ["a!!!!!"]]
    drive.post("other")
    await turn()
    assert machine.batches[6:] == [["other"], ["other!"]]
    drive.close()
