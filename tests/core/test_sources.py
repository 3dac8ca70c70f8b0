"""Who fetches what from whom: scripts of event and effect."""

from __future__ import annotations

import pytest
from tests.core.spread_world import World, sha, source, worker_id

from wakugumi.core import spread_events as se
from wakugumi.core.events import Complain
from wakugumi.core.job import ConnId
from wakugumi.limits import (
    FETCH_TRIES_MAX,
    LEADER_TRANSFERS_MAX,
    SOURCE_REST_S,
    STOCK_BLOBS_MAX,
    TRANSFER_GRACE_S,
    WANTS_PER_WORKER_MAX,
)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.spec("C8")
def test_the_leader_gives_two_copies_and_then_workers_serve_each_other(world: World) -> None:
    world.join(1, 2, 3, 4)
    for number in (1, 2):
        world.want(number)
        assert world.one() == source(number, None)
    for number in (3, 4):
        world.want(number)
        world.silence()
    world.stock(1, "a")
    assert world.one() == source(3, 1)
    world.stock(2, "a")
    assert world.one() == source(4, 2)
    assert set(world.machine.holders(sha("a"))) == {worker_id(1), worker_id(2)}


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
    world.join(1, 2)
    world.stock(1, "a", "b", "c", "d")
    for letter, want in (("a", 21), ("b", 22), ("c", 23)):
        world.want(2, letter, want=want)
        assert world.one() == source(2, 1, letter, want)
        world.want(2, letter, want=want, why="lied")
        *complaint, given = world.said()
        assert given == source(2, None, letter, want)
        assert [effect.conn for effect in complaint if isinstance(effect, Complain)] == [1] * (letter == "c")
        world.stock(2, letter)
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


def test_a_busy_source_is_only_waited_for(world: World) -> None:
    world.join(1, 2)
    world.stock(1, "a")
    world.want(2)
    assert world.one() == source(2, 1)
    world.want(2, why="busy")
    world.silence()
    world.pass_time(1.0)
    assert world.one() == source(2, 1)


def test_a_fetcher_that_leaves_frees_its_source(world: World) -> None:
    world.join(1, 2, 3)
    world.stock(1, "a")
    world.want(2)
    assert world.one() == source(2, 1)
    world.want(3)
    world.silence()
    world.hear(se.WorkerWent(ConnId(2)))
    assert world.one() == source(3, 1)


def test_a_transfer_that_takes_too_long_frees_its_source_and_its_end_is_still_heard(world: World) -> None:
    world.join(1, 2, 3)
    world.stock(1, "a")
    world.want(2)
    assert world.one() == source(2, 1)
    world.want(3)
    world.silence()
    world.pass_time(TRANSFER_GRACE_S + 1)
    assert world.one() == source(3, 1)
    world.want(2, why="slow")
    world.silence()  # As good as a new want: it waits for a free source.
    world.stock(2, "a")
    assert worker_id(2) in world.machine.holders(sha("a"))


def test_content_of_nobody_has_no_source(world: World) -> None:
    world.join(1, 2)
    world.want(1, here=False)
    no = world.one()
    assert isinstance(no, se.SendNoSource)
    assert no.code == "no-blob"
    world.stock(2, "a")
    world.want(1, here=False)
    assert world.one() == source(1, 2)
    world.hear(se.WorkerWent(ConnId(2)))
    world.want(1, why="dead", here=False)
    no = world.one()
    assert isinstance(no, se.SendNoSource)


def test_a_want_that_every_source_fails_is_told_so_in_the_end(world: World) -> None:
    world.join(1)
    world.want(1)
    for _ in range(FETCH_TRIES_MAX - 1):
        assert world.one() == source(1, None)
        world.want(1, why="dead")
        world.wait(10.0)
    assert world.one() == source(1, None)
    world.want(1, why="dead")
    no = world.one()
    assert isinstance(no, se.SendNoSource)
    assert "20 sources failed" in no.text


def test_the_leader_gives_a_bounded_number_of_copies_in_all(world: World) -> None:
    world.join(1)
    letters = "abcdefghijkl"
    for at, letter in enumerate(letters, start=1):
        world.want(1, letter, want=at)
        assert len(world.said()) == (at <= LEADER_TRANSFERS_MAX)
    world.stock(1, "a")
    assert len(world.said()) == 1
    for letter in letters[1:]:
        world.stock(1, letter)
        world.said()
    assert world.machine.sources.counters().waiting == 0


def test_a_place_of_its_own_gives_any_number_at_once() -> None:
    world = World(place_bounded=False)
    world.join(*range(1, 21))
    for number in range(1, 21):
        world.want(number)
        assert world.one() == source(number, None)


def test_a_worker_wants_and_holds_no_more_than_it_may(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.sources.STOCK_BLOBS_MAX", 3)
    assert STOCK_BLOBS_MAX >= 100_000
    world.join(1, 2)
    world.stock(1, "a", "b", "c", "d")
    assert not world.machine.holders(sha("d"))
    for want in range(1, WANTS_PER_WORKER_MAX + 1):
        world.want(2, "z", want=want)
        world.said()
    world.want(2, "z", want=WANTS_PER_WORKER_MAX + 1)
    no = world.one()
    assert isinstance(no, se.SendNoSource)
    assert no.code == "full"


def test_a_worker_that_wants_what_it_said_it_had_does_not_have_it(world: World) -> None:
    world.join(1)
    world.stock(1, "a")
    world.want(1)
    assert world.one() == source(1, None)
    assert not world.machine.holders(sha("a"))


def test_a_whole_stock_takes_the_place_of_what_was_said_before(world: World) -> None:
    world.join(1)
    world.stock(1, "a", "b")
    world.stock(1, "b", whole=True, serves=True)
    assert not world.machine.holders(sha("a"))
    assert list(world.machine.holders(sha("b"))) == [worker_id(1)]


def test_a_second_connection_of_a_worker_ends_the_first(world: World) -> None:
    world.join(1, 2)
    world.stock(1, "a")
    world.hear(se.WorkerCame(ConnId(8), worker_id(1), "w1", (), blobs=True))
    assert not world.machine.holders(sha("a"))
    world.stock(8, "a", whole=True, serves=True)
    world.hear(se.WorkerWent(ConnId(1)))
    assert list(world.machine.holders(sha("a"))) == [worker_id(1)]
