"""What does a gateway do without a request? It renews its lease, takes over jobs of dead gateways, finds jobs of its
own that no flow handles, and removes old data: rows and their files, the oldest first, and files without a row."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from wakugumi.core.gateway.events import (
    CountRows,
    FindOldest,
    FindOpen,
    FindOrphans,
    GetRow,
    HoldLease,
    ListFiles,
    RemoveFiles,
    RemoveRow,
    ReplaceRow,
    TidyStore,
)
from wakugumi.core.gateway.flights import Flights
from wakugumi.core.gateway.rows import GatewayJob, OpenJob, Totals
from wakugumi.core.gateway.state import GatewayState
from wakugumi.core.ids import JobId
from wakugumi.core.step import ERROR, INFO
from wakugumi.limits.gateway import GATEWAY_QUEUE_MAX

_WATCHED_SHARE: Final = 0.02
"""Share of the time for looking at all open jobs."""
_AT_ONCE: Final = 50
"""Rows per batch: other flows wait meanwhile."""
_NAMELESS_S: Final = 3_600.0
"""Age at which a file without a row is removed: a row names its file only when the file is whole."""


class Housekeeper:
    """Maintains a gateway."""

    def __init__(self, state: GatewayState, flights: Flights) -> None:
        self._state = state
        self._flows = state.flows
        self._flights = flights
        self.totals = Totals()
        """Totals of the last count."""
        self.taken_over = 0
        self.stranded = 0
        """Jobs of this gateway that no flow handled, and that were queued again."""
        self._unseen: dict[JobId, float] = {}
        """Open jobs of this gateway that no flow handles, and since when."""

    def start(self) -> None:
        """Starts all work. Jobs of dead gateways are taken over while the gateway serves."""
        bounds = self._state.bounds
        often_s = bounds.lease_s / 3
        for work, every_s, failed in (
            # Each in a flow of its own: the lease must not wait for the others.
            (self._hold, often_s, "lease not renewed"),
            (self._take_over, often_s, "jobs of dead gateways not taken over"),
            (self._tidy, min(often_s, bounds.tidy_s), "state not tidied"),
            (self.sweep, bounds.sweep_s, "old jobs not removed"),
            (self._watch, bounds.stranded_s / 2, "check for stranded jobs failed"),
        ):
            self._state.start_often(work, every_s, failed)

    async def sweep(self) -> None:
        """Removes old data. Raises Refused."""
        while rows := await FindOldest(_AT_ONCE, self._state.bounds.kept_s):
            if not await self._drop(rows):
                break
        await self._make_room()
        await self._drop_nameless()
        await self._tidy()

    async def _hold(self) -> None:
        await HoldLease(self._state.bounds.lease_s)

    async def _take_over(self) -> None:
        """Takes over jobs without a living owner, in batches."""
        before = self.taken_over
        try:
            while len(self._flights.queue) < GATEWAY_QUEUE_MAX and not self._state.is_stopping:
                jobs = await FindOrphans(_AT_ONCE)
                for job in jobs:
                    await self._take(job)
                self._flights.pump()
                if len(jobs) < _AT_ONCE:
                    break
        finally:
            if self.taken_over > before:
                self._flights.pump()  # For the part of a batch that the store cut short.
                self._state.log(INFO, f"jobs taken over from dead gateways count={self.taken_over - before}")

    async def _take(self, job: JobId) -> None:
        """A synchronous job is dropped: its client is gone or will send it again."""
        row = await GetRow(job, contents=False)
        if row is None or row.is_final:
            return
        if not row.is_async:
            await RemoveRow(row)
        elif await ReplaceRow(row, replace(row, owner=self._state.owner)) is not None:
            self.taken_over += 1
            self._flights.queue.append(job)

    async def _watch(self) -> None:
        """Checks that a flow handles every open job of this gateway. With very many jobs a check takes longer, and
        pauses are longer, within bounds."""
        took_s = await self.find_stranded()
        await self._flows.pause(min(took_s / _WATCHED_SHARE, 3 * self._state.bounds.stranded_s))

    async def find_stranded(self) -> float:
        """Queues jobs again that no flow has handled for long. Returns the time taken. Raises Refused."""
        began_at = self._flows.now
        unseen: dict[JobId, float] = {}
        after: OpenJob | None = None
        while True:
            found = await FindOpen(_AT_ONCE, after)
            for one in found:
                if self._flights.handles(one.job):
                    continue
                unseen[one.job] = since = self._unseen.get(one.job, began_at)
                if began_at - since >= self._state.bounds.stranded_s:
                    del unseen[one.job]
                    await self._see_to(one.job)
            if len(found) < _AT_ONCE:
                break
            after = found[-1]
        self._unseen = unseen
        self._flights.pump()
        return self._flows.now - began_at

    async def _see_to(self, job: JobId) -> None:
        row = await GetRow(job, contents=False)
        if row is None or row.is_final or row.owner != self._state.owner or self._flights.handles(job):
            return
        if not row.is_async:  # Its client has left, or asks anew.
            await RemoveRow(row)
            return
        self._state.log(ERROR, f"stranded job queued again job={row.name} after_s={self._state.bounds.stranded_s:g}")
        self.stranded += 1
        self._flights.queue.append(job)

    async def _tidy(self) -> None:
        await TidyStore()
        self.totals = await CountRows()

    async def _make_room(self) -> None:
        """Removes the oldest rows beyond the bounds, whatever their age. If other gateways remove rows meanwhile, the
        next sweep counts anew."""
        totals = await CountRows()
        rows_over = totals.ended - self._state.bounds.kept_max
        bytes_over = totals.ended_bytes - self._state.bounds.kept_bytes
        while rows_over > 0 or bytes_over > 0:
            going = []
            for row in await FindOldest(_AT_ONCE):
                if rows_over <= 0 and bytes_over <= 0:
                    break
                going.append(row)
                rows_over -= 1
                bytes_over -= 0 if row.answer is None else row.answer.size
            if not await self._drop(going):
                break

    async def _drop_nameless(self) -> None:
        """Removes files without a row."""
        found = await ListFiles(_NAMELESS_S)
        for start in range(0, len(found), _AT_ONCE):
            nameless = []
            for name, job in found[start : start + _AT_ONCE]:
                row = await GetRow(job, contents=False)
                if row is None or name not in row.files:
                    nameless.append(name)
            if nameless:
                await RemoveFiles(tuple(nameless))

    async def _drop(self, rows: list[GatewayJob]) -> int:
        """Returns how many of the rows were there."""
        gone = [row for row in rows if await RemoveRow(row)]
        if names := tuple(sorted(name for row in gone for name in row.files)):
            await RemoveFiles(names)
        return len(gone)
