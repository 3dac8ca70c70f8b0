"""Who gets a job that names files: one that holds them, if it is free; and never one that could not fetch them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world, worker_id

from wakugumi.core.backoff import parse_policies
from wakugumi.core.ids import WorkerId
from wakugumi.core.requirements import Requirements
from wakugumi.limits.scheduling import BLOBS_PATIENCE_S, HOLDERS_WEIGHED_MAX, SLOTS_PATIENCE_S

A, B, C = "a" * 64, "b" * 64, "c" * 64
HELD: dict[str, list[WorkerId]] = {
    A: [worker_id("w2"), worker_id("w3")],
    B: [worker_id("w3")],
    "cache:data": [worker_id("w1")],
    C: [worker_id("old")],
}


def holders(file: str) -> list[WorkerId]:
    return HELD.get(file, [])


@pytest.mark.spec("C8")
@pytest.mark.parametrize(
    ("files", "taker"),
    [((A, B), "w3"), (("cache:data",), "w1"), (("d" * 64,), "w0"), ((A, B, "cache:data"), "w3"), ((), "w0")],
)
def test_a_job_goes_to_who_holds_most_of_its_files(files: tuple[str, ...], taker: str) -> None:
    with a_world(holders=holders) as world:
        desk = world.client()
        workers = {name: world.worker(name, credit=2, blobs=True) for name in ("w0", "w1", "w2", "w3")}
        workers["w0"].credit(2)  # The best of them, where nothing else counts.
        (job,) = desk.submits(1, requirements=Requirements(files=files) if files else None)
        workers[taker].gets(job)


def test_of_two_that_hold_the_same_the_better_one_is_taken() -> None:
    with a_world(holders=holders) as world:
        desk = world.client()
        world.worker("w2", credit=1, blobs=True)
        better = world.worker("w3", credit=5, blobs=True)
        (job,) = desk.submits(1, requirements=Requirements(files=(A,)))
        better.gets(job)


@pytest.mark.spec("C8")
def test_nobody_waits_for_who_holds_its_files() -> None:
    with a_world(holders=holders) as world:
        desk = world.client()
        world.worker("w3", blobs=True)
        other = world.worker("w0", credit=1, blobs=True)
        (job,) = desk.submits(1, requirements=Requirements(files=(A, B)))
        other.gets(job)


def test_who_holds_its_files_and_does_not_serve_its_subject_is_passed_over() -> None:
    with a_world(holders=holders) as world:
        desk = world.client()
        world.worker("w3", "job.assign.other", credit=9, blobs=True)
        other = world.worker("w0", credit=1, blobs=True)
        (job,) = desk.submits(1, requirements=Requirements(files=(A, B)))
        other.gets(job)


@pytest.mark.spec("L2")
def test_the_home_of_a_key_comes_before_its_files() -> None:
    with a_world(holders=holders, policies=parse_policies("sticky")) as world:
        desk = world.client()
        home = world.worker("w0", credit=1, blobs=True)
        (first,) = desk.submits(1, requirements=Requirements("k"))
        home.gets(first)
        home.acks(first)
        desk.gets_result(first)
        world.worker("w3", credit=9, blobs=True)
        home.credit(1)
        (job,) = desk.submits(1, requirements=Requirements("k", files=(A, B)))
        home.gets(job)


def test_a_job_of_several_slots_goes_to_who_holds_its_files_and_has_room() -> None:
    with a_world(holders=holders) as world:
        desk = world.client()
        world.worker("w0", credit=4, slots=4, blobs=True)
        world.worker("w3", credit=1, slots=4, blobs=True)
        near = world.worker("w2", credit=2, slots=4, blobs=True)
        (job,) = desk.submits(1, requirements=Requirements(slots=2, files=(A, B)))
        near.gets(job)


@pytest.mark.spec("C8")
@pytest.mark.parametrize("credit", [0, 1])
def test_the_one_of_many_holders_that_has_room_is_found(credit: int) -> None:
    """Whether it is one of the last of those who hold its files, or of those who have room."""
    many = [f"h{at}" for at in range(3 * HOLDERS_WEIGHED_MAX)]
    held = {A: [worker_id(name) for name in many]}
    with a_world(holders=lambda file: held.get(file, [])) as world:
        desk = world.client()
        for name in many[:-1]:
            world.worker(name, blobs=True)
        near = world.worker(many[-1], credit=1, blobs=True)
        others = [world.worker(f"o{at}", credit=2 * credit, blobs=True) for at in range(len(many))]
        others[0].credit(2)
        (job,) = desk.submits(1, requirements=Requirements(files=(A,)))
        near.gets(job)


def test_not_all_holders_are_looked_at_for_each_job() -> None:
    many = [worker_id(f"h{at}") for at in range(20 * HOLDERS_WEIGHED_MAX)]
    looked = 0

    class Counted(list[WorkerId]):
        def __iter__(self) -> Iterator[WorkerId]:
            nonlocal looked
            for worker in many:
                looked += 1
                yield worker

    with a_world(holders=lambda _file: Counted(many)) as world:
        desk = world.client()
        far = world.worker("far", credit=2, blobs=True)
        for at in range(2 * HOLDERS_WEIGHED_MAX):
            world.worker(f"h{at}", credit=1, blobs=True)
        far.credit(1)
        desk.submits(1, requirements=Requirements(files=(A,)))
        assert looked <= 2 * HOLDERS_WEIGHED_MAX
        assert not far.inbox
        for end in world.ends.values():
            end.inbox.clear()


def mixed(world: World) -> None:
    world.worker("old", old=True, credit=5)


@pytest.mark.spec("F11", "C7")
@pytest.mark.parametrize("file", [A, C])
def test_blobs_go_to_no_old_worker_while_another_serves(file: str) -> None:
    with a_world(holders=holders) as world:
        desk = world.client()
        mixed(world)
        knowing = world.worker("w0", credit=1, blobs=True)
        first, second = desk.submits(2, requirements=Requirements(files=(file,)))
        (plain,) = desk.submits(1)
        knowing.gets(first)
        assert any("blobs" in reason for reason in world.reasons(second))
        old = next(end for end in world.ends.values() if repr(end).startswith("worker b'old"))
        assert old.inbox.popleft().job == plain  # type: ignore[union-attr]
        knowing.acks(first)
        desk.gets_result(first)
        knowing.credit(1)
        knowing.gets(second)


def test_no_old_worker_is_kept_free_for_a_large_job_with_blobs() -> None:
    with a_world() as world:
        desk = world.client()
        old = world.worker("old", credit=2, slots=2)
        knows = world.worker("w0", credit=1, blobs=True, slots=2)
        (large,) = desk.submits(1, requirements=Requirements(slots=2, files=(A,)))
        world.wait(SLOTS_PATIENCE_S + 0.1)
        small, other = desk.submits(2)
        old.gets(small, other)
        knows.credit(1)
        knows.gets(large)


@pytest.mark.spec("F11")
def test_when_the_last_one_that_knows_blobs_leaves_the_old_ones_get_them() -> None:
    with a_world() as world:
        desk = world.client()
        old = world.worker("old", old=True, credit=5)
        knowing = world.worker("w0", blobs=True)
        (job,) = desk.submits(1, requirements=Requirements(files=(A,)))
        old.gets_nothing()
        knowing.leaves()
        world.wait(BLOBS_PATIENCE_S + 0.1)
        old.gets(job)


def test_a_home_that_does_not_know_blobs_is_none() -> None:
    with a_world(policies=parse_policies("sticky")) as world:
        desk = world.client()
        old = world.worker("old", old=True, credit=1)
        (first,) = desk.submits(1, requirements=Requirements("k"))
        old.gets(first)
        old.acks(first)
        desk.gets_result(first)
        old.credit(1)
        knowing = world.worker("w0", credit=1, blobs=True)
        (job,) = desk.submits(1, requirements=Requirements("k", files=(A,)))
        knowing.gets(job)


def test_a_cache_may_go_to_an_old_worker() -> None:
    with a_world() as world:
        desk = world.client()
        old = world.worker("old", old=True, credit=5)
        world.worker("w0", blobs=True)
        (job,) = desk.submits(1, requirements=Requirements(files=("cache:data",)))
        old.gets(job)
