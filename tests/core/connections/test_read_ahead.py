"""How far a connection may be ahead of the disk: what it has brought and is not safe, whatever the order of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.connections.read_ahead import Intake


def test_a_connection_waits_when_its_window_is_full_until_part_of_it_is_safe() -> None:
    intake = Intake(1_000)
    intake.took(600, step=1, safe_step=0)
    assert not intake.must_wait(behind=False)
    intake.took(600, step=3, safe_step=0)
    assert intake.must_wait(behind=False)
    intake.settle(0)
    assert intake.must_wait(behind=False)
    intake.settle(2)
    assert intake.ahead_bytes == 600
    assert not intake.must_wait(behind=False)


def test_while_the_disk_is_behind_only_those_go_on_of_whom_it_has_everything() -> None:
    intake = Intake(1_000)
    assert not intake.must_wait(behind=True)
    intake.took(1, step=1, safe_step=0)
    assert intake.must_wait(behind=True)
    assert not intake.must_wait(behind=False)
    intake.settle(1)
    assert not intake.must_wait(behind=True)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 3), st.integers(0, 3))), st.integers(1, 2_000))
def test_what_is_ahead_is_what_was_brought_by_steps_that_are_not_safe(
    chunks: list[tuple[int, int, int]], ahead_bytes_max: int
) -> None:
    intake = Intake(ahead_bytes_max)
    brought: list[tuple[int, int]] = []
    step, safe = 1, 0
    for size, later, safer in chunks:
        step += later
        is_full = intake.took(size, step, safe)
        brought.append((step, size))
        assert is_full is intake.must_wait(behind=False)
        safe = min(step, safe + safer)
        intake.settle(safe)
        ahead = sum(size for step, size in brought if step > safe)
        assert intake.ahead_bytes == ahead
        assert intake.must_wait(behind=False) is (ahead >= ahead_bytes_max)
