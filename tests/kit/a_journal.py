"""A journal in a folder, written to and read as a leader does it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.kit.eventually import eventually

from wakugumi.adapters.journal.journal import Journal, Leaf
from wakugumi.core.ids import Attempt, ClientId, JobId, Verdict, WorkerId
from wakugumi.core.leader.journal.entries import KeepJob, KeepWhole, LeaderKeep
from wakugumi.core.subject import parse_subject

DEADLINE_S = 30.0
CLIENT, WORKER = ClientId("desk-1"), WorkerId(b"w" * 16)
SUBJECT = parse_subject("job.assign.calcA")


def job_id(number: int) -> JobId:
    return JobId(number.to_bytes(16, "big"))


def kept(number: int, payload: bytes | None = None) -> KeepJob:
    return KeepJob(
        job_id(number), CLIENT, 64, SUBJECT, "calcA", 900.0, 0, b"job %d" % number if payload is None else payload
    )


def whole(number: int, payload: bytes | int | None, size: int = 6) -> KeepWhole:
    """All of a job whose request has this size."""
    history = (Attempt(1, WORKER, "rack1-7", -9.0, -8.0, "worker-lost", "the end of it"),)
    running = Attempt(2, WORKER, "rack1-7", -3.0, 0.0, "ok")
    return KeepWhole(
        *(
            job_id(number),
            CLIENT,
            64,
            SUBJECT,
            "calcA",
            900.0,
            2,
            -10.5,
            history,
            running,
            size << 32 | 1 << 31,
            payload,
        ),
        *(False, Verdict("dead", "five times"), True),
    )


class World:
    """A journal that is written to, and all that it said."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.failures: list[Exception] = []
        self.lows: list[bool] = []
        self.behinds: list[bool] = []
        self.stalls: list[str] = []
        self.changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        journal.begin(
            loop, self._into(self.failures), self._into(self.lows), self._into(self.behinds), self._into(self.stalls)
        )

    def _into(self, said: list[Any]) -> Callable[[Any], None]:
        def add(value: object) -> None:
            said.append(value)
            self.changed.set()

        return add

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    async def look_until(self, holds: Callable[[], bool]) -> None:
        """For what nobody tells."""
        await eventually(holds, within_s=DEADLINE_S)

    async def commit(self, *records: LeaderKeep) -> None:
        done = asyncio.get_running_loop().create_future()
        self.journal.commit(records, lambda: done.set_result(None))
        async with asyncio.timeout(DEADLINE_S):
            await done

    async def load(self, leaf: int, *numbers: int) -> dict[JobId, bytes]:
        answer: asyncio.Future[dict[JobId, bytes]] = asyncio.get_running_loop().create_future()
        self.journal.load(leaf, [job_id(number) for number in numbers], answer.set_result)
        async with asyncio.timeout(DEADLINE_S):
            return await answer


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncIterator[World]:
    world = World(Journal.open(folder, **options))
    try:
        yield world
    finally:
        async with asyncio.timeout(DEADLINE_S):
            await world.journal.close()


def leaves_in(folder: Path) -> list[Leaf]:
    """What a leader that starts now would find."""
    journal = Journal.open(folder)
    try:
        return list(journal.leaves())
    finally:
        with suppress(StopIteration):  # one that was not begun has nothing to wait for
            journal.close().send(None)


def records_in(folder: Path) -> list[list[LeaderKeep]]:
    return [leaf.records for leaf in leaves_in(folder)]
