"""Caches and puts: scripts of event and effect."""

from __future__ import annotations

import pytest
from tests.kit.files_world import CLIENT, World, counts, file, sha, worker_id

from wakugumi.core.files import events as se
from wakugumi.core.files.catalogue import CacheRecord
from wakugumi.core.ids import ConnId
from wakugumi.core.leader.admin.questions import (
    AskCache,
    AskCaches,
    AskDropCache,
    AskPin,
    CacheAnswer,
    CacheRow,
    CachesAnswer,
)
from wakugumi.core.leader.events import SendAnswer, SendNo
from wakugumi.core.subject import Pattern
from wakugumi.limits.files import (
    CACHE_TTL_S,
    PUT_AGAIN_S,
    PUT_ASKS_MAX,
    PUT_FAILURES_MAX,
    PUT_GONE_S,
    PUT_RETRY_FIRST_S,
    PUTS_PER_CLIENT_MAX,
    PUTS_PER_WORKER_MAX,
    STOCK_GRACE_S,
)
from wakugumi.limits.wire import FILES_PER_CACHE_MAX


@pytest.fixture
def world() -> World:
    return World()


def put_of(effect: se.SpreadDo) -> se.SendCachePut:
    assert isinstance(effect, se.SendCachePut)
    return effect


@pytest.mark.spec("C1", "S2")
def test_a_put_asks_those_who_match_and_sums_up_what_they_say(world: World) -> None:
    world.join(1, patterns="job.assign.a.>")
    world.join(2, patterns="job.*.a.x")
    world.join(3, patterns="job.assign.b.>")
    world.put(file("a"), file("b"), target="job.assign.a.x")
    one, two = map(put_of, world.said())
    assert (one.conn, two.conn, one.files, one.inline) == (1, 2, (file("a"), file("b")), False)
    assert world.kept == [
        se.KeepCache("data", one.version, (file("a"), file("b")), ("job.assign.a.x",), False, 0.0)  # type: ignore[arg-type]
    ]
    world.answer(one)
    world.silence()
    world.answer(two, se.SKIPPED)
    summary = world.one()
    assert counts(summary) == (se.OK, 2, 1, 1, 0, 0)
    assert isinstance(summary, se.SendSummary)
    assert (summary.conn, summary.ask, summary.message) == (
        CLIENT,
        b"ask",
        "sent=2 ok=1 skipped=1 failed=0 silent=0",
    )
    assert world.machine.has_cache(worker_id(1), "data")
    assert not world.machine.has_cache(worker_id(3), "data")


@pytest.mark.spec("C1")
def test_the_same_put_again_is_answered_at_once_and_nothing_is_sent_or_kept(world: World) -> None:
    world.join(1)
    world.put(file("a"))
    world.answer(world.one())
    world.said()
    world.kept.clear()
    world.put(file("a"), ask=b"again")
    assert counts(world.one()) == (se.SKIPPED, 1, 0, 1, 0, 0)
    assert world.kept == []


@pytest.mark.spec("C1")
def test_no_matching_worker_is_a_failure_but_the_cache_is_kept_for_those_to_come(world: World) -> None:
    world.put(file("a"))
    summary = world.one()
    assert counts(summary) == (se.FAILED, 0, 0, 0, 0, 0)
    assert isinstance(summary, se.SendSummary)
    assert "workers that join later get it" in summary.message
    world.join(1)
    assert put_of(world.one()).cache_id == "data"


@pytest.mark.spec("C2")
def test_other_content_is_refused_and_a_new_name_is_added_to_the_same_version(world: World) -> None:
    world.join(1)
    world.put(file("a"))
    first = put_of(world.one())
    world.answer(first)
    world.said()
    world.put(se.CacheFile("a.bin", sha("z"), 5))
    assert counts(world.one()) == (se.FAILED, 0, 0, 0, 0, 0)
    world.put(file("b"))
    grown = put_of(world.one())
    assert (grown.version, grown.files) == (first.version, (file("a"), file("b")))
    assert not world.machine.has_cache(worker_id(1), "data")
    world.answer(grown)
    assert counts(world.one()) == (se.OK, 1, 1, 0, 0, 0)


