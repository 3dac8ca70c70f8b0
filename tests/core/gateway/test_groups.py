"""Which group gets a job: by load, by nearness, by hash; and which is not worth waiting for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.gateway.groups import HASH, LEAST_LOADED, NEAR, Capacity, GroupAt, Groups, parse_group
from wakugumi.errors import ConfigError
from wakugumi.limits.gateway import GROUP_EMPTY_S, GROUP_MISSES_MAX


def groups(choice: str = LEAST_LOADED, zone: str = "", **free: int) -> Groups:
    """Groups with ten slots each, so many of them free. Those whose names begin with f are in zone f."""
    made = Groups([GroupAt(name, f"http://{name}", name[0]) for name in free], choice, zone)
    for name, number in free.items():
        made.polled(name, Capacity(10 - number, 10, 0, number), 0.0)
    return made


@pytest.mark.spec("G4")
def test_the_least_loaded_goes_first() -> None:
    assert groups(a=2, b=9, c=5).order("x", 1.0) == ["b", "c", "a"]


def test_what_was_sent_since_the_last_poll_counts_until_it_has_ended() -> None:
    some = groups(a=9, b=7)
    for _ in range(4):
        some.sent("a")
    assert some.order("x", 1.0) == ["b", "a"]
    some.ended("a", is_over=True)
    some.ended("a", is_over=True)
    some.ended("a", is_over=True)
    assert some.order("x", 1.0) == ["a", "b"]


def test_a_job_that_we_lost_sight_of_keeps_its_slot_until_the_next_poll() -> None:
    some = groups(a=9, b=9)
    some.sent("a")
    some.ended("a", is_over=False)
    assert [some.order("x", 1.0)[0] for _ in range(4)] == ["b"] * 4
    some.polling("a")
    some.polled("a", Capacity(0, 10, 0, 10), 1.0)
    assert [some.order("x", 1.0)[0] for _ in range(4)] == ["a"] * 4


STEPS = st.lists(st.tuples(st.sampled_from(["send", "end", "ask", "say"]), st.integers(0, 1000)), max_size=80)


@pytest.mark.spec("G4")
@given(st.integers(1, 4), STEPS)
def test_what_is_free_is_what_we_left_free_whenever_a_poll_was_answered(
    limit: int, steps: list[tuple[str, int]]
) -> None:
    """Nobody else is there. What a group says is true at some moment while it is asked; jobs end and come meanwhile."""
    some = Groups([GroupAt("near", "http://a", "here"), GroupAt("far", "http://b", "there")], NEAR, "here")
    for name in ("near", "far"):
        some.polling(name)
        some.polled(name, Capacity(0, limit, 0, limit), 0.0)
    ours = 0
    moments: list[int] | None = None
    """How many it had, each time that changed since it was asked."""
    for what, number in steps:
        if what == "send":
            assert some.order("x", 1.0)[0] == ("near" if ours < limit else "far"), "near, as long as it has room"
            some.sent("near")
            ours += 1
        elif what == "end" and ours:
            some.ended("near", is_over=True)
            ours -= 1
        elif what == "ask" and moments is None:
            some.polling("near")
            moments = []
        elif what == "say" and moments is not None:
            had = [*moments, ours][number % (len(moments) + 1)]
            said = Capacity(min(had, limit), limit, max(0, had - limit), max(0, limit - had))
            some.polled("near", said, 0.0)
            moments = None
        if moments is not None:
            moments.append(ours)
        some.check()


@pytest.mark.spec("G4")
@given(st.integers(1, 8), st.lists(st.tuples(st.sampled_from(["send", "end", "lose", "poll"]), st.integers(0, 12))))
def test_what_others_have_is_known_since_the_last_poll(limit: int, steps: list[tuple[str, int]]) -> None:
    """Between two groups with as many slots, the one with more free goes first, whoever has the others."""
    some = Groups([GroupAt("a", "http://a"), GroupAt("b", "http://b")])
    some.polled("a", Capacity(0, limit, 0, limit), 0.0)
    ours, others = 0, 0
    for what, number in steps:
        if what == "send":
            some.sent("a")
            ours += 1
        elif what in {"end", "lose"} and ours:
            some.ended("a", is_over=what == "end")
            ours -= 1
            others += what == "lose"
        elif what == "poll":
            others = number
            taken = ours + others
            some.polling("a")
            some.polled("a", Capacity(min(taken, limit), limit, max(0, taken - limit), max(0, limit - taken)), 0.0)
        free = limit - ours - others
        some.check()
        for other in {free - 1, min(free + 1, limit)} - {free}:
            some.polling("b")
            some.polled("b", Capacity(min(limit, limit - other), limit, max(0, -other), max(0, other)), 0.0)
            if max(free, other) > 0:
                assert some.order("x", 1.0)[0] == ("a" if free > other else "b")


def test_equals_take_turns() -> None:
    some = groups(a=10, b=10, c=10)
    assert {some.order("x", 1.0)[0] for _ in range(6)} == {"a", "b", "c"}


def test_of_two_equally_free_the_heavier_goes_first() -> None:
    some = Groups([GroupAt("a", "http://a"), GroupAt("b", "http://b", weight=2)])
    for name in ("a", "b"):
        some.polled(name, Capacity(0, 10, 0, 10), 0.0)
    assert [some.order("x", 1.0)[0] for _ in range(4)] == ["b"] * 4


def test_a_group_whose_jobs_wait_goes_after_one_whose_do_not() -> None:
    some = groups(a=0, b=0)
    some.polled("a", Capacity(10, 10, 30, 0), 0.0)
    assert [some.order("x", 1.0)[0] for _ in range(4)] == ["b"] * 4


@pytest.mark.spec("G4")
def test_near_groups_go_first_while_they_have_room() -> None:
    some = groups(NEAR, "f", a=10, f1=1, f2=3)
    assert some.order("x", 1.0) == ["f2", "f1", "a"]
    some.polled("f1", Capacity(10, 10, 0, 0), 1.0)
    assert some.order("x", 1.0) == ["f2", "a", "f1"]


@pytest.mark.spec("G4")
def test_the_same_key_has_the_same_group_whatever_the_load() -> None:
    some = groups(HASH, a=1, b=2, c=3)
    before = [some.order(f"key{n}", 1.0) for n in range(50)]
    some.polled("a", Capacity(0, 10, 0, 10), 1.0)
    assert [some.order(f"key{n}", 1.0) for n in range(50)] == before


@pytest.mark.spec("G4")
def test_only_the_keys_of_a_group_that_goes_are_moved_and_they_come_back() -> None:
    some = groups(HASH, a=1, b=1, c=1, d=1)
    keys = [f"key{n}" for n in range(400)]
    before = {key: some.order(key, 1.0) for key in keys}
    for _ in range(GROUP_MISSES_MAX):
        some.missed("c")
    for key in keys:
        assert some.order(key, 1.0) == [name for name in before[key] if name != "c"]
    some.polled("c", Capacity(0, 10, 0, 10), 2.0)
    assert {key: some.order(key, 2.0) for key in keys} == before


def test_a_groups_share_of_the_keys_is_its_weight() -> None:
    some = Groups([GroupAt("a", "http://a"), GroupAt("b", "http://b", weight=3)], HASH)
    for name in ("a", "b"):
        some.polled(name, Capacity(0, 10, 0, 10), 0.0)
    first = [some.order(f"key{n}", 1.0)[0] for n in range(4000)]
    assert 2800 < first.count("b") < 3200


def test_a_group_that_failed_rests_longer_each_time_until_it_answers() -> None:
    some = groups(a=10, b=1)
    some.failed("a", 0.0, 0.5)
    assert some.order("x", 0.9) == ["b", "a"]
    assert some.order("x", 1.1) == ["a", "b"]
    some.failed("a", 1.1, 0.5)
    assert some.order("x", 3.0) == ["b", "a"]
    some.check()
    some.answered("a")
    assert some.order("x", 3.0) == ["a", "b"]
    some.check()


def test_what_fails_while_a_group_rests_is_the_same_failure() -> None:
    some = groups(a=10, b=1)
    for _ in range(60):
        some.failed("a", 0.0, 0.5)
    some.failed("a", 0.9, 0.5)
    assert some.order("x", 1.1) == ["a", "b"]


def test_a_group_without_workers_comes_last_and_one_that_was_full_after_those_with_room() -> None:
    some = groups(a=10, b=5, c=1)
    some.polled("a", Capacity(), 0.0)
    some.was_full("b", 0.0, 5.0)
    assert some.order("x", 1.0) == ["c", "b", "a"]
    assert some.order("x", 6.0) == ["b", "c", "a"]


def test_a_group_that_answers_no_poll_is_gone_until_it_does() -> None:
    some = groups(a=10, b=10)
    for _ in range(GROUP_MISSES_MAX):
        assert not some.is_gone("a")
        some.missed("a")
    assert some.is_gone("a")
    assert some.order("x", 1.0) == ["b"]
    assert some.capacity() == Capacity(0, 10, 0, 10)
    some.polled("a", Capacity(0, 10, 0, 10), 1.0)
    assert not some.is_gone("a")


def test_a_deserted_group_is_left_only_for_one_that_has_workers() -> None:
    some = groups(a=10, b=10)
    some.polled("a", Capacity(), 100.0)
    some.polled("a", Capacity(), 102.0)
    assert not some.is_deserted("a", 50.0, 100.0 + GROUP_EMPTY_S - 1)
    assert some.is_deserted("a", 50.0, 100.0 + GROUP_EMPTY_S)
    assert not some.is_deserted("a", 105.0, 100.0 + GROUP_EMPTY_S), "the job has only just come there"
    some.polled("b", Capacity(), 101.0)
    assert not some.is_deserted("a", 50.0, 200.0)


def test_groups_that_were_never_polled_are_tried() -> None:
    assert set(Groups([GroupAt("a", "http://a"), GroupAt("b", "http://b")]).order("x", 0.0)) == {"a", "b"}


def test_every_group_is_told_with_a_word() -> None:
    some = groups(a=10, b=5, c=1, d=1, e=1)
    some.polled("a", Capacity(), 0.0)
    some.was_full("b", 0.0, 5.0)
    some.failed("c", 0.0, 0.5)
    for _ in range(GROUP_MISSES_MAX):
        some.missed("d")
    assert [word for _, word, _ in some.states(0.5)] == ["empty", "full", "resting", "gone", "ok"]


def test_a_group_is_named_with_its_zone_and_its_weight() -> None:
    assert parse_group("a=http://h:1/") == GroupAt("a", "http://h:1")
    assert parse_group("a=http://[::1]:5081/behind/a/proxy").url == "http://[::1]:5081/behind/a/proxy"
    assert parse_group("a=https://h:1,zone=east-1,weight=2.5") == GroupAt("a", "https://h:1", "east-1", 2.5)


NO_GROUPS = """
a
a=
=http://h
a=h:1
a b=http://h
a=http://
a=http://h
a=http://h:0
a=http://h:99999
a=http://h:x
a=http://:1
a=http://[::1
a=ftp://h:1
a=http://me@h:1
a=http://h:1/x?y=1
a=http://h:1/x?
a=http://h:1#x
a=http://h:1,zone=
a=http://h:1,x=1
a=http://h:1,weight=0
a=http://h:1,weight=-1
a=http://h:1,weight=nan
a=http://h:1,weight=inf
"""


@pytest.mark.parametrize("text", NO_GROUPS.split("\n"))
def test_what_names_no_group_is_told(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_group(text)


def test_a_group_takes_files_as_its_last_report_says_unless_it_refused_one() -> None:
    some = groups(a=5, b=5)
    assert not some.takes_files("a")
    some.polled("a", Capacity(0, 10, 0, 10, takes_files=True), 1.0)
    assert (some.takes_files("a"), some.takes_files("b")) == (True, False)
    some.refused_file("a")
    assert not some.takes_files("a")
    assert some.capacity() == Capacity(5, 20, 0, 15)
    some.polled("a", Capacity(0, 10, 0, 10, takes_files=True), 2.0)
    assert some.takes_files("a")
