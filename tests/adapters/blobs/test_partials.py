"""Which transfers were left half-way, and how much room does what has come of them take?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.cache_world import World, kib

from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.errors import Refused
from wakugumi.limits.files import PARTIAL_TTL_S
from wakugumi.limits.units import KIB
from wakugumi.wire.messages.references import BlobRef


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "cache", bytes_max=100 * KIB)
    yield world
    world.check()
    world.folder.close()


def begun(world: World, count: int, seed: int, of: int = 50) -> BlobRef:
    """So many KiB of a content have come, and then no more."""
    content = kib(of, seed)
    ref = ref_of_bytes(content)
    world.folder.make_room(ref)
    incoming = world.folder.store.begin(ref)
    incoming.write(content[: count * KIB])
    incoming.close()
    world.folder.not_coming(ref)
    return ref


def left(world: World) -> list[str]:
    return sorted(os.listdir(world.path / ".blobs" / ".incoming"))


@pytest.mark.spec("C6")
def test_what_has_come_of_a_transfer_takes_room_and_goes_before_what_is_whole(world: World) -> None:
    whole = world.bring(kib(10))
    first, second = begun(world, 30, 1), begun(world, 30, 2)
    assert left(world) == sorted([first.sha256, second.sha256])
    world.bring(kib(35, 3))
    assert left(world) == [second.sha256], "the older one was in the way"
    assert world.held(whole) == [True]
    assert not world.gone, "nobody was told that it was here"


def test_whoever_goes_on_with_a_transfer_finds_what_has_come(world: World) -> None:
    ref = begun(world, 60, 1, of=90)
    other = begun(world, 5, 2, of=9)
    world.folder.make_room(ref)
    assert world.folder.store.received(ref.sha256) == 60 * KIB
    assert left(world) == sorted([ref.sha256, other.sha256]), "together they fit"
    with pytest.raises(Refused):
        world.folder.make_room(BlobRef("ab" * 32, 20 * KIB))
    assert left(world) == sorted([ref.sha256, other.sha256]), "what would not help is not removed"
    world.folder.not_coming(ref)


def test_a_transfer_that_nobody_goes_on_with_is_given_up_also_while_the_worker_lives(world: World) -> None:
    ref = begun(world, 10, 1)
    world.folder.sweep(time.time() + PARTIAL_TTL_S - 60)
    assert left(world) == [ref.sha256]
    world.folder.sweep(time.time() + PARTIAL_TTL_S + 60)
    assert left(world) == []
    world.folder.empty_trash()
    assert os.listdir(world.path / ".trash") == []


def test_one_that_is_under_way_is_not_given_up(world: World) -> None:
    ref = begun(world, 10, 1)
    world.folder.make_room(ref)
    world.folder.sweep(time.time() + PARTIAL_TTL_S + 60)
    assert left(world) == [ref.sha256]
    world.folder.not_coming(ref)


@pytest.mark.spec("C6")
def test_what_was_left_in_an_earlier_life_takes_room_too(world: World) -> None:
    refs = [begun(world, 40, seed) for seed in (1, 2)]
    then = time.time() - 60
    os.utime(world.path / ".blobs" / ".incoming" / refs[1].sha256, (then, then))
    world.again()
    world.bring(kib(30, 3))
    assert left(world) == [refs[0].sha256], "the older one went"
