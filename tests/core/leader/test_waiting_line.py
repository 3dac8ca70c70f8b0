"""The lowest place is first, whenever its owner came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.leader.waiting_line import WaitingLine


def test_an_empty_line_has_no_first() -> None:
    assert WaitingLine[str]().first() == 0


def test_one_that_comes_back_stands_where_it_stood() -> None:
    line: WaitingLine[str] = WaitingLine()
    for place, who in enumerate("abc", start=1):
        line.add(place, who)
    assert line.at.pop(1) == "a"
    assert line.first() == 2
    line.add(1, "a")
    assert line.first() == 1


def test_who_leaves_and_comes_back_in_a_circle_fills_no_memory() -> None:
    line: WaitingLine[str] = WaitingLine()
    for place in (1, 2, 3):
        line.add(place, "who")
    for _ in range(1_000):
        del line.at[2]
        line.add(2, "who")
        line.check()
    assert len(line._late) < 100


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 20)), max_size=100))
def test_whoever_comes_and_goes_the_first_is_found(script: list[tuple[bool, int]]) -> None:
    line: WaitingLine[int] = WaitingLine()
    for comes, place in script:
        if not comes:
            line.at.pop(place, None)
        elif place not in line.at:
            line.add(place, -place)
        line.check()
        assert line.first() == min(line.at, default=0)
    for place in sorted(line.at):
        assert line.take_first() == -place
        line.check()
