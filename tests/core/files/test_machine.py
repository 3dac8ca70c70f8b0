"""What the files machine answers, keeps and finds again: scripts of event and effect."""

from __future__ import annotations

import pytest
from tests.kit.files_world import World, counts, file, put_of, sha, worker_id

from wakugumi.core.files import events as se
from wakugumi.core.ids import ConnId
from wakugumi.core.leader.answer_records import CacheRow, CachesAnswer
from wakugumi.core.leader.events import SendAnswer, SendNo
from wakugumi.core.leader.questions import AskCaches, AskDropCache, AskPin


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


def test_a_second_connection_of_a_worker_ends_the_first(world: World) -> None:
    world.join(1, 2)
    world.stock(1, "a")
    world.hear(se.WorkerCame(ConnId(8), worker_id(1), "w1", (), blobs=True))
    assert not world.machine.holders(sha("a"))
    world.stock(8, "a", whole=True, serves=True)
    world.hear(se.WorkerWent(ConnId(1)))
    assert list(world.machine.holders(sha("a"))) == [worker_id(1)]
