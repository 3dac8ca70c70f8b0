"""What may be asked of a leader?

Each question is a record with a tag in the field `ask`. Empty filters match all; all filters must match.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from wakugumi.core.access.browser_links import AskLink
from wakugumi.core.access.key_questions import KeyQuestion
from wakugumi.core.access.known_as import AskMe
from wakugumi.limits.leader import LIST_ROWS_DEFAULT, TOP_ROWS_DEFAULT


class AskStatus(msgspec.Struct, frozen=True, tag_field="ask", tag="status"):
    """How is the leader, and how much is queued where?"""


class AskTop(msgspec.Struct, frozen=True, tag_field="ask", tag="top"):
    """All that a live view shows: the status, the workers and the last failures, at most `limit` rows of each."""

    limit: int = TOP_ROWS_DEFAULT


class AskJobs(msgspec.Struct, frozen=True, tag_field="ask", tag="jobs"):
    """Which jobs are there? The newest come last."""

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
    """Cancel jobs by id, by client, or by a pattern of subjects (SPEC L10)."""

    jobs: list[str] = []
    client: str = ""
    pattern: str = ""
    forget: bool = False
    """Forget their results as well, and those of jobs that had ended before: the client will not come back."""


class AskWorkers(msgspec.Struct, frozen=True, tag_field="ask", tag="workers"):
    """Which workers are connected, and with how much credit?"""


class AskDrain(msgspec.Struct, frozen=True, tag_field="ask", tag="drain"):
    """Give this worker, by id or name, no further jobs; its running jobs may finish."""

    worker: str


class AskResume(msgspec.Struct, frozen=True, tag_field="ask", tag="resume"):
    """Give a drained worker jobs again."""

    worker: str


class AskDead(msgspec.Struct, frozen=True, tag_field="ask", tag="dead"):
    """Which jobs used up their attempts? The newest come last."""

    jobs: list[str] = []
    pattern: str = ""
    reason: str = ""
    limit: int = LIST_ROWS_DEFAULT


class AskLetter(msgspec.Struct, frozen=True, tag_field="ask", tag="letter"):
    """How did each attempt of this dead job end?"""

    job: str


class AskRequeue(msgspec.Struct, frozen=True, tag_field="ask", tag="requeue"):
    """Open dead jobs again: by id, by a pattern of subjects, by reason."""

    jobs: list[str] = []
    pattern: str = ""
    reason: str = ""


class AskDrop(msgspec.Struct, frozen=True, tag_field="ask", tag="drop"):
    """Forget dead jobs, chosen as in AskRequeue."""

    jobs: list[str] = []
    pattern: str = ""
    reason: str = ""


class AskCaches(msgspec.Struct, frozen=True, tag_field="ask", tag="caches"):
    """Which caches are there? The last used come first."""

    limit: int = LIST_ROWS_DEFAULT


class AskCache(msgspec.Struct, frozen=True, tag_field="ask", tag="cache"):
    """Which files are in this cache, and which workers have it?"""

    cache: str


class AskPin(msgspec.Struct, frozen=True, tag_field="ask", tag="pin"):
    """Keep this cache for ever, or no longer than others."""

    cache: str
    pinned: bool = True


class AskDropCache(msgspec.Struct, frozen=True, tag_field="ask", tag="drop-cache"):
    """Forget this cache, at the leader and on all workers."""

    cache: str


CacheQuestion: TypeAlias = AskCaches | AskCache | AskPin | AskDropCache
"""Questions for `core/files/machine.py`, not for `core/leader/machine.py`."""

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
    | CacheQuestion
    | KeyQuestion
    | AskMe
    | AskLink
)
