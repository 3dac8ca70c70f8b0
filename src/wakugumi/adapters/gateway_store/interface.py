"""What do several gateways know together? One row per job, in a store behind this interface.

    queued ──► running(group) ──► done | failed          a failed job that is submitted again gets a new row

Three rules make a store, whatever it is built on. A row is changed only by who knows its version (compare-and-set), so
the first accepted result wins. A row belongs to its owner as long as that gateway's lease holds, by a clock of the
store that nobody sets. What is written is seen by all at once, and survives power loss after `flush`.

Contents of more than SPOOL_MEMORY_BYTES are files of a folder that all gateways see (`adapters/http/spool.py`); a row
names them. `tests/conformance/test_gateway_stores.py` is what every store must pass.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import msgspec

from wakugumi.adapters.http.spool import Content
from wakugumi.core.ids import JobId

QUEUED: Final = "queued"
RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
STATES: Final = (QUEUED, RUNNING, DONE, FAILED)


class GatewayJob(msgspec.Struct, frozen=True):
    """All that gateways know of a job."""

    job: JobId
    name: str
    """As its first client wrote it."""
    owner: str
    """The gateway that forwards it."""
    state: str = QUEUED
    group: str = ""
    """Where it is, or was last."""
    is_async: bool = False
    """It was accepted for good: whoever takes it over forwards it."""
    key: str = ""
    """By which its group is chosen, where the choice is by hash; empty: by its name."""
    query: str = ""
    headers: dict[str, str] = {}
    """What goes along to the group."""
    body: Content | None = None
    tries: int = 0
    status: int = 0
    """Of the answer, once there is one."""
    head: dict[str, str] = {}
    """Of the answer; of a problem its code, detail and hint."""
    answer: Content | None = None
    """None for a problem."""
    version: int = 0
    """0: it is not in the store yet."""
    accepted_at: float = 0.0
    changed_at: float = 0.0
    """By the clock of the store, which sets both."""
    request: str = ""
    """The digest of what decides the answer. Empty while its body is on its way, and in rows of older versions."""

    @property
    def is_final(self) -> bool:
        return self.state in {DONE, FAILED}

    @property
    def files(self) -> set[str]:
        return {content.file for content in (self.body, self.answer) if content is not None and content.file}


class Totals(NamedTuple):
    """What is in the store."""

    queued: int = 0
    running: int = 0
    ended: int = 0
    ended_bytes: int = 0
    """Answers of ended jobs, in rows and in files."""
    open_bytes: int = 0
    """Bodies of the others, in rows and in files."""


class OpenJob(NamedTuple):
    """A job that is not final, and where it stands among all of them."""

    accepted_at: float
    job: JobId


class GatewayStore(Protocol):
    """All calls may raise Refused, and have then changed nothing."""

    async def get(self, job: JobId, *, contents: bool = True) -> GatewayJob | None:
        """`contents` False leaves out the bytes that are in the row, for who looks again and again."""
        ...

    async def add(self, row: GatewayJob) -> tuple[GatewayJob, bool]:
        """The row as it stands now, and whether it is this one: an id that is there stays as it is."""
        ...

    async def replace(self, old: GatewayJob, new: GatewayJob) -> GatewayJob | None:
        """The new row as it stands now; None if the old one is not what is there. `accepted_at` stays."""
        ...

    async def remove(self, row: GatewayJob) -> bool:
        """False if it is not what is there."""
        ...

    async def hold(self, owner: str, lease_s: float) -> None:
        """This gateway lives, for so long from now on."""
        ...

    async def release(self, owner: str) -> None:
        """It ends: what it has may be taken over at once."""
        ...

    async def is_held(self, owner: str) -> bool: ...

    async def orphans(self, most: int, *, but: str = "") -> list[JobId]:
        """Jobs that are not final and whose owner's lease does not hold, the oldest first. Those of `but` are left
        out: who asks is not dead, however late it renews its lease."""
        ...

    async def open_jobs(self, owner: str, most: int, after: OpenJob | None = None) -> list[OpenJob]:
        """Jobs of this gateway that are not final, the oldest first; only those after `after`, to go on from there."""
        ...

    async def oldest(self, most: int, age_s: float | None = None) -> list[GatewayJob]:
        """Final rows that did not change for so long, the oldest first, without the contents that are in them. None
        asks for any age, also of rows that a clock which was set back has not reached yet."""
        ...

    async def totals(self) -> Totals: ...

    @property
    def is_short(self) -> bool:
        """Room is short where the rows are: what is there is for how accepted jobs end, and nothing new should be
        added."""
        ...

    async def flush(self) -> None:
        """What was written before this call survives power loss."""
        ...

    async def tidy(self) -> None:
        """Called every now and then: a time for work that nobody waits for."""
        ...

    async def close(self) -> None: ...
