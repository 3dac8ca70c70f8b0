"""What does a leader answer to a question?

Each answer is a record that is shown as it is (`-o json`). Times are seconds ago (`_s` fields): the leader's clock is
monotonic, and clocks of two machines need not be compared. Counts without a time of their own began with the leader.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from wakugumi.core.access.browser_links import BrowserLink
from wakugumi.core.access.key_questions import KeyAnswer, MadeKey
from wakugumi.core.access.known_as import KnownAs


class Spread(msgspec.Struct, frozen=True):
    """How long something took, `count` times: 95 of 100 took less than `p95_s`. The leader counts in buckets, four per
    doubling from 0.1 ms to a week; a percentile is the upper bound of its bucket, so at most a fifth too high."""

    count: int = 0
    p50_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0


NO_SPREAD = Spread()


class Recent(msgspec.Struct, frozen=True):
    """Figures of the last minute, or since the leader began if that is shorter."""

    over_s: float = 0.0
    """Length of that time."""
    submitted_per_s: float = 0.0
    """Of a subject; a job belongs to a group only once it is assigned."""
    dispatched_per_s: float = 0.0
    finished_per_s: float = 0.0
    dispatch_delay: Spread = NO_SPREAD
    run_time: Spread = NO_SPREAD


NO_RECENT = Recent()


class Figures(msgspec.Struct, frozen=True):
    """Counts of the jobs of a subject or of a group."""

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
    """Connected workers with matching patterns."""
    figures: Figures = NO_FIGURES


class GroupRow(msgspec.Struct, frozen=True):
    group: str
    """The token after `job.assign` in a worker's patterns; `*` if they name no group."""
    workers: int
    slots: int
    """Slots with a running job and free slots."""
    slots_free: int
    queued: int
    """Jobs that its workers may get; workers of other groups may get them, too."""
    figures: Figures = NO_FIGURES
    """Jobs that were assigned to its workers for a subject of the group; for `*`, all others of its workers."""


class ClientRow(msgspec.Struct, frozen=True):
    client: str
    connected: bool
    cap: int
    running: int
    unfinished: int
    """Jobs whose results were not fetched yet: queued, running or done."""
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
    """Jobs that used up their attempts."""
    letters: int
    """Dead jobs that wait for a person to requeue or drop them."""
    durable: bool
    """Jobs and results survive the end of the leader."""
    disk_low: bool
    full: bool
    subjects: list[SubjectRow]
    busiest: list[ClientRow] = []
    """Clients with most unfinished jobs."""
    slots: int = 0
    """Slots of all workers, with a running job or free."""
    submitted_per_s: float = 0.0
    """In the last minute."""
    finished_per_s: float = 0.0
    """In the last minute."""
    subjects_total: int = 0
    """Number of all subjects; `subjects` are the busiest."""
    groups: list[GroupRow] = []
    groups_total: int = 0
    stalled: str = ""
    """Why no commit succeeds; empty while commits succeed."""


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
    """Number of matching jobs; `jobs` are the newest."""
    at_least: bool = False
    """There may be more: only a bounded number of the newest jobs is searched for a state."""


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
    """Jobs named by id that had ended before: their results stand."""
    unknown: list[str]
    forgotten: int = 0
    left: int = 0
    """Further matching jobs: one step takes only a bounded number. Ask again."""

    def beside(self, other: CancelAnswer) -> CancelAnswer:
        """The sum of the answers of two leaders: a job is unknown if neither knows it."""
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
    """ready, busy (no credit), sending (its jobs are still being sent), held back (other programs use its CPU),
    draining, resting (out of order), leaving or away (may re-attach)"""
    patterns: list[str]
    credit: int
    running: int
    cpu: float
    seen_s: float
    slots: int = 0
    """Number of its slots, if it reported that: only then it gets jobs that need several."""
    kept_for: str = ""
    """The job that needs several slots and for which slots are kept free."""
    rests: str = ""
    """Why the worker is out of order, if it is."""
    weight: int = 1
    """Number of its turns where workers take turns."""
    held_by: float = 0.0
    """Share of its CPU that other programs use, 0 to 1, while it holds credit back for that; otherwise 0."""
    as_root: bool = False
    """Programs have the rights of root there."""

    @property
    def why(self) -> str:
        """Why the worker takes no jobs, or fewer than it could; empty if there is no reason."""
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
    """The last worker of the job; empty if there was none."""
    reason: str
    """A code of the error table."""
    ago_s: float


