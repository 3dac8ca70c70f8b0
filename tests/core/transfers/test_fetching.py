"""Does each need end, is no source left busy, and is nothing fetched twice? The machine alone, act by act."""

from __future__ import annotations

from typing import Any

import pytest

from wakugumi.core.flows import Abandon, ActFailed, Answered, Perform
from wakugumi.core.transfers import fetch_events as ev
from wakugumi.core.transfers.fetching import FetchBounds, FetchMachine, Size
from wakugumi.errors import Refused
from wakugumi.limits.files import FETCH_TRIES_MAX, FETCHES_MAX, LARGE_TRANSFERS_MAX, WANTS_OPEN_MAX

A, B = "a" * 64, "b" * 64
SMALL, LARGE = 10, 1_000
NEED_A, NEED_B = ev.Need(A, SMALL), ev.Need(B, SMALL)
BY_NAME = ev.Need(cache_id="cache", name="file")


class Desk:
    """A machine at the hands of a test. A look at the disk is answered at once, a fetch by `ends`."""

    def __init__(self, *, leader: bool = True) -> None:
        self.now = 0.0
        self.machine = FetchMachine(0.0, lambda: 0.5, FetchBounds(large_bytes=100))
        self.disk: set[str] = set()
        self.fetches: dict[int, ev.FetchBlob] = {}
        self.ended: list[ev.NeedEnded] = []
        self.wants: list[ev.SendWant] = []
        if leader:
            self.hear(ev.BlobsOffered())

    def hear(self, *events: ev.FetchEvent) -> None:
        self._do(self.machine.handle(events, self.now).do)

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (wake_at := self.machine.wake_at()) is not None and wake_at <= until:
            self.now = wake_at
            self._do(self.machine.tick(wake_at).do)
        self.now = until

    def needs(self, *needs: ev.Need, waiter: str = "job", soon: bool = False) -> None:
        self.hear(*(ev.ContentNeeded(need, waiter, soon) for need in needs))

    def drops(self, need: ev.Need, waiter: str = "job") -> None:
        self.hear(ev.NeedDropped(need, waiter))

    def names(self, want: ev.SendWant, url: str = "http://w", sha256: str = "", size: int = SMALL) -> None:
        self.hear(ev.SourceNamed(want.want, sha256, size, url))

    def ends(self, error: Exception | None = None, sha256: str = A) -> None:
        number = next(number for number, act in self.fetches.items() if act.sha256 == sha256)
        del self.fetches[number]
        if error is None:
            self.disk.add(sha256)
        self.hear(Answered(number, None) if error is None else ActFailed(number, error))

    def take_wants(self) -> list[ev.SendWant]:
        wants, self.wants = self.wants, []
        return wants

    @property
    def told(self) -> list[tuple[object, str]]:
        """Waiters, each with the hash it got or the code of the refusal."""
        return [(end.waiter, end.error.code if end.error else end.sha256) for end in self.ended]

    def _do(self, effects: Any) -> None:
        looks = []
        for effect in effects:
            match effect:
                case Perform(number, ev.IsBlobHere() as look):
                    looks.append(Answered(number, look.sha256 in self.disk))
                case Perform(number, ev.FetchBlob() as fetch):
                    self.fetches[number] = fetch
                case Abandon(number):
                    self.fetches.pop(number, None)
                case ev.NeedEnded():
                    self.ended.append(effect)
                case ev.SendWant():
                    self.wants.append(effect)
        if looks:
            self.hear(*looks)
        else:
            self.machine.check()


def test_a_need_is_asked_for_fetched_and_told() -> None:
    desk = Desk()
    desk.needs(NEED_A)
    (want,) = desk.take_wants()
    assert (want.need, want.failed_url) == (NEED_A, None)
    desk.names(want)
    (fetch,) = desk.fetches.values()
    assert (fetch.sha256, fetch.url) == (A, "http://w")
    desk.ends()
    assert desk.told == [("job", A)]
    assert not desk.machine.by_want
    assert not desk.take_wants(), "the arrival frees the source"


