"""All who have not said who they are share one budget: of number, of bytes and of time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.connections.strangers import HARD, Strangers

pytestmark = pytest.mark.spec("O6")


def few(count: int = 3, size: int = 100) -> Strangers[str]:
    return Strangers(count, size, deadline_s=10.0, spared_s=0.1)


def test_within_the_budget_nobody_is_closed_until_the_deadline() -> None:
    strangers = few()
    for at, name in enumerate("abc"):
        strangers.came(name, float(at))
    strangers.brought("b", 100)
    assert strangers.surplus(9.9) == []
    assert strangers.wake_at() == 10.0
    assert strangers.surplus(10.0) == [("a", "late")]
    assert strangers.gone("b")
    assert not strangers.gone("b")
    assert strangers.bytes == 0
    assert strangers.wake_at() == 12.0


def test_of_too_many_the_oldest_goes_but_not_before_its_hello_could_come() -> None:
    strangers = few()
    for name in "abcd":
        strangers.came(name, 1.0)
    assert strangers.surplus(1.05) == []
    assert strangers.wake_at() == 1.1
    assert strangers.surplus(1.1) == [("a", "crowd")]
    assert strangers.surplus(1.2) == []


def test_of_twice_as_many_the_oldest_goes_at_once() -> None:
    strangers = few()
    for name in "abcdefg":
        strangers.came(name, 1.0)
    assert strangers.surplus(1.0) == [("a", "crowd")]


def test_of_too_many_bytes_the_stranger_that_began_first_goes() -> None:
    strangers = few()
    for name in "abc":
        strangers.came(name, 1.0)
    strangers.brought("c", 10)
    strangers.brought("a", 60)
    strangers.brought("c", 40)
    assert strangers.surplus(1.0) == []
    strangers.brought("b", 1)
    assert strangers.surplus(1.0) == [("c", "bytes")]
    assert strangers.bytes == 61


def test_the_oldest_makes_room_but_never_for_itself() -> None:
    strangers = few()
    strangers.came("a", 1.0)
    assert strangers.oldest("a") is None
    strangers.came("b", 2.0)
    assert (strangers.oldest("a"), strangers.oldest("b")) == ("b", "a")


Steps = st.lists(
    st.tuples(st.sampled_from(["came", "brought", "gone", "wait"]), st.integers(0, 30), st.integers(0, 60)),
    max_size=150,
)


@given(Steps, st.integers(1, 8), st.integers(0, 200))
def test_whatever_they_do_the_budget_holds_and_a_prompt_hello_is_never_closed(
    steps: list[tuple[str, int, int]], count_max: int, bytes_max: int
) -> None:
    strangers: Strangers[int] = Strangers(count_max, bytes_max, deadline_s=10.0, spared_s=0.1)
    now, since, held = 0.0, dict[int, float](), dict[int, int]()
    for what, who, amount in steps:
        if what == "wait":
            now += amount / 10
        elif what == "came":
            strangers.came(who, now)
            since.setdefault(who, now)
        elif what == "brought" and who in since:
            strangers.brought(who, amount)
            held[who] = amount
        elif what == "gone":
            assert strangers.gone(who) == (who in since)
            since.pop(who, None)
            held.pop(who, None)
        for gone, why in strangers.surplus(now):
            if why == "late":
                assert now - since[gone] >= 10.0
            elif why == "crowd":
                assert all(since[gone] <= other for other in since.values())
                assert now - since[gone] >= 0.1 or len(since) > HARD * count_max
            else:
                assert sum(held.values()) > bytes_max
                assert gone in held
            since.pop(gone)
            held.pop(gone, None)
        strangers.check()
        assert len(strangers) == len(since)
        assert strangers.bytes == sum(held.values())
        wake_at = strangers.wake_at()
        assert (wake_at is None) == (not since)
        assert wake_at is None or wake_at > now, "nobody is late who was not closed"
