"""Caches and puts: scripts of event and effect."""

from __future__ import annotations

import pytest
from tests.kit.files_world import World, counts, file, put_of, sha, worker_id

from wakugumi.core.files import events as se
from wakugumi.core.files.catalogue import CacheRecord
from wakugumi.core.ids import ConnId
from wakugumi.core.subject import Pattern
from wakugumi.limits.files import (
    PUT_AGAIN_S,
    PUT_ASKS_MAX,
    PUT_FAILURES_MAX,
    PUT_GONE_S,
    PUT_RETRY_FIRST_S,
    PUTS_PER_CLIENT_MAX,
    STOCK_GRACE_S,
)
from wakugumi.limits.wire import FILES_PER_CACHE_MAX


@pytest.mark.spec("C1")
def test_a_silent_worker_is_asked_again_and_counts_as_silent_in_the_end(world: World) -> None:
    world.join(1, 2)
    world.put(file("a"))
    one, two = world.said()
    world.answer(two)
    world.pass_time(PUT_AGAIN_S)
    assert world.one() == one
    waits_s = PUT_AGAIN_S
    for _ in range(PUT_ASKS_MAX - 2):
        waits_s *= 2
        world.pass_time(waits_s)
        assert world.one() == one
    world.pass_time(waits_s * 2)
    assert counts(world.one()) == (se.FAILED, 2, 1, 0, 0, 1)
    world.pass_time(PUT_RETRY_FIRST_S)
    again = put_of(world.one())
    assert (again.conn, again.put) != (one.conn, put_of(one).put)


def test_a_worker_that_fetches_is_not_silent(world: World) -> None:
    world.join(1)
    world.put(file("a"))
    put = world.one()
    world.want(1)
    world.said()
    world.pass_time(50.0)
    world.silence()
    world.stock(1, "a")
    world.pass_time(PUT_AGAIN_S)
    assert world.one() == put


def test_a_worker_that_leaves_may_come_back_and_otherwise_counts_as_failed(world: World) -> None:
    world.join(1, 2)
    world.put(file("a"))
    world.said()
    world.hear(se.WorkerWent(ConnId(1)), se.WorkerWent(ConnId(2)))
    world.hear(se.WorkerCame(ConnId(11), worker_id(1), "w1", ("job.assign.>",), blobs=True))  # type: ignore[arg-type]
    world.stock(11, whole=True)
    world.answer(world.one())
    world.silence()
    world.pass_time(PUT_GONE_S)
    summary = world.one()
    assert counts(summary) == (se.FAILED, 2, 1, 0, 1, 0)
    assert isinstance(summary, se.SendSummary)
    assert summary.failures == (("w2", "its connection ended"),)


def test_a_worker_that_failed_is_asked_again_later_and_at_once_by_the_next_put(world: World) -> None:
    world.join(1)
    world.put(file("a"))
    world.answer(world.one(), se.FAILED, "the disk is full")
    summary = world.one()
    assert isinstance(summary, se.SendSummary)
    assert summary.failures == (("w1", "the disk is full"),)
    world.put(file("a"), ask=b"again")
    world.answer(world.one(), se.FAILED, "still")
    world.said()
    world.pass_time(PUT_RETRY_FIRST_S)
    world.answer(world.one())
    world.silence()
    assert world.machine.has_cache(worker_id(1), "data")


@pytest.mark.spec("C6")
def test_who_joins_with_all_of_it_needs_nothing_and_others_are_warmed(world: World) -> None:
    world.put(file("a"), file("b"))
    world.said()
    (record,) = world.kept
    assert isinstance(record, se.KeepCache)
    world.join(1, caches={"data": f"{record.version}/2"})
    world.silence()
    for number, said in ((2, f"{record.version}/1"), (3, "other/2"), (4, record.version), (5, "x/y/z"), (6, "")):
        world.join(number, caches={"data": said})
        assert put_of(world.one()).conn == number
    assert world.machine.has_cache(worker_id(1), "data")


def test_a_worker_that_never_says_what_it_holds_is_asked_nevertheless(world: World) -> None:
    world.hear(se.WorkerCame(ConnId(1), worker_id(1), "w1", ("job.assign.>",), blobs=True))  # type: ignore[arg-type]
    world.put(file("a"))
    world.silence()
    world.pass_time(STOCK_GRACE_S)
    world.answer(world.one())
    assert counts(world.one()) == (se.OK, 1, 1, 0, 0, 0)


