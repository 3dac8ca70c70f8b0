"""What does a leader know of a job, its client, its worker, and the queues between them?

The records refer to each other (a job to its client and worker, a turn to its lane, a lane to its pools), so they share
one file. The files around change them.
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
"""Key of the workers that are able to run a job: its flags as bits, and the workers that it shuns
(`turn_jobs.kind_of`)."""
Row: TypeAlias = tuple[int, int, Kind]
"""Priority, slots and kind of a job; the kind only in a turn that is sorted out."""


class ClientRecord:
    """A client id, with any number of connections. The record outlives them while the client has open jobs."""

    __slots__ = ("cap", "conns", "id", "in_flight", "open_jobs", "parked", "undelivered_bytes")

    def __init__(self, client_id: ClientId) -> None:
        self.id = client_id
        self.cap = 0
        self.conns: dict[ConnId, int] = {}
        """Cap that each connection declared. `cap` is the largest."""
        self.in_flight = 0
        self.open_jobs = 0
        """Jobs of this client whose results are not yet delivered."""
        self.undelivered_bytes = 0
        self.parked: OrderedDict[Turn, None] = OrderedDict()
        """Turns that wait until the client may run more, in the order in which the wait began."""

    @property
    def may_run(self) -> bool:
        return self.in_flight < self.cap and self.undelivered_bytes < UNDELIVERED_BYTES_PER_CLIENT_MAX


class JobRecord(msgspec.Struct, gc=False, eq=False):
    """A job as its leader knows it. The leader holds a million: no dictionaries, shared strings, no cyclic garbage."""

    id: JobId
    client: ClientRecord
    subject: Subject
    program: str
    timeout_s: float
    submitted_at: float
    payload: bytes | None
    """Bytes of the request; None if only the journal has them, or the job needs them no more."""
    waiters: tuple[ConnId, ...]
    """Connections that will get the result."""
    state: JobState = QUEUED
    since: float = 0.0
    """Since when the job waits, runs or is done; in BACKOFF, when the next attempt is due."""
    attempts: int = 0
    worker: WorkerRecord | None = None
    """Worker that runs the job, while the state is RUNNING."""
    history: tuple[Attempt, ...] = ()
    """Attempts that ended."""
    former_workers: tuple[WorkerRecord, ...] = ()
    """Workers of attempts that were given up, which may still run the job: the first answer counts."""
    ok: bool = False
    delivered: bool = False
    result: bytes | Verdict | None = None
    digest: int = 0
    """Size and digest of the request: see `digest_of`."""
    leaf: int = 0
    """Leaf of the journal with the request; 0 without a journal."""
    retries: int = 0
    """Number of non-zero exits or timeouts after which the job runs again."""
    requeued: bool = False
    """The job was dead, and an operator requeued it."""
    requirements: Requirements | None = None
    """None for a plain job, which asks for nothing."""
    cell: Cell | None = None
    """Cell of the statistics that counts the attempt, while the state is RUNNING."""
    older: JobId | None = None
    newer: JobId | None = None
    """Neighbours of the same client and subject in the `JobTable`. Ids in place of records, so that no cycles arise."""

    def enter(self, state: JobState) -> None:
        """Change the state as the table allows: the only place that does."""
        assert state in TRANSITIONS[self.state], (self.state, state)
        self.state = state

    @property
    def size(self) -> int:
        """Bytes of the request."""
        return self.digest >> DIGEST_BITS

    @property
    def request(self) -> bytes:
        """Digest of all that decides the answer; empty if unknown."""
        digest = self.digest & DIGEST_MASK
        return digest.to_bytes(DIGEST_BITS // 8, "little") if digest > CRC_MASK else b""

    @property
    def checksum(self) -> int:
        """Size and CRC-32 in one integer, as in the journal; the CRC-32 is 0 if there is a digest."""
        digest = self.digest & DIGEST_MASK
        return self.size << CRC_BITS | (digest if digest <= CRC_MASK else 0)


class WorkerRecord:
    """A worker as its leader knows it. The record outlives the connection while the worker may come back."""

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
        "key",
        "label",
        "leaving",
        "lent",
        "load",
        "loading",
        "more",
        "moved_at",
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
        "slots_declared",
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
        """Name, or the first eight digits of the id."""
        self.conn: ConnId | None = None
        self.key: str | None = None
        """Key of its last connection; None if that was to an earlier leader."""
        self.patterns: tuple[Pattern, ...] = ()
        self.pools: list[PatternPool] = []
        self.credit = 0
        self.parallel = 0
        """Number of jobs that the worker takes at once: its first credit on this connection."""
        self.unpaid = 0
        """Empty acks since credit and jobs were last as many as `parallel`. They may answer duplicates, for which a
        worker of the nine types offers no credit."""
        self.unpaid_since = 0.0
        self.lent = 0
        """Credit that the leader added for empty acks. Less of the next offer counts, if the sum would exceed
        `parallel`."""
        self.jobs: dict[JobId, None] = {}
        """Jobs that the worker holds and has not answered, as far as the leader knows."""
        self.moved_at: dict[JobId, float] = {}
        """When the results of some of these jobs were last known to be on their way."""
        self.rank = -1
        """Rank by the first rule, the lowest first; below 0 the worker gets no job now."""
        self.more: list[int] = []
        """Ranks by the other rules in use."""
        self.turn = 0
        self.stride = TURN_STRIDE
        """Time of the next turn, and how far a job delays the turn: the larger the weight, the less."""
        self.slots = self.slots_declared = 0
        """Number of all slots, as believed and as declared; 0 if undeclared, and then no job that needs several comes
        here."""
        self.kept_for: Turn | None = None
        """The worker is kept free for the large job of this turn."""
        # Capabilities, as in `WorkerJoined`.
        self.receipts = self.heartbeats = self.reattach = self.cancels = self.resend = False
        self.blobs = self.runs_unnamed = self.simple_only = self.env = self.as_root = False
        self.rests = ""
        """Why the worker is out of order; empty if it works."""
        self.fault = ""
        """Why the worker could not start a job, the last time."""
        self.settled = True
        """The worker has reported what it holds, or never will: it may get jobs."""
        self.draining = False
        self.leaving = False
        self.blocked = False
        """The worker does not read its connection."""
        self.unwritten_bytes = 0
        """Bytes of assigned requests since the last ones were written. From GIVEN_BYTES_MAX on the worker gets no
        more."""
        self.loading = 0
        """Number of its jobs whose requests are being read from the journal."""
        self.away_until: float | None = None
        self.timer_at: float | None = None
        """Due time of its timer, which checks whether the worker is still away."""
        self.seen_at = self.joined_at = 0.0
        self.cpu = 0.0
        self.held_by = 0.0
        """Share of its CPU, 0 to 1, that other programs used when the worker held credit back (W2); 0 if it did not."""
        self.load = 0
        """Reported CPU use in percent, if a ranking needs it."""
        self.spent_at = 0.0
        """Time when its last credit was used or lost."""

    @property
    def usable_credit(self) -> int:
        if self.draining or self.leaving or self.blocked or not self.settled or self.conn is None:
            return 0
        return self.credit if self.unwritten_bytes < GIVEN_BYTES_MAX else 0  # See `is_congested`.

    @property
    def is_congested(self) -> bool:
        """The connection does not take more now: earlier bytes must be written first."""
        return self.blocked or self.unwritten_bytes >= GIVEN_BYTES_MAX

    @property
    def serves(self) -> bool:
        """The worker takes jobs, now or when it has credit again."""
        return not (self.conn is None or self.draining or self.leaving or self.rests)

    def set_name(self, name: str) -> None:
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
        if self.credit and self.is_congested:
            return "sending"
        return "held back" if self.held_by and len(self.jobs) < self.slots else "busy"


class PatternPool:
    """The workers that subscribe to one pattern."""

    __slots__ = ("clock", "heap", "is_address", "members", "more", "parked", "pattern", "simple_only")

    def __init__(self, pattern: Pattern, rankings: int = 1, *, simple_only: bool = False) -> None:
        self.pattern = pattern
        self.simple_only = simple_only
        """All members take simple jobs only."""
        self.is_address = False
        """The pattern addresses one machine: while this pool exists, no others serve the subjects that it matches (SPEC
        S4)."""
        self.members: dict[int, WorkerRecord] = {}
        self.clock = 0
        """Turn of the last assignment, where workers take turns."""
        self.heap: list[int] = []
        self.more: list[list[int]] = [[] for _ in range(1, rankings)]
        self.parked: WaitingLine[Lane] = WaitingLine()
        """Lanes that wait for credit of this pool."""


class Lane:
    """The queue of one subject."""

    __slots__ = (
        "aside",
        "aside_round",
        "by_client",
        "order",
        "place",
        "pools",
        "queued",
        "ring",
        "simple",
        "simple_pools",
        "sticky",
        "subject",
        "waits_in",
    )

    def __init__(self, subject: Subject, pools: list[PatternPool], order: int = 0, *, sticky: bool = False) -> None:
        self.subject = subject
        self.pools: list[PatternPool]
        self.simple_pools: list[PatternPool]
        """Pools of workers that take simple jobs only."""
        self.served_by(pools)
        self.order = order
        """Index of the roster's rule that ranks the workers of this lane."""
        self.sticky = sticky
        """Keys of this lane have homes."""
        self.ring: deque[Turn] = deque()
        """Turns of clients that may run jobs, the next one first."""
        self.by_client: dict[ClientId, Turn] = {}
        self.queued = 0
        self.simple = 0
        """Number of queued jobs that are simple."""
        self.place = 0
        """Place in the order of waiting lanes; 0 if the lane was served since, or waits for nothing."""
        self.waits_in: LaneState = NOWHERE
        self.aside: dict[Turn, None] | None = None
        """Turns that can use none of the available credit, in the order in which this was found; None for none."""
        self.aside_round = 0
        """Round in which the turns in `aside` were tried."""

    def served_by(self, pools: list[PatternPool]) -> None:
        self.pools = [pool for pool in pools if not pool.simple_only]
        self.simple_pools = [pool for pool in pools if pool.simple_only]

    @property
    def all_pools(self) -> list[PatternPool]:
        return [*self.pools, *self.simple_pools] if self.simple_pools else self.pools

    @property
    def is_parked(self) -> bool:
        return self.waits_in is PARKED or self.waits_in is REFUSED

    def pools_of(self, requirements: Requirements) -> list[PatternPool]:
        """Pools for a job with these requirements."""
        return self.all_pools if requirements.simple else self.pools


