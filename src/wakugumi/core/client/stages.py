"""Where is a client's job: with no leader yet, with one, or waiting for one that is away? (SPEC K3–K6)

    Searched ──► Unsent ──► Sent ──► Sent, accepted ──► (gone: delivered or given up)
                   ▲ ▲        │           │
                   │ └────────┴───────────┤   the leader is full, or has forgotten it
                   │                      ▼
                   └─ the grace is ── Stranded   its connection was lost: it waits for that leader
                      over: adopted

A stage holds what is true in it and nothing else. Stages never change: a job moves on to another one.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeAlias

import msgspec

from wakugumi.core.client.events import ANY_LEADER, LeaderNo


class Unsent(msgspec.Struct, frozen=True, gc=False):
    """It waits for a leader that takes it."""

    leader: ClassVar[LeaderNo] = ANY_LEADER


class Searched(msgspec.Struct, frozen=True, gc=False):
    """Its id was given: every leader is asked whether it knows the job."""

    leader: ClassVar[LeaderNo] = ANY_LEADER


class Stranded(msgspec.Struct, frozen=True, gc=False):
    """The leader that has it is away, and may be back in time."""

    leader: LeaderNo


class Sent(msgspec.Struct, frozen=True, gc=False):
    """It is with this leader, over a connection that lives."""

    leader: LeaderNo
    accepted: bool = False
    """The leader gave its receipt."""
    cancelled: bool = False
    """The leader was told to cancel it, and has not said yet how it ended."""
    doubted: bool = False
    """The leader was told to let an earlier run of it go: the first result that comes may be of that one, also after
    the receipt, for a leader that does both in one step sends all receipts first."""


Stage: TypeAlias = Unsent | Searched | Stranded | Sent

UNSENT: Final = Unsent()
SEARCHED: Final = Searched()


class UnfinishedJob(msgspec.Struct, gc=False, eq=False):
    """A submitted job whose end the user has not seen."""

    frame: bytes
    at: Stage = UNSENT
    may: tuple[LeaderNo, ...] = ()
    """Leaders that may have it from a connection that is gone. They are asked for it before it is sent there again,
    because they may have its result, and would run a job anew that failed and is submitted again (L6)."""
    only: LeaderNo = ANY_LEADER
    """The leader that it is meant for, if it is for no other."""
    needs: int = 0
    """It did not fit a leader: it is only for those that take blobs, variables, or both."""
    given: bool = False
    """Its id is the user's own: a leader may know it from an earlier life."""
    first: LeaderNo = ANY_LEADER
    """The leader that gets it before others: it had FAILED there, or a submit to that leader may still be under way."""

    @property
    def is_cancelled(self) -> bool:
        at = self.at
        return type(at) is Sent and at.cancelled

    def is_unanswered_by(self, leader: LeaderNo) -> bool:
        """It was sent there over this connection, and neither accepted nor refused."""
        at = self.at
        return type(at) is Sent and at.leader == leader and not at.accepted

    def accept(self) -> None:
        assert type(self.at) is Sent
        self.at = msgspec.structs.replace(self.at, accepted=True)

    def cancel(self) -> None:
        assert type(self.at) is Sent
        self.at = msgspec.structs.replace(self.at, cancelled=True)

    def add_may(self, leader: LeaderNo) -> None:
        if leader not in self.may:
            self.may = (*self.may, leader)

    def drop_may(self, leader: LeaderNo) -> None:
        self.may = tuple(no for no in self.may if no != leader)
