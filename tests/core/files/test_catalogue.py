"""Which caches go, and which stay: those that an accepted job names."""

from __future__ import annotations

import pytest
from tests.kit.files_world import World, counts, file, put_of, sha, worker_id

from wakugumi.core.files import events as se
from wakugumi.limits.files import (
    CACHE_TTL_S,
)
from wakugumi.limits.units import MIB


@pytest.mark.spec("C5")
def test_a_cache_that_a_job_names_does_not_go_for_another_one() -> None:
    world = World(caches_max=2)
    world.machine.shelf.is_needed = {"cache:old"}.__contains__
    for cache_id in ("old", "new", "third"):
        world.put(file("a"), cache_id=cache_id)
        world.said()
    assert world.machine.shelf.caches.keys() == {"old", "third"}
    world.machine.shelf.is_needed = {"cache:old", "cache:third"}.__contains__
    world.put(file("a"), cache_id="fourth")
    summary = world.one()
    assert isinstance(summary, se.SendSummary)
    assert "no room" in summary.message
    assert world.machine.shelf.caches.keys() == {"old", "third"}


@pytest.mark.spec("C5")
def test_a_cache_that_a_job_names_does_not_go_for_anothers_bytes() -> None:
    world = World(bytes_max=3 * MIB)
    world.machine.shelf.is_needed = {"cache:old"}.__contains__
    for cache_id in ("old", "new", "third"):
        world.put(file("a", MIB + 1), cache_id=cache_id)
        world.said()
    assert world.machine.shelf.caches.keys() == {"old", "third"}


@pytest.mark.spec("C5")
def test_a_cache_that_a_job_names_does_not_get_too_old() -> None:
    world = World()
    world.machine.shelf.is_needed = {"cache:old"}.__contains__
    for cache_id in ("old", "new"):
        world.put(file("a"), cache_id=cache_id)
        world.said()
    world.pass_time(CACHE_TTL_S + 3_600)
    assert world.machine.shelf.caches.keys() == {"old"}
    world.machine.shelf.is_needed = lambda _: False
    world.pass_time(3_600)
    assert not world.machine.shelf.caches


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
