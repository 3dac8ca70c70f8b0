"""Does the client of a drill go on where its last life was killed?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from wakugumi.app.drill import client as module
from wakugumi.app.drill import marks as dm
from wakugumi.app.drill.client import DrillClient, Orders, job_id
from wakugumi.app.drill.marks import Marks
from wakugumi.errors import Refused
from wakugumi.roles.client.result import Result
from wakugumi.wire.messages.job import JobResult

pytestmark = pytest.mark.anyio
JOBS = 6


class Answered:
    """A job that is accepted, and has this answer."""

    def __init__(self, answer: Result | Refused) -> None:
        self._answer = answer

    async def accepted(self) -> None:
        return

    def __await__(self) -> Generator[Any, None, Result]:
        yield from ()
        if isinstance(self._answer, Refused):
            raise self._answer
        return self._answer


class Grid:
    """Notes what was submitted and asked for; jobs of `refused` end with these refusals."""

    def __init__(self) -> None:
        self.submitted: list[tuple[str, tuple[str, ...]]] = []
        self.claimed: list[str] = []
        self.refused: dict[str, Refused] = {}
        self.unknown: set[str] = set()

    async def submit(self, _program: str, *, args: list[str], job_id: str) -> Answered:
        self.submitted.append((job_id, tuple(args)))
        return Answered(self.refused.get(job_id) or Result(JobResult(job_id, exit_code=0), job_id))

    async def wait(self, job: str) -> Result:
        self.claimed.append(job)
        if job in self.unknown:
            raise Refused("unknown-job", "forgotten")
        return Result(JobResult(job, exit_code=0), job)


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> Grid:
    grid = Grid()

    @asynccontextmanager
    async def connect(*_: object, **__: object) -> AsyncIterator[Grid]:
        yield grid

    monkeypatch.setattr(module, "connect", connect)
    return grid


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    marks = Marks(tmp_path / "marks")
    marks.put(dm.ALLOW, dm.DRILL, JOBS)
    return marks


async def live(tmp_path: Path, marks: Marks) -> dict[str, set[int]]:
    """One life; what it marked, and for which jobs."""
    marks.new()
    await DrillClient(Orders("a:1", str(tmp_path / "marks"), JOBS, 10.0, 7, 5), "client.2").run()
    marked: dict[str, set[int]] = {}
    for mark in marks.new():
        marked.setdefault(f"{mark.what} {mark.rest}".strip(), set()).add(mark.job)
    return marked


async def test_every_job_is_submitted_once_and_marked(grid: Grid, marks: Marks, tmp_path: Path) -> None:
    every = set(range(1, JOBS + 1))
    assert await live(tmp_path, marks) == {"accepted": every, "result OK": every}
    assert sorted(job for job, _ in grid.submitted) == [job_id(number) for number in sorted(every)]
    assert grid.claimed == []


async def test_a_next_life_asks_for_accepted_jobs_and_leaves_done_ones_alone(
    grid: Grid, marks: Marks, tmp_path: Path
) -> None:
    for number in (1, 2):
        marks.put(dm.ACCEPTED, "client.1", number)
    marks.put(dm.RESULT, "client.1", 1, "OK")
    marked = await live(tmp_path, marks)
    assert grid.claimed == [job_id(2)]
    assert sorted(job for job, _ in grid.submitted) == [job_id(number) for number in range(3, JOBS + 1)]
    assert marked["result OK"] == set(range(2, JOBS + 1))


async def test_a_forgotten_job_is_marked_and_submitted_again(grid: Grid, marks: Marks, tmp_path: Path) -> None:
    marks.put(dm.ACCEPTED, "client.1", 3)
    grid.unknown.add(job_id(3))
    marked = await live(tmp_path, marks)
    assert marked[dm.FORGOTTEN] == {3}
    assert marked["result OK"] == set(range(1, JOBS + 1))


async def test_a_job_that_was_left_is_asked_for_over_another_connection(
    grid: Grid, marks: Marks, tmp_path: Path
) -> None:
    grid.refused = {job_id(2): Refused("closed", "left"), job_id(4): Refused("full", "no room")}
    marked = await live(tmp_path, marks)
    assert grid.claimed == [job_id(2)]
    assert marked["refused full"] == {4}
    assert marked["result OK"] == {1, 2, 3, 5, 6}


async def test_a_job_has_the_same_request_in_every_life(grid: Grid, marks: Marks, tmp_path: Path) -> None:
    await live(tmp_path, marks)
    first, grid.submitted = sorted(grid.submitted), []
    (tmp_path / "again").mkdir()
    again = Marks(tmp_path / "again" / "marks")
    again.put(dm.ALLOW, dm.DRILL, JOBS)
    await live(tmp_path / "again", again)
    assert sorted(grid.submitted) == first
