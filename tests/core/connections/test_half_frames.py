"""A half frame needs a pace, which depends on the memory that all of them hold, and nobody who is not read is to
blame."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakugumi.core.connections.half_frames import HARD, LOOK_S, PRESSED, HalfFrames
from wakugumi.limits.units import KIB, MIB
from wakugumi.limits.wire import FRAME_BYTES_MAX, FRAME_GRACE_S, FRAME_S_MAX

pytestmark = pytest.mark.spec("O6")

BUDGET = 20 * MIB
PIECE = 64
"""KiB that one read brings."""


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
    assert seconds_of(1.2 * KIB)[1]
    assert not seconds_of(0.9 * KIB)[1]
    assert seconds_of(1.05 * KIB) == (FRAME_S_MAX, False), "however it grows, a frame ends"


def test_many_workers_may_share_a_thin_line() -> None:
    halves: HalfFrames[int] = HalfFrames()
    held = dict.fromkeys(range(20), 0)
    done = 0
    for now in range(1_500):
        for who in held:
            is_first = held[who] == 0
            held[who] += 1_000_000 // 8 // 20
            if held[who] >= FRAME_BYTES_MAX:
                halves.ended(who)
                held[who] = 0
                done += 1
            else:
                assert not halves.grew(who, held[who], FRAME_BYTES_MAX, float(now), anew=is_first)
        assert halves.look(float(now), always) == []
    assert done == 40


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


def seven_large() -> HalfFrames[int]:
    """Half of the budget is two turns."""
    halves: HalfFrames[int] = HalfFrames(BUDGET)
    for key in range(7):
        must_decide = halves.grew(key, 3 * MIB, FRAME_BYTES_MAX, 0.0, anew=True)
        if key == 5:
            assert must_decide
            assert halves.decide(0.0, always) == ([], [], []), "a pace is needed, and nobody waits yet"
    assert must_decide
    return halves


def test_beyond_the_budget_large_frames_take_turns_and_small_ones_go_on() -> None:
    halves = seven_large()
    halves.grew(9, 10 * KIB, 20 * KIB, 0.0, anew=True)
    assert halves.decide(0.0, always) == ([], [2, 3, 4, 5, 6], [])
    assert halves.ended(0)
    assert halves.decide(0.1, always) == ([], [], [2])
    assert halves.ended(1)
    assert halves.ended(2)
    assert halves.decide(0.2, always) == ([], [], [3, 4, 5, 6]), "within three quarters nobody waits"
    halves.check(always)


def test_near_the_budget_a_frame_that_hardly_grows_is_closed_and_a_small_one_is_not() -> None:
    halves: HalfFrames[int] = HalfFrames(BUDGET)
    for key in range(6):
        halves.grew(key, 3 * MIB, FRAME_BYTES_MAX, 0.0, anew=True)
    halves.grew(9, 10 * KIB, 20 * KIB, 0.0, anew=True)
    halves.decide(0.5, always)
    for now in range(1, 6):
        assert halves.look(float(now), always) == []
        halves.grew(1, 3 * MIB + now * 6 * KIB, FRAME_BYTES_MAX, float(now), anew=False)
    assert [key for key, _ in halves.look(6.0, always)] == [0, 2, 3, 4, 5]


def test_while_others_wait_a_turn_needs_a_higher_pace() -> None:
    halves = seven_large()
    halves.decide(0.0, always)
    for now in range(1, 5):
        assert halves.look(float(now), always) == []
        halves.grew(0, 3 * MIB + now * 6 * KIB, FRAME_BYTES_MAX, float(now), anew=False)
        halves.grew(1, 3 * MIB + now * 50 * KIB, FRAME_BYTES_MAX, float(now), anew=False)
    assert [key for key, _ in halves.look(5.0, always)] == [0]
    assert halves.decide(5.0, always).release == [2]
    assert halves.waiting == [3, 4, 5, 6]


def test_a_frame_that_its_owner_has_paused_takes_no_turn() -> None:
    halves = seven_large()
    paused = {0, 1, 2}
    halves.decide(0.0, always)
    assert halves.waiting == [2, 3, 4, 5, 6]
    halves.look(1.0, lambda key: key not in paused)
    assert halves.decide(1.0, lambda key: key not in paused).release == [3, 4]
    for now in range(2, 100):  # Nothing grows; these three, because nobody reads them.
        gone = halves.look(float(now), lambda key: key not in paused)
        assert not paused & {key for key, _ in gone}
        halves.decide(float(now), lambda key: key not in paused)
    assert len(halves) == 3, "the others had their turns"
    halves.decide(100.0, always)
    assert halves.waiting == []


def test_also_a_frame_that_waits_must_end_in_time() -> None:
    """Two have a turn, grow as fast as they have to and make room for the next two: the last would wait for hours."""
    halves: HalfFrames[int] = HalfFrames(BUDGET)
    held = dict.fromkeys(range(300), 100 * KIB)
    for who in held:
        halves.grew(who, held[who], FRAME_BYTES_MAX, 0.0, anew=True)
    halves.decide(0.0, always)
    now, step_s = 0.0, 3.0
    gone: list[int] = []
    while held and not gone:
        now += step_s
        for who in set(held) - set(halves.waiting):
            held[who] += int(step_s * 40 * KIB)
            if held[who] < FRAME_BYTES_MAX:
                must_decide = halves.grew(who, held[who], FRAME_BYTES_MAX, now, anew=False)
            else:
                del held[who]
                must_decide = halves.ended(who)
            if must_decide:
                halves.decide(now, always)
        gone = [who for who, _ in halves.look(now, always)]
    assert now == FRAME_S_MAX
    assert gone == list(held)
    assert 50 < len(held) < 250, "the others had their turn, and came whole"
    assert len(halves) == 0


def test_at_twice_the_budget_those_that_grew_least_are_closed_the_oldest_first() -> None:
    halves: HalfFrames[object] = HalfFrames()
    halves.grew("honest", 3 * MIB, FRAME_BYTES_MAX, 0.0, anew=True)
    closed: list[object] = []
    for who in range(2_200):
        if halves.grew(who, 250 * KIB, FRAME_BYTES_MAX, 0.0, anew=True):
            closed += [key for key, _ in halves.decide(0.0, always).close]
            halves.check(always)
    assert closed == list(range(len(closed)))
    assert len(closed) > 64


def test_a_small_frame_is_not_closed_for_the_memory_that_others_take() -> None:
    halves: HalfFrames[int] = HalfFrames(BUDGET)
    for key in range(100):
        halves.grew(key, 100, 200, 0.0, anew=True)
    for key in range(100, 150):
        if halves.grew(key, 1 * MIB, FRAME_BYTES_MAX, 0.0, anew=True):
            for closed, _ in halves.decide(0.0, always).close:
                assert closed >= 100


def test_a_read_costs_the_same_however_many_half_frames_there_are() -> None:
    halves: HalfFrames[int] = HalfFrames()
    decided = 0
    held = [0] * 10_000
    for turn in range(1, 28):
        for who in range(10_000):
            held[who] = turn * KIB
            if halves.grew(who, held[who], FRAME_BYTES_MAX, 0.0, anew=turn == 1):
                halves.decide(0.0, always)
                decided += 1
    assert halves.bytes > 256 * MIB
    assert decided <= 2, "when a threshold is crossed"
    for who in range(10_000):
        if halves.grew(who, held[who] + 8 * KIB, FRAME_BYTES_MAX, 0.0, anew=False):
            halves.decide(0.0, always)
            decided += 1
    assert decided <= 16, "once per sixteenth of the budget that comes"
    decided = 0
    for who in range(10_000):
        if halves.ended(who):
            halves.decide(0.0, always)
            decided += 1
    assert decided <= 10_000 * FRAME_BYTES_MAX // (16 * MIB), "or that ends"


Steps = st.lists(
    st.tuples(
        st.sampled_from(["grew", "grew", "grew", "anew", "ended", "wait", "pause"]),
        st.integers(0, 12),
        st.integers(1, FRAME_BYTES_MAX),
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
    paused: set[int] = set()

    def is_read(who: int) -> bool:
        return who not in paused

    for what, who, amount in steps:
        must_decide = False
        if what == "pause":
            paused ^= {who}
        if what in {"wait", "pause"}:
            now += LOOK_S
            for gone, _ in halves.look(now, is_read):
                assert gone not in waits | paused
                del held[gone]
            must_decide = True
        elif what == "ended":
            held.pop(who, None)
            waits.discard(who)
            must_decide = halves.ended(who)
        elif who in waits | paused:
            continue
        else:
            size = amount if what == "anew" else max(amount, held.get(who, 0))
            must_decide = halves.grew(who, size, FRAME_BYTES_MAX, now, anew=what == "anew")
            held[who] = size
        if must_decide:
            close, hold, release = halves.decide(now, is_read)
            for gone, _ in close:
                del held[gone]
                waits.discard(gone)
            assert not waits & set(hold)
            waits |= set(hold)
            assert set(release) <= waits
            waits -= set(release)
        halves.check(is_read)
        assert halves.bytes == sum(held.values()) <= HARD * bytes_max
        assert set(halves.waiting) == waits
        assert not waits or halves.bytes > PRESSED * bytes_max
        wanted = [half for half in held if is_read(half) and held[half] > halves.small_bytes]
        assert not wanted or not waits >= set(wanted), "somebody is read"


@settings(max_examples=50)
@given(st.integers(2, 40), st.integers(200, 2_000), st.sampled_from([8 * MIB, 20 * MIB]))
def test_honest_peers_all_arrive_in_the_end_whatever_their_number(count: int, line: int, bytes_max: int) -> None:
    """They share a line of so many KiB per second, and are read in pieces. Those that wait leave their share to the
    others."""
    halves: HalfFrames[int] = HalfFrames(bytes_max)
    held = dict.fromkeys(range(count), 0)
    waits: set[int] = set()

    def decide(now: float) -> None:
        close, hold, release = halves.decide(now, always)
        assert not close
        waits.update(hold)
        waits.difference_update(release)

    now = 0
    while held:
        now += 1
        assert now < 1_000 + count * FRAME_BYTES_MAX // (line * KIB), "all wait"
        left = line
        while left > 0 and held:
            for who in [*held]:
                if who in waits:
                    continue
                piece = min(PIECE, max(1, line // len(held)))
                left -= piece
                is_first = held[who] == 0
                held[who] += piece * KIB
                if held[who] >= FRAME_BYTES_MAX:
                    del held[who]
                    must_decide = halves.ended(who)
                else:
                    must_decide = halves.grew(who, held[who], FRAME_BYTES_MAX, float(now), anew=is_first)
                if must_decide:
                    decide(float(now))
        assert halves.look(float(now), always) == []
        decide(float(now))
        assert halves.bytes <= 1.75 * bytes_max
