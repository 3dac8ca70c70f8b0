"""Answers that nobody reads have a bounded memory, and it is those that do not read who are cut off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.connections.unread_answers import UnreadAnswers
from wakugumi.limits.units import KIB, MIB
from wakugumi.limits.wire import UNREAD_GRACE_S

pytestmark = pytest.mark.spec("O6")

LATER = 10 * UNREAD_GRACE_S


def test_the_one_with_most_unread_goes_first() -> None:
    unread: UnreadAnswers[str] = UnreadAnswers(16 * MIB)
    owed = {"little": 2 * MIB, "most": 8 * MIB, "much": 5 * MIB}
    for who, size in owed.items():
        assert not unread.grew(who, size, 0, 0.0)
    assert unread.grew("little", 2 * MIB, 2 * MIB, LATER)
    owed["little"] += 2 * MIB
    assert unread.surplus(LATER, owed.__getitem__) == ["most"]
    assert unread.bytes == 9 * MIB
    unread.check()


def test_who_reads_is_not_cut_off_for_those_that_do_not() -> None:
    unread: UnreadAnswers[str] = UnreadAnswers(16 * MIB)
    unread.grew("reads", 12 * MIB, MIB, 0.0)
    unread.grew("reads", MIB, 11 * MIB, LATER)  # Two of the thirteen before were read.
    unread.grew("stands", 2 * MIB, MIB, 0.0)
    assert unread.grew("stands", 2 * MIB, 3 * MIB, LATER)
    assert unread.surplus(LATER, {"reads": 12 * MIB, "stands": 5 * MIB}.__getitem__) == ["stands"]
    unread.check()


def test_who_has_just_stopped_to_read_goes_after_those_that_have_not_read_for_long() -> None:
    unread: UnreadAnswers[str] = UnreadAnswers(16 * MIB)
    unread.grew("long since", 2 * MIB, 0, 0.0)
    assert unread.grew("just now", 15 * MIB, 0, LATER)
    assert unread.surplus(LATER, {"long since": 2 * MIB, "just now": 15 * MIB}.__getitem__) == ["long since"]


def test_nobody_goes_for_what_was_read_meanwhile() -> None:
    unread: UnreadAnswers[str] = UnreadAnswers(MIB)
    unread.grew("a", MIB, MIB, 0.0)
    assert unread.grew("b", KIB, MIB, 1.0)
    assert unread.surplus(1.0, {"a": 10 * KIB, "b": MIB}.__getitem__) == []
    assert unread.bytes == 11 * KIB
    unread.ended("a")
    unread.ended("a")
    assert (len(unread), unread.bytes) == (1, KIB)


def test_those_that_read_go_if_they_alone_are_too_many() -> None:
    unread: UnreadAnswers[int] = UnreadAnswers(16 * MIB)
    for who in range(9):
        unread.grew(who, 2 * MIB + who, 10 * MIB, 0.0)
    assert unread.surplus(1.0, lambda who: 2 * MIB + who) == [8, 7]
    unread.check()


@given(
    st.lists(
        st.tuples(st.sampled_from(["grew", "grew", "read", "ended"]), st.integers(0, 5), st.integers(1, 4 * MIB)),
        max_size=80,
    )
)
def test_whatever_comes_the_memory_is_bounded(steps: list[tuple[str, int, int]]) -> None:
    unread: UnreadAnswers[int] = UnreadAnswers(8 * MIB)
    buffered = dict.fromkeys(range(6), MIB)
    now = 0.0
    for what, who, size in steps:
        now += 1.0
        if what == "read":
            buffered[who] = max(0, buffered[who] - size)
        elif what == "ended":
            buffered[who] = 0
            unread.ended(who)
        else:
            must_go = unread.grew(who, size, buffered[who], now)
            buffered[who] += size
            if must_go:
                for gone in unread.surplus(now, buffered.__getitem__):
                    buffered[gone] = MIB
        unread.check()
