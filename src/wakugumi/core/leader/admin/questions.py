"""What may be asked of a leader, and what does it answer?

Each question is a record with a tag, each answer a record that is shown as it is (`-o json`). Times are told as seconds
ago (`_s` fields): the leader's clock is monotonic, and nobody has to compare two machines' clocks.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from wakugumi.limits.leader import LIST_ROWS_DEFAULT, TOP_ROWS_DEFAULT


class AskStatus(msgspec.Struct, frozen=True, tag_field="ask", tag="status"):
    """How is the leader, and what is queued where?"""


class AskTop(msgspec.Struct, frozen=True, tag_field="ask", tag="top"):
    """All that a live view shows: the status, the workers, and what failed last. At most so many rows of each."""

    limit: int = TOP_ROWS_DEFAULT


class AskJobs(msgspec.Struct, frozen=True, tag_field="ask", tag="jobs"):
    """Which jobs are there? Empty filters mean all; the newest come last."""

    state: str = ""
    client: str = ""
    pattern: str = ""
    limit: int = LIST_ROWS_DEFAULT


class AskJob(msgspec.Struct, frozen=True, tag_field="ask", tag="job"):
    """Where is this job?"""

    job: str


class AskStory(msgspec.Struct, frozen=True, tag_field="ask", tag="story"):
    """What happened to this job so far?"""

    job: str


class AskExplain(msgspec.Struct, frozen=True, tag_field="ask", tag="explain"):
    """Why is this job not running, or not done?"""

    job: str


class AskCancel(msgspec.Struct, frozen=True, tag_field="ask", tag="cancel"):
    """Cancel jobs by id, by client, or by a pattern that their subject matches (SPEC L10). All filters must hold."""

    jobs: list[str] = []
    client: str = ""
    pattern: str = ""
    forget: bool = False
    """Forget how they ended, too, and those that had ended before: for a client that will not come back."""


class AskWorkers(msgspec.Struct, frozen=True, tag_field="ask", tag="workers"):
    """Who is connected, and with what credit?"""


class AskDrain(msgspec.Struct, frozen=True, tag_field="ask", tag="drain"):
    """Give this worker no further jobs; what it runs may finish. By id or name."""

    worker: str


class AskResume(msgspec.Struct, frozen=True, tag_field="ask", tag="resume"):
    """Take a drained worker back."""

    worker: str


class AskDead(msgspec.Struct, frozen=True, tag_field="ask", tag="dead"):
    """Which jobs used up their attempts? Empty filters mean all; the newest come last."""

    jobs: list[str] = []
    pattern: str = ""
    reason: str = ""
    limit: int = LIST_ROWS_DEFAULT


class AskLetter(msgspec.Struct, frozen=True, tag_field="ask", tag="letter"):
    """What became of each attempt of this dead job?"""

    job: str


class AskRequeue(msgspec.Struct, frozen=True, tag_field="ask", tag="requeue"):
    """Open dead jobs again: by id, by a pattern that their subject matches, by reason. All filters must hold."""

    jobs: list[str] = []
    pattern: str = ""
    reason: str = ""


class AskDrop(msgspec.Struct, frozen=True, tag_field="ask", tag="drop"):
    """Forget dead jobs, chosen as in AskRequeue."""

    jobs: list[str] = []
    pattern: str = ""
    reason: str = ""


class AskCaches(msgspec.Struct, frozen=True, tag_field="ask", tag="caches"):
    """Which caches are there? Those used last come first."""

    limit: int = LIST_ROWS_DEFAULT


class AskCache(msgspec.Struct, frozen=True, tag_field="ask", tag="cache"):
    """What is in this cache, and which workers have it?"""

    cache: str


class AskPin(msgspec.Struct, frozen=True, tag_field="ask", tag="pin"):
    """Keep this cache for ever, or no longer than others."""

    cache: str
    pinned: bool = True


class AskDropCache(msgspec.Struct, frozen=True, tag_field="ask", tag="drop-cache"):
    """Forget this cache, here and on all workers."""

    cache: str


CacheQuestion: TypeAlias = AskCaches | AskCache | AskPin | AskDropCache
"""What is asked of `core/files/machine.py`, and not of dispatch."""
CACHE_QUESTIONS = (AskCaches, AskCache, AskPin, AskDropCache)

Question: TypeAlias = (
    AskStatus
    | AskTop
    | AskJobs
    | AskJob
    | AskStory
    | AskExplain
    | AskCancel
    | AskWorkers
    | AskDrain
    | AskResume
    | AskDead
    | AskLetter
    | AskRequeue
    | AskDrop
    | AskCaches
    | AskCache
    | AskPin
    | AskDropCache
)


class Spread(msgspec.Struct, frozen=True):
    """How long something took: so many times, and below `p95_s` in 95 of 100. The leader counts in buckets, four per
    doubling from 0.1 ms to a week: each of these is the upper bound of one, so at most a fifth too high."""

    count: int = 0
    p50_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0


NO_SPREAD = Spread()


class Recent(msgspec.Struct, frozen=True):
    """What was added lately: in the last minute, or since the leader began."""

    over_s: float = 0.0
    """How long that is."""
    submitted_per_s: float = 0.0
    """Of a subject; a job belongs to a group only once it is assigned."""
    dispatched_per_s: float = 0.0
    finished_per_s: float = 0.0
    dispatch_delay: Spread = NO_SPREAD
    run_time: Spread = NO_SPREAD


NO_RECENT = Recent()


class Figures(msgspec.Struct, frozen=True):
    """What became of the jobs of a subject, or of a group, since the leader began."""

    running: int = 0
    dispatched: int = 0
    """Assignments: a job that was queued again has several."""
    finished_ok: int = 0
    finished_failed: int = 0
    redelivered: int = 0
    dead: int = 0
    dispatch_delay: Spread = NO_SPREAD
    """From accepted, or queued again, to assigned."""
    run_time: Spread = NO_SPREAD
    """From assigned to the answer that became the result."""
    recent: Recent = NO_RECENT


NO_FIGURES = Figures()


class SubjectRow(msgspec.Struct, frozen=True):
    subject: str
    queued: int
    workers: int
    """Connected workers whose patterns match."""
    figures: Figures = NO_FIGURES


class GroupRow(msgspec.Struct, frozen=True):
    group: str
    """The token after `job.assign` in a worker's patterns; `*` if they name no group."""
    workers: int
    slots: int
    """Places for jobs: those that run and those that are free."""
    slots_free: int
    queued: int
    """Jobs that its workers may be given; other groups' workers may be given them, too."""
    figures: Figures = NO_FIGURES
    """Of jobs that were assigned to its workers for a subject of the group; for `*`, of all its others."""


