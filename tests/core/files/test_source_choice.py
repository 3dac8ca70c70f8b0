"""Which source may serve a request for a blob now? Scripts of event and effect."""

from __future__ import annotations

import pytest
from tests.kit.files_world import World, source, worker_id

from wakugumi.core.files import events as se
from wakugumi.core.ids import ConnId
from wakugumi.core.leader.events import Complain
from wakugumi.limits.files import (
    LEADER_TRANSFERS_MAX,
    SOURCE_REST_S,
)


@pytest.mark.spec("C8")
def test_a_worker_uploads_one_copy_at_a_time(world: World) -> None:
    world.join(1, 2, 3)
    world.stock(1, "a")
    world.want(2)
    assert world.one() == source(2, 1)
    world.want(3)
    world.silence()
    world.stock(2, "a")
    (given,) = world.said()
    assert given in (source(3, 1), source(3, 2))


def test_a_worker_that_does_not_serve_is_no_source(world: World) -> None:
    world.join(1, serves=False)
    world.join(2)
    world.stock(1, "a")
    world.want(2)
    assert world.one() == source(2, None)


@pytest.mark.spec("C8", "O1")
def test_only_workers_of_the_same_machine_are_sent_to_a_loopback_address(world: World) -> None:
    world.join(1, 2, near=True, near_only=True)
    world.join(3, 4)
    world.stock(1, "a")
    world.want(3)
    assert world.one() == source(3, None)
    world.want(4, here=False)
    assert isinstance(world.one(), se.SendNoSource)
    world.want(2)
    assert world.one() == source(2, 1)


@pytest.mark.spec("C8", "O1")
def test_those_that_cannot_reach_a_source_do_not_hold_up_those_behind_them(world: World) -> None:
    world.join(1, 2, near=True, near_only=True)
    world.join(3, 4, 5)
    for number in (3, 4):
        world.want(number)
        assert world.one() == source(number, None)
    world.want(5)
    world.want(2)
    world.silence()
    world.stock(1, "a")
    assert world.one() == source(2, 1)
    world.stock(3, "a")
    assert world.one() == source(5, 3)


def test_a_source_that_died_is_replaced_and_rests(world: World) -> None:
    world.join(1, 2, 3)
    world.stock(1, "a")
    world.want(3)
    assert world.one() == source(3, 1)
    world.want(3, why="dead")
    assert world.one() == source(3, None)
    world.want(2)
    assert world.one() == source(2, None), "the other one rests, also for others"
    world.hear(se.WorkerWent(ConnId(2)), se.WorkerWent(ConnId(3)))
    world.pass_time(SOURCE_REST_S)
    world.join(4)
    world.want(4)
    assert world.one() == source(4, 1)


@pytest.mark.spec("C4")
def test_who_lied_about_a_blob_never_serves_it_again(world: World) -> None:
    world.join(1, 2)
    world.stock(1, "a", "b")
    world.want(2)
    assert world.one() == source(2, 1)
    world.want(2, why="lied")
    assert world.one() == source(2, None)
    world.stock(2, "a")
    world.pass_time(SOURCE_REST_S)
    world.join(3)
    world.want(3, here=False)
    assert world.one() == source(3, 2)
    world.want(3, "b", want=33)
    assert world.one() == source(3, 1, "b", 33), "of other content it is still believed"


@pytest.mark.spec("C4")
def test_after_three_lies_nobody_fetches_from_a_worker_even_if_it_comes_back(world: World) -> None:
    world.join(1, 2, 3)
    world.stock(1, "a", "b", "c", "d")
    for letter, to in (("a", 2), ("b", 2), ("c", 3)):
        world.want(to, letter)
        assert world.one() == source(to, 1, letter)
        world.want(to, letter, why="lied")
        *complaint, given = world.said()
        assert given == source(to, None, letter)
        assert [effect.conn for effect in complaint if isinstance(effect, Complain)] == [1] * (letter == "c")
        world.stock(to, letter)
    world.hear(se.WorkerWent(ConnId(1)))
    world.hear(se.WorkerCame(ConnId(8), worker_id(1), "w1", (), blobs=True))
    world.stock(8, "d", whole=True, serves=True)
    world.want(2, "d", want=24)
    assert world.one() == source(2, None, "d", 24)


@pytest.mark.spec("C4")
def test_a_lie_is_not_forgotten_when_nobody_is_left_who_has_the_content(world: World) -> None:
    world.join(1, 2)
    world.stock(1, "a")
    world.want(2)
    assert world.one() == source(2, 1)
    world.want(2, why="lied")
    assert world.one() == source(2, None)
    world.hear(se.WorkerWent(ConnId(1)), se.WorkerWent(ConnId(2)))
    world.join(3)
    world.hear(se.WorkerCame(ConnId(8), worker_id(1), "w1", (), blobs=True))
    world.stock(8, "a", whole=True, serves=True)
    world.want(3)
    assert world.one() == source(3, None)


def test_who_accuses_everybody_is_believed_no_more(world: World) -> None:
    world.join(1, 2, 3, 4, 9, 10)
    for number in (1, 2, 3, 4):
        world.stock(number, "a")
    world.want(9, here=False)
    for _ in range(3):
        given = world.one()
        assert isinstance(given, se.SendSource)
        world.want(9, why="lied", here=False)
        world.wait(10.0)
    world.said()
    world.want(9, why="lied", here=False)
    assert any(isinstance(effect, Complain) and effect.conn == 9 for effect in world.said())
    world.want(10, here=False)
    assert isinstance(world.one(), se.SendSource), "one is left whom it accused in vain"


def test_the_leader_gives_a_bounded_number_of_copies_in_all(world: World) -> None:
    letters = "abcdefghijkl"
    world.join(*range(1, len(letters) + 1))
    for at, letter in enumerate(letters, start=1):
        world.want(at, letter)
        assert len(world.said()) == (at <= LEADER_TRANSFERS_MAX)
    world.stock(1, "a")
    assert len(world.said()) == 1
    for at, letter in enumerate(letters[1:], start=2):
        world.stock(at, letter)
        world.said()
    assert world.machine.sources.counters().waiting == 0


def test_a_place_of_its_own_gives_any_number_at_once() -> None:
    world = World(place_bounded=False)
    world.join(*range(1, 21))
    for number in range(1, 21):
        world.want(number)
        assert world.one() == source(number, None)
