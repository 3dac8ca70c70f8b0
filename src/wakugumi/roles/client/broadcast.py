"""How does a program run once on every worker? (SPEC S5) One submit per leader, then a result from each worker.

    Grid.broadcast ─► one submit per leader ─► its list of parts ─► each part is awaited there, like any other job

A worker that does not answer in time is a result too: not `ok`, with the reason `silent`. The summary names leaders
that cannot be asked; if none can, the broadcast is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from wakugumi.core.client.events import LeaderNo
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.leader.jobs.broadcast import SILENT, BroadcastPart
from wakugumi.errors import PeerError, Refused
from wakugumi.roles.client.job import Job
from wakugumi.roles.client.result import Result, refused_result
from wakugumi.wire.messages.job import read_parts

if TYPE_CHECKING:
    from wakugumi.roles.client.session.session import Session


class Summary(msgspec.Struct, frozen=True):
    """Counts of a broadcast so far."""

    sent: int
    """Workers that matched when it was made."""
    ok: int = 0
    failed: int = 0
    silent: int = 0
    """Workers that did not answer in time."""
    unasked: Sequence[str] = ()
    """Leaders whose workers were not asked: disconnected, old, or with a refusal."""

    @property
    def waiting(self) -> int:
        return self.sent - self.ok - self.failed - self.silent


class AskedLeader(NamedTuple):
    """One leader's part of the broadcast."""

    leader: str
    number: LeaderNo
    job: Job
    """Its result is the list of parts."""


class Broadcast:
    """A running broadcast. Loop over it, once, for each worker's result; `item` of a result is the worker's name. The
    loop ends when all have answered or their time is over; leaving it earlier cancels the rest."""

    def __init__(self, session: Session, begin: Callable[[], Awaitable[tuple[list[AskedLeader], list[str]]]]) -> None:
        """`begin` submits the broadcast; returns asked leaders, and names of those that could not be asked."""
        self._session = session
        self._begin = begin
        self._begun = False
        self._summary = Summary(0)
        self._waiting: dict[asyncio.Task[Result | list[BroadcastPart]], tuple[AskedLeader, JobId | None]] = {}

    @property
    def summary(self) -> Summary:
        return self._summary

    async def __aiter__(self) -> AsyncIterator[Result]:
        if self._begun:
            raise RuntimeError("a broadcast is looped over once: make another one to ask again")
        self._begun = True
        asked, unasked = await self._begin()
        self._summary = Summary(0, unasked=unasked)
        refusals: list[Refused] = []
        for one in asked:
            self._wait(one, None, _list_of(one))
        try:
            while self._waiting:
                done, _ = await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    one, key = self._waiting.pop(task)
                    if key is not None:
                        result = task.result()
                        assert isinstance(result, Result)
                        self._count(result)
                        yield result
                        continue
                    try:
                        self._listed(one, task.result())
                    except Refused as no:
                        refusals.append(no)
                        self._summary = msgspec.structs.replace(
                            self._summary, unasked=[*self._summary.unasked, f"{one.leader}: {no.message}"]
                        )
            if refusals and len(refusals) == len(asked):
                raise refusals[0]
        finally:
            await self._leave()

    async def gather(self) -> tuple[list[Result], Summary]:
        """All results, once the last has arrived."""
        results = [result async for result in self]
        return results, self._summary

    def _listed(self, one: AskedLeader, parts: object) -> None:
        assert isinstance(parts, list)
        for part in parts:
            self._wait(one, _key(part), self._part(one, part))
        self._summary = msgspec.structs.replace(self._summary, sent=self._summary.sent + len(parts))

    def _wait(
        self, one: AskedLeader, key: JobId | None, work: Coroutine[object, None, Result | list[BroadcastPart]]
    ) -> None:
        task = self._session.tasks.start(work, name=f"a broadcast at {one.leader}", quiet=True)
        self._waiting[task] = one, key

    async def _part(self, one: AskedLeader, part: BroadcastPart) -> Result:
        key = _key(part)
        name = show_job_id(key)
        try:
            return (await self._session.jobs.claim(key, name, one.number)).for_item(part.worker)
        except Refused as no:
            return refused_result(no, name, "", part.worker)

    async def _leave(self) -> None:
        left = [job for _, key in self._waiting.values() if key and (job := self._session.jobs.find(key)) is not None]
        self._session.jobs.cancel(left)
        waiting, self._waiting = self._waiting, {}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def _count(self, result: Result) -> None:
        counted = "ok" if result.ok else "silent" if result.reason == SILENT else "failed"
        self._summary = msgspec.structs.replace(self._summary, **{counted: getattr(self._summary, counted) + 1})


async def _list_of(one: AskedLeader) -> list[BroadcastPart]:
    return read_parts((await one.job).check().stdout)


def _key(part: BroadcastPart) -> JobId:
    try:
        key = bytes.fromhex(part.job)
    except ValueError:
        key = b""
    if len(key) != 16:
        raise PeerError(f"the leader named {part.job[:80]!r} as a part of a broadcast, which is no job id")
    return JobId(key)