class TopAnswer(msgspec.Struct, frozen=True):
    status: StatusAnswer
    workers: list[WorkerRow]
    """The busiest first, then by name."""
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
    """End of the last attempt: a code of the error table."""
    worker: str
    dead_s: float
    """Time since the job was given up."""


class DeadAnswer(msgspec.Struct, frozen=True):
    dead: list[DeadRow]
    total: int
    """Number of matching jobs; `dead` are the last."""


class AttemptRow(msgspec.Struct, frozen=True):
    attempt: int
    worker: str
    began_s: float
    ended_s: float
    """`began_s` and `ended_s` are seconds ago."""
    outcome: str
    output: str
    """The end of the program's output, if the worker could still send it."""


class LetterAnswer(msgspec.Struct, frozen=True):
    letter: DeadRow
    attempts: list[AttemptRow]


class DeadDoneAnswer(msgspec.Struct, frozen=True):
    """Dead jobs that were requeued or dropped."""

    done: int
    unknown: list[str]
    """Jobs named by id that are not among the dead."""
    left: int = 0
    """Further matching jobs: one step takes only a bounded number. Ask again."""


class CacheRow(msgspec.Struct, frozen=True):
    cache: str
    files: int
    bytes: int
    target: str
    """Workers with patterns that overlap any of these get the cache."""
    pinned: bool
    version: str
    workers: int
    """Connected workers that should have the cache."""
    ready: int
    """Connected workers that should have the cache and have all of it."""
    created_s: float
    """Time since the first put."""
    used_s: float
    """Time since the last use."""
    hits: int
    """Requests of jobs and workers for the cache."""


class BlobCounters(msgspec.Struct, frozen=True):
    """How did content get to the workers?"""

    blobs: int = 0
    """Blobs that a worker has or wants, as far as the leader knows."""
    waiting: int = 0
    fetching: int = 0
    from_leader: int = 0
    from_leader_bytes: int = 0
    from_workers: int = 0
    from_workers_bytes: int = 0
    """Counters named `from_…` are of blobs that were fetched whole, by the workers' reports."""
    failed: int = 0
    """Sources that failed; each was replaced."""
    lied: int = 0
    """Sources that gave wrong content."""
    leader_sent_bytes: int = 0
    """All that left the leader's own store, with incomplete transfers."""
    store_bytes: int = 0
    """Size of that store when it was last swept."""
    store_budget_bytes: int = 0
    """Budget of that store for blobs without need; 0 if it is never swept."""


class CachesAnswer(msgspec.Struct, frozen=True):
    rows: list[CacheRow]
    total: int
    """Number of all caches; `rows` are the last used."""
    bytes: int
    """Size of the files of all caches."""
    blobs: BlobCounters = BlobCounters()


class CacheEntryRow(msgspec.Struct, frozen=True):
    name: str
    size: int
    sha256: str


class CacheWorkerRow(msgspec.Struct, frozen=True):
    worker: str
    name: str
    state: str
    """ready, asked (its answer is not here yet), waiting (to be asked), failed, or evicted (its room was needed)"""
    message: str = ""
    """Why the worker failed."""


class CacheAnswer(msgspec.Struct, frozen=True):
    """At most a thousand entries and workers: the row has the totals."""

    row: CacheRow
    entries: list[CacheEntryRow]
    workers: list[CacheWorkerRow]


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
    | KeyAnswer
    | MadeKey
    | KnownAs
    | BrowserLink
)