def test_two_waiters_of_one_content_share_the_transfer() -> None:
    desk = Desk()
    desk.needs(NEED_A, waiter="one")
    desk.needs(NEED_A, waiter="two")
    (want,) = desk.take_wants()
    desk.names(want)
    desk.drops(NEED_A, "one")
    desk.ends()
    assert desk.told == [("two", A)]


def test_a_content_that_came_meanwhile_is_not_fetched() -> None:
    desk = Desk()
    desk.needs(NEED_A)
    desk.disk.add(A)
    desk.names(*desk.take_wants())
    assert desk.told == [("job", A)]
    assert not desk.take_wants()


def test_a_name_and_a_hash_of_the_same_content_share_one_transfer_and_free_one_source() -> None:
    desk = Desk()
    desk.needs(NEED_A, BY_NAME)
    first, second = desk.take_wants()
    desk.names(first, "http://one")
    desk.names(second, "http://two", A)
    (given_up,) = desk.take_wants()
    assert (given_up.want, given_up.failed_url, given_up.why) == (second.want, "http://two", "given-up")
    assert len(desk.fetches) == 1
    desk.ends(ev.InVain("dead", "gone"))
    assert not desk.told, "the second waits for the tries of the first"
    (again,) = desk.take_wants()
    desk.names(again)
    desk.ends()
    assert sorted(end.need for end in desk.ended) == sorted([NEED_A, BY_NAME])
    assert not desk.take_wants()


def test_a_waiter_beside_another_transfer_leaves_it_alone_when_it_drops_its_need() -> None:
    desk = Desk()
    desk.needs(NEED_A, BY_NAME)
    first, second = desk.take_wants()
    desk.names(first)
    desk.names(second, "http://two", A)
    desk.drops(BY_NAME)
    desk.drops(NEED_A)
    assert len(desk.fetches) == 1, "a transfer that has begun continues"
    desk.ends()
    assert not desk.told
    assert not desk.machine.by_want


@pytest.mark.parametrize(("why", "code"), [("lied", "blob-broken"), ("dead", "worker-error")])
def test_each_failure_is_told_to_the_leader_and_the_last_ends_the_need(why: str, code: str) -> None:
    desk = Desk()
    desk.needs(NEED_A)
    for number in range(FETCH_TRIES_MAX):
        desk.wait(10)
        (want,) = desk.take_wants()
        assert (want.failed_url, want.why) == (("http://w", why) if number else (None, ""))
        desk.names(want)
        desk.ends(ev.InVain(why, "bad"))
    assert desk.told == [("job", code)]
    (given_up,) = desk.take_wants()
    assert (given_up.failed_url, given_up.why) == ("http://w", "given-up"), "the last source is free for others"


def test_the_second_try_follows_at_once_and_later_ones_after_growing_pauses() -> None:
    desk = Desk()
    desk.needs(NEED_A)
    pauses = []
    for _ in range(10):
        began = desk.now
        while not desk.wants:
            desk.wait(0.05)
        pauses.append(desk.now - began)
        desk.names(*desk.take_wants())
        desk.ends(ev.InVain("busy", "full"))
    assert pauses[:2] == [0, 0]
    assert pauses == sorted(pauses)
    assert 4.9 < pauses[-1] < 5.1


def test_a_need_dropped_between_two_tries_frees_the_source_of_the_first() -> None:
    desk = Desk()
    desk.needs(NEED_A)
    for _ in range(2):
        desk.names(*desk.take_wants())
        desk.ends(ev.InVain("dead", "gone"))
    desk.drops(NEED_A)
    (given_up,) = desk.take_wants()
    assert given_up.why == "given-up"
    assert not desk.machine.by_want
    assert desk.machine.wake_at() is None


