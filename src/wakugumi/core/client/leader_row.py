"""What does a client know of one of its leaders, and of the connection to it?

Data, and what follows from it alone: `leaders` and `failover` change it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ClientDo, LeaderNo
from wakugumi.core.client.stages import Sent
from wakugumi.core.ids import ConnId, JobId
from wakugumi.limits.wire import GIVEN_BYTES_MAX

CONFIRMED_MAX: Final = 10_000
"""Confirms, and cancels, that are remembered for a leader, in case its connection is lost: more than buffers hold."""

NEEDS_BLOBS: Final = 1
"""Of a job whose files do not fit a frame."""
NEEDS_ENV: Final = 2
"""Of a job that sets variables."""


class LeaderConnection(msgspec.Struct, eq=False):
    """A connection that stands, from its hello on."""

    id: ConnId
    leader: LeaderRow
    greeted_at: float
    heard_at: float
    told_cap: int
    ready: bool = False
    own: bool = False
    """The leader said welcome: it speaks our own types."""
    takes_cap: bool = False
    takes_blobs: bool = False
    takes_env: bool = False
    takes_finds: bool = False
    proven: bool = False
    """It brought a result, though it never said welcome: an old leader, and not something else that listens."""
    given_at: float | None = None
    """Since when it has a job, while it is not proven."""
    blocked: bool = False
    unwritten_bytes: int = 0
    """Jobs that it was given since the last ones were written. From GIVEN_BYTES_MAX on it is given no more."""
    later: dict[JobId, None] = {}
    """Jobs that are its own all the same, and are sent when they are: it knows them, or is an old leader that may."""
    tells: bool = False
    """It is told when they are."""
    beat_at: float = 0.0
    frames: list[bytes] = []
    claims: list[JobId] = []
    cancels: list[JobId] = []
    confirms: list[JobId] = []
    finds: list[JobId] = []
    """What this step has gathered for it."""
    sought: dict[JobId, float] = {}
    """Jobs that it was asked for and has said nothing of yet, and when it was asked, the oldest first."""
    late: bool = False
    """It has not answered the oldest of these questions in time."""
    missed: bool = False
    """It was not asked for some jobs, because it was late."""
    claimed: set[JobId] = set()
    """Jobs that it was asked for and is not the one to do: others have them, or nobody knows who has. It has not said
    that it does not know them."""
    full: bool = False
    full_delay_s: float = 0.0
    """How long it was left alone the last time; 0 if it has since taken all that it was offered."""
    full_until: float | None = None
    probes: int = 1
    """How many jobs a full leader is offered at once: doubled while it takes them all."""
    probing: set[JobId] = set()
    waiting: str = ""
    """Why it is full, as the user was told: the code of a refusal."""

    def takes(self, needs: int) -> bool:
        return bool((self.takes_blobs or not needs & NEEDS_BLOBS) and (self.takes_env or not needs & NEEDS_ENV))

    @property
    def is_written_to(self) -> bool:
        """It has still to read what it was given, and is given nothing more before."""
        return self.blocked or self.unwritten_bytes >= GIVEN_BYTES_MAX

    def submit(self, job: JobId, frame: bytes) -> None:
        """Now, or when there is room."""
        if self.unwritten_bytes >= GIVEN_BYTES_MAX:
            self.later[job] = None
        else:
            self.frames.append(frame)
            self.unwritten_bytes += len(frame)


class LeaderRow(msgspec.Struct, eq=False):
    """One row of the table."""

    no: LeaderNo
    key: int
    """What its name becomes in the hash of an id."""
    sent: Sent
    accepted: Sent
    """The stages of jobs that it has, shared by most of them."""
    dial_at: float | None = 0.0
    tried_at: float = math.inf
    """When it was dialled first, ever or since it served."""
    dialling: ConnId | None = None
    conn: LeaderConnection | None = None
    failures: int = 0
    answered: bool = False
    """It brought a result, though it never said welcome."""
    silent_left: int = 0
    """How many connections without a welcome are still left before one is taken as that of an old leader."""
    hello_cap: int = 0
    share: int = 0
    in_flight: int = 0
    """Jobs that its connection carries."""
    adopted: int = 0
    """Jobs that it was given because another leader was lost with them."""
    lost_at: float = -math.inf
    """When it ceased to serve; what it had then waits for it until the grace is over."""
    has_stranded: bool = False
    removed: bool = False
    on_trial: bool = False
    """Nothing is known of it but that it listens: it gets one job at a time."""
    cancels: dict[JobId, None] = {}
    """Given up here while it may still have them. It is told over every next connection, and not only once: nothing
    that it says proves that it has kept it, and it may be another leader by then."""
    confirmed: deque[JobId] = msgspec.field(default_factory=lambda: deque(maxlen=CONFIRMED_MAX))
    """The last confirms. They are said again over the next connection: a leader that missed them, or died before it had
    kept them, would keep those results for us."""

    @property
    def serves(self) -> bool:
        return self.conn is not None and self.conn.ready

    @property
    def line(self) -> LeaderConnection | None:
        """Where our own types may be said."""
        conn = self.conn
        return conn if conn is not None and conn.ready and conn.own else None

    @property
    def is_coming(self) -> bool:
        """It is tried for the first time since it was there, or ever: nobody knows yet whether it serves."""
        return not self.serves and not self.failures and not self.removed

    def remember_cancel(self, job: JobId) -> None:
        self.cancels[job] = None
        if len(self.cancels) > CONFIRMED_MAX:
            del self.cancels[next(iter(self.cancels))]


class KnownLeader(msgspec.Struct, frozen=True):
    """How a leader is, for people."""

    leader: LeaderNo
    share: int
    in_flight: int
    adopted: int
    removed: bool


def gather(
    conns: Mapping[ConnId, LeaderConnection], results: list[ev.ResultCame], do: list[ClientDo]
) -> list[ev.ResultCame]:
    """Ask for what this step has gathered; gives the list for the next results."""
    for conn in conns.values():
        # Frames that were gathered after a cancel may be of the same job, which is wanted again.
        if conn.cancels:
            do.append(ev.SendCancels(conn.id, conn.cancels))
            conn.cancels = []
        if conn.frames:
            do.append(ev.SendFrames(conn.id, conn.frames))
            conn.frames = []
            if conn.unwritten_bytes >= GIVEN_BYTES_MAX and not conn.tells:
                conn.tells = True
                do.append(ev.TellWhenLeaderWritten(conn.id))
        if conn.claims:
            do.append(ev.SendClaims(conn.id, conn.claims))
            conn.claims = []
        if conn.finds:
            do.append(ev.SendFinds(conn.id, conn.finds))
            conn.finds = []
    if results:
        do.append(ev.Deliver(results))
        results = []
    for conn in conns.values():
        if conn.confirms:
            do.append(ev.SendConfirms(conn.id, conn.confirms))
            conn.leader.confirmed.extend(conn.confirms)
            conn.confirms = []
    return results


def taken(conn: LeaderConnection, job: JobId) -> None:
    """A leader that was full took a job. When it took all it was offered, it is offered twice as many."""
    if job in conn.probing:
        conn.probing.remove(job)
        if not conn.probing and conn.full_until is None:
            conn.probes *= 2
            conn.full_delay_s = 0.0
