"""What may frames cost that have begun and not ended? (SPEC O6)

A frame has a deadline that grows with its size, so a peer needs a minimum pace. All half frames share one budget of
memory. Beyond it the large frames take turns: those that began first are read, the others wait unread, and a frame that
is read and hardly grows is closed, for others wait for its memory. At twice the budget the largest is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from wakugumi.limits import (
    FRAME_BYTES_PER_S_MIN,
    FRAME_GRACE_S,
    FRAME_PRESSED_BYTES_PER_S_MIN,
    HALF_FRAMES_BYTES_MAX,
    READ_BYTES_LARGE,
)

K = TypeVar("K", bound=Hashable)

LOOK_S: Final = 1.0
"""How often the deadlines are looked at."""
HARD: Final = 2
"""Times the budget, at which the largest is closed."""
_RELAXED_SHARE: Final = 0.75
"""Below this share of the budget nobody waits any more: without a gap, every read would change it."""
_PRESSED_S: Final = 2.0
"""Over which the pace of a frame is measured while others wait."""
_ASLEEP_S: Final = 3 * LOOK_S
"""Between two looks: then this process did not run, and could not read."""


class Half(msgspec.Struct, eq=False):
    """A frame that has begun."""

    since: float
    """Later than it was, if it was not read for a while."""
    held: int
    needed: int
    waits: bool = False
    marked_at: float = 0.0
    marked_held: int = 0
    """Where it was when its pace was measured last."""

    @property
    def is_large(self) -> bool:
        return self.held >= READ_BYTES_LARGE

    @property
    def deadline(self) -> float:
        return self.since + FRAME_GRACE_S + self.needed / FRAME_BYTES_PER_S_MIN


class Verdict(NamedTuple, Generic[K]):
    """What is to be done: connections to close and why, those that wait from now on, those that wait no longer."""

    close: list[tuple[K, str]]
    hold: list[K]
    release: list[K]


class HalfFrames(Generic[K]):
    """Those of one process, the first that began first."""

    def __init__(self, bytes_max: int = HALF_FRAMES_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._halves: dict[K, Half] = {}
        self._bytes = 0
        self._pressed = False
        self._looked_at = 0.0

    def __len__(self) -> int:
        return len(self._halves)

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def waiting(self) -> list[K]:
        return [key for key, half in self._halves.items() if half.waits]

    def grew(self, key: K, held: int, needed: int, now: float, *, anew: bool) -> bool:
        """It holds so many bytes of a frame of so many, which began now if it is `anew`. True if `decide` has to be
        asked."""
        half = self._halves.get(key)
        if half is not None and anew:
            self.ended(key)
            half = None
        if half is None:
            if not self._halves:
                self._looked_at = now
            half = self._halves[key] = Half(now, 0, needed, marked_at=now)
        self._bytes += held - half.held
        half.held, half.needed = held, needed
        return self._pressed or self._bytes > self.bytes_max

    def ended(self, key: K) -> bool:
        """The frame is whole, or the connection ended. True if `decide` has to be asked."""
        half = self._halves.pop(key, None)
        if half is None:
            return False
        self._bytes -= half.held
        return self._pressed

    def decide(self, now: float) -> Verdict[K]:
        """Who waits, and who is too large."""
        close: list[tuple[K, str]] = []
        while self._bytes > HARD * self.bytes_max:
            key = max(self._halves, key=lambda key: self._halves[key].held)
            close.append((key, f"half frames hold more than {HARD * self.bytes_max} bytes, and this one the most"))
            self.ended(key)
        was_pressed = self._pressed
        if self._bytes > self.bytes_max:
            self._pressed = True
        elif self._bytes <= _RELAXED_SHARE * self.bytes_max:
            self._pressed = False
        hold: list[K] = []
        release: list[K] = []
        read = 0
        for key, half in self._halves.items() if was_pressed or self._pressed else ():
            waits = False
            if self._pressed and half.is_large:
                waits = read > 0 and read + half.needed > self.bytes_max // 2
                read += 0 if waits else half.needed
            if waits != half.waits or (self._pressed and not was_pressed):
                half.marked_at, half.marked_held = now, half.held
            if waits != half.waits:
                half.waits = waits
                (hold if waits else release).append(key)
        return Verdict(close, hold, release)

    def look(self, now: float, is_read: Callable[[K], bool]) -> list[tuple[K, str]]:
        """Time has passed: whose frame takes too long? A connection that is not read is not to blame. Those frames are
        forgotten, and `decide` has to be asked."""
        passed = now - self._looked_at
        self._looked_at = now
        close: list[tuple[K, str]] = []
        for key, half in self._halves.items():
            if half.waits or passed > _ASLEEP_S or not is_read(key):
                half.since += passed
                half.marked_at, half.marked_held = now, half.held
            elif half.deadline <= now:
                close.append(
                    (key, f"{half.held} of the {half.needed} bytes of a frame came in {now - half.since:.0f} s")
                )
            elif self._pressed and half.is_large and (measured := now - half.marked_at) >= _PRESSED_S:
                if half.held - half.marked_held < FRAME_PRESSED_BYTES_PER_S_MIN * measured:
                    close.append((key, "its frame hardly grows, and others wait for the memory that it takes"))
                half.marked_at, half.marked_held = now, half.held
        for key, _ in close:
            self.ended(key)
        return close

    def check(self) -> None:
        """Asserts what must hold after `decide`."""
        assert self._bytes == sum(half.held for half in self._halves.values()) <= HARD * self.bytes_max
        large = [half for half in self._halves.values() if half.is_large]
        assert all(half.is_large for half in self._halves.values() if half.waits)
        assert self._pressed or not any(half.waits for half in large)
        assert not large or not all(half.waits for half in large), "everybody waits"
        assert self._pressed or self._bytes <= self.bytes_max