def test_a_transfer_without_a_waiter_ends_with_its_first_failure() -> None:
    desk = Desk()
    desk.needs(NEED_A)
    desk.names(*desk.take_wants())
    desk.drops(NEED_A)
    desk.ends(ev.InVain("dead", "gone"))
    (given_up,) = desk.take_wants()
    assert given_up.why == "given-up"
    assert not desk.machine.by_want


def test_a_failure_of_this_worker_ends_the_need_at_once_and_frees_the_source() -> None:
    desk = Desk()
    desk.needs(NEED_A)
    desk.names(*desk.take_wants())
    desk.ends(Refused("disk", "full"))
    assert desk.told == [("job", "disk")]
    assert [want.why for want in desk.take_wants()] == ["given-up"]


def test_a_leader_that_has_no_source_ends_the_need() -> None:
    desk = Desk()
    desk.needs(NEED_A)
    (want,) = desk.take_wants()
    desk.hear(ev.SourceNamed(want.want, code="no-blob", message="never heard of it"))
    assert desk.told == [("job", "no-blob")]
    assert not desk.take_wants()


def test_open_wants_go_to_the_next_leader_and_sources_of_the_lost_one_are_forgotten() -> None:
    desk = Desk()
    desk.needs(NEED_A, NEED_B)
    first, second = desk.take_wants()
    desk.names(first)
    desk.hear(ev.OfferLost())
    desk.names(second)
    assert len(desk.fetches) == 1, "a late answer of the lost leader does not count"
    desk.wait(100)
    assert not desk.take_wants()
    desk.hear(ev.BlobsOffered())
    (again,) = desk.take_wants()
    assert again.want == second.want
    desk.ends(ev.InVain("dead", "gone"))
    (want,) = desk.take_wants()
    assert want.failed_url == "http://w"


def test_a_failure_at_a_lost_leader_is_not_told_to_the_next() -> None:
    desk = Desk()
    desk.needs(NEED_A)
    desk.names(*desk.take_wants())
    desk.hear(ev.OfferLost())
    desk.ends(ev.InVain("dead", "gone"))
    desk.hear(ev.BlobsOffered())
    (want,) = desk.take_wants()
    assert want.failed_url is None


@pytest.mark.parametrize("is_lost_at_once", [False, True])
def test_a_leader_that_comes_and_goes_in_one_batch_leaves_nothing_hanging(is_lost_at_once: bool) -> None:
    desk = Desk(leader=False)
    desk.needs(NEED_A)
    desk.hear(ev.BlobsOffered(), *([ev.OfferLost()] if is_lost_at_once else []))
    assert len(desk.take_wants()) == (not is_lost_at_once)
    desk.hear(ev.OfferLost(), ev.BlobsOffered())
    (want,) = desk.take_wants()
    desk.names(want)
    desk.ends()
    assert desk.told == [("job", A)]


def test_a_leader_without_blobs_ends_all_needs_but_those_on_their_way() -> None:
    desk = Desk()
    desk.needs(NEED_A, NEED_B, BY_NAME)
    desk.names(desk.take_wants()[0])
    desk.hear(ev.OfferLost())
    desk.hear(ev.NoBlobsOffered())
    assert desk.told == [("job", "no-blob"), ("job", "no-cache")]
    desk.ends()
    assert desk.told[2:] == [("job", A)]


def test_a_transfer_that_fails_beside_a_leader_without_blobs_ends_its_need() -> None:
    desk = Desk()
    desk.needs(NEED_A)
    desk.names(*desk.take_wants())
    desk.hear(ev.OfferLost())
    desk.hear(ev.NoBlobsOffered())
    assert not desk.told
    desk.ends(ev.InVain("dead", "gone"))
    desk.wait(10)
    assert desk.told == [("job", "no-blob")]


def test_a_dropped_need_does_not_wait_for_another_of_the_same_content() -> None:
    desk = Desk()
    desk.needs(NEED_A, BY_NAME)
    first, second = desk.take_wants()
    desk.names(first)
    desk.drops(BY_NAME)
    desk.names(second, "http://two", A)
    assert [want.why for want in desk.take_wants()] == ["given-up"]
    assert [fetch.need for fetch in desk.machine.by_want.values()] == [NEED_A]


