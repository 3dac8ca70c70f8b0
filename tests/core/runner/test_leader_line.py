"""Who is at the other end of the line to the leader, and does it still listen?"""

from __future__ import annotations

import pytest

from wakugumi.core.greeting import SILENT_LEFT, WELCOME_AGAIN_WITHIN_S, WELCOME_WITHIN_S
from wakugumi.core.runner.leader_line import LeaderKind, LineToLeader
from wakugumi.limits.wire import HEARTBEAT_S, SILENCE_MAX_S

NOW = 1_000.0


def test_a_leader_that_greets_is_our_own_and_hears_of_us() -> None:
    line = LineToLeader()
    line.check()
    assert not line.listens
    line.opened(NOW)
    line.check()
    assert (line.kind, line.wake_at()) == (LeaderKind.GREETING, NOW + WELCOME_WITHIN_S)
    line.welcomed(NOW)
    line.check()
    assert line.listens
    assert line.beat_at == NOW + HEARTBEAT_S == line.wake_at()


def test_the_first_leader_that_does_not_greet_is_not_left() -> None:
    line = LineToLeader()
    line.opened(NOW)
    assert line.why_hang_up(NOW + WELCOME_WITHIN_S) == ""
    line.taken_as_old()
    line.check()
    assert line.listens
    assert line.wake_at() == float("inf")
    assert line.why_hang_up(NOW + 10 * SILENCE_MAX_S) == "", "nobody knows what an old leader says when"


def test_after_our_own_leader_a_silent_one_is_left_a_few_times() -> None:
    line = LineToLeader()
    line.opened(NOW)
    line.welcomed(NOW)
    for _ in range(SILENT_LEFT):
        line.lost()
        line.opened(NOW)
        assert line.why_hang_up(NOW + WELCOME_WITHIN_S) == ""
        assert "did not greet" in line.why_hang_up(NOW + WELCOME_AGAIN_WITHIN_S)
    line.lost()
    line.opened(NOW)
    assert line.why_hang_up(NOW + WELCOME_AGAIN_WITHIN_S) == ""


@pytest.mark.spec("O1")
def test_a_silent_leader_that_proved_who_it_is_is_left_each_time() -> None:
    line = LineToLeader()
    for _ in range(SILENT_LEFT + 2):
        line.opened(NOW, secured=True)
        assert line.why_hang_up(NOW + WELCOME_WITHIN_S) == ""
        assert "did not greet" in line.why_hang_up(NOW + WELCOME_AGAIN_WITHIN_S)
        line.lost()
    line.opened(NOW)
    assert line.why_hang_up(NOW + WELCOME_AGAIN_WITHIN_S) == "", "a plain one may be old"


def test_our_own_leader_that_says_nothing_is_left() -> None:
    line = LineToLeader()
    line.opened(NOW)
    line.welcomed(NOW)
    line.received_at = NOW + 1.0
    assert line.why_hang_up(NOW + SILENCE_MAX_S) == ""
    assert "nothing heard" in line.why_hang_up(NOW + SILENCE_MAX_S + 1.0)
    line.lost()
    line.check()
    assert line.wake_at() == float("inf")


@pytest.mark.parametrize("leaving", [False, True])
def test_a_machine_that_leaves_offers_nothing(leaving: bool) -> None:
    line = LineToLeader()
    line.leaving = leaving
    assert not line.is_offered
    line.opened(NOW)
    assert not line.is_offered
    line.taken_as_old()
    assert line.is_offered is not leaving