@pytest.mark.spec("F4")
def test_an_old_worker_gets_the_content_if_it_fits_a_frame(world: World) -> None:
    world.join(1, old=True)
    world.put(file("a"))
    asked = put_of(world.one())
    assert asked.inline
    world.hear(se.PutAnswered(ConnId(1), bytes(16), "data", se.OK, ""))
    assert counts(world.one()) == (se.OK, 1, 1, 0, 0, 0)
    world.put(file("b", 4 << 20))
    summary = world.one()
    assert counts(summary) == (se.FAILED, 1, 0, 0, 1, 0)
    assert isinstance(summary, se.SendSummary)
    assert "does not fit a frame" in summary.failures[0][1]


def test_everything_is_bounded(world: World) -> None:
    world.put(*(se.CacheFile(f"f{at}", sha("a"), 1) for at in range(FILES_PER_CACHE_MAX + 1)))
    assert counts(world.one())[0] == se.FAILED
    world.put(*(se.CacheFile("x" * 200 + f"/{'y' * 250}{at}", sha("a"), 1) for at in range(9_000)))
    assert counts(world.one())[0] == se.FAILED
    world.join(*range(1, PUT_FAILURES_MAX + 10))
    world.put(file("a"))
    for put in world.said():
        world.answer(put, se.FAILED, "x" * 10_000)
    summary = world.one()
    assert isinstance(summary, se.SendSummary)
    assert (summary.failed, len(summary.failures)) == (PUT_FAILURES_MAX + 9, PUT_FAILURES_MAX)
    assert len(summary.failures[0][1]) <= 300
    for at in range(PUTS_PER_CLIENT_MAX):
        world.put(file("b"), ask=b"%d" % at)
        world.said()
    world.put(file("b"), ask=b"one more")
    assert counts(world.one()) == (se.FAILED, 0, 0, 0, 0, 0)


def test_who_has_all_of_a_cache_is_known_without_a_look_at_all_workers(world: World) -> None:
    """Placement asks for every job that names a cache."""
    world.join(1, 2)
    world.join(3, patterns="elsewhere.x")
    world.put(file("a"))
    first, second = world.said()
    holders = world.machine.puts.holders
    assert list(holders("data")) == list(holders("nope")) == []
    world.answer(first)
    assert list(holders("data")) == [worker_id(1)]
    world.answer(second)
    world.said()
    world.put(file("a"), file("b"), ask=b"2")
    assert list(holders("data")) == [], "nobody has the new name"
    for put in world.said():
        world.answer(put)
    world.said()
    assert set(holders("data")) == {worker_id(1), worker_id(2)}
    world.stock(1, caches={"data": ""})
    assert list(holders("data")) == [worker_id(2)]
    world.hear(se.WorkerWent(ConnId(2)))
    assert list(holders("data")) == []


def test_no_step_asks_for_more_than_others_can_wait_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.files.placement.ASKED_BYTES_MAX", 10_000)
    numbers = range(1, 21)
    world.join(*numbers)
    world.put(file("a"))
    asked = [effect.conn for effect in world.said()]
    assert 0 < len(asked) < 5
    while len(asked) < len(numbers):
        world.pass_time(0.011)
        more = [effect.conn for effect in world.said()]
        assert 0 < len(more) < 5
        asked += more
    assert sorted(asked) == list(numbers)


def test_who_joins_is_not_compared_with_caches_of_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(50):
        world.put(file("a"), cache_id=f"data-{at}", ask=b"%d" % at, target=f"job.assign.g{at}.>")
        world.said()
    compared: list[int] = []
    monkeypatch.setattr(CacheRecord, "is_for", lambda *_: compared.append(1))
    came = se.WorkerCame(ConnId(1), worker_id(1), "w1", (Pattern("job.assign.g7.x"), Pattern("job.assign.h")), True)
    world.machine.handle([came], world.now)
    stock = se.Stocked(ConnId(1), True, "", "", (), (), {})
    (put,) = world.machine.handle([stock], world.now).do
    assert isinstance(put, se.SendCachePut)
    assert (put.cache_id, compared) == ("data-7", [])
