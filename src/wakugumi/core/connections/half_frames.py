"""What may frames cost that have begun and not ended? (SPEC O6)

All half frames share one budget of memory. The rules depend on how much of it they hold:

    any amount                  a frame that nearly stands still is closed, and one that takes longer than FRAME_S_MAX
    3/4 of it (*pressed*)       a frame that holds more than a small share needs a pace
    all of it                   such frames take *turns*: the first that began are read, at a higher pace; others wait
    twice as much               the frame that grew least of late is closed, the oldest of these first

A frame that is not read, because it waits or because its owner has paused it, is not measured. Waiting counts for
FRAME_S_MAX, so every frame ends, or is closed; only a pause by the owner does not count. `grew` and `ended` are called
on every read, so their cost does not depend on the number of half frames; they return whether `decide`, which looks at
all of them, is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from wakugumi.limits.wire import (
    FRAME_BYTES_PER_S_MIN,
    FRAME_GRACE_S,
    FRAME_PRESSED_BYTES_PER_S_MIN,
    FRAME_S_MAX,
    FRAME_TURN_BYTES_PER_S_MIN,
    HALF_FRAMES_BYTES_MAX,
    READ_BYTES_LARGE,
)

K = TypeVar("K", bound=Hashable)

LOOK_S: Final = 1.0
"""Time between two checks of the pace."""
HARD: Final = 2
"""Multiple of the budget at which frames are closed."""
PRESSED: Final = 0.75
"""Share of the budget above which a pace is needed. Stalled frames are found before others have to wait, for a frame
that waits cannot show its pace. At this share and below, no frame waits any more."""
_RELAXED: Final = 0.5
"""Share below which no pace is needed any more: without a gap, every read would switch the state."""
_STEPS: Final = 16
"""Frames may grow or free a sixteenth of the budget between two decisions."""
_SMALL_SHARE: Final = 4
"""Small frames hold a quarter of the budget together, at most: they neither wait nor need a pace."""
_PRESSED_S: Final = 5.0
"""Time over which a pace is measured: TCP sends a packet that was lost four times within 3 s."""
_ASLEEP_S: Final = 3 * LOOK_S
"""A longer time between two checks means that this process did not run, and could not read."""


class Half(msgspec.Struct, eq=False):
    """A frame that has begun."""

    since: float
    """When the frame began, moved by the time in which its owner did not read it."""
    held: int
    needed: int
    waits: bool = False
    has_turn: bool = False
    marked_at: float = 0.0
    """When the pace was last measured, moved by the time in which the frame was not read."""
    marked_held: int = 0
    """Value of `held` when the pace was last measured."""
    earlier_held: int = 0
    """Value of `held` at the measurement before that."""

    def mark(self, now: float) -> None:
        self.earlier_held = self.marked_held
        self.marked_at, self.marked_held = now, self.held

    @property
    def grown(self) -> int:
        """Bytes received since the measurement before the last."""
        return self.held - self.earlier_held


class HalfFrameVerdict(NamedTuple, Generic[K]):
    """Connections to close and why, connections that wait from now on, and connections that wait no longer."""

    close: list[tuple[K, str]]
    hold: list[K]
    release: list[K]


class HalfFrames(Generic[K]):
    """Half frames of one process, in the order in which they began."""

    def __init__(self, bytes_max: int = HALF_FRAMES_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._halves: dict[K, Half] = {}
        self._bytes = 0
        self._pressed = False
        self._pressed_at = 0.0
        self._in_turns = False
        self._looked_at = 0.0
        # Since the latest decision:
        self._decided_bytes = 0
        self._turns = 0
        """Frames that have a turn, and have not ended."""
        self._freed = 0
        """Bytes of frames with a turn that have ended."""

    def __len__(self) -> int:
        return len(self._halves)

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def waiting(self) -> list[K]:
        return [key for key, half in self._halves.items() if half.waits]

    @property
    def small_bytes(self) -> int:
        """The most that a small frame holds."""
        return min(READ_BYTES_LARGE, self.bytes_max // (_SMALL_SHARE * max(1, len(self._halves))))

    def grew(self, key: K, held: int, needed: int, now: float, *, anew: bool) -> bool:
        """The connection holds `held` bytes of a frame of `needed` bytes; `anew` if the frame is a new one. True if
        `decide` is needed."""
        half = self._halves.get(key)
        is_due = False
        if half is not None and anew:
            is_due = self.ended(key)
            half = None
        if half is None:
            if not self._halves:
                self._looked_at = now
            half = self._halves[key] = Half(now, 0, needed, marked_at=now)
        self._bytes += held - half.held
        half.held, half.needed = held, needed
        return is_due or self._is_due()

    def ended(self, key: K) -> bool:
        """The frame is whole, or the connection ended. True if `decide` is needed."""
        half = self._halves.pop(key, None)
        if half is None:
            return False
        self._bytes -= half.held
        if half.has_turn:
            self._turns -= 1
            self._freed += half.needed
            if not self._turns:
                return True
        return self._is_due()

    def _is_due(self) -> bool:
        """A threshold was crossed since the latest decision, or much has changed."""
        held, budget = self._bytes, self.bytes_max
        if not self._pressed:
            return held > PRESSED * budget
        if held > HARD * budget:
            return True
        if not self._in_turns:
            return held > budget or held <= _RELAXED * budget
        step = budget // _STEPS
        return held <= PRESSED * budget or held > self._decided_bytes + step or self._freed >= step

    def decide(self, now: float, is_read: Callable[[K], bool]) -> HalfFrameVerdict[K]:
        """Which frames wait, and which are closed? `is_read` tells whether the owner of a connection wants to read it:
        a paused one takes no turn, or the others would wait for it."""
        budget = self.bytes_max
        close = self._surplus() if self._bytes > HARD * budget else []
        if self._bytes > PRESSED * budget and not self._pressed:
            self._pressed, self._pressed_at = True, now
        elif self._bytes <= _RELAXED * budget:
            self._pressed = False
        was_in_turns = self._in_turns
        if self._bytes > budget:
            self._in_turns = True
        elif self._bytes <= PRESSED * budget:
            self._in_turns = False
        self._decided_bytes, self._turns, self._freed = self._bytes, 0, 0
        hold: list[K] = []
        release: list[K] = []
        allotted, small_bytes = 0, self.small_bytes
        for key, half in self._halves.items() if was_in_turns or self._in_turns else ():
            takes_part = self._in_turns and half.held > small_bytes
            has_turn = takes_part and is_read(key) and (not allotted or allotted + half.needed <= budget // 2)
            if has_turn:
                self._turns += 1
                allotted += half.needed
                if not half.has_turn:
                    half.mark(now)
            half.has_turn = has_turn
            waits = takes_part and not has_turn
            if waits != half.waits:
                half.waits = waits
                (hold if waits else release).append(key)
        return HalfFrameVerdict(close, hold, release)

    def _surplus(self) -> list[tuple[K, str]]:
        """Frames to close at once, and a few more, so that the next read does not ask again."""
        close: list[tuple[K, str]] = []
        bytes_goal = HARD * self.bytes_max - self.bytes_max // _STEPS
        small_bytes = self.small_bytes
        large = [key for key, half in self._halves.items() if half.held > small_bytes]
        for key in sorted(large, key=lambda key: self._halves[key].grown):  # Of equals, the oldest stays first.
            if self._bytes <= bytes_goal:
                break
            close.append((key, f"half frames hold more than {HARD * self.bytes_max} bytes, and this one grew least"))
            self.ended(key)
        return close

    def look(self, now: float, is_read: Callable[[K], bool]) -> list[tuple[K, str]]:
        """Which frames take too long? They are forgotten, and `decide` is needed."""
        passed = now - self._looked_at
        self._looked_at = now
        close: list[tuple[K, str]] = []
        small_bytes = self.small_bytes
        for key, half in self._halves.items():
            if passed > _ASLEEP_S or not is_read(key):
                half.since += passed
                half.marked_at += passed
            elif now - half.since >= FRAME_S_MAX:
                close.append((key, f"{half.held} of the {half.needed} bytes of a frame came in {FRAME_S_MAX:.0f} s"))
            elif half.waits:
                half.marked_at += passed
            elif why := self._too_slow(half, now, is_pressed=self._pressed and half.held > small_bytes):
                close.append((key, why))
        for key, _ in close:
            self.ended(key)
        return close

    def _too_slow(self, half: Half, now: float, *, is_pressed: bool) -> str:
        """The reason to close the frame, or ""."""
        if is_pressed and half.marked_at < self._pressed_at:
            half.mark(now)
        measured_s = now - half.marked_at
        if measured_s < (_PRESSED_S if is_pressed else FRAME_GRACE_S):
            return ""
        pace = FRAME_BYTES_PER_S_MIN
        if is_pressed:
            pace = FRAME_TURN_BYTES_PER_S_MIN if half.has_turn else FRAME_PRESSED_BYTES_PER_S_MIN
        came = half.held - half.marked_held
        if came < pace * measured_s:
            others = ", and others need the memory that it takes" if is_pressed else ""
            return f"{came} bytes of a frame of {half.needed} came in {measured_s:.0f} s{others}"
        half.mark(now)
        return ""

    def check(self, is_read: Callable[[K], bool]) -> None:
        """Asserts the invariants after `decide`."""
        halves = self._halves
        assert self._bytes == sum(half.held for half in halves.values()) <= HARD * self.bytes_max
        assert self._turns == sum(half.has_turn for half in halves.values())
        assert self._pressed or self._bytes <= PRESSED * self.bytes_max
        assert self._in_turns or self._bytes <= self.bytes_max
        waiting = [key for key, half in halves.items() if half.waits]
        assert self._in_turns or not waiting
        assert not any(half.waits and half.has_turn for half in halves.values())
        assert self._turns or not any(map(is_read, waiting)), "everybody waits"