def test_a_need_that_comes_and_goes_in_one_batch_asks_nobody() -> None:
    desk = Desk()
    desk.hear(ev.ContentNeeded(NEED_A, "job"), ev.NeedDropped(NEED_A, "job"))
    assert not desk.take_wants()
    desk.hear(ev.ContentNeeded(NEED_A, "job"), ev.OfferLost(), ev.NoBlobsOffered())
    assert desk.told == [("job", "no-blob")]
    assert not desk.machine.by_want


def test_an_answer_to_nobody_or_twice_changes_nothing() -> None:
    desk = Desk()
    desk.needs(NEED_A)
    (want,) = desk.take_wants()
    desk.hear(ev.SourceNamed(99, url="http://w"))
    desk.hear(ev.SourceNamed(want.want, url="http://one"), ev.SourceNamed(want.want, url="http://two"))
    desk.names(want, "http://three")
    assert [fetch.url for fetch in desk.fetches.values()] == ["http://one"]
    desk.drops(NEED_B)
    desk.drops(NEED_A, "stranger")
    desk.ends()
    assert desk.told == [("job", A)]


def test_so_many_are_asked_for_and_so_many_fetched_at_once_and_hurried_ones_go_first() -> None:
    desk = Desk()
    desk.needs(*(ev.Need(f"{number:064}", SMALL) for number in range(40)))
    desk.needs(NEED_A, soon=True)
    wants = desk.take_wants()
    assert len(wants) == WANTS_OPEN_MAX
    for want in wants:
        desk.names(want)
    assert len(desk.fetches) == FETCHES_MAX
    desk.ends(sha256=next(iter(desk.fetches.values())).sha256)
    assert [want.need for want in desk.take_wants()] == [NEED_A]


def test_large_ones_wait_for_their_like_and_small_ones_overtake_them() -> None:
    desk = Desk()
    desk.needs(*(ev.Need(f"{number:064}", LARGE) for number in range(5)), NEED_A)
    wants = desk.take_wants()
    assert [want.need.size for want in wants] == [LARGE] * LARGE_TRANSFERS_MAX + [SMALL]
    assert desk.machine.line.taken == {Size.LARGE: LARGE_TRANSFERS_MAX, Size.UNKNOWN: 0, Size.SMALL: 1}


def test_one_large_file_of_a_cache_too_many_is_given_back_and_wanted_later() -> None:
    desk = Desk()
    desk.needs(*(ev.Need(f"{number:064}", LARGE) for number in range(LARGE_TRANSFERS_MAX)), BY_NAME)
    *large, by_name = desk.take_wants()
    for want in large:
        desk.names(want)
    desk.names(by_name, "http://two", A, LARGE)
    (given_up,) = desk.take_wants()
    assert (given_up.failed_url, given_up.why) == ("http://two", "given-up")
    desk.ends(sha256=large[0].need.sha256)
    (again,) = desk.take_wants()
    assert (again.want, again.failed_url) == (by_name.want, None)
    desk.names(again, "http://two", A, LARGE)
    desk.ends()
    assert desk.told[-1] == ("job", A)


def test_an_unforeseen_failure_ends_this_need_alone() -> None:
    desk = Desk()
    desk.needs(NEED_A, NEED_B)
    for want in desk.take_wants():
        desk.names(want)
    desk.ends(ZeroDivisionError("oh"))
    assert desk.told == [("job", "worker-error")]
    desk.ends(sha256=B)
    assert desk.told[1:] == [("job", B)]


def test_a_closed_machine_rests() -> None:
    desk = Desk()
    desk.needs(NEED_A)
    desk.names(*desk.take_wants())
    desk.machine.close()
    assert desk.machine.handle([ev.ContentNeeded(NEED_B, "job")], 1.0).do == []
