"""The simulated spreading, quick: what is promised for a thousand workers holds for a hundred, each in its measure."""

from __future__ import annotations

import pytest

from spread import GIB, simulate


@pytest.mark.spec("C8")
@pytest.mark.parametrize("dying_share", [0.0, 0.05])
def test_the_leader_pays_for_two_copies_whoever_dies(dying_share: float) -> None:
    outcome = simulate(100, dying_share=dying_share)
    assert outcome.dead == pytest.approx(100 * dying_share, abs=2)
    assert outcome.leader_bytes <= 3 * GIB
    assert outcome.times <= 12
    assert outcome.all_bytes >= (100 - outcome.dead) * GIB


def test_one_worker_takes_the_time_of_one_copy() -> None:
    outcome = simulate(1)
    assert outcome.times == pytest.approx(1.0, rel=0.02)
    assert outcome.leader_bytes == GIB


def test_the_same_seed_is_the_same_simulation() -> None:
    assert simulate(50, dying_share=0.1, seed=3) == simulate(50, dying_share=0.1, seed=3)
