"""Who is at the other end of the line to the leader, does it still listen, and when must it hear of us?

DOWN ── opened ──► GREETING ── welcomed ──► OWN     says what it holds, then offers credit; results until confirmed
 ▲                     └─ no Welcome in time ──► OLD   nine types only: offers credit; written is delivered (F9)
 └──────────── lost, or silence ◄──────────────┴──────┘
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from wakugumi.core.greeting import SILENT_LEFT, WELCOME_AGAIN_WITHIN_S, WELCOME_WITHIN_S
from wakugumi.limits.wire import HEARTBEAT_S, SILENCE_MAX_S

_NEVER: Final = float("inf")


class LeaderKind(IntEnum):
    """Who is at the other end; from OLD on, somebody listens."""

    DOWN = 0
    GREETING = 1
    OLD = 2
    OWN = 3


class LineToLeader:
    """One line at a time. After a leader of our own, one that says nothing is left a few times before it is taken as
    old: to an old one results would be told, and forgotten."""

    __slots__ = ("_silent_left", "beat_at", "greeted_by", "heard_at", "kind", "leaving")

    def __init__(self) -> None:
        self.kind = LeaderKind.DOWN
        self.leaving = False
        """This machine takes no more jobs."""
        self.heard_at = 0.0
        self.beat_at = _NEVER
        """When the leader must hear of us."""
        self.greeted_by = _NEVER
        self._silent_left = 0
        """How many that do not greet are still left before one is taken as old."""

    @property
    def listens(self) -> bool:
        return self.kind >= LeaderKind.OLD

    @property
    def is_offered(self) -> bool:
        """The leader is offered the slots that come free."""
        return self.kind >= LeaderKind.OLD and not self.leaving

    def opened(self, now: float) -> None:
        assert self.kind is LeaderKind.DOWN
        self.kind = LeaderKind.GREETING
        self.greeted_by = now + (WELCOME_AGAIN_WITHIN_S if self._silent_left else WELCOME_WITHIN_S)

    def welcomed(self, now: float) -> None:
        self.kind = LeaderKind.OWN
        self._silent_left = SILENT_LEFT
        self.greeted_by = _NEVER
        self.heard_at = now
        self.heard_of_us(now)

    def heard_of_us(self, now: float) -> None:
        """A heartbeat was sent, or the greeting answered."""
        self.beat_at = now + HEARTBEAT_S

    def taken_as_old(self) -> None:
        self.kind = LeaderKind.OLD
        self.greeted_by = _NEVER

    def lost(self) -> None:
        self.kind = LeaderKind.DOWN
        self.greeted_by = self.beat_at = _NEVER

    def why_hang_up(self, now: float) -> str:
        """Why the line is to be left now; empty if there is no reason. What has not greeted then is an old leader."""
        if self.greeted_by <= now and self._silent_left:
            self._silent_left -= 1
            return f"the leader did not greet within {WELCOME_AGAIN_WITHIN_S:.0f} s"
        if self.kind is LeaderKind.OWN and self.heard_at + SILENCE_MAX_S <= now:
            return f"nothing heard from the leader for {SILENCE_MAX_S:.0f} s"
        return ""

    def wake_at(self) -> float:
        at = min(self.beat_at, self.greeted_by)
        return min(at, self.heard_at + SILENCE_MAX_S) if self.kind is LeaderKind.OWN else at

    def check(self) -> None:
        assert (self.kind is LeaderKind.OWN) == (self.beat_at < _NEVER)
        assert (self.kind is LeaderKind.GREETING) == (self.greeted_by < _NEVER)
