"""Is a blob moved once for all that wait for it, tried as often as its rule says, and in turns?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.flows import Abandon, Act, ActFailed, Answered, Flows, Perform
from wakugumi.core.transfers.transfers import Arrived, GivenUp, RetryRule, Transfer, Transfers, TryAgain, Turns
from wakugumi.errors import Lost, Refused

RULE = RetryRule(1.0, 4.0)


class Move(Act[int], frozen=True):
    """Move this blob."""

    key: str


class Mover:
    """Transfers by name, at the hands of a test."""

    def __init__(self, rule: RetryRule = RULE, turns: int = 2) -> None:
        self.flows = Flows(0.0)
        self.turns = Turns(self.flows, turns)
        self.transfers: Transfers[str, int] = Transfers(self.flows, rule, lambda: 0.5)
        self.told: list[tuple[str, Any]] = []
        self.now = 0.0

    def join(self, key: str, waiter: str, then: Callable[[Any], None] | None = None) -> Transfer[str, int]:
        async def work(_transfer: Transfer[str, int]) -> int:
            async with self.turns:
                return await Move(key)

        return self.transfers.join(key, waiter, work, then or (lambda outcome: self.told.append((waiter, outcome))))

    def run(self, seconds: float = 0.0) -> list[Any]:
        self.now += seconds
        do = self.flows.run(self.now)
        self.flows.check()
        self.turns.check()
        self.transfers.check()
        return do

    def answer(self, number: int, answer: int | Exception) -> list[Any]:
        self.flows.hear(ActFailed(number, answer) if isinstance(answer, Exception) else Answered(number, answer))
        return self.run()


def lost(moved_s: float | None = None, *, broken: bool = False) -> TryAgain:
    return TryAgain(Lost("the line broke"), moved_s=moved_s, is_broken=broken)


def test_all_that_wait_for_a_blob_share_one_transfer() -> None:
    mover = Mover()
    mover.join("a", "job 1")
    mover.join("a", "job 2")
    assert mover.run() == [Perform(1, Move("a"))]
    assert mover.answer(1, 7) == []
    assert mover.told == [("job 1", Arrived(7)), ("job 2", Arrived(7))]
    assert not mover.transfers.by_key
    assert mover.flows.count == 0


def test_a_blob_that_has_arrived_is_moved_anew_for_the_next_waiter() -> None:
    mover = Mover()
    mover.join("a", "job 1", lambda _: mover.join("a", "job 2"))
    mover.run()
    assert mover.answer(1, 7) == [Perform(2, Move("a"))]
    mover.answer(2, 8)
    assert mover.told == [("job 2", Arrived(8))]


def test_a_transfer_without_a_waiter_stops_and_gives_its_turn_back() -> None:
    mover = Mover(turns=1)
    first = mover.join("a", "job 1")
    mover.join("a", "job 2")
    mover.join("b", "job 3")
    assert mover.run() == [Perform(1, Move("a"))]
    mover.transfers.leave(first, "job 1")
    assert mover.run() == []
    mover.transfers.leave(first, "job 2")
    assert mover.run() == [Abandon(1), Perform(2, Move("b"))]
    mover.transfers.leave(first, "job 2")
    assert mover.told == []


def test_a_transfer_that_loses_its_waiter_before_it_began_performs_nothing() -> None:
    mover = Mover()
    mover.transfers.leave(mover.join("a", "job"), "job")
    assert mover.run() == []
    assert mover.turns.taken == 0


def test_work_that_goes_on_ends_without_a_waiter() -> None:
    mover = Mover()
    transfer = mover.join("a", "job")
    transfer.goes_on = True
    mover.run()
    mover.transfers.leave(transfer, "job")
    assert mover.run() == []
    mover.join("a", "other")
    mover.answer(1, 7)
    assert mover.told == [("other", Arrived(7))]


def test_a_waiter_that_another_one_lets_leave_is_not_told() -> None:
    mover = Mover()
    transfer = mover.join("a", "job 1", lambda _: mover.transfers.leave(transfer, "job 2"))
    mover.join("a", "job 2")
    mover.run()
    mover.answer(1, 7)
    assert mover.told == []


def test_a_failed_try_is_repeated_after_growing_pauses() -> None:
    mover = Mover()
    retries: list[tuple[str, int, float]] = []
    mover.transfers.on_retry = lambda transfer, _again, pause_s: retries.append((transfer.key, transfer.tries, pause_s))
    mover.join("a", "job")
    mover.run()
    for number, pause_s in enumerate((1.0, 2.0, 4.0, 4.0), 1):
        assert mover.answer(number, lost()) == []
        assert mover.turns.taken == 0, "a pause takes no turn"
        assert mover.run(pause_s - 0.01) == []
        assert mover.run(0.01) == [Perform(number + 1, Move("a"))]
    assert retries == [("a", 1, 1.0), ("a", 2, 2.0), ("a", 3, 4.0), ("a", 4, 4.0)]
    mover.answer(5, 7)
    assert mover.told == [("job", Arrived(7))]


def test_a_refusal_ends_the_transfer_for_all() -> None:
    mover = Mover()
    mover.join("a", "job 1")
    mover.join("a", "job 2")
    mover.run()
    no = Refused("disk", "no room")
    mover.answer(1, no)
    assert mover.told == [("job 1", GivenUp(no)), ("job 2", GivenUp(no))]


def test_an_unforeseen_failure_ends_this_transfer_alone() -> None:
    mover = Mover()
    mover.join("a", "job 1")
    mover.join("b", "job 2")
    mover.run()
    mover.answer(1, ZeroDivisionError("oh"))
    ((waiter, outcome),) = mover.told
    assert waiter == "job 1"
    assert isinstance(outcome.unforeseen, ZeroDivisionError)
    assert "ZeroDivisionError('oh')" in str(outcome.error)
    mover.answer(2, 7)
    assert mover.told[1:] == [("job 2", Arrived(7))]


@pytest.mark.parametrize(
    ("rule", "failures"),
    [
        (RetryRule(0.1, 1.0, tries_max=3), [lost(), lost(), lost()]),
        (RetryRule(0.1, 1.0, broken_max=2), [lost(broken=True), lost(), lost(broken=True)]),
    ],
)
def test_too_many_failures_are_the_end(rule: RetryRule, failures: list[TryAgain]) -> None:
    mover = Mover(rule)
    mover.join("a", "job")
    mover.run()
    for number, failure in enumerate(failures, 1):
        assert mover.told == []
        mover.answer(number, failure)
        mover.run(1.0)
    assert mover.told == [("job", GivenUp(failures[-1].error))]


def test_a_transfer_without_progress_is_given_up_and_one_with_progress_is_not() -> None:
    mover = Mover(RetryRule(1.0, 1.0, still_s=10.0))
    mover.join("still", "job 1")
    mover.join("moving", "job 2")
    mover.run()
    mover.run(6.0)
    mover.answer(1, lost(float("inf")))
    mover.answer(2, lost(1.0))
    mover.run(1.0)
    mover.run(5.0)
    mover.answer(3, lost(float("inf")))
    mover.answer(4, lost(float("inf")))
    ((waiter, outcome),) = mover.told
    assert (waiter, outcome.still_s) == ("job 1", 12.0)
    mover.run(1.0)
    mover.run(3.0)
    mover.answer(5, lost())
    assert len(mover.told) == 1, "a busy place is no lack of progress"


def test_a_rule_may_begin_with_tries_without_a_pause() -> None:
    rule = RetryRule(0.1, 5.0, at_once=1)
    assert [round(rule.pause_s(tries), 3) for tries in (1, 2, 3, 4, 100)] == [0.0, 0.1, 0.2, 0.4, 5.0]


def test_a_turn_that_comes_in_the_moment_of_the_end_goes_to_the_next() -> None:
    mover = Mover(turns=1)
    mover.join("a", "job 1")
    second = mover.join("b", "job 2")
    mover.join("c", "job 3")
    mover.run()
    mover.flows.hear(Answered(1, 7))
    mover.join("a", "again", lambda _: None)
    mover.transfers.by_key["a"].waiting["again"] = lambda _: mover.transfers.leave(second, "job 2")
    assert mover.run() == [Perform(2, Move("c"))]


@given(st.data())
def test_turns_and_waiters_balance_whatever_happens(data: st.DataObject) -> None:
    mover = Mover(RetryRule(1.0, 2.0, tries_max=4), turns=data.draw(st.integers(1, 3)))
    joined: dict[tuple[str, int], Transfer[str, int]] = {}
    ended: list[tuple[str, int]] = []
    open_acts: dict[int, Act[int]] = {}
    for waiter in range(data.draw(st.integers(1, 30))):
        match data.draw(st.sampled_from(["join", "leave", "answer", "fail", "time"])):
            case "join":
                key = data.draw(st.sampled_from("abcde"))
                row = key, waiter
                joined[row] = mover.join(key, row, lambda _, row=row: ended.append(row))  # type: ignore[arg-type, misc]
            case "leave" if joined:
                row = data.draw(st.sampled_from(sorted(joined)))
                mover.transfers.leave(joined.pop(row), row)
            case "answer" if open_acts:
                mover.flows.hear(Answered(open_acts.popitem()[0], 1))
            case "fail" if open_acts:
                mover.flows.hear(ActFailed(open_acts.popitem()[0], lost()))
            case _:
                mover.now += 1.0
        for effect in mover.run():
            if isinstance(effect, Perform):
                open_acts[effect.number] = effect.act
            else:
                open_acts.pop(effect.number, None)
        assert len(open_acts) == mover.turns.taken
        assert len(set(open_acts.values())) == len(open_acts)
        for row in ended:
            joined.pop(row, None)
        assert {row for row, one in joined.items() if row not in one.waiting} == set()
