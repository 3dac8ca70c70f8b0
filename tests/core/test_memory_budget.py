"""What a leader may hold where memory is limited."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.core.memory_budget import Budget, budget_of
from wakugumi.limits.leader import QUEUED_JOB_BYTES
from wakugumi.limits.units import MIB


@given(st.integers(MIB, 100_000 * MIB))
def test_all_shares_fit_the_room_and_none_is_above_its_usual_bound(room: int) -> None:
    budget = budget_of(room)
    for share, usual in zip(budget, Budget(), strict=True):
        assert 0 < share <= usual
    requests = max(budget.queue_bytes, budget.payload_bytes)  # a leader has one or the other
    held = budget.queue_jobs * QUEUED_JOB_BYTES + requests
    assert held + budget.undelivered_bytes + budget.kept_bytes + budget.dead_bytes <= room * 7 // 8


def test_with_plenty_of_room_nothing_changes() -> None:
    assert budget_of(8_000 * MIB) == Budget()


def test_results_and_letters_are_bounded_by_it() -> None:
    leader = LeaderMachine(lambda: 0.5)
    leader.bound_by(Budget(undelivered_bytes=10, kept_bytes=20, dead_bytes=30))
    leader.clients.results.undelivered_bytes = 9
    assert not leader.clients.is_swamped()
    leader.clients.results.undelivered_bytes = 10
    assert leader.clients.is_swamped()
    leader.clients.results.kept_bytes = 20
    assert not leader.clients.results.too_much()
    leader.clients.results.kept_bytes = 21
    assert leader.clients.results.too_much()
    assert leader.clients.dead.bytes_max == 30
