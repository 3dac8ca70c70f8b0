"""What does a leader know of a job, its client, its worker, and the queues between them? The nouns of its machine.

They know each other (a job its client and worker, a turn its lane, a lane its pools), so they stand in one file; who
changes them is another question, answered by the files around.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, TypeAlias

import msgspec

from wakugumi.core.backoff import TURN_STRIDE
from wakugumi.core.ids import Attempt, ClientId, ConnId, JobId, Verdict, WorkerId
from wakugumi.core.leader.jobs.states import QUEUED, TRANSITIONS, JobState
from wakugumi.core.leader.scheduling.lane_states import NOWHERE, PARKED, REFUSED, LaneState
from wakugumi.core.leader.stats import Cell
from wakugumi.core.leader.waiting_line import WaitingLine
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Pattern, Subject
from wakugumi.limits.leader import UNDELIVERED_BYTES_PER_CLIENT_MAX
from wakugumi.limits.wire import GIVEN_BYTES_MAX

_NEVER: Final = float("inf")

DIGEST_BITS: Final = 128
CRC_BITS: Final = 32
DIGEST_MASK: Final = (1 << DIGEST_BITS) - 1
CRC_MASK: Final = (1 << CRC_BITS) - 1

Kind: TypeAlias = tuple[int, tuple[WorkerId, ...]]
"""Who is able to run it."""
Row: TypeAlias = tuple[int, int, Kind]
"""Priority, slots, and its kind where that is told apart."""


class ClientRecord:
    """Whoever submits under one client id, over any number of connections. It outlives them while it has jobs."""

    __slots__ = ("cap", "conns", "id", "in_flight", "open_jobs", "parked", "undelivered_bytes")

    def __init__(self, client_id: ClientId) -> None:
        self.id = client_id
        self.cap = 0
        self.conns: dict[ConnId, int] = {}
        """Its connections and the cap that each declared; the largest holds."""
        self.in_flight = 0
        self.open_jobs = 0
        """Jobs that it submitted and nobody has the result of yet."""
        self.undelivered_bytes = 0
        self.parked: OrderedDict[Turn, None] = OrderedDict()
        """Those of its turns that wait until it may run more, in the order in which they began to wait."""

    @property
    def may_run(self) -> bool:
        return self.in_flight < self.cap and self.undelivered_bytes < UNDELIVERED_BYTES_PER_CLIENT_MAX


class JobRecord(msgspec.Struct, gc=False, eq=False):
    """A job as its leader knows it. A million of these are held: no dictionaries, shared strings, no cyclic garbage."""

    id: JobId
    client: ClientRecord
    subject: Subject
    program: str
    timeout_s: float
    submitted_at: float
    payload: bytes | None
    """The request's bytes; None if only the journal has them, or nobody needs them any more."""
    waiters: tuple[ConnId, ...]
    """Connections that will get the result."""
    state: JobState = QUEUED
    since: float = 0.0
    """When it came into this state."""
    attempts: int = 0
    worker: WorkerRecord | None = None
    """Who runs it, while it is RUNNING."""
    history: tuple[Attempt, ...] = ()
    """Attempts that ended."""
    also: tuple[WorkerRecord, ...] = ()
    """Others that still run it, from attempts that were given up: the first answer counts."""
    ok: bool = False
    delivered: bool = False
    result: bytes | Verdict | None = None
    digest: int = 0
    """The request in short, and its size: see `digest_of`."""
    leaf: int = 0
    """Where the journal has its request; 0 if there is no journal."""
    retries: int = 0
    """How often a non-zero exit or a timeout is not yet its answer."""
    requeued: bool = False
    """It was dead before."""
    wants: Requirements | None = None
    """None for the plain job that asks for nothing."""
    cell: Cell | None = None
    """Where the statistics count its attempt, while it is RUNNING."""
    older: JobId | None = None
    newer: JobId | None = None
    """Its neighbours of the same client and subject (`jobs`): by their ids, so that there are no circles."""

    def enter(self, state: JobState) -> None:
        """The one place where a job's state changes, and only as the table allows."""
        assert state in TRANSITIONS[self.state], (self.state, state)
        self.state = state

    @property
    def size(self) -> int:
        """How many bytes its request has."""
        return self.digest >> DIGEST_BITS

    @property
    def request(self) -> bytes:
        """The digest of what decides its answer; empty if that is not known."""
        digest = self.digest & DIGEST_MASK
        return digest.to_bytes(DIGEST_BITS // 8, "little") if digest > CRC_MASK else b""

    @property
    def checksum(self) -> int:
        """Size and checksum in one machine word, as journals hold them: 0 for the checksum of one with a digest."""
        digest = self.digest & DIGEST_MASK
        return self.size << CRC_BITS | (digest if digest <= CRC_MASK else 0)


class WorkerRecord:
    """A worker as its leader knows it. It outlives its connection by the time it has to come back."""

    __slots__ = (
        "as_root",
        "away_until",
        "blobs",
        "blocked",
        "cancels",
        "conn",
        "cpu",
        "credit",
        "draining",
        "env",
        "fault",
        "heartbeats",
        "held_by",
        "id",
        "jobs",
        "joined_at",
        "kept_for",
        "label",
        "leaving",
        "lent",
        "load",
        "loading",
        "more",
        "name",
        "number",
        "parallel",
        "patterns",
        "pools",
        "rank",
        "reattach",
        "receipts",
        "resend",
        "rests",
        "runs_unnamed",
        "seen_at",
        "settled",
        "simple_only",
        "slots",
        "slots_said",
        "spent_at",
        "stride",
        "timer_at",
        "turn",
        "unpaid",
        "unpaid_since",
        "unwritten_bytes",
    )

    def __init__(self, worker_id: WorkerId, number: int) -> None:
        self.id = worker_id
        self.number = number
        self.name = ""
        self.label = digits_of(worker_id)[:8]
        """What people call it."""
        self.conn: ConnId | None = None
        self.patterns: tuple[Pattern, ...] = ()
        self.pools: list[PatternPool] = []
        self.credit = 0
        self.parallel = 0
        """How many jobs it takes at once: its first credit over this connection."""
        self.unpaid = 0
        """Empty acks since its credit and its jobs were as many as that: maybe of duplicates, for which a worker of the
        nine types offers no credit."""
        self.unpaid_since = 0.0
        self.lent = 0
        """Credit that it was given back for them: less is taken of what it offers, if that would be too much."""
        self.jobs: dict[JobId, None] = {}
        """What it was given and has not answered, as far as the leader knows."""
        self.rank = -1
        """Below 0: it may be given nothing now."""
        self.more: list[int] = []
        """Its ranks by the other rules in use."""
        self.turn = 0
        self.stride = TURN_STRIDE
        """When it is its turn, and how far that is put off by a job: the less, the larger its weight."""
        self.slots = self.slots_said = 0
        """How many it has in all; 0 if it did not say so, and then it is given no job that needs several."""
        self.kept_for: Turn | None = None
        """It is given nothing but the large job of that turn, once it has room for it."""
        self.receipts = self.heartbeats = self.reattach = self.cancels = False
        self.blobs = False
        """It fetches what a job names and does not bring along."""
        self.runs_unnamed = self.simple_only = False
        self.resend = False
        """It is sent once more what it says it holds."""
        self.env = False
        """It gives programs the variables that a job sets."""
        self.as_root = False
        """Programs have the rights of root there."""
        self.rests = ""
        """Why it is out of order; empty if it is not."""
        self.fault = ""
        """Why it could not start a job, the last time that it could not."""
        self.settled = True
        """It has said what it holds, or never will: it may be given work."""
        self.draining = False
        self.leaving = False
        self.blocked = False
        """It does not read what it is sent."""
        self.unwritten_bytes = 0
        """Requests that it was given since the last ones were written. From GIVEN_BYTES_MAX on it is given no more."""
        self.loading = 0
        """Those of its jobs whose requests are being read from the journal."""
        self.away_until: float | None = None
        self.timer_at: float | None = None
        """When it is looked whether it is still away."""
        self.seen_at = self.joined_at = 0.0
        self.cpu = 0.0
        self.held_by = 0.0
        """Of its CPU, 0 to 1, others used so much that it held credit back (W2); 0 if it did not."""
        self.load = 0
        """The same in percent, if anyone ranks by it."""
        self.spent_at = 0.0
        """When its last credit was used, or lost."""

    @property
    def usable_credit(self) -> int:
        if self.draining or self.leaving or self.blocked or not self.settled or self.conn is None:
            return 0
        return self.credit if self.unwritten_bytes < GIVEN_BYTES_MAX else 0  # As `is_written_to` says.

    @property
    def is_written_to(self) -> bool:
        """It has still to read what it was given, and is given nothing more before."""
        return self.blocked or self.unwritten_bytes >= GIVEN_BYTES_MAX

    @property
    def serves(self) -> bool:
        """It takes jobs, now or when it has credit again."""
        return not (self.conn is None or self.draining or self.leaving or self.rests)

    def call(self, name: str) -> None:
        self.name = name
        self.label = name or digits_of(self.id)[:8]

    @property
    def state(self) -> str:
        if self.conn is None:
            return "away"
        if self.leaving:
            return "leaving"
        if self.draining:
            return "draining"
        if self.rests:
            return "resting"
        if self.usable_credit:
            return "ready"
        if self.credit and self.is_written_to:
            return "sending"
        return "held back" if self.held_by and len(self.jobs) < self.slots else "busy"


class PatternPool:
    """The workers that subscribe to one pattern."""

    __slots__ = ("clock", "heap", "is_address", "members", "more", "parked", "pattern", "simple_only")

    def __init__(self, pattern: Pattern, rankings: int = 1, *, simple_only: bool = False) -> None:
        self.pattern = pattern
        self.simple_only = simple_only
        """All its members are."""
        self.is_address = False
        """It means one machine: subjects that it matches are served by no others while it is there (SPEC S4)."""
        self.members: dict[int, WorkerRecord] = {}
        self.clock = 0
        """Whose turn it was last, where workers take turns."""
        self.heap: list[int] = []
        self.more: list[list[int]] = [[] for _ in range(1, rankings)]
        self.parked: WaitingLine[Lane] = WaitingLine()
        """Subjects with work that wait for credit here."""


class Lane:
    """The queue of one subject."""

    __slots__ = (
        "aside",
        "by_client",
        "looked",
        "order",
        "place",
        "pools",
        "queued",
        "ring",
        "simple",
        "simple_pools",
        "sticky",
        "subject",
        "waits",
    )

    def __init__(self, subject: Subject, pools: list[PatternPool], order: int = 0, *, sticky: bool = False) -> None:
        self.subject = subject
        self.pools: list[PatternPool]
        self.simple_pools: list[PatternPool]
        """Of workers that take simple jobs only."""
        self.served_by(pools)
        self.order = order
        """By which of the roster's rules its workers are ranked."""
        self.sticky = sticky
        """Its keys have homes."""
        self.ring: deque[Turn] = deque()
        """Turns of clients that may run something, the next one first."""
        self.by_client: dict[ClientId, Turn] = {}
        self.queued = 0
        self.simple = 0
        """Those of them that are simple."""
        self.place = 0
        """Since when it waits, against other lanes; 0 if it was served since, or has nothing to wait for."""
        self.waits: LaneState = NOWHERE
        self.aside: dict[Turn, None] | None = None
        """Turns that cannot use the credit there is, in the order in which they were found so; None for none."""
        self.looked = 0
        """The round in which they were."""

    def served_by(self, pools: list[PatternPool]) -> None:
        self.pools = [pool for pool in pools if not pool.simple_only]
        self.simple_pools = [pool for pool in pools if pool.simple_only]

    @property
    def all_pools(self) -> list[PatternPool]:
        return [*self.pools, *self.simple_pools] if self.simple_pools else self.pools

    @property
    def is_parked(self) -> bool:
        return self.waits is PARKED or self.waits is REFUSED

    def pools_of(self, wants: Requirements) -> list[PatternPool]:
        """Where a job may go that asks for this."""
        return self.all_pools if wants.simple else self.pools


class Turn:
    """One client's jobs in one lane: in the lane's ring, or parked with its client, or aside, while any of them is
    queued."""

    __slots__ = ("client", "gone", "jobs", "lane", "needs", "sorted_out")

    def __init__(self, lane: Lane, client: ClientRecord) -> None:
        self.lane = lane
        self.client = client
        self.jobs: deque[JobRecord] = deque()
        self.gone = 0
        """Those of the jobs that are no longer queued."""
        self.needs: TurnNeeds | None = None
        """None while none of its jobs asks for anything: then it is first in, first out, to the best worker."""
        self.sorted_out = False
        """Those that others are able to run than the rest have queues of their own."""


class TurnNeeds:
    """What the jobs of one turn ask for. A turn whose jobs ask for nothing has none."""

    __slots__ = (
        "count",
        "first",
        "first_at",
        "grew_at",
        "homes",
        "idle_at",
        "keep_at",
        "kept",
        "kept_credit",
        "large",
        "picky",
        "queues",
        "seen",
        "stuck",
        "wake_at",
    )

    def __init__(self) -> None:
        self.queues: dict[Row, deque[JobRecord]] = {}
        """Jobs by what they ask for; those that ask for nothing of it stay in the turn's own deque."""
        self.count = 0
        """Jobs of the turn that ask for something; also those that are gone and not yet removed."""
        self.picky = 0
        """Those of them that cannot go to just anybody."""
        self.first: JobRecord | None = None
        self.first_at = 0.0
        """The first one that waits for its home, and since when it does so as the first."""
        self.large: JobRecord | None = None
        self.keep_at = 0.0
        """The first one that needs more slots than anybody has free, and when a worker may be kept free for it."""
        self.kept: WorkerRecord | None = None
        """Who is kept free for it."""
        self.kept_credit = 0
        self.grew_at = 0.0
        """How much of that one is free, and since when it has been no more."""
        self.stuck: WorkerRecord | None = None
        """Who was kept free before, in vain."""
        self.idle_at = _NEVER
        """Since when that one runs nothing, and still has no room."""
        self.wake_at = _NEVER
        self.homes: list[WorkerRecord] | None = None
        self.seen = (0, 0)
        """Who was waited for when nothing could go, of how many jobs and in which era: while none of that has changed
        and none of them has credit, there is no need to look again. None: look."""


def digits_of(worker_id: WorkerId) -> str:
    """As a person writes a UUID, without the dashes."""
    return (worker_id[3::-1] + worker_id[5:3:-1] + worker_id[7:5:-1] + worker_id[8:]).hex()
