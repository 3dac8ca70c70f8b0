"""Where is a client's job: with no leader yet, with one, or waiting for a disconnected one? (SPEC K3–K6)

    Searched ──► Unsent ──► Sent ──► Sent, accepted ──► (gone: delivered or given up)
                   ▲ ▲        │           │
                   │ └────────┴───────────┤   the leader is full, or has forgotten the job
                   │                      ▼
                   └─ the grace is ── Stranded   the connection was lost: the job waits for that leader
                      over: adopted

A stage holds only facts of that stage. Stages never change: a job moves on to another one.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeAlias

import msgspec

from wakugumi.core.client.events import ANY_LEADER, LeaderNo


class Unsent(msgspec.Struct, frozen=True, gc=False):
    """The job waits for a leader that takes it."""

    leader: ClassVar[LeaderNo] = ANY_LEADER


class Searched(msgspec.Struct, frozen=True, gc=False):
    """The user gave the id: every leader is asked whether it knows the job."""

    leader: ClassVar[LeaderNo] = ANY_LEADER


class Stranded(msgspec.Struct, frozen=True, gc=False):
    """The job's leader is disconnected, and may be back in time."""

    leader: LeaderNo


class Sent(msgspec.Struct, frozen=True, gc=False):
    """The job is with this leader, over a live connection."""

    leader: LeaderNo
    accepted: bool = False
    """The leader sent its receipt."""
    cancelled: bool = False
    """A cancel was sent, and the leader has not reported the end yet."""
    doubted: bool = False
    """A cancel of an earlier run was sent: the next result may belong to that run, even after the receipt, because a
    leader that does both in one step sends all receipts first."""


Stage: TypeAlias = Unsent | Searched | Stranded | Sent

UNSENT: Final = Unsent()
SEARCHED: Final = Searched()


class UnfinishedJob(msgspec.Struct, gc=False, eq=False):
    """A submitted job whose end the user has not seen."""

    frame: bytes
    at: Stage = UNSENT
    may_have: tuple[LeaderNo, ...] = ()
    """Leaders that may have the job from a lost connection. They get a claim before another submit, because they may
    have its result, and would run a failed job anew if it is submitted again (L6)."""
    only: LeaderNo = ANY_LEADER
    """The only leader that may get the job, if any."""
    needs: int = 0
    """NEEDS_BLOBS, NEEDS_ENV, or both: the job did not fit a leader without them."""
    given: bool = False
    """The user chose the id: a leader may know the job from an earlier life of the client."""
    first: LeaderNo = ANY_LEADER
    """The leader that gets the job before others: it FAILED there, or an earlier submit may still arrive there."""

    @property
    def is_cancelled(self) -> bool:
        at = self.at
        return type(at) is Sent and at.cancelled

    def is_unanswered_by(self, leader: LeaderNo) -> bool:
        """The job was sent there over this connection, and neither accepted nor refused."""
        at = self.at
        return type(at) is Sent and at.leader == leader and not at.accepted

    def accept(self) -> None:
        assert type(self.at) is Sent
        self.at = msgspec.structs.replace(self.at, accepted=True)

    def cancel(self) -> None:
        assert type(self.at) is Sent
        self.at = msgspec.structs.replace(self.at, cancelled=True)

    def add_may_have(self, leader: LeaderNo) -> None:
        if leader not in self.may_have:
            self.may_have = (*self.may_have, leader)

    def drop_may_have(self, leader: LeaderNo) -> None:
        self.may_have = tuple(no for no in self.may_have if no != leader)
