"""A station, and those who call it: real programs, real files, and a scripted leader where one is needed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import os
import time
import zipfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from tests.kit.eventually import eventually
from tests.kit.workers_leader import CREDIT, WorkersLeader

from wakugumi.adapters.jobdir.large_parts import ARCHIVE
from wakugumi.adapters.programs.default_command import DefaultCommand
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.core.ids import JobId
from wakugumi.errors import Refused
from wakugumi.roles.runner.settings import RunnerSettings
from wakugumi.roles.runner.station import Finished, Station
from wakugumi.wire.messages.job import FAILED, OK, InputFile, JobRequest, JobResult, read_result

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

    def station(self, *, default: DefaultCommand | None = None, leader: Any = None, **settings: Any) -> Station:
        programs = Programs(self.programs, default=default)
        told = RunnerSettings(leader=leader, jobs=self.jobs, **{"slots": 2, "cpu_cap": None, **settings})
        station = Station(told, programs)
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
        await eventually(lambda: self.run_count >= count)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    yield place
    await place.close()


def new_job() -> JobId:
    return JobId(uuid4().bytes_le)


def request(program: str, *args: str, files: Mapping[str, bytes] = {}) -> JobRequest:
    inputs = [InputFile(name, content=content) for name, content in files.items()]
    return JobRequest("", exec_name=program, args=list(args), files=inputs)


def result_of(job: JobId, finished: Finished) -> JobResult:
    return read_result(job, finished.payload)


async def ran(station: Station, job: JobId, wanted: JobRequest, bring: Mapping[str, Path] | None = None) -> JobResult:
    async with asyncio.timeout(DEADLINE_S):
        with await station.run(job, wanted, bring) as finished:
            return result_of(job, finished)


@pytest.mark.spec("N2")
async def test_without_a_leader_a_caller_gets_what_its_job_made(place: Place) -> None:
    station, job = place.station(), new_job()
    result = await ran(station, job, request("echo", "hello"))
    assert (result.status, result.exit_code, result.stdout) == (OK, 0, "said hello\n")
    assert (station.running, station.free, station.limit) == (0, 2, 2)


@pytest.mark.spec("N4")
async def test_a_finished_job_answers_at_once_also_after_a_restart(place: Place) -> None:
    station, job = place.station(), new_job()
    first = await ran(station, job, request("echo", "once"))
    assert await ran(station, job, request("echo", "once")) == first
    await place.stop(station)
    assert await ran(place.station(), job, request("echo", "once")) == first
    assert place.run_count == 1


@pytest.mark.spec("N1", "N2")
async def test_a_failing_program_is_an_answer_and_the_same_job_sent_again_runs_again(place: Place) -> None:
    station, job = place.station(), new_job()
    for count in (1, 2):
        result = await ran(station, job, request("fail"))
        assert (result.status, result.reason, result.exit_code, result.stderr) == (FAILED, "exit", 3, "why\n")
        assert place.run_count == count


@pytest.mark.spec("N1")
async def test_callers_of_the_same_job_wait_for_one_run(place: Place) -> None:
    station, job = place.station(slots=1), new_job()
    async with asyncio.TaskGroup() as group:
        callers = [group.create_task(ran(station, job, request("wait"))) for _ in range(3)]
        await place.until_run()
        assert station.is_running(job)
        assert await station.finished(job) is None
        place.gate.touch()
    assert {caller.result().stdout for caller in callers} == {"done\n"}
    assert place.run_count == 1
    assert not station.is_running(job)


@pytest.mark.spec("N3")
async def test_when_all_slots_are_taken_a_caller_is_told_so_at_once(place: Place) -> None:
    station, first = place.station(slots=1), new_job()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(ran(station, first, request("wait")))
        await place.until_run()
        assert (station.running, station.free) == (1, 0)
        with pytest.raises(Refused) as refused:
            await ran(station, new_job(), request("echo"))
        assert refused.value.code == "busy"
        assert station.counts.busy == 1
        place.gate.touch()
    assert running.result().status == OK
    assert (station.running, station.free) == (0, 1)


async def test_whoever_gives_up_does_not_end_the_job_and_gets_its_result_later(place: Place) -> None:
    station, job = place.station(), new_job()
    caller = asyncio.get_running_loop().create_task(ran(station, job, request("wait")))
    await place.until_run()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    again = asyncio.get_running_loop().create_task(ran(station, job, request("wait")))
    place.gate.touch()
    assert (await again).stdout == "done\n"
    assert place.run_count == 1


@pytest.mark.spec("W3")
async def test_a_cancelled_job_is_ended_and_those_who_wait_are_told(place: Place) -> None:
    station, job = place.station(), new_job()
    assert not station.cancel(job)
    async with asyncio.TaskGroup() as group:
        caller = group.create_task(ran(station, job, request("wait")))
        await place.until_run()
        assert station.cancel(job)
    assert (caller.result().status, caller.result().reason) == (FAILED, "cancelled")
    assert station.free == 2


@pytest.mark.spec("L10")
async def test_a_station_that_stops_takes_no_more_and_ends_what_runs_if_asked_twice(place: Place) -> None:
    station = place.station()
    caller = asyncio.get_running_loop().create_task(ran(station, new_job(), request("wait")))
    await place.until_run()
    station.request_stop()
    await eventually(lambda: station.stopping)
    with pytest.raises(Refused) as refused:
        await ran(station, new_job(), request("echo"))
    assert refused.value.code == "stopping"
    await place.stop(station)
    with pytest.raises(Refused) as refused:
        await caller
    assert refused.value.code == "stopping"
    with pytest.raises(Refused) as refused:
        await ran(station, new_job(), request("echo"))
    assert refused.value.code == "stopping"


@pytest.mark.spec("O2")
async def test_what_ran_is_counted(place: Place) -> None:
    station = place.station()
    await ran(station, new_job(), request("echo"))
    await ran(station, new_job(), request("fail"))
    await ran(station, new_job(), request("nothing-like-it"))
    counts = station.counts
    assert (counts.started, counts.ok, counts.failed) == (3, 1, 2)
    assert counts.exit_codes == {0: 1, 3: 1}
    assert counts.reasons == {"exit": 1, "unknown-program": 1}
    assert sum(counts.ran) == 2
    assert counts.ran_s > 0


# Jobs that name no program.


@pytest.mark.spec("N1", "W1")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (DefaultCommand("echo"), "said own {path}\n"),
        (DefaultCommand("echo", ("--in={input}", "-v")), "said --in={path} -v own\n"),
    ],
)
async def test_a_job_that_names_no_program_runs_the_one_that_was_configured(
    place: Place, command: DefaultCommand, said: str
) -> None:
    station, job = place.station(default=command), new_job()
    result = await ran(station, job, request("", "own", files={"trades.csv": b"1;2"}))
    path = place.jobs / result.job_id / "trades.csv"
    assert (result.status, result.stdout) == (OK, said.format(path=path))


async def test_a_job_that_names_no_program_needs_one_file_and_a_station_that_has_one(place: Place) -> None:
    station = place.station(default=DefaultCommand("echo"))
    result = await ran(station, new_job(), request(""))
    assert (result.status, result.reason) == (FAILED, "bad-request")
    await place.stop(station)
    result = await ran(place.station(), new_job(), request("", files={"a": b""}))
    assert (result.status, result.reason) == (FAILED, "bad-name")


# Inputs that come as files.


def by_hash(name: str, content: bytes, program: str = "") -> JobRequest:
    file = InputFile(name, sha256=hashlib.sha256(content).hexdigest(), size=len(content))
    return JobRequest("", exec_name=program, files=[file])


def upload(place: Place, content: bytes) -> Path:
    path = place.folder / f"upload-{uuid4()}"
    path.write_bytes(content)
    return path


@pytest.mark.spec("N2", "W1")
@pytest.mark.parametrize("links", [True, False])
async def test_an_input_that_came_as_a_file_is_linked_into_the_job_s_directory_or_copied(
    place: Place, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    place.program("look", 'cat "$1"; ls -i "$1" | cut -d" " -f1 >&2')
    if not links:
        monkeypatch.setattr("os.link", no_link)
    station, path = place.station(default=DefaultCommand("look")), upload(place, b"a large one")
    inode = path.stat().st_ino
    result = await ran(station, new_job(), by_hash("in.bin", b"a large one"), {"in.bin": path})
    assert (result.status, result.stdout) == (OK, "a large one")
    assert (int(result.stderr) == inode) == links
    assert result.output_archive is None, "an input is not part of what the job made"
    await eventually(lambda: not path.exists())


def no_link(*_: object, **__: object) -> None:
    raise OSError(18, "Invalid cross-device link")


@pytest.mark.spec("N3")
async def test_a_file_that_was_brought_in_vain_is_removed(place: Place) -> None:
    station, job, done = place.station(slots=1, default=DefaultCommand("echo")), new_job(), new_job()
    await ran(station, done, request("echo"))
    async with asyncio.TaskGroup() as group:
        group.create_task(ran(station, job, request("wait")))
        await place.until_run(2)
        paths = [upload(place, b"x") for _ in range(3)]
        group.create_task(ran(station, job, by_hash("in", b"x"), {"in": paths[0]}))
        await ran(station, done, by_hash("in", b"x"), {"in": paths[1]})
        with pytest.raises(Refused):
            await ran(station, new_job(), by_hash("in", b"x"), {"in": paths[2]})
        await eventually(lambda: not any(path.exists() for path in paths))
        place.gate.touch()
    await place.stop(station)
    path = upload(place, b"x")
    with pytest.raises(Refused):
        await ran(station, new_job(), by_hash("in", b"x"), {"in": path})
    assert not path.exists()


async def test_a_file_whose_job_cannot_be_run_is_removed(place: Place) -> None:
    station, path = place.station(), upload(place, b"x")
    result = await ran(station, new_job(), by_hash("in", b"x", "nothing-like-it"), {"in": path})
    assert result.reason == "unknown-program"
    await eventually(lambda: not path.exists())


# Results that do not fit a frame.


@pytest.fixture
def large(place: Place) -> None:
    """A program whose archive does not fit a frame, and one that fails with as much."""
    make = "head -c 6000000 /dev/urandom > made.bin"
    place.program("much", make)
    place.program("much-and-fail", f"{make}; exit 3")


@pytest.mark.spec("N2", "N4")
@pytest.mark.usefixtures("large")
async def test_what_an_open_result_names_is_not_swept_while_it_is_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.roles.runner.kept_jobs.SWEEP_S", 0.05)
    station, job = place.station(done_ttl_s=0.0), new_job()
    finished = await station.run(job, request("much"))
    archive = finished.parts[ARCHIVE]
    assert archive.stat().st_size > 6_000_000
    folder = archive.parent
    ended_at = station._runner.kept.jobs[job]
    await eventually(lambda: station._runner.kept.jobs.get(job) != ended_at)
    assert archive.exists(), "its time was over, and began anew"
    finished.close()
    finished.close()
    await eventually(lambda: not folder.exists())


@pytest.mark.usefixtures("large")
async def test_a_failure_that_is_being_read_is_not_taken_away_by_a_new_run(place: Place) -> None:
    station, job = place.station(), new_job()
    with await station.run(job, request("much-and-fail")) as finished:
        with pytest.raises(Refused) as refused:
            await station.run(job, request("much-and-fail"))
        assert refused.value.code == "busy"
        assert finished.parts[ARCHIVE].exists()
    result = await ran(station, job, request("much-and-fail"))
    assert result.exit_code == 3
    assert station.counts.started == 2


@pytest.mark.usefixtures("large")
async def test_several_may_read_the_same_result(place: Place) -> None:
    station, job = place.station(), new_job()
    first = await station.run(job, request("much"))
    second = await station.run(job, request("much"))
    third = await station.finished(job)
    assert third is not None
    assert first.parts == second.parts == third.parts
    for each in (first, second, third):
        each.close()
    assert station.counts.started == 1


# How long things stay.


@pytest.mark.spec("N4")
async def test_what_an_interrupted_job_left_stays_for_its_time(place: Place) -> None:
    folder = place.jobs / "0b7ad7e2-5d7a-4f6c-9a3e-6f1f4c1d2a10"
    folder.mkdir(parents=True)
    (folder / "half-made").write_text("x")
    station = place.station(interrupted_ttl_s=3_600.0)
    await ran(station, new_job(), request("echo"))
    assert (folder / "half-made").exists()
    await place.stop(station)
    os.utime(folder, (1.0, 1.0))
    station = place.station(interrupted_ttl_s=3_600.0)
    await ran(station, new_job(), request("echo"))
    assert not folder.exists()


@pytest.mark.spec("N4")
async def test_what_an_interrupted_job_left_goes_while_the_station_runs(place: Place) -> None:
    folder = place.jobs / "0b7ad7e2-5d7a-4f6c-9a3e-6f1f4c1d2a10"
    folder.mkdir(parents=True)
    os.utime(folder, (time.time() - 3_599.0, time.time() - 3_599.0))
    place.station(interrupted_ttl_s=3_600.0)
    await eventually(lambda: not folder.exists())


@pytest.mark.spec("N4")
async def test_a_caller_that_is_faster_than_the_start_is_not_taken_for_a_remainder(place: Place) -> None:
    wait = (place.programs / "wait").read_text().removeprefix("#!/bin/sh\n")
    place.program("make-and-wait", f"echo x > made; {wait}")
    station = Station(RunnerSettings(programs=place.programs, jobs=place.jobs, slots=1))
    caller = asyncio.get_running_loop().create_task(ran(station, new_job(), request("make-and-wait")))
    await place.until_run()
    serving = asyncio.get_running_loop().create_task(station.serve(), name="station under test")
    await asyncio.sleep(0)
    place.gate.touch()
    assert (await caller).output_archive is not None
    station.request_stop()
    await serving


# With a leader as well.


@pytest.mark.spec("N3", "L2")
async def test_a_leader_and_callers_share_the_same_slots(place: Place, leader: WorkersLeader) -> None:
    station = place.station(leader=leader.address, slots=1)
    peer = await leader.connection()
    await peer.welcome()
    await peer.expect(CREDIT)
    job, theirs = new_job(), uuid4()
    async with asyncio.TaskGroup() as group:
        caller = group.create_task(ran(station, job, request("wait")))
        await place.until_run()
        peer.assign(theirs, "echo", "for the leader")
        await eventually(lambda: station.is_running(JobId(theirs.bytes_le)))
        assert (station.running, station.free, place.run_count) == (1, 0, 1)
        place.gate.touch()
    assert caller.result().stdout == "done\n"
    assert (await peer.ack_of(theirs))["Stdout"] == "said for the leader\n"
    assert place.run_count == 2
    await eventually(lambda: station.free == 1)


@pytest.mark.spec("W4", "W7")
async def test_the_same_job_from_both_sides_runs_once_and_answers_both(place: Place, leader: WorkersLeader) -> None:
    station, job = place.station(leader=leader.address), uuid4()
    peer = await leader.connection()
    await peer.welcome()
    await peer.expect(CREDIT)
    async with asyncio.TaskGroup() as group:
        caller = group.create_task(ran(station, JobId(job.bytes_le), request("wait")))
        await place.until_run()
        peer.assign(job, "wait")
        place.gate.touch()
        assert (await peer.ack_of(job))["Stdout"] == "done\n"
    assert caller.result().stdout == "done\n"
    assert place.run_count == 1


@pytest.mark.spec("N2", "F10")
async def test_a_leader_by_frames_gets_no_output_in_the_archive_of_a_caller_s_job(
    place: Place, leader: WorkersLeader
) -> None:
    place.program("make", "echo said; echo made > made")
    station, job = place.station(leader=leader.address), uuid4()
    peer = await leader.connection()
    await peer.welcome()
    await peer.expect(CREDIT)
    by_http = msgspec.structs.replace(request("make"), archive_output=True)
    first = await ran(station, JobId(job.bytes_le), by_http)
    assert first.archive_output is True
    peer.assign(job, "make")
    told = await peer.ack_of(job)
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(told["OutputArchive"]))) as archive:
        assert archive.namelist() == ["made"]
    assert told["Stdout"] == "said\n"
    assert "ArchiveOutput" not in told