@pytest.mark.spec("C2")
@pytest.mark.parametrize("name", ["A.BIN", "a.bin/b"])
def test_a_name_that_cannot_stand_beside_the_others_is_refused(world: World, name: str) -> None:
    world.put(file("a"))
    world.said()
    world.put(se.CacheFile(name, sha("z"), 5))
    summary = world.one()
    assert isinstance(summary, se.SendSummary)
    assert summary.status == se.FAILED
    assert "a.bin" in summary.message


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


@pytest.mark.spec("C1")
def test_when_its_time_is_over_a_put_counts_the_silent(world: World) -> None:
    world.join(1, 2)
    world.put(file("a"), within_s=5.0)
    one, _ = world.said()
    world.answer(one)
    world.pass_time(5.0)
    assert counts(world.one()) == (se.FAILED, 2, 1, 0, 0, 1)


@pytest.mark.spec("C1")
def test_a_put_may_be_content_with_a_share_and_the_rest_is_warmed_in_silence(world: World) -> None:
    world.join(1, 2, 3)
    world.put(file("a"), share=0.5)
    one, two, three = world.said()
    world.answer(one)
    world.silence()
    world.answer(two)
    summary = world.one()
    assert isinstance(summary, se.SendSummary)
    assert (summary.status, summary.ok, summary.waiting) == (se.OK, 2, 1)
    world.answer(three)
    world.silence()
    assert world.machine.has_cache(worker_id(3), "data")


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


def test_progress_is_told_while_it_changes(world: World) -> None:
    world.join(1, 2)
    world.put(file("a"), progress=True)
    one, two = world.said()
    world.pass_time(1.0)
    told = world.one()
    assert isinstance(told, se.SendSummary)
    assert (told.status, told.waiting) == (se.PROGRESS, 2)
    world.pass_time(5.0)
    world.silence()
    world.answer(one)
    world.pass_time(1.0)
    told = world.one()
    assert isinstance(told, se.SendSummary)
    assert (told.status, told.ok, told.waiting) == (se.PROGRESS, 1, 1)
    world.answer(two)
    assert counts(world.one()) == (se.OK, 2, 2, 0, 0, 0)
    world.pass_time(10.0)
    world.silence()


def test_a_client_that_left_is_told_nothing_and_the_workers_have_it_nevertheless(world: World) -> None:
    world.join(1)
    world.put(file("a"))
    put = world.one()
    world.hear(se.ClientWent(CLIENT))
    world.answer(put)
    world.silence()
    assert world.machine.has_cache(worker_id(1), "data")


@pytest.mark.spec("C6")
def test_a_dropped_cache_is_gone_everywhere_and_its_next_life_has_another_version(world: World) -> None:
    world.join(1, 2)
    world.put(file("a"))
    one, _ = world.said()
    world.answer(one)
    world.ask(AskDropCache("data"))
    drops = world.said()
    assert [type(effect) for effect in drops] == [se.SendCacheDrop, se.SendCacheDrop, se.SendSummary, SendAnswer]
    assert world.kept[-1] == se.DropCache("data")
    assert not world.machine.pins(sha("a"))
    world.put(se.CacheFile("a.bin", sha("z"), 5))
    assert {put_of(effect).version for effect in world.said()} != {put_of(one).version}


@pytest.mark.spec("C6")
def test_a_pin_is_kept_and_told_to_those_who_have_it(world: World) -> None:
    world.join(1)
    world.put(file("a"))
    world.answer(world.one())
    world.said()
    world.ask(AskPin("data"))
    told, answer = world.said()
    assert put_of(told).pinned
    assert isinstance(answer, SendAnswer)
    assert isinstance(answer.answer, CacheRow)
    assert answer.answer.pinned
    assert isinstance(world.kept[-1], se.KeepCache)
    assert world.kept[-1].pinned
    world.answer(told, se.SKIPPED)
    world.silence()