class ClientRow(msgspec.Struct, frozen=True):
    client: str
    connected: bool
    cap: int
    running: int
    unfinished: int
    """Jobs whose results nobody has yet: queued, running, or waiting to be fetched."""
    unfetched_bytes: int


class StatusAnswer(msgspec.Struct, frozen=True):
    up_s: float
    workers: int
    slots_free: int
    clients: int
    queued: int
    queued_bytes: int
    backing_off: int
    running: int
    undelivered: int
    submitted: int
    finished_ok: int
    finished_failed: int
    redelivered: int
    dead: int
    """Jobs that used up their attempts since the leader began."""
    letters: int
    """Dead jobs that someone should look at."""
    durable: bool
    """What it holds survives its end."""
    disk_low: bool
    full: bool
    subjects: list[SubjectRow]
    busiest: list[ClientRow] = []
    """The clients with most unfinished jobs."""
    slots: int = 0
    """Places for jobs on all workers: those that run and those that are free."""
    submitted_per_s: float = 0.0
    finished_per_s: float = 0.0
    """In the last minute."""
    subjects_total: int = 0
    """How many there are, of which `subjects` are the busiest."""
    groups: list[GroupRow] = []
    groups_total: int = 0
    stalled: str = ""
    """Why nothing is committed, if nothing is."""


class JobRow(msgspec.Struct, frozen=True):
    job: str
    state: str
    """queued, backoff, running, ok or failed"""
    client: str
    program: str
    subject: str
    attempts: int
    age_s: float
    worker: str
    reason: str
    key: str = ""
    priority: int = 0
    slots: int = 1


class JobsAnswer(msgspec.Struct, frozen=True):
    jobs: list[JobRow]
    total: int
    """How many the filters matched, of which `jobs` are the newest."""
    at_least: bool = False
    """There may be more: only so many of the newest jobs are looked at for a state."""


class StoryLine(msgspec.Struct, frozen=True):
    ago_s: float
    what: str


class StoryAnswer(msgspec.Struct, frozen=True):
    job: str
    story: list[StoryLine]


class ExplainAnswer(msgspec.Struct, frozen=True):
    job: str
    state: str
    reasons: list[str]
    """From the scheduler's own state, the decisive one first."""


class CancelAnswer(msgspec.Struct, frozen=True):
    cancelled: int
    finished: int
    """Asked for by id and already done: their results stand."""
    unknown: list[str]
    forgotten: int = 0
    left: int = 0
    """Further jobs that the filters match: a step takes only so many. Ask again."""

    def beside(self, other: CancelAnswer) -> CancelAnswer:
        """What two leaders did, together: a job is unknown if neither knows it."""
        return CancelAnswer(
            self.cancelled + other.cancelled,
            self.finished + other.finished,
            [job for job in self.unknown if job in set(other.unknown)],
            self.forgotten + other.forgotten,
            self.left + other.left,
        )


