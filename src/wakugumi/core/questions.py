"""What may be asked of a leader, and what does it answer?

Each question is a record with a tag, each answer a record that is shown as it is (`-o json`). Times are told as seconds
ago (`_s` fields): the leader's clock is monotonic, and nobody has to compare two machines' clocks.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from wakugumi.limits import LIST_ROWS_DEFAULT


class AskStatus(msgspec.Struct, frozen=True, tag_field="ask", tag="status"):
    """How is the leader, and what is queued where?"""


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


class AskWorkers(msgspec.Struct, frozen=True, tag_field="ask", tag="workers"):
    """Who is connected, and with what credit?"""


class AskDrain(msgspec.Struct, frozen=True, tag_field="ask", tag="drain"):
    """Give this worker no further jobs; what it runs may finish. By id or name."""

    worker: str


class AskResume(msgspec.Struct, frozen=True, tag_field="ask", tag="resume"):
    """Take a drained worker back."""

    worker: str


Question: TypeAlias = (
    AskStatus | AskJobs | AskJob | AskStory | AskExplain | AskCancel | AskWorkers | AskDrain | AskResume
)


class SubjectRow(msgspec.Struct, frozen=True):
    subject: str
    queued: int
    workers: int
    """Connected workers whose patterns match."""


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
    full: bool
    subjects: list[SubjectRow]


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


class JobsAnswer(msgspec.Struct, frozen=True):
    jobs: list[JobRow]
    total: int
    """How many the filters matched, of which `jobs` are the first."""


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


class WorkerRow(msgspec.Struct, frozen=True):
    worker: str
    name: str
    state: str
    """ready, busy (no credit), draining, leaving or away (may re-attach)"""
    patterns: list[str]
    credit: int
    running: int
    cpu: float
    seen_s: float


class WorkersAnswer(msgspec.Struct, frozen=True):
    workers: list[WorkerRow]


Answer: TypeAlias = (
    StatusAnswer | JobsAnswer | JobRow | StoryAnswer | ExplainAnswer | CancelAnswer | WorkersAnswer | WorkerRow
)
