"""What is still on the disk of jobs that have ended, and when does it go?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.errors import Refused
from wakugumi.roles.runner.kept_jobs import KeptJobs
from wakugumi.wire.messages.job import JobResult
from wakugumi.wire.messages.payload import encode

pytestmark = pytest.mark.anyio

A, B, C = (JobId(number.to_bytes(16, "little")) for number in range(1, 4))
TTL_S = 600.0


class World:
    """A folder with finished jobs. What a thread would remove is listed."""

    def __init__(self, path: Path) -> None:
        self.folder = JobsFolder(path)
        self.runs: set[JobId] = set()
        self.owed: set[JobId] = set()
        self.removed: list[str] = []
        self.loop = asyncio.get_running_loop()
        self.kept = KeptJobs(
            self.loop,
            self.folder,
            self.runs,
            self.owed.__contains__,
            lambda _, path: self.removed.append(Path(path).name),
            done_ttl_s=TTL_S,
            interrupted_ttl_s=0.0,
        )

    def finish(self, job: JobId, age_s: float = 0.0) -> bytes:
        name = show_job_id(job)
        payload = encode(JobResult(name, "client", "calcA", exit_code=0))
        self.folder.record(name, payload)
        self.kept.keep(job, self.loop.time() - age_s)
        return payload


@pytest.fixture
async def world(tmp_path: Path, anyio_backend: str) -> AsyncIterator[World]:
    world = World(tmp_path / "jobs")
    yield world
    world.kept.close()
    world.folder.close()


async def test_a_finished_job_answers_until_its_time_is_over(world: World) -> None:
    payload = world.finish(A, TTL_S + 2.0)
    world.finish(B)
    assert world.kept.load(A) == payload
    assert world.kept.done_at(A) is not None
    while world.kept.sweep():
        pass
    assert world.kept.jobs.keys() == {B}
    assert world.kept.load(B) is not None


async def test_what_is_owed_or_runs_again_is_not_removed(world: World) -> None:
    world.finish(A, TTL_S + 2.0)
    world.finish(B, TTL_S + 2.0)
    world.owed.add(A)
    world.runs.add(B)
    while world.kept.sweep():
        pass
    assert world.kept.jobs.keys() == {A, B}
    assert world.kept.load(A) is not None
    assert world.kept.load(B) is None, "it runs, so its old result is no answer"


async def test_a_job_is_forgotten_at_once(world: World) -> None:
    world.finish(A)
    world.kept.forget(A)
    assert world.kept.load(A) is None
    assert not world.kept.jobs
    assert world.removed == []


async def test_an_unmarked_failure_answers_for_nothing(world: World) -> None:
    world.finish(A)
    world.kept.unmark(A)
    assert world.kept.load_whole(A) is None
    assert A in world.kept.jobs


async def test_jobs_of_an_earlier_life_are_found(world: World) -> None:
    world.finish(A)
    world.finish(B)
    world.kept.jobs.clear()
    assert {job for job, _ in world.kept.finished_before()} == {A, B}
    assert world.kept.jobs.keys() == {A, B}


async def test_a_result_that_names_no_files_is_told_as_it_is(world: World) -> None:
    payload = world.finish(A)
    assert world.kept.parts(A, payload) == {}
    assert world.kept.in_short(A, payload) is payload


async def test_a_result_whose_files_are_gone_is_refused(world: World) -> None:
    blob: Any = {"Sha256": "0" * 64, "Size": 1}
    payload = encode({"JobId": show_job_id(C), "ClientId": "c", "ExecName": "x", "ArchiveBlob": blob})
    with pytest.raises(Refused):
        world.kept.parts(C, payload)
