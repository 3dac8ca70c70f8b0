"""A worker's pauses between two tries to connect."""

from __future__ import annotations

import pytest

from wakugumi.core.connections.redial import Redial
from wakugumi.limits.client import RECONNECT_MAX_S, WORKER_PATIENCE_S, WORKER_RECONNECT_FIRST_S, WORKER_RECONNECT_SOON_S

EVEN = 0.5
"""No jitter."""


def pauses(redial: Redial, now: float, count: int) -> list[float]:
    """Of tries that fail at once."""
    found = []
    for _ in range(count):
        redial.begin(now)
        found.append(redial.pause(now, EVEN, served=False))
        now += found[-1]
    return found


def test_pauses_grow_to_a_bound_and_later_to_a_larger_one() -> None:
    found = pauses(Redial(100.0), 100.0, 1_000)
    assert found[:3] == pytest.approx([WORKER_RECONNECT_FIRST_S * 2**n for n in range(3)])
    soon = [pause for at, pause in enumerate(found) if sum(found[:at]) < WORKER_PATIENCE_S]
    assert max(soon) == WORKER_RECONNECT_SOON_S
    assert found[-1] == RECONNECT_MAX_S


@pytest.mark.parametrize(("held_s", "served"), [(0.0, True), (RECONNECT_MAX_S + 1.0, False)])
def test_after_a_leader_served_or_held_the_connection_the_next_try_is_soon(held_s: float, served: bool) -> None:
    redial = Redial(100.0)
    now = 100.0 + sum(pauses(redial, 100.0, 1_000))
    redial.begin(now)
    now += held_s
    assert redial.pause(now, EVEN, served=served) == WORKER_RECONNECT_FIRST_S
    assert pauses(redial, now, 1) == [2 * WORKER_RECONNECT_FIRST_S]


def test_workers_do_not_all_come_at_once() -> None:
    redial = Redial(0.0)
    redial.begin(0.0)
    assert redial.pause(0.0, 0.0, served=False) < redial.base_s < redial.pause(0.0, 0.99, served=False)
