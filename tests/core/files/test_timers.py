"""Alarms ring in order, once, and not before their time."""

from __future__ import annotations

from wakugumi.core.files.events import FilesStepBuilder
from wakugumi.core.files.timers import Alarm, Timers


def test_the_earliest_rings_first_and_those_of_the_same_time_in_their_order() -> None:
    alarms, rung = Timers(), []

    def bell(name: str) -> Alarm:
        return lambda now, _out: rung.append((name, now))

    assert alarms.next_at() is None
    for at, name in ((3.0, "c"), (1.0, "a"), (3.0, "d"), (2.0, "b"), (9.0, "late")):
        alarms.set(at, bell(name))
    assert alarms.next_at() == 1.0
    alarms.ring(0.9, FilesStepBuilder())
    assert rung == []
    alarms.ring(3.0, FilesStepBuilder())
    assert rung == [("a", 3.0), ("b", 3.0), ("c", 3.0), ("d", 3.0)]
    assert alarms.next_at() == 9.0
    alarms.ring(3.0, FilesStepBuilder())
    assert len(rung) == 4


def test_an_alarm_that_was_taken_back_does_not_ring_and_does_not_stay() -> None:
    alarms, rung = Timers(), []
    alarms.set(7.0, lambda now, _out: rung.append(now))
    soon = alarms.set(1.0, lambda now, _out: rung.append(now))
    alarms.take_back(soon)
    for _ in range(1_000):
        alarms.take_back(alarms.set(1e9, lambda now, _out: rung.append(now)))
    assert len(alarms) < 200
    alarms.ring(8.0, FilesStepBuilder())
    assert rung == [8.0]


def test_an_alarm_may_set_another() -> None:
    alarms, rung = Timers(), []

    def again(now: float, _out: FilesStepBuilder) -> None:
        rung.append(now)
        alarms.set(now + 1.0, again)

    alarms.set(1.0, again)
    for now in (1.0, 1.5, 2.0, 3.0):
        alarms.ring(now, FilesStepBuilder())
    assert rung == [1.0, 2.0, 3.0]
