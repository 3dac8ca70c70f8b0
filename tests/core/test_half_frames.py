"""A half frame has a deadline and a pace, and all of them share one budget of memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakugumi.core.half_frames import HARD, LOOK_S, HalfFrames
from wakugumi.limits import FRAME_BYTES_MAX, FRAME_GRACE_S, KIB, MIB

pytestmark = pytest.mark.spec("O6")

BUDGET = 16 * MIB


def always(_key: object) -> bool:
    return True


def seconds_of(pace: float, size: int = FRAME_BYTES_MAX, step_s: float = 1.0) -> tuple[float, bool]:
    """How long a frame of this size is let come at this pace, and whether it came whole."""
    halves: HalfFrames[str] = HalfFrames(BUDGET)
    now, came = 0.0, 4.0
    halves.grew("a", int(came), size, now, anew=True)
    while came < size:
        now += step_s
        came = min(float(size), came + pace * step_s)
        halves.grew("a", int(came), size, now, anew=False)
        for at in range(int(step_s)):
            if halves.look(now - step_s + at + 1, always):
                return now, False
    return now, True


def test_a_slow_line_passes_and_a_drip_does_not() -> None:
    took_s, whole = seconds_of(1_000_000 / 8)
    assert whole
    assert took_s > FRAME_GRACE_S
    assert not seconds_of(0.1, step_s=10.0)[1]
    assert not seconds_of(0.1, 1 * KIB, step_s=10.0)[1]
    assert seconds_of(0.1, 1 * KIB, step_s=10.0)[0] <= 40
    assert seconds_of(16 * KIB)[1], "the pace that is asked for"
    assert not seconds_of(12 * KIB)[1]


def test_the_time_in_which_a_connection_is_not_read_does_not_count() -> None:
    halves: HalfFrames[str] = HalfFrames(BUDGET)
    halves.grew("a", 10, 100, 0.0, anew=True)
    for now in range(1, 1_000):
        assert halves.look(float(now), lambda _key: False) == []
    for now in range(1_000, 1_029):
        assert halves.look(float(now), always) == []
    assert [key for key, _ in halves.look(1_030.0, always)] == ["a"]
    assert len(halves) == 0


def test_nor_does_the_time_in_which_this_process_did_not_run() -> None:
    halves: HalfFrames[str] = HalfFrames(BUDGET)
    halves.grew("a", 10, 100, 0.0, anew=True)
    assert halves.look(500.0, always) == []
    assert halves.look(501.0, always) == []


def test_each_frame_has_a_time_of_its_own() -> None:
    halves: HalfFrames[str] = HalfFrames(BUDGET)
    for now in range(1_000):
        halves.grew("a", 10, 100, float(now), anew=True)
        assert halves.look(float(now), always) == []


def test_beyond_the_budget_large_frames_take_turns_and_small_ones_go_on() -> None:
    halves: HalfFrames[int] = HalfFrames(BUDGET)
    for key in range(6):
        must_decide = halves.grew(key, 3 * MIB, FRAME_BYTES_MAX, 0.0, anew=True)
    assert must_decide
    halves.grew(9, 10 * KIB, 20 * KIB, 0.0, anew=True)
    close, hold, release = halves.decide(0.0)
    assert (close, hold, release) == ([], [2, 3, 4, 5], []), "half of the budget is two frames"
    assert halves.ended(0)
    assert halves.decide(0.1) == ([], [], [2])
    halves.ended(1)
    halves.ended(2)
    close, hold, release = halves.decide(0.2)
    assert (close, hold, release) == ([], [], [3, 4, 5]), "below three quarters nobody waits"
    halves.check()


def test_while_others_wait_a_frame_that_hardly_grows_is_closed() -> None:
    halves: HalfFrames[int] = HalfFrames(BUDGET)
    for key in range(6):
        halves.grew(key, 3 * MIB, FRAME_BYTES_MAX, 0.0, anew=True)
    halves.decide(0.0)
    assert halves.look(1.0, always) == []
    halves.grew(1, 3 * MIB + 200 * KIB, FRAME_BYTES_MAX, 1.5, anew=False)
    assert [key for key, _ in halves.look(2.0, always)] == [0]
    assert halves.decide(2.0).release == [2]
    assert halves.waiting == [3, 4, 5]


def test_at_twice_the_budget_the_largest_is_closed() -> None:
    halves: HalfFrames[int] = HalfFrames(1_000)
    for key, held in enumerate((900, 901, 200)):
        halves.grew(key, held, 5_000, 0.0, anew=True)
    close, _, _ = halves.decide(0.0)
    assert [key for key, _ in close] == [1]
    assert halves.bytes == 1_100


Steps = st.lists(
    st.tuples(
        st.sampled_from(["grew", "grew", "anew", "ended", "wait"]), st.integers(0, 12), st.integers(1, FRAME_BYTES_MAX)
    ),
    max_size=120,
)


@settings(max_examples=200)
@given(Steps, st.sampled_from([MIB, 8 * MIB, 20 * MIB]))
def test_whatever_comes_the_memory_is_bounded_and_somebody_is_read(
    steps: list[tuple[str, int, int]], bytes_max: int
) -> None:
    halves: HalfFrames[int] = HalfFrames(bytes_max)
    now = 0.0
    held: dict[int, int] = {}
    waits: set[int] = set()
    for what, who, amount in steps:
        if what == "wait":
            now += LOOK_S
            for gone, _ in halves.look(now, always):
                assert gone not in waits
                del held[gone]
            must_decide = True
        elif what == "ended":
            held.pop(who, None)
            waits.discard(who)
            must_decide = halves.ended(who)
        elif who in waits:
            continue
        else:
            size = amount if what == "anew" else max(amount, held.get(who, 0))
            must_decide = halves.grew(who, size, FRAME_BYTES_MAX, now, anew=what == "anew")
            held[who] = size
        if must_decide:
            close, hold, release = halves.decide(now)
            assert not waits & set(hold)
            waits |= set(hold)
            assert set(release) <= waits
            waits -= set(release)
            for gone, _ in close:
                assert held[gone] == max(held.values())
                del held[gone]
                waits.discard(gone)
        halves.check()
        assert halves.bytes == sum(held.values()) <= HARD * bytes_max
        assert set(halves.waiting) == waits
