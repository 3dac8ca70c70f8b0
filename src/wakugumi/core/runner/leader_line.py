"""Which kind of leader is connected, does it still answer, and when is the next heartbeat due?

DOWN ── opened ──► GREETING ── welcomed ──► OWN     gets the held jobs, then credit; results until confirmed
 ▲                     └─ no Welcome in time ──► OLD   nine types only: gets credit; written counts as delivered (F9)
 └──────────── lost, or silence ◄──────────────┴──────┘
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from wakugumi.core.greeting import SILENT_LEFT, WELCOME_AGAIN_WITHIN_S, WELCOME_WITHIN_S
from wakugumi.limits.wire import HEARTBEAT_S, SILENCE_MAX_S

_NEVER: Final = float("inf")


class LeaderKind(IntEnum):
    """OLD and OWN leaders take results."""

    DOWN = 0
    GREETING = 1
    OLD = 2
    OWN = 3


class LineToLeader:
    """One connection at a time. After a leader of our own, connections without a greeting are closed a few times before
    the next one counts as an old leader: an old leader gets results once, and they are forgotten."""

    __slots__ = ("_silent_left", "beat_at", "greeted_by", "kind", "leaving", "received_at", "secured")

    def __init__(self) -> None:
        self.kind = LeaderKind.DOWN
        self.leaving = False
        """This machine takes no more jobs."""
        self.received_at = 0.0
        self.beat_at = _NEVER
        """Time of the next heartbeat."""
        self.greeted_by = _NEVER
        self.secured = False
        """The leader has proven who it is, and is no old one."""
        self._silent_left = 0
        """Number of connections without a greeting to close before one counts as an old leader."""

    @property
    def listens(self) -> bool:
        return self.kind >= LeaderKind.OLD

    @property
    def is_offered(self) -> bool:
        """Slots that come free are offered to the leader."""
        return self.kind >= LeaderKind.OLD and not self.leaving

    def opened(self, now: float, *, secured: bool = False) -> None:
        assert self.kind is LeaderKind.DOWN
        self.kind = LeaderKind.GREETING
        self.secured = secured
        self.greeted_by = now + (WELCOME_AGAIN_WITHIN_S if self._silent_left or secured else WELCOME_WITHIN_S)

    def welcomed(self, now: float) -> None:
        self.kind = LeaderKind.OWN
        self._silent_left = SILENT_LEFT
        self.greeted_by = _NEVER
        self.received_at = now
        self.heartbeat_sent(now)

    def heartbeat_sent(self, now: float) -> None:
        """A heartbeat was sent, or the greeting answered."""
        self.beat_at = now + HEARTBEAT_S

    def taken_as_old(self) -> None:
        self.kind = LeaderKind.OLD
        self.greeted_by = _NEVER

    def lost(self) -> None:
        self.kind = LeaderKind.DOWN
        self.greeted_by = self.beat_at = _NEVER

    def why_hang_up(self, now: float) -> str:
        """Reason to close the connection now, or empty. A leader that has not greeted by then is an old one."""
        if self.greeted_by <= now and (self._silent_left or self.secured):
            self._silent_left = max(0, self._silent_left - 1)
            return f"the leader did not greet within {WELCOME_AGAIN_WITHIN_S:.0f} s"
        if self.kind is LeaderKind.OWN and self.received_at + SILENCE_MAX_S <= now:
            return f"nothing heard from the leader for {SILENCE_MAX_S:.0f} s"
        return ""

    def wake_at(self) -> float:
        at = min(self.beat_at, self.greeted_by)
        return min(at, self.received_at + SILENCE_MAX_S) if self.kind is LeaderKind.OWN else at

    def check(self) -> None:
        assert (self.kind is LeaderKind.OWN) == (self.beat_at < _NEVER)
        assert (self.kind is LeaderKind.GREETING) == (self.greeted_by < _NEVER)
