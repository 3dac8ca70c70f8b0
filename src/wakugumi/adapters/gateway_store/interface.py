"""Which state do several gateways share? One row per job, in a store behind this interface.

    queued ──► running(group) ──► done | failed          a failed job that is submitted again gets a new row

Three rules make a store, whatever it is built on. A row is changed only with its version known (compare-and-set), so
the first accepted result wins. A row belongs to its owner as long as that gateway's lease holds, by a clock of the
store that cannot be set. A written row is visible to all at once, and survives power loss after `flush`.

Contents of more than SPOOL_MEMORY_BYTES are files of a folder that all gateways see (`adapters/http/spool.py`); a row
names them. Every store must pass `tests/conformance/test_gateway_stores.py`.
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


class GatewayJob(msgspec.Struct, frozen=True):
    """All that gateways know of a job."""

    job: JobId
    name: str
    """The id as its first client wrote it."""
    owner: str
    """The gateway that forwards the job."""
    state: str = QUEUED
    group: str = ""
    """The group of the job now, or last."""
    is_async: bool = False
    """The job was accepted for good: a gateway that takes it over forwards it."""
    key: str = ""
    """The key by which a group is chosen, where the choice is by hash; empty: the name."""
    query: str = ""
    headers: dict[str, str] = {}
    """Headers for the group."""
    body: Content | None = None
    tries: int = 0
    status: int = 0
    """HTTP status of the answer, once there is one."""
    head: dict[str, str] = {}
    """Headers of the answer; of a problem its code, detail and hint."""
    answer: Content | None = None
    """None for a problem."""
    version: int = 0
    """0: the row is not in the store yet."""
    accepted_at: float = 0.0
    changed_at: float = 0.0
    """By the clock of the store, which sets `accepted_at` and `changed_at`."""
    request: str = ""
    """The digest of the request. Empty while its body is being received, and in rows of older versions."""

    @property
    def is_final(self) -> bool:
        return self.state in {DONE, FAILED}

    @property
    def files(self) -> set[str]:
        return {content.file for content in (self.body, self.answer) if content is not None and content.file}


class Totals(NamedTuple):
    """Numbers of rows and bytes in the store."""

    queued: int = 0
    running: int = 0
    ended: int = 0
    ended_bytes: int = 0
    """Bytes of the answers of ended jobs, in rows and in files."""
    open_bytes: int = 0
    """Bytes of the bodies of open jobs, in rows and in files."""


class OpenJob(NamedTuple):
    """A job that is not final, with its place in the order of all open jobs."""

    accepted_at: float
    job: JobId


class GatewayStore(Protocol):
    """All calls may raise Refused, without any change."""

    async def get(self, job: JobId, *, contents: bool = True) -> GatewayJob | None:
        """`contents` False leaves out the bytes in the row, for repeated looks."""
        ...

    async def add(self, row: GatewayJob) -> tuple[GatewayJob, bool]:
        """The row in the store, and whether it is this one: an existing row stays unchanged."""
        ...

    async def replace(self, old: GatewayJob, new: GatewayJob) -> GatewayJob | None:
        """The new row as stored; None if the old one is not the current one. `accepted_at` stays."""
        ...

    async def remove(self, row: GatewayJob) -> bool:
        """False if the row is not the current one."""
        ...

    async def hold(self, owner: str, lease_s: float) -> None:
        """Renews the gateway's lease, for `lease_s` from now."""
        ...

    async def release(self, owner: str) -> None:
        """Ends the gateway's lease: its jobs may be taken over at once."""
        ...

    async def is_held(self, owner: str) -> bool: ...

    async def orphans(self, most: int, *, but: str = "") -> list[JobId]:
        """Open jobs whose owner's lease has ended, the oldest first. Jobs of `but` are left out: the caller lives,
        however late it renews its lease."""
        ...

    async def open_jobs(self, owner: str, most: int, after: OpenJob | None = None) -> list[OpenJob]:
        """Open jobs of this gateway, the oldest first; only jobs after `after`, to go on from there."""
        ...

    async def oldest(self, most: int, age_s: float | None = None) -> list[GatewayJob]:
        """Final rows without a change for `age_s`, the oldest first, without the contents in them. None means any age,
        also rows with a time in the future after a clock was set back."""
        ...

    async def totals(self) -> Totals: ...

    @property
    def is_short(self) -> bool:
        """Room is short on the store's disk: the rest is for the ends of accepted jobs, and no new rows should be
        added."""
        ...

    async def flush(self) -> None:
        """All earlier writes survive power loss when this returns."""
        ...

    async def tidy(self) -> None:
        """Maintenance, called from time to time when no request waits for it."""
        ...

    async def close(self) -> None: ...
