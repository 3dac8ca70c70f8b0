"""Which worker first, and how long until the next try."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.backoff import (
    NUMBER_MASK,
    POLICIES,
    backoff_s,
    most_credit,
    next_redial_s,
    parse_policies,
    round_robin,
    score,
    with_jitter,
)
from wakugumi.core.subject import parse_subject
from wakugumi.errors import ConfigError
from wakugumi.limits.client import RECONNECT_MAX_S, WORKER_PATIENCE_S, WORKER_RECONNECT_FIRST_S, WORKER_RECONNECT_SOON_S
from wakugumi.limits.leader import RECOVERY_GRACE_S
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.limits.wire import JITTER_SHARE

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


@pytest.mark.spec("L2")
def test_the_score_weighs_busy_slots_and_busy_cpu() -> None:
    def ranks(*workers: tuple[int, int, int]) -> list[int]:
        """(credit, running, load in percent), the best first: their places."""
        by_rank = sorted(
            (score(credit, running, 0, at, load), at) for at, (credit, running, load) in enumerate(workers)
        )
        return [at for _, at in by_rank]

    assert ranks((4, 4, 0), (8, 0, 0)) == [1, 0], "fewer of its slots are busy"
    assert ranks((8, 0, 90), (6, 2, 10)) == [1, 0], "its CPU is less busy, and that is more than two slots"
    assert ranks((8, 0, 20), (4, 4, 10)) == [0, 1], "a tenth of the CPU is less than half of the slots"
    assert ranks((1, 0, 0), (9, 0, 0)) == [1, 0], "of two idle ones the larger"


@pytest.mark.spec("L2")
@pytest.mark.parametrize(
    ("text", "subject", "name"),
    [
        ("", "calca", "most-credit"),
        ("score", "calca", "score"),
        ("calcA=sticky", "calca", "sticky"),
        ("calcA=sticky", "calca.fast", "sticky"),
        ("calcA=sticky", "calcb", "most-credit"),
        ("round-robin, calcA=sticky", "other", "round-robin"),
        ("job.assign.>=score,job.assign.*=sticky,job.assign.calcA=round-robin", "calca", "round-robin"),
        ("job.assign.>=score,job.assign.*=sticky,job.assign.calcA=round-robin", "calcb", "sticky"),
        ("job.assign.>=score,job.assign.*=sticky,job.assign.calcA=round-robin", "calca.b", "score"),
        ("*.*.*.fast=score,job.assign.calcA.*=sticky", "calca.fast", "sticky"),
        ("sticky,sticky", "calca", "sticky"),
    ],
)
def test_the_most_specific_pattern_says_which_policy_holds(text: str, subject: str, name: str) -> None:
    assert parse_policies(text).of(parse_subject(f"job.assign.{subject}")).name == name


def test_only_the_rankings_in_use_are_ranked_by() -> None:
    assert parse_policies("sticky").rankings == (most_credit,)
    assert parse_policies("score,a=sticky,b=most-credit").rankings == (score, most_credit)
    assert str(parse_policies("score,calcA=sticky")) == "score, job.assign.calca=sticky, job.assign.calca.>=sticky"


@pytest.mark.parametrize(
    "text", ["best", "calcA=", "=sticky", "a..b=sticky", "sticky,score", "a=sticky,a=score", "a b=", "most credit"]
)
def test_a_policy_that_cannot_be_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_policies(text)
    assert error.value.hint
