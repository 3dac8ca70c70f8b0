"""Where is every slot of this machine? The numbers add up, whatever happens."""

from __future__ import annotations

import pytest

from wakugumi.core.runner.credit import Credit


def offered(slots: int) -> Credit:
    """All slots are the leader's to use."""
    credit = Credit(slots)
    credit.offer(slots)
    assert credit.take_offered() == slots
    credit.check(0, 0, listening=True, offering=True)
    return credit


def test_a_leader_uses_no_more_than_its_credit() -> None:
    credit = offered(3)
    assert credit.pay(2)
    assert not credit.pay(2)
    credit.check(2, 0, listening=True, offering=True)
    assert credit.pay(1)
    assert credit.credit == 0


def test_slots_that_are_held_are_offered_in_the_order_of_their_time() -> None:
    credit = offered(3)
    assert credit.pay(3)
    credit.hold(1, 20.0)
    credit.hold(2, 10.0)
    assert credit.held == [10.0, 10.0, 20.0]
    credit.offer_held(10.0)
    assert (credit.take_offered(), credit.held) == (2, [20.0])
    credit.offer_all_held()
    assert (credit.take_offered(), credit.held) == (1, [])
    credit.check(0, 0, listening=True, offering=True)


def test_a_sick_machine_keeps_what_the_leader_has_not_heard_of() -> None:
    credit = offered(4)
    assert credit.pay(3)
    credit.hold(1, 10.0)
    credit.offer(1)
    credit.keeps = True
    credit.keep_unsent()
    credit.offer(1)
    assert (credit.kept, credit.held, credit.take_offered()) == (3, [], 0)
    credit.void(0)
    assert (credit.kept, credit.credit) == (4, 0)
    credit.check(0, 0, listening=True, offering=True)


def test_a_caller_gets_first_what_the_leader_has_not_heard_of() -> None:
    credit = offered(4)
    assert credit.pay(2)
    credit.offer(1)
    credit.hold(1, 10.0)
    credit.borrow(3)
    assert (credit.offered, credit.held, credit.borrowed) == (0, [], 1)
    credit.check(3, 0, listening=True, offering=True)
    assert credit.repay(3) == 2
    assert credit.borrowed == 0


def test_what_is_due_is_still_borrowed_when_the_rest_is_void() -> None:
    credit = offered(3)
    credit.borrow(3)
    assert credit.pay(2)
    credit.keeps = True
    credit.void(2)
    assert (credit.credit, credit.borrowed, credit.kept) == (0, 2, 0)
    credit.check(3, 2, listening=True, offering=True)


def test_a_job_without_credit_takes_a_slot_that_was_not_told() -> None:
    credit = offered(3)
    assert credit.pay(3)
    credit.hold(1, 10.0)
    credit.offer(1)
    assert [credit.take_unsent() for _ in range(3)] == [True, True, False]
    credit.keeps, credit.kept = True, 1
    assert credit.take_unsent()
    assert credit.kept == 0


def test_without_a_leader_there_is_no_credit() -> None:
    credit = offered(3)
    credit.borrow(1)
    credit.withdraw()
    credit.check(1, 0, listening=False, offering=False)


def test_a_machine_that_leaves_offers_no_more_and_its_credit_stays() -> None:
    credit = offered(3)
    assert credit.pay(2)
    credit.hold(1, 10.0)
    credit.offer(1)
    credit.withdraw_unsent()
    assert credit.credit == 1
    credit.check(0, 0, listening=True, offering=False)


@pytest.mark.parametrize("change", ["credit", "kept", "borrowed", "offered"])
def test_a_slot_that_is_in_two_places_is_noticed(change: str) -> None:
    credit = offered(3)
    setattr(credit, change, getattr(credit, change) + 1)
    with pytest.raises(AssertionError):
        credit.check(0, 0, listening=True, offering=True)
