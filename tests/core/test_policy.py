"""Which worker first, and how long until the next try."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.policy import NUMBER_MASK, POLICIES, backoff_s, most_credit, next_redial_s, round_robin, with_jitter
from wakugumi.limits import (
    CREDIT_MAX,
    JITTER_SHARE,
    RECONNECT_MAX_S,
    RECOVERY_GRACE_S,
    WORKER_PATIENCE_S,
    WORKER_RECONNECT_FIRST_S,
    WORKER_RECONNECT_SOON_S,
)

credits_ = st.integers(1, CREDIT_MAX)
runnings = st.integers(0, 100_000)
numbers = st.integers(1, NUMBER_MASK)


@pytest.mark.spec("L2")
@given(credits_, runnings, numbers, credits_, runnings, numbers)
def test_most_credit_comes_first_and_then_least_running(
    credit: int, running: int, number: int, other_credit: int, other_running: int, other_number: int
) -> None:
    before = most_credit(credit, running, 0, number) < most_credit(other_credit, other_running, 0, other_number)
    assert before == ((-credit, running, number) < (-other_credit, other_running, other_number))


@pytest.mark.spec("L2")
@given(st.integers(0, 10**15), st.integers(0, 10**15), numbers, numbers)
def test_round_robin_takes_who_waited_longest(turn: int, other_turn: int, number: int, other_number: int) -> None:
    before = round_robin(1, 0, turn, number) < round_robin(CREDIT_MAX, 9, other_turn, other_number)
    assert before == ((turn, number) < (other_turn, other_number))


@pytest.mark.parametrize("name", POLICIES)
@given(credits_, st.integers(0, 10**9), st.integers(0, 10**15), numbers, st.integers(0, 100))
def test_a_rank_names_its_worker_and_is_never_negative(
    name: str, credit: int, running: int, turn: int, number: int, load: int
) -> None:
    rank = POLICIES[name].ranking(credit, running, turn, number, load)
    assert rank & NUMBER_MASK == number
    assert rank >= 0


@pytest.mark.spec("L3")
def test_the_wait_doubles_from_one_second_to_a_minute() -> None:
    waits = [backoff_s(failures, 0.5) for failures in range(1, 9)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.spec("L3")
@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_jitter_moves_a_wait_by_at_most_a_fifth(failures: int, chance: float) -> None:
    plain = backoff_s(failures, 0.5)
    assert 0.8 * plain <= backoff_s(failures, chance) <= 1.2 * plain


def test_chance_decides_where_in_the_fifth() -> None:
    assert with_jitter(10, 0.0) == pytest.approx(8)
    assert with_jitter(10, 0.75) == pytest.approx(11)
    spread = [backoff_s(3, step / 100) for step in range(100)]
    assert all(one < other for one, other in pairwise(spread))


def test_a_worker_dials_often_at_first_and_seldom_later() -> None:
    pauses = [WORKER_RECONNECT_FIRST_S]
    while sum(pauses) < 200.0:
        pauses.append(next_redial_s(pauses[-1], sum(pauses)))
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.5]
    soon = [pause for at, pause in enumerate(pauses) if sum(pauses[:at]) < WORKER_PATIENCE_S]
    assert max(soon) == WORKER_RECONNECT_SOON_S
    assert pauses[len(soon) :][:3] == [1.0, 2.0, 4.0], "from there on it doubles"
    assert pauses[-1] == RECONNECT_MAX_S
    assert RECOVERY_GRACE_S > (1 + JITTER_SHARE) * RECONNECT_MAX_S + 10, "the next leader waits longer than they do"
