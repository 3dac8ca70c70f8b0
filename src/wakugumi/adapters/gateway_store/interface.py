"""Where are the rows that several gateways share (`core/gateway/rows.py`)? In a store behind this interface.

Three rules make a store, whatever it is built on. A row is changed only with its version known (compare-and-set), so
the first accepted result wins. A row belongs to its owner as long as that gateway's lease holds, by a clock of the
store that cannot be set. A written row is visible to all at once, and survives power loss after `flush`.

Contents of more than SPOOL_MEMORY_BYTES are files of a folder that all gateways see (`adapters/spool.py`); a row
names them. Every store must pass `tests/conformance/test_gateway_stores.py`.
"""

from __future__ import annotations

from typing import Protocol

from wakugumi.core.gateway.rows import GatewayJob, OpenJob, Totals
from wakugumi.core.ids import JobId


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
