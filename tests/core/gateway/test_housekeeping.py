"""A gateway while nobody asks: its lease, what the dead left, and what is old."""

from __future__ import annotations

from uuid import uuid4

import pytest
from msgspec.structs import replace
from tests.kit.gateway_desk import GatewayDesk

from wakugumi.core.flows import Act
from wakugumi.core.gateway import events as ev
from wakugumi.core.gateway.rows import DONE, RUNNING, Content, GatewayJob, Totals
from wakugumi.core.ids import JobId
from wakugumi.core.step import LogLine
from wakugumi.errors import Refused


def add(desk: GatewayDesk, count: int, **more: object) -> list[GatewayJob]:
    more = {"owner": "dead"} | more
    rows = [GatewayJob(job=JobId(uuid4().bytes), name="monday", **more) for _ in range(count)]  # type: ignore[arg-type]
    return [desk.rows.add(row)[0] for row in rows]


def idle(**bounds: object) -> GatewayDesk:
    """Nothing is forwarded: jobs stay in the queue."""
    desk = GatewayDesk(**bounds)
    desk.machine.flights.pump = lambda: None  # type: ignore[method-assign]
    return desk


@pytest.mark.spec("G5")
def test_what_the_dead_left_is_taken_over_in_batches() -> None:
    desk = idle()
    add(desk, 500, is_async=True, body=Content(1, b"x"))
    add(desk, 3)
    desk.hear(ev.GatewayStarts())
    assert desk.rows.is_held("me")
    assert desk.machine.keeper.taken_over == 500
    assert len(desk.asked_for(ev.FindOrphans)) > 10, "others have their turns meanwhile"
    assert [line for line in desk.log if "taken over" in line] == ["jobs taken over from dead gateways count=500"]
    assert desk.rows.totals() == Totals(500, open_bytes=500)


@pytest.mark.spec("G5")
def test_a_gateway_never_takes_over_from_itself_however_late_it_renews_its_lease() -> None:
    desk = idle(lease_s=10.0)
    add(desk, 120, is_async=True, body=Content(1, b"x"))
    find = desk.answers[ev.FindOrphans]

    def slow(act: ev.FindOrphans) -> object:
        desk.now += 60.0
        return find(act)

    desk.answers[ev.FindOrphans] = slow
    desk.hear(ev.GatewayStarts())
    assert len(desk.asked_for(ev.FindOrphans)) == 3
    assert desk.machine.keeper.taken_over == 120


@pytest.mark.parametrize("kind", [ev.FindOrphans, ev.TidyStore, ev.CountRows, ev.FindOldest, ev.FindOpen])
def test_the_lease_is_renewed_whatever_else_takes_its_time(kind: type[Act[object]]) -> None:
    desk = idle(lease_s=9.0)
    desk.never.add(kind)
    desk.hear(ev.GatewayStarts())
    before = len(desk.asked_for(ev.HoldLease))
    desk.wait(30.0)
    assert len(desk.asked_for(ev.HoldLease)) == before + 10
    assert desk.rows.is_held("me")


@pytest.mark.spec("G3")
def test_an_open_job_that_nobody_sees_to_is_queued_again() -> None:
    desk = idle(stranded_s=10.0)
    mine = {"owner": "me", "is_async": True, "body": Content(1, b"x")}
    lost = add(desk, 60, **mine, state=RUNNING, group="a")
    queued, ended, others = [add(desk, 1, **mine)[0] for _ in range(3)]
    flights, keeper = desk.machine.flights, desk.machine.keeper
    flights.queue.append(queued.job)
    assert desk.rows.replace(ended, replace(ended, state=DONE)) is not None
    assert desk.rows.replace(others, replace(others, owner="other")) is not None
    (waited_for,) = add(desk, 1, owner="me", state=RUNNING)
    desk.run(keeper.find_stranded)
    desk.now += 9.9
    desk.run(keeper.find_stranded)
    assert (keeper.stranded, len(flights.queue)) == (0, 1)
    desk.now += 0.1
    desk.run(keeper.find_stranded)
    assert keeper.stranded == 60
    assert [flights.queue.popleft() for _ in range(61)] == [queued.job, *sorted(row.job for row in lost)]
    assert desk.rows.get(waited_for.job) is None, "its client has left, or asks anew"
    assert len([line for line in desk.log if "stranded job queued again job=monday" in line]) == 60


def test_a_job_that_somebody_sees_to_again_is_not_stranded() -> None:
    desk = idle(stranded_s=10.0)
    keeper, queue = desk.machine.keeper, desk.machine.flights.queue
    (row,) = add(desk, 1, owner="me", is_async=True, body=Content(1, b"x"))
    desk.run(keeper.find_stranded)
    queue.append(row.job)
    desk.now += 6.0
    desk.run(keeper.find_stranded)
    queue.popleft()
    desk.now += 6.0
    desk.run(keeper.find_stranded)
    assert keeper.stranded == 0
    desk.now += 10.0
    desk.run(keeper.find_stranded)
    assert keeper.stranded == 1


@pytest.mark.parametrize("error", [RecursionError("nobody thought of this"), Refused("busy", "the store is locked")])
@pytest.mark.parametrize("kind", [ev.HoldLease, ev.FindOrphans, ev.FindOpen, ev.TidyStore, ev.FindOldest])
def test_the_keeper_goes_on_after_every_failure(kind: type[Act[object]], error: Exception) -> None:
    desk = idle(lease_s=6.0, stranded_s=4.0, sweep_s=5.0)
    desk.hear(ev.GatewayStarts())
    work, fails = desk.answers[kind], 3

    def failing(act: Act[object]) -> object:
        nonlocal fails
        fails -= 1
        if fails >= 0:
            raise error
        return work(act)

    desk.answers[kind] = failing
    desk.wait(60.0)
    assert fails < -2
    assert len([line for line in desk.effects_of(LogLine) if line.level >= 30]) == 3


def test_room_is_made_also_after_the_clock_was_set_back() -> None:
    desk = idle(kept_bytes=20)
    rows = []
    for _ in range(5):
        rows += add(desk, 1, state=DONE, answer=Content(10, bytes(10)))
        desk.now += 1
    desk.now -= 3600
    desk.run(desk.machine.keeper.sweep)
    assert [desk.rows.get(row.job) is not None for row in rows] == [False, False, False, True, True]


def test_a_sweep_ends_when_others_drop_what_it_would() -> None:
    desk = idle(kept_max=1, kept_s=0.0)
    add(desk, 3, state=DONE, answer=Content(10, bytes(10)))
    desk.answers[ev.RemoveRow] = lambda _: False
    desk.run(desk.machine.keeper.sweep)
    assert len(desk.rows.rows) == 3


def test_many_rows_are_dropped_with_few_counts_and_the_newest_stay() -> None:
    desk = idle(kept_bytes=305, kept_max=40)
    add(desk, 200, state=DONE, answer=Content(10, bytes(10)))
    desk.run(desk.machine.keeper.sweep)
    assert desk.machine.keeper.totals == Totals(0, 0, 30, 300)
    assert len(desk.asked_for(ev.CountRows)) == 2


def test_a_file_without_a_row_goes_and_its_neighbours_stay() -> None:
    desk = idle()
    for number in range(120):
        job = JobId(uuid4().bytes)
        name = f"{job.hex()}-{number:x}"
        desk.files.add(name)
        if number != 7:
            desk.rows.add(GatewayJob(job=job, name="x", owner="me", state=DONE, answer=Content(9, None, name)))
        else:
            stray = name
    desk.run(desk.machine.keeper.sweep)
    assert len(desk.files) == 119
    assert stray not in desk.files