class Turn:
    """One client's jobs in one lane. While any is queued, the turn is in the lane's ring, parked with its client, or
    aside."""

    __slots__ = ("client", "gone", "is_split", "jobs", "lane", "needs")

    def __init__(self, lane: Lane, client: ClientRecord) -> None:
        self.lane = lane
        self.client = client
        self.jobs: deque[JobRecord] = deque()
        self.gone = 0
        """Number of jobs in the queues that are no longer queued."""
        self.needs: TurnNeeds | None = None
        """None while no job asks for anything: then the first job goes to the best worker."""
        self.is_split = False
        """Each kind of job has a queue of its own (`turn_jobs.split_by_kind`)."""


class TurnNeeds:
    """Requirements of the jobs of one turn."""

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
        """Jobs by row. Jobs of the plain row stay in the turn's own deque."""
        self.count = 0
        """Jobs of the turn with requirements, including those that are gone and not yet removed."""
        self.picky = 0
        """Number of jobs that only some workers can take (`is_picky`)."""
        self.first: JobRecord | None = None
        self.first_at = 0.0
        """First job that waits for its home, and since when it is the first."""
        self.large: JobRecord | None = None
        self.keep_at = 0.0
        """First job that needs more slots than any worker has free, and when a worker may be kept free for it."""
        self.kept: WorkerRecord | None = None
        """Worker that is kept free for `large`."""
        self.kept_credit = 0
        self.grew_at = 0.0
        """Credit of `kept`, and when it last grew."""
        self.stuck: WorkerRecord | None = None
        """Worker that was kept free before, in vain."""
        self.idle_at = _NEVER
        """Since when `kept` runs nothing and still has no room."""
        self.wake_at = _NEVER
        self.homes: list[WorkerRecord] | None = None
        """Homes that the jobs waited for when none could go; None: look through the jobs again."""
        self.seen = (0, 0)
        """Number of jobs and the roster's era when `homes` was set. While both stay and no home has a rank, no job can
        go."""


def digits_of(worker_id: WorkerId) -> str:
    """The id as a UUID is written, without dashes."""
    return (worker_id[3::-1] + worker_id[5:3:-1] + worker_id[7:5:-1] + worker_id[8:]).hex()
