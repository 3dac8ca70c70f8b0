"""Which caches go, and which stay: those that an accepted job names."""

from __future__ import annotations

import pytest
from tests.kit.files_world import World, file

from wakugumi.core.files import events as se
from wakugumi.limits.files import CACHE_TTL_S
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