@pytest.mark.spec("C6")
def test_what_was_not_used_longest_goes_when_there_is_no_room_and_pinned_ones_stay() -> None:
    world = World(bytes_max=250 * 1024)
    world.put(file("a"), cache_id="pinned", pinned=True)
    world.said()
    world.pass_time(1)
    world.put(file("b"), cache_id="old")
    world.said()
    world.put(file("c"), cache_id="new")
    world.said()
    assert se.DropCache("old") in world.kept
    assert world.machine.pins(sha("a"))
    assert not world.machine.pins(sha("b"))
    world.put(file("d", 200 * 1024), cache_id="large")
    summary = world.one()
    assert isinstance(summary, se.SendSummary)
    assert (summary.status, "no room" in summary.message) == (se.FAILED, True)
    assert world.machine.pins(sha("c")), "and nothing went for what could not come"


@pytest.mark.spec("C6")
def test_a_cache_is_never_evicted_while_a_put_of_it_is_under_way() -> None:
    world = World(caches_max=1)
    world.join(1)
    world.put(file("a"))
    put = world.one()
    world.put(file("b"), cache_id="other", ask=b"b")
    assert counts(world.one()) == (se.FAILED, 0, 0, 0, 0, 0)
    world.answer(put)
    world.said()
    world.put(file("b"), cache_id="other", ask=b"b")
    assert [type(effect) for effect in world.said()] == [se.SendCacheDrop, se.SendCachePut]


@pytest.mark.spec("C6")
def test_a_cache_that_nobody_uses_goes_and_a_used_one_stays(world: World) -> None:
    world.put(file("a"), cache_id="idle")
    world.said()
    world.put(file("b"), cache_id="used")
    world.said()
    world.pass_time(CACHE_TTL_S / 2)
    world.hear(se.CacheNamed("used"))
    world.pass_time(CACHE_TTL_S / 2 + 3_600)
    assert se.DropCache("idle") in world.kept
    assert se.DropCache("used") not in world.kept


@pytest.mark.spec("C6")
def test_caches_come_back_as_they_were_kept(world: World) -> None:
    world.put(file("a"), pinned=True)
    world.said()
    (record,) = world.kept
    assert isinstance(record, se.KeepCache)
    after = World()
    after.machine.recover([record], after.now)
    assert after.machine.find("data", "a.bin") == file("a")
    assert after.machine.pins(sha("a"))
    after.join(1, caches={"data": f"{record.version}/1"})
    after.silence()
    after.put(file("a"), pinned=True)
    assert counts(after.one()) == (se.SKIPPED, 1, 0, 1, 0, 0)
    assert after.kept == []


def test_a_want_by_name_is_for_what_the_cache_has_under_it(world: World) -> None:
    world.join(1)
    world.put(file("a"))
    world.said()
    world.hear(se.BlobWanted(ConnId(1), b"w", "", 0, "data", "a.bin", "", True))
    given = world.one()
    assert isinstance(given, se.SendSource)
    assert (given.sha256, given.size) == (file("a").sha256, file("a").size)
    for cache_id, name in (("data", "b.bin"), ("nope", "a.bin")):
        world.hear(se.BlobWanted(ConnId(1), b"x", "", 0, cache_id, name, "", True))
        no = world.one()
        assert isinstance(no, se.SendNoSource)
        assert no.code == "no-cache"


def test_questions_are_answered(world: World) -> None:
    world.join(1)
    world.put(file("a"))
    world.said()
    world.hear(se.CacheNamed("data"))
    world.pass_time(2.0)
    world.ask(AskCaches())
    listed = world.one()
    assert isinstance(listed, SendAnswer)
    assert isinstance(listed.answer, CachesAnswer)
    (row,) = listed.answer.rows
    assert (row.cache, row.files, row.bytes, row.target) == ("data", 1, 100 * 1024, "job.assign.>")
    assert (row.workers, row.ready, row.hits, row.used_s, row.created_s) == (1, 0, 1, 2.0, 2.0)
    world.ask(AskCaches(limit=-5))
    nothing = world.one()
    assert isinstance(nothing, SendAnswer)
    assert isinstance(nothing.answer, CachesAnswer)
    assert (nothing.answer.rows, nothing.answer.total) == ([], 1)
    world.ask(AskPin("nope"))
    no = world.one()
    assert isinstance(no, SendNo)
    assert no.code == "no-cache"


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
