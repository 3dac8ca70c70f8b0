"""Which worker fetches which blob from which source? Scripts of event and effect."""

from __future__ import annotations

from collections.abc import ValuesView

import pytest
from tests.kit.files_world import KIB, World, file, sha, source, worker_id

from wakugumi.core.files import events as se
from wakugumi.core.ids import ConnId
from wakugumi.core.leader.events import Complain
from wakugumi.limits.files import (
    FETCH_TRIES_MAX,
    FETCHES_MAX,
    STOCK_BLOBS_MAX,
    TRANSFER_GRACE_S,
    WANTS_PER_WORKER_MAX,
)


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


def test_fetches_that_end_leave_no_alarm_behind(world: World) -> None:
    """The deadline of a large one is days away."""
    world.join(1, 2)
    world.stock(1, "a")
    for _ in range(500):
        world.want(2)
        assert world.one() == source(2, 1)
        world.stock(2, "a")
        world.stock(2, gone=(sha("a"),))
    assert len(world.machine._alarms) < 200


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


@pytest.mark.spec("C8")
def test_a_worker_is_given_as_many_sources_as_it_can_use_and_others_have_the_rest(world: World) -> None:
    world.join(1, 2)
    letters = "abcdefghijklmnop"
    for at, letter in enumerate(letters, start=1):
        world.want(1, letter, want=at)
        assert len(world.said()) == (at <= FETCHES_MAX)
    world.want(2, "z", want=99)
    assert world.one() == source(2, None, "z", 99)
    for at, letter in enumerate(letters, start=1):
        world.stock(1, letter)
        given = world.said()
        assert len(given) == (at + FETCHES_MAX <= len(letters)), "the next one as soon as one has come"
    assert world.machine.sources.counters().waiting == 0


@pytest.mark.spec("C8")
def test_who_gives_up_frees_its_source_and_is_sent_nowhere(world: World) -> None:
    world.join(1, 2, 3, 4)
    for number in (1, 2):
        world.want(number)
        assert world.one() == source(number, None)
    world.want(3)
    world.silence()
    world.want(1, why="given-up")
    assert world.one() == source(3, None)
    world.want(4)
    world.silence()
    world.want(3, why="given-up")
    assert world.one() == source(4, None)
    world.want(4, why="given-up")
    world.want(4, why="given-up")
    world.want(1, why="given-up", want=77)
    world.silence()  # Of what it never wanted, or not any more.
    assert world.machine.sources.counters().failed == 0


def test_a_want_in_line_of_a_blob_that_came_by_another_want_is_answered(world: World) -> None:
    """The worker wants it by its hash and as a file of a cache, and cannot know that it is the same."""
    world.join(1, 2, 3)
    for number in (1, 2):
        world.want(number)
        assert world.one() == source(number, None)
    world.want(3, want=7)
    world.want(3, want=8)
    world.silence()
    world.stock(1, "a")
    assert world.one() == source(3, 1, want=7)
    world.stock(3, "a")
    assert world.one() == source(3, None, want=8)
    assert world.machine.sources.counters().waiting == 0


@pytest.mark.spec("C8")
def test_what_one_worker_says_of_a_blob_concerns_no_other(world: World) -> None:
    world.join(1, 2, 3, 4, 5)
    size = 100 * KIB
    for number in (1, 2):
        world.want(number)
        assert world.one() == source(number, None)
    world.want(3)
    world.silence()
    world.hear(se.BlobWanted(ConnId(4), b"4" * 16, sha("a"), 1 << 40, "", "", "", here=False))
    no = world.one()
    assert isinstance(no, se.SendNoSource)
    assert no.code == "no-blob"
    world.want(2, why="dead")
    assert world.one() == source(3, None), "with its own size, and the leader has it as before"
    world.stock(1, "a")
    assert world.one() == source(2, 1)
    world.hear(se.BlobWanted(ConnId(5), b"5" * 16, sha("a"), size + 1, "", "", "", here=False))
    no = world.one()
    assert isinstance(no, se.SendNoSource)
    assert str(size) in no.text


