"""Which caches does a worker lack, and which are asked of it next? Scripts of event and effect."""

from __future__ import annotations

import pytest
from tests.kit.files_world import World, counts, file, put_of

from wakugumi.core.files import events as se
from wakugumi.core.ids import ConnId
from wakugumi.core.leader.answer_records import CacheAnswer
from wakugumi.core.leader.events import SendAnswer
from wakugumi.core.leader.questions import AskCache, AskDropCache
from wakugumi.limits.files import (
    PUTS_PER_WORKER_MAX,
)


def test_names_that_are_added_while_a_worker_is_at_it_are_asked_for_next(world: World) -> None:
    world.join(1)
    world.put(file("a"), ask=b"one")
    first = world.one()
    world.put(file("b"), ask=b"two")
    world.silence()
    world.answer(first)
    summary, second = world.said()
    assert isinstance(summary, se.SendSummary)
    assert (summary.ask, put_of(second).files) == (b"one", (file("a"), file("b")))
    world.answer(second)
    assert counts(world.one()) == (se.OK, 1, 1, 0, 0, 0)


def test_what_a_worker_evicted_is_not_pressed_upon_it_until_somebody_puts_it_again(world: World) -> None:
    world.join(1)
    world.put(file("a"))
    world.answer(world.one())
    world.said()
    world.stock(1, caches={"data": ""})
    world.silence()
    world.ask(AskCache("data"))
    answer = world.one()
    assert isinstance(answer, SendAnswer)
    assert isinstance(answer.answer, CacheAnswer)
    assert answer.answer.workers[0].state == "evicted"
    world.put(file("a"), ask=b"again")
    assert put_of(world.one()).conn == 1


def test_a_worker_is_asked_for_a_few_caches_at_a_time_and_first_for_those_somebody_waits_for(world: World) -> None:
    for at in range(PUTS_PER_WORKER_MAX + 2):
        world.put(file("a"), cache_id=f"c{at}")
        world.said()
    world.join(1)
    asked = list(map(put_of, world.said()))
    assert [put.cache_id for put in asked] == [f"c{at}" for at in range(PUTS_PER_WORKER_MAX)]
    world.put(file("a"), cache_id="urgent")
    world.silence()
    world.answer(asked[0])
    assert put_of(world.one()).cache_id == "urgent"


def test_a_cache_that_is_dropped_is_not_asked_for_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.files.placement.ASKED_BYTES_MAX", 1)
    world.join(1, 2, 3)
    world.put(file("a"))
    (asked,) = world.said()
    world.hear(se.WorkerWent(ConnId(2)))
    world.ask(AskDropCache("data"))
    assert [effect.conn for effect in world.said() if isinstance(effect, se.SendCacheDrop)] == [asked.conn]
    world.pass_time(1.0)
    world.silence()
