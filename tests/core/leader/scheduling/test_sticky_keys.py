"""Where a key is at home: spread evenly, remembered, and moved only if its worker is lost or has too many."""

from __future__ import annotations

import subprocess
import sys
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakugumi.core.ids import WorkerId
from wakugumi.core.leader.scheduling.sticky_keys import StickyKeys

KEYS = [f"key {number}" for number in range(1_000)]


def workers(count: int, world: int = 0) -> list[WorkerId]:
    return [WorkerId(bytes([world, number]) * 8) for number in range(count)]


def homes_of(sticky_keys: StickyKeys, keys: list[str]) -> dict[str, WorkerId]:
    found = {key: home for key in keys if (home := sticky_keys.home_of(key)) is not None}
    sticky_keys.check()
    assert len(found) == len(keys)
    return found


def most(found: dict[str, WorkerId]) -> int:
    return max(list(found.values()).count(worker) for worker in set(found.values()))


@pytest.mark.spec("L2")
@pytest.mark.parametrize("world", range(20))
def test_losing_one_of_eight_moves_its_own_keys_alone_and_nobody_has_more_than_five_quarters(world: int) -> None:
    all_workers = workers(8, world)
    sticky_keys = StickyKeys()
    sticky_keys.settle(all_workers)
    before = homes_of(sticky_keys, KEYS)
    assert most(before) <= 1.25 * len(KEYS) / 8
    for lost in all_workers:
        sticky_keys.settle(worker for worker in all_workers if worker != lost)
        after = homes_of(sticky_keys, KEYS)
        moved = [key for key in KEYS if before[key] != after[key]]
        assert all(before[key] == lost for key in moved)
        assert len(moved) <= (1 / 8 + 0.05) * len(KEYS)
        assert most(after) <= 1.25 * len(KEYS) / 7
        sticky_keys.settle(all_workers)
        before = homes_of(sticky_keys, KEYS)


@pytest.mark.spec("L2")
def test_after_a_join_only_keys_above_the_bound_move() -> None:
    sticky_keys = StickyKeys()
    sticky_keys.settle(workers(4))
    before = homes_of(sticky_keys, KEYS)
    sticky_keys.settle(workers(5))
    after = homes_of(sticky_keys, KEYS)
    counts = [list(before.values()).count(worker) for worker in workers(4)]
    assert sum(before[key] != after[key] for key in KEYS) == sum(max(0, count - 250) for count in counts)
    assert most(after) <= 250
    sticky_keys.settle(workers(40))
    assert most(homes_of(sticky_keys, KEYS)) <= 31


def test_the_homes_are_the_same_in_every_process() -> None:
    code = (
        "from wakugumi.core.leader.scheduling.sticky_keys import StickyKeys\n"
        "homes = StickyKeys()\n"
        "homes.settle(bytes([0, number]) * 8 for number in range(8))\n"
        "print([homes.home_of(f'key {number}')[1] for number in range(100)])"
    )
    told = {
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True).stdout
        for seed in ("1", "2")
    }
    sticky_keys = StickyKeys()
    sticky_keys.settle(workers(8))
    assert told == {f"{[home[1] for home in homes_of(sticky_keys, KEYS[:100]).values()]}\n".encode()}


def test_what_was_not_asked_for_longest_is_forgotten() -> None:
    sticky_keys = StickyKeys(keys_max=3)
    sticky_keys.settle(workers(2))
    for key in ("a", "b", "c", "a", "d", "e"):
        sticky_keys.home_of(key)
        sticky_keys.check()
    assert len(sticky_keys) == 3
    assert list(sticky_keys._home) == ["a", "d", "e"]


def test_without_workers_nothing_has_a_home() -> None:
    sticky_keys = StickyKeys()
    assert sticky_keys.home_of("a") is None
    sticky_keys.settle(workers(1))
    assert sticky_keys.home_of("a") == workers(1)[0]
    sticky_keys.settle([])
    assert sticky_keys.home_of("a") is None
    sticky_keys.check()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.sets(st.integers(0, 9)), st.integers(0, 40)), max_size=60), st.integers(1, 20))
def test_whatever_happens_a_home_is_there_and_below_the_bound(script: list[set[int] | int], keys_max: int) -> None:
    sticky_keys = StickyKeys(keys_max)
    present: set[WorkerId] = set()
    for what in script:
        if isinstance(what, set):
            present = {workers(10)[number] for number in what}
            sticky_keys.settle(present)
        else:
            home = sticky_keys.home_of(str(what))
            assert home in present if present else home is None
            assert home == sticky_keys.home_of(str(what)), "asked again, it has not moved"
            if home is not None:
                mean = len(sticky_keys) / len(present)
                assert sticky_keys._counts[home] <= max(1.25 * mean, ceil(mean))
        sticky_keys.check()