class WorkerRow(msgspec.Struct, frozen=True):
    worker: str
    name: str
    state: str
    """ready, busy (no credit), sending (it has still to be sent what it was given), held back (by others' use of its
    CPU), draining, resting (out of order), leaving or away (may re-attach)"""
    patterns: list[str]
    credit: int
    running: int
    cpu: float
    seen_s: float
    slots: int = 0
    """How many it has in all, if it said so: only then it is given jobs that need several."""
    kept_for: str = ""
    """The job that needs several slots and for which it is being kept free."""
    rests: str = ""
    """Why it is out of order, if it is."""
    weight: int = 1
    """How many turns it has where workers take turns."""
    held_by: float = 0.0
    """It holds credit back because others use so much of its CPU, 0 to 1; 0 if it does not."""
    as_root: bool = False
    """Programs have the rights of root there."""

    @property
    def why(self) -> str:
        """Why it takes nothing, or less than it could; empty if there is nothing to say."""
        if self.rests:
            return self.rests
        return f"others use {self.held_by:.0%} of its CPU" if self.held_by else ""


class WorkersAnswer(msgspec.Struct, frozen=True):
    workers: list[WorkerRow]


class FailureRow(msgspec.Struct, frozen=True):
    job: str
    program: str
    subject: str
    worker: str
    """Who had it last; empty if nobody had."""
    reason: str
    """A code of the error table."""
    ago_s: float


class TopAnswer(msgspec.Struct, frozen=True):
    status: StatusAnswer
    workers: list[WorkerRow]
    """The busiest first, and by name."""
    workers_total: int
    failures: list[FailureRow]
    """Jobs that failed and were not cancelled, the latest first."""


class DeadRow(msgspec.Struct, frozen=True):
    job: str
    client: str
    program: str
    subject: str
    attempts: int
    reason: str
    """How the last attempt ended: a code of the error table."""
    worker: str
    dead_s: float
    """How long ago it was given up."""


class DeadAnswer(msgspec.Struct, frozen=True):
    dead: list[DeadRow]
    total: int
    """How many the filters matched, of which `dead` are the last."""


class AttemptRow(msgspec.Struct, frozen=True):
    attempt: int
    worker: str
    began_s: float
    ended_s: float
    """Both as seconds ago."""
    outcome: str
    output: str
    """The end of what it printed, if its worker could still say."""


class LetterAnswer(msgspec.Struct, frozen=True):
    letter: DeadRow
    attempts: list[AttemptRow]


class DeadDoneAnswer(msgspec.Struct, frozen=True):
    """How many dead jobs were requeued or dropped."""

    done: int
    unknown: list[str]
    """Asked for by id, and not among the dead."""
    left: int = 0
    """Further ones that the filters match: a step takes only so many. Ask again."""


class CacheRow(msgspec.Struct, frozen=True):
    cache: str
    files: int
    bytes: int
    target: str
    """For workers with patterns that overlap any of these."""
    pinned: bool
    version: str
    workers: int
    """Connected workers that should have it."""
    ready: int
    """Those of them that have all of it."""
    created_s: float
    used_s: float
    """How long ago it was put first, and used last."""
    hits: int
    """How often a job or a worker asked for it."""


class BlobCounters(msgspec.Struct, frozen=True):
    """How content went to the workers since the leader began."""

    blobs: int = 0
    """Of which the leader knows that a worker has them, or wants them."""
    waiting: int = 0
    fetching: int = 0
    from_leader: int = 0
    from_leader_bytes: int = 0
    from_workers: int = 0
    from_workers_bytes: int = 0
    """Fetched whole, and told so."""
    failed: int = 0
    """Sources that failed a worker; each was replaced."""
    lied: int = 0
    """Those that gave wrong content."""
    leader_sent_bytes: int = 0
    """All that left the leader's own store, also what did not arrive."""
    store_bytes: int = 0
    store_budget_bytes: int = 0
    """What that store held when it was last swept, and its budget for what nobody needs; 0 if it is never swept."""


class CachesAnswer(msgspec.Struct, frozen=True):
    rows: list[CacheRow]
    total: int
    """How many there are, of which `rows` are those used last."""
    bytes: int
    """Of all their files."""
    blobs: BlobCounters = BlobCounters()


class CacheEntryRow(msgspec.Struct, frozen=True):
    name: str
    size: int
    sha256: str


class CacheWorkerRow(msgspec.Struct, frozen=True):
    worker: str
    name: str
    state: str
    """ready, asked (it is at it), waiting (it is asked soon), failed, or evicted (it needed the room)"""
    message: str = ""
    """Why it failed."""


class CacheAnswer(msgspec.Struct, frozen=True):
    row: CacheRow
    entries: list[CacheEntryRow]
    workers: list[CacheWorkerRow]
    """At most a thousand of each: the row has the totals."""


Answer: TypeAlias = (
    StatusAnswer
    | TopAnswer
    | JobsAnswer
    | JobRow
    | StoryAnswer
    | ExplainAnswer
    | CancelAnswer
    | WorkersAnswer
    | WorkerRow
    | DeadAnswer
    | LetterAnswer
    | DeadDoneAnswer
    | CachesAnswer
    | CacheAnswer
    | CacheRow
)
