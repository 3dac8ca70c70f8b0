"""How does a program ask every worker the same thing? (SPEC S5) One submit, then a result from each of them.

    Grid.broadcast ─► one submit per leader ─► the lists of their parts ─► each part is waited for like any other job

A worker that does not answer in time is a result too: not `ok`, with the reason `silent`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from wakugumi.core.broadcast import SILENT, Part, read_list
from wakugumi.core.job import JobId, show_job_id
from wakugumi.errors import PeerError, Refused
from wakugumi.roles.result import Result, refused_result

if TYPE_CHECKING:
    from wakugumi.roles.session import Session


class Summary(msgspec.Struct, frozen=True):
    """What became of a broadcast, so far."""

    sent: int
    """Workers that matched when it was made."""
    ok: int = 0
    failed: int = 0
    silent: int = 0
    """Those that did not answer in time."""

    @property
    def waiting(self) -> int:
        return self.sent - self.ok - self.failed - self.silent


class Broadcast:
    """A broadcast under way. Loop over it for each worker's result as it comes; its `item` is the worker's name. The
    loop ends when all have answered, or their time is over; leaving it earlier cancels what is left."""

    def __init__(self, session: Session, begin: Callable[[], Awaitable[list[Result]]]) -> None:
        """`begin` submits it and gives the lists, one per leader."""
        self._session = session
        self._begin = begin
        self._summary = Summary(0)

    @property
    def summary(self) -> Summary:
        return self._summary

    async def __aiter__(self) -> AsyncIterator[Result]:
        parts = [part for listed in await self._begin() for part in _parts_of(listed)]
        self._summary = Summary(len(parts))
        start = self._session.tasks.start
        waiting = {start(self._part(part), name=f"part of {part.worker}"): _key(part) for part in parts}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del waiting[task]
                    result = task.result()
                    self._count(result)
                    yield result
        finally:
            left = [job for key in waiting.values() if (job := self._session.find(key)) is not None]
            self._session.cancel(left)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def gather(self) -> tuple[list[Result], Summary]:
        """All results, once there are no more to come."""
        results = [result async for result in self]
        return results, self._summary

    async def _part(self, part: Part) -> Result:
        key = _key(part)
        name = show_job_id(key)
        try:
            return (await self._session.claim(key, name)).for_item(part.worker)
        except Refused as no:
            return refused_result(no, name, "", part.worker)

    def _count(self, result: Result) -> None:
        counted = "ok" if result.ok else "silent" if result.reason == SILENT else "failed"
        self._summary = msgspec.structs.replace(self._summary, **{counted: getattr(self._summary, counted) + 1})


def _parts_of(listed: Result) -> list[Part]:
    return read_list(listed.check().stdout)


def _key(part: Part) -> JobId:
    try:
        key = bytes.fromhex(part.job)
    except ValueError:
        key = b""
    if len(key) != 16:
        raise PeerError(f"the leader named {part.job[:80]!r} as a part of a broadcast, which is no job id")
    return JobId(key)
