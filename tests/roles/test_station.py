"""A station, and those who call it: real programs, real files, and a scripted leader where one is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from wakugumi.adapters.command import Command
from wakugumi.adapters.process import Programs
from wakugumi.core.job import JobId
from wakugumi.roles.station import Finished, Station
from wakugumi.wire import message as ms

DEADLINE_S = 10.0


class Place:
    """Programs, a jobs folder, and the stations that were started there, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.jobs = folder / "jobs"
        self.runs = folder / "runs"
        self.gate = folder / "gate"
        self._serving: dict[Station, asyncio.Task[None]] = {}
        self.program("echo", f'echo run >> "{self.runs}"; echo said "$@"')
        self.program("fail", f'echo run >> "{self.runs}"; echo why >&2; exit 3')
        self.program("wait", f'echo run >> "{self.runs}"; while [ ! -e "{self.gate}" ]; do sleep 0.01; done; echo done')

    def program(self, name: str, script: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def station(self, *, default: Command | None = None, leader: Any = None, **settings: Any) -> Station:
        programs = Programs(self.programs, default=default)
        station = Station(leader, programs, self.jobs, **{"slots": 2, "cpu_cap": None, **settings})
        self._serving[station] = asyncio.get_running_loop().create_task(station.serve(), name="station under test")
        return station

    async def stopped(self, station: Station) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self._serving.pop(station)

    async def stop(self, station: Station) -> None:
        station.request_stop()
        station.request_stop()
        await self.stopped(station)

    async def close(self) -> None:
        self.gate.touch()
        for station in list(self._serving):
            await self.stop(station)

    @property
    def run_count(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0

    async def until_run(self, count: int = 1) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if self.run_count >= count:
                    return
                await asyncio.sleep(0.005)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    yield place
    await place.close()


def new_job() -> JobId:
    return JobId(uuid4().bytes_le)


def request(program: str, *args: str, files: Mapping[str, bytes] = {}) -> bytes:
    inputs = [ms.InputFile(name, content) for name, content in files.items()]
    return ms.encode(ms.JobRequest("", exec_name=program, args=list(args), files=inputs))


def result_of(job: JobId, finished: Finished) -> ms.JobResult:
    return ms.read_result(job, finished.payload)


async def ran(station: Station, job: JobId, payload: bytes, bring: Mapping[str, Path] | None = None) -> ms.JobResult:
    async with asyncio.timeout(DEADLINE_S):
        with await station.run(job, payload, bring) as finished:
            return result_of(job, finished)


@pytest.mark.spec("N2")
async def test_without_a_leader_a_caller_gets_what_its_job_made(place: Place) -> None:
    station, job = place.station(), new_job()
    result = await ran(station, job, request("echo", "hello"))
    assert (result.status, result.exit_code, result.stdout) == (ms.OK, 0, "said hello\n")
    assert (station.running, station.free, station.limit) == (0, 2, 2)