def test_the_size_of_a_blob_is_known_of_the_cache_that_has_it(world: World) -> None:
    world.join(1, 2, serves=True)
    world.put(file("a"))
    world.said()
    world.stock(2, "a")
    world.hear(se.BlobWanted(ConnId(1), b"1" * 16, "", 0, "data", "a.bin", "", here=False))
    assert world.one() == se.SendSource(ConnId(1), b"1" * 16, sha("a"), 100 * KIB, "http://w2", "key2")
    world.hear(se.BlobWanted(ConnId(1), b"2" * 16, sha("a"), 5, "", "", "", here=True))
    assert isinstance(world.one(), se.SendNoSource)


def test_a_large_stock_beside_many_wants_is_no_more_work_than_alone(world: World) -> None:
    """The wants of a worker are looked at for the content that they name, not for each that it has."""
    world.join(1)
    looked = 0

    class Counted(dict[bytes, object]):
        def values(self) -> ValuesView[object]:  # type: ignore[override]
            nonlocal looked
            looked += 1
            return super().values()

    peer = world.machine.sources._peers[ConnId(1)]
    for want in range(1, 101):
        world.want(1, chr(64 + want), want=want)
        world.said()
    peer.wants = Counted(peer.wants)  # type: ignore[assignment]
    hashes = [f"{at:064x}" for at in range(1_000)]
    world.machine.handle([se.Stocked(ConnId(1), False, "", "", hashes, (), {})], world.now)
    assert looked < 10


def test_a_worker_wants_and_holds_no_more_than_it_may(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.files.sources.STOCK_BLOBS_MAX", 3)
    assert STOCK_BLOBS_MAX >= 100_000
    world.join(1, 2)
    world.stock(1, "a", "b", "c", "d")
    (told,) = world.said()
    assert isinstance(told, Complain)
    assert "1 of the blobs that it holds are not remembered" in told.text
    assert not world.machine.holders(sha("d"))
    for want in range(1, WANTS_PER_WORKER_MAX + 1):
        world.want(2, "z", want=want)
        world.said()
    world.want(2, "z", want=WANTS_PER_WORKER_MAX + 1)
    no = world.one()
    assert isinstance(no, se.SendNoSource)
    assert no.code == "full"


@pytest.mark.spec("O6")
def test_of_all_blobs_that_workers_claim_only_so_many_are_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.machine.sources.blobs_max = 3
    world.join(1, 2)
    world.stock(1, "a", "b")
    world.stock(2, "a", "c", "d")
    (told,) = world.said()
    assert isinstance(told, Complain)
    assert [bool(world.machine.holders(sha(name))) for name in "abcd"] == [True, True, True, False]
    world.stock(1, "a", whole=True)
    world.stock(2, "d")
    assert world.machine.holders(sha("d")), "there is room again"
    monkeypatch.setattr("wakugumi.core.files.sources.STOCKED_MAX", 4)
    world.stock(1, "c")
    (told,) = world.said()
    assert isinstance(told, Complain)
    assert len(world.machine.holders(sha("c"))) == 1


def test_a_blob_that_came_is_wanted_no_more_even_if_it_is_not_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.core.files.sources.STOCK_BLOBS_MAX", 0)
    world.join(1)
    world.want(1)
    world.said()
    world.stock(1, "a")
    assert isinstance(world.one(), Complain)
    assert not world.machine.sources.is_fetching(ConnId(1))


@pytest.mark.spec("O6")
def test_all_workers_together_want_no_more_than_so_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.files.sources.WANTS_MAX", 2)
    world.join(1, 2, 3)
    world.want(1)
    world.said()
    world.want(2)
    world.said()
    world.want(3)
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


def test_the_log_tells_no_keys() -> None:
    stocked = se.Stocked(ConnId(1), True, "http://w:1", "secret", ["a" * 64], [], {})
    source = se.SendSource(ConnId(1), bytes(16), "a" * 64, 5, "http://w:1", "secret")
    for said in (repr(stocked), repr(source)):
        assert "http://w:1" in said
        assert "secret" not in said
