"""What does a client know of one of its leaders, and of the connection to it?

Data and simple properties: `leaders` and `failover` change them.
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
"""Confirms, and cancels, to remember for a leader in case its connection is lost: more than buffers hold."""

NEEDS_BLOBS: Final = 1
"""The job's files do not fit a frame."""
NEEDS_ENV: Final = 2
"""The job sets variables."""


class LeaderConnection(msgspec.Struct, eq=False):
    """An established connection, from its hello on."""

    id: ConnId
    leader: LeaderRow
    greeted_at: float
    received_at: float
    sent_cap: int
    ready: bool = False
    own: bool = False
    """The leader sent a Welcome: it speaks our own types."""
    secured: bool = False
    """The leader has proven who it is, and is no old one."""
    takes_cap: bool = False
    takes_blobs: bool = False
    takes_env: bool = False
    takes_finds: bool = False
    proven: bool = False
    """The peer sent a result without a Welcome: an old leader, not some other program."""
    given_at: float | None = None
    """Since when an unproven leader has a job."""
    blocked: bool = False
    unwritten_bytes: int = 0
    """Bytes of jobs sent since the last `LeaderWritten`. From GIVEN_BYTES_MAX on no more are sent."""
    later: dict[JobId, None] = {}
    """Jobs of this leader to send after `LeaderWritten`: it knows them, or is an old leader that may know them."""
    awaits_written: bool = False
    """`TellWhenLeaderWritten` was requested."""
    beat_at: float = 0.0
    frames: list[bytes] = []
    claims: list[JobId] = []
    cancels: list[JobId] = []
    confirms: list[JobId] = []
    finds: list[JobId] = []
    """Content gathered in this step: frames, claims, cancels, confirms and finds."""
    open_finds: dict[JobId, float] = {}
    """Unanswered finds with the time of asking, the oldest first."""
    late: bool = False
    """The oldest find was not answered in time."""
    missed: bool = False
    """Some jobs were not asked for, because the leader was late."""
    claimed: set[JobId] = set()
    """Unanswered claims of jobs that other leaders have, or that an unknown leader has."""
    full: bool = False
    full_delay_s: float = 0.0
    """Length of the last pause after a refusal; 0 if the leader has since taken all offered jobs."""
    full_until: float | None = None
    probes: int = 1
    """Number of jobs to offer a full leader at once: doubled while it takes them all."""
    probing: set[JobId] = set()
    waiting: str = ""
    """Code of the refusal that was reported to the user; empty if the leader is not full."""

    def takes(self, needs: int) -> bool:
        return bool((self.takes_blobs or not needs & NEEDS_BLOBS) and (self.takes_env or not needs & NEEDS_ENV))

    @property
    def is_written_to(self) -> bool:
        """The leader has still to read earlier frames, and gets no more before."""
        return self.blocked or self.unwritten_bytes >= GIVEN_BYTES_MAX

    def submit(self, job: JobId, frame: bytes) -> None:
        """Send the job now, or after `LeaderWritten`."""
        if self.unwritten_bytes >= GIVEN_BYTES_MAX:
            self.later[job] = None
        else:
            self.frames.append(frame)
            self.unwritten_bytes += len(frame)


class LeaderRow(msgspec.Struct, eq=False):
    no: LeaderNo
    key: int
    """Hash of the leader's name, mixed with that of a job's id."""
    sent: Sent
    accepted: Sent
    """Stages of this leader's jobs, shared by most of them."""
    dial_at: float | None = 0.0
    tried_at: float = math.inf
    """Time of the first attempt to connect, ever or since the leader served."""
    dialling: ConnId | None = None
    conn: LeaderConnection | None = None
    failures: int = 0
    answered: bool = False
    """The leader sent a result without a Welcome."""
    refused: bool = False
    """The leader did not let this client in, and has not served since."""
    silent_left: int = 0
    """Number of connections without a Welcome to close before one counts as an old leader."""
    hello_cap: int = 0
    share: int = 0
    in_flight: int = 0
    """Jobs that its connection carries."""
    adopted: int = 0
    """Jobs taken over from a lost leader."""
    lost_at: float = -math.inf
    """When the leader stopped serving; its jobs wait for it until the grace is over."""
    has_stranded: bool = False
    removed: bool = False
    on_trial: bool = False
    """The leader is unproven: it gets one job at a time."""
    cancels: dict[JobId, None] = {}
    """Jobs given up here that the leader may still have. The cancels are repeated over every later connection: no
    answer proves that the leader has stored them, and it may have been replaced."""
    confirmed: deque[JobId] = msgspec.field(default_factory=lambda: deque(maxlen=CONFIRMED_MAX))
    """The last confirms, repeated over the next connection: a leader that missed them, or died before it had stored
    them, would keep those results for us."""

    @property
    def serves(self) -> bool:
        return self.conn is not None and self.conn.ready

    @property
    def line(self) -> LeaderConnection | None:
        """The connection, if the leader speaks our own types."""
        conn = self.conn
        return conn if conn is not None and conn.ready and conn.own else None

    @property
    def is_coming(self) -> bool:
        """The first attempt to connect, ever or since the leader served, has not failed yet."""
        return not self.serves and not self.failures and not self.removed

    def remember_cancel(self, job: JobId) -> None:
        self.cancels[job] = None
        if len(self.cancels) > CONFIRMED_MAX:
            del self.cancels[next(iter(self.cancels))]


class KnownLeader(msgspec.Struct, frozen=True):
    """State of a leader, for users."""

    leader: LeaderNo
    share: int
    in_flight: int
    adopted: int
    removed: bool


def gather(
    conns: Mapping[ConnId, LeaderConnection], results: list[ev.ResultReceived], do: list[ClientDo]
) -> list[ev.ResultReceived]:
    """Move gathered content into effects; returns the list for the next results."""
    for conn in conns.values():
        # Frames gathered after a cancel may submit the same job again.
        if conn.cancels:
            do.append(ev.SendCancels(conn.id, conn.cancels))
            conn.cancels = []
        if conn.frames:
            do.append(ev.SendFrames(conn.id, conn.frames))
            conn.frames = []
            if conn.unwritten_bytes >= GIVEN_BYTES_MAX and not conn.awaits_written:
                conn.awaits_written = True
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


def note_accepted(conn: LeaderConnection, job: JobId) -> None:
    """A full leader took a job. When it has taken all offered jobs, it is offered twice as many."""
    if job in conn.probing:
        conn.probing.remove(job)
        if not conn.probing and conn.full_until is None:
            conn.probes *= 2
            conn.full_delay_s = 0.0
