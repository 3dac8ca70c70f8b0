"""How does the client of a drill submit jobs? As a process of its own, so that it can be killed too.

It uses what every user has, in the two ways in which jobs are handed in:

    held   submitted, and waited for: a job that the leader forgets is sent again by the library
    left   submitted over a connection that is closed once the leader has accepted the job, and asked for by its id:
           from then on only the leader knows the request, and a forgotten job is missing

All events are marked at once, so that its next life, under the same client id, goes on where it was killed.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec

from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.app import logs
from wakugumi.app.client_settings import LogSettings
from wakugumi.app.drill import marks as dm
from wakugumi.app.drill.marks import PROGRAM, DrillMark, Marks
from wakugumi.errors import Refused
from wakugumi.roles.client.grid import Grid, connect
from wakugumi.roles.client.job import Job
from wakugumi.roles.client.result import Result
from wakugumi.wire.untrusted_json import read_json

CLIENT_ID: Final = "drill"
HELD_AT_ONCE: Final = 200
LEFT_AT_ONCE: Final = 25
"""Jobs that one connection submits before it is closed."""
LEAVING_AT_ONCE: Final = 4
LEFT_EVERY: Final = 2
LEFT_EVERY_OF_SEVERAL: Final = 10
"""Which jobs are left. Leaving a job waits for its receipt, and one of several leaders may be frozen: the others must
not be delayed by that."""
_LOOK_EVERY_S: Final = 0.02
CONNECT_WITHIN_S: Final = 60.0
"""Longer than a leader stays away: a client that finds none would only be started again."""


class Orders(msgspec.Struct, frozen=True):
    """The task of the client, as JSON in its first argument."""

    leader: str
    marks: str
    jobs: int
    job_ms: float
    seed: int
    cap: int


def main() -> None:
    logs.start(LogSettings(log_level="info"))
    orders = read_json(sys.argv[1], Orders)
    run(DrillClient(orders, os.environ[dm.LIFE]).run())


def job_id(number: int) -> str:
    """The same in every life, and readable in every log."""
    return str(UUID(int=number))


class DrillClient:
    def __init__(self, orders: Orders, life: str) -> None:
        self._orders = orders
        self._life = life
        self._marks = Marks(Path(orders.marks))
        self._tasks = Tasks()
        self._limit = 0
        self._allowed = asyncio.Condition()

    async def run(self) -> None:
        """Returns when every job has a result, or was refused one."""
        before = self._marks.new()
        self._take(before)
        done = {mark.job for mark in before if mark.what == dm.RESULT}
        accepted = {mark.job for mark in before if mark.what == dm.ACCEPTED} - done
        new = [number for number in range(1, self._orders.jobs + 1) if number not in done | accepted]
        every = LEFT_EVERY if "," not in self._orders.leader else LEFT_EVERY_OF_SEVERAL
        held = deque(number for number in new if number % every)
        left = deque(number for number in new if not number % every)
        async with self._connect() as grid:
            watching = self._tasks.start_loop(self._watch, name="what is allowed")
            await self._all(
                *[self._claim(grid, number) for number in accepted],
                *[self._hold(grid, held) for _ in range(HELD_AT_ONCE)],
                *[self._leave(grid, left) for _ in range(LEAVING_AT_ONCE)],
            )
            watching.cancel()

    def _connect(self) -> AbstractAsyncContextManager[Grid]:
        return connect(
            self._orders.leader, client_id=CLIENT_ID, cap=self._orders.cap, connect_timeout_s=CONNECT_WITHIN_S
        )

    async def _hold(self, grid: Grid, numbers: deque[int]) -> None:
        while some := await self._next(numbers, 1):
            await self._finish(some[0], await self._submit(grid, some[0]))

    async def _leave(self, grid: Grid, numbers: deque[int]) -> None:
        while some := await self._next(numbers, LEFT_AT_ONCE):
            async with self._connect() as for_now:
                jobs = {number: await self._submit(for_now, number) for number in some}
                await self._all(*[self._accepted(number, job) for number, job in jobs.items()])
            # Most are not done when their connection is closed, which is the point.
            await self._all(*[self._end_of_left(grid, number, job) for number, job in jobs.items()])

    async def _end_of_left(self, grid: Grid, number: int, job: Job) -> None:
        try:
            self._has(number, await job)
        except Refused as no:
            if no.code == "closed":
                await self._claim(grid, number)
            else:
                self._marks.put(dm.REFUSED, self._life, number, no.code)

    async def _claim(self, grid: Grid, number: int) -> None:
        """The result of a job that was accepted, over whichever connection."""
        try:
            self._has(number, await grid.wait(job_id(number)))
        except Refused as no:
            if no.code != "unknown-job":
                self._marks.put(dm.REFUSED, self._life, number, no.code)
                return
            self._marks.put(dm.FORGOTTEN, self._life, number)
            await self._finish(number, await self._submit(grid, number))

    async def _submit(self, grid: Grid, number: int) -> Job:
        # The same bytes in every life: with another request the id would be another job's.
        share = random.Random(self._orders.seed * 1_000_003 + number).uniform(0.5, 1.5)
        seconds = round(share * self._orders.job_ms / 1000, 4)
        return await grid.submit(PROGRAM, args=[str(number), f"{seconds:g}"], job_id=job_id(number))

    async def _finish(self, number: int, job: Job) -> None:
        await self._accepted(number, job)
        try:
            self._has(number, await job)
        except Refused as no:
            self._marks.put(dm.REFUSED, self._life, number, no.code)

    async def _accepted(self, number: int, job: Job) -> None:
        with suppress(Refused):  # Awaiting the job says so once more.
            await job.accepted()
            self._marks.put(dm.ACCEPTED, self._life, number)

    def _has(self, number: int, result: Result) -> None:
        self._marks.put(dm.RESULT, self._life, number, result.status if result.ok else f"FAILED:{result.reason}")

    async def _next(self, numbers: deque[int], most: int) -> list[int]:
        """Up to so many that may be handed in, once there is one. None are left if there are none."""
        async with self._allowed:
            await self._allowed.wait_for(lambda: not numbers or numbers[0] <= self._limit)
            some: list[int] = []
            while numbers and numbers[0] <= self._limit and len(some) < most:
                some.append(numbers.popleft())
            return some

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            limit = self._limit
            self._take(self._marks.new())
            if self._limit != limit:
                async with self._allowed:
                    self._allowed.notify_all()

    def _take(self, marks: Sequence[DrillMark]) -> None:
        for mark in marks:
            if mark.what == dm.ALLOW:
                self._limit = mark.job

    async def _all(self, *work: Coroutine[Any, Any, None]) -> None:
        for task in [self._tasks.start(one, name="jobs of a drill") for one in work]:
            await task


if __name__ == "__main__":
    main()
