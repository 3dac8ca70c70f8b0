"""How does a job, once it has been given to us, become a result?"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import resource
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from tests.kit.eventually import eventually
from tests.kit.processes import no_new_process, no_new_thread

from wakugumi.adapters.loop.event_loop import new_loop
from wakugumi.adapters.machine.cpu_use import OthersCpu, busy_share
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.adapters.zip.take_output import result_for_frames
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.errors import CODES, ConfigError
from wakugumi.limits.runner import DONE_TTL_S
from wakugumi.limits.units import KIB, MIB
from wakugumi.limits.wire import ARGS_PER_JOB_MAX, FILES_PER_JOB_MAX, PAYLOAD_BYTES_MAX
from wakugumi.roles.runner.make_result import MadeResult
from wakugumi.roles.runner.runner import Runner
from wakugumi.roles.runner.settings import RunnerSettings
from wakugumi.wire.messages.job import InputFile, JobLimits, JobRequest, JobResult, read_result
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0


class World:
    """A runner, scripts as its programs, and what it said."""

    def __init__(self, folder: Path, is_owed: Callable[[JobId], bool] = lambda _: False, **options: Any) -> None:
        self.exe = folder / "exe"
        self.exe.mkdir(exist_ok=True)
        self.jobs = folder / "jobs"
        self.ends: dict[JobId, list[tuple[JobResult, bool, str, bytes]]] = {}
        self.faults: list[str] = []
        """What was wrong with the machine when each job ended."""
        self._told = asyncio.Event()
        settings = RunnerSettings(
            jobs=self.jobs, **{"name": "worker-1", "kill_grace_s": 0.2, "disk_free_min_bytes": 0, **options}
        )
        loop = asyncio.get_running_loop()
        self.runner = Runner(loop, settings, Programs(self.exe), self._on_end, is_owed)

    def program(self, script: str, name: str = "calcA", interpreter: str = "/bin/sh") -> str:
        path = self.exe / name
        path.write_text(f"#!{interpreter}\n{script}\n")
        path.chmod(0o755)
        return name

    def start(self, exec_name: str = "calcA", *, job_id: JobId | None = None, **fields: Any) -> JobId:
        job_id = job_id or JobId(uuid4().bytes_le)
        request = JobRequest(show_job_id(job_id), "client-1", exec_name, **fields)
        self.runner.start(job_id, encode(request))
        return job_id

    async def end(self, job_id: JobId, count: int = 1) -> JobResult:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.ends.get(job_id, ())) < count:
                self._told.clear()
                await self._told.wait()
        result, ok, reason, payload = self.ends[job_id][-1]
        assert len(payload) <= PAYLOAD_BYTES_MAX
        assert ok == (result.status == "OK") == (reason == "") == (result.exit_code == 0 and result.reason is None)
        assert (result.reason or "") == reason
        assert not reason or reason in CODES
        assert result.worker
        return result

    async def run(self, script: str, **fields: Any) -> JobResult:
        return await self.end(self.start(self.program(script), **fields))

    def directory(self, job_id: JobId) -> Path:
        return self.jobs / show_job_id(job_id)

    def _on_end(self, job_id: JobId, end: MadeResult) -> None:
        self.faults.append(end.fault)
        self.ends.setdefault(job_id, []).append((read_result(job_id, end.payload), end.ok, end.reason, end.payload))
        self._told.set()


def files_of(result: JobResult) -> dict[str, bytes]:
    assert result.output_archive is not None
    archive = zipfile.ZipFile(io.BytesIO(result.output_archive))
    return {name: archive.read(name) for name in archive.namelist()}


def loaded(runner: Runner, job_id: JobId) -> bytes:
    """The result on the disk, as frames carry it."""
    payload = runner.kept.load(job_id)
    assert payload is not None
    return result_for_frames(job_id, payload)


@pytest.fixture
async def world(tmp_path: Path, anyio_backend: str) -> AsyncIterator[World]:
    before = len(os.listdir("/proc/self/fd"))
    world = World(tmp_path, output_bytes_max=8 * MIB)
    yield world
    await world.runner.close()
    assert len(os.listdir("/proc/self/fd")) == before, "no file stays open"


# Results.


@pytest.mark.spec("W1", "W6")
async def test_a_job_that_ends_well_is_ok_with_all_it_said_and_made(world: World) -> None:
    script = 'echo "$1 $2"; cat in/data.txt >&2; mkdir out; echo made > "out/結果 é.txt"; echo $WAKU_JOB_ID > .hidden'
    job_id = world.start(
        world.program(script),
        args=["a b", "ü"],
        files=[InputFile("in/data.txt", content=b"input\n"), InputFile("x", content=b"")],
    )
    result = await world.end(job_id)
    assert result.job_id == show_job_id(job_id)
    assert (result.client_id, result.exec_name, result.status) == ("client-1", "calcA", "OK")
    assert (result.stdout, result.stderr, result.exit_code, result.reason) == ("a b ü\n", "input\n", 0, None)
    assert files_of(result) == {"out/結果 é.txt": b"made\n"}
    assert result.run_s is not None
    assert 0 < result.run_s < DEADLINE_S
    assert world.runner.running == 0


@pytest.mark.spec("W1")
async def test_a_job_that_made_no_files_has_no_archive(world: World) -> None:
    result = await world.run("rm input.txt", files=[InputFile("input.txt", content=b"x")])
    assert (result.status, result.output_archive) == ("OK", None)


@pytest.mark.spec("W6")
async def test_a_job_that_fails_answers_with_all_it_said_and_made_too(world: World) -> None:
    result = await world.run("echo out; echo err >&2; echo made > file; exit 42")
    assert (result.status, result.reason, result.exit_code) == ("FAILED", "exit", 42)
    assert (result.stdout, result.stderr, files_of(result)) == ("out\n", "err\n", {"file": b"made\n"})


@pytest.mark.spec("W6")
async def test_a_job_that_a_signal_ended_says_so(world: World) -> None:
    result = await world.run("printf err >&2; kill -SEGV $$")
    assert (result.reason, result.exit_code) == ("exit", 139)
    assert result.stderr == "err\nwakugumi: the program was ended by signal 11 (SIGSEGV)\n"


@pytest.mark.spec("F6")
async def test_output_that_is_no_text_arrives_with_replacement_characters(world: World) -> None:
    result = await world.run("printf 'a\\377\\000b'; printf '\\200\\n' >&2")
    assert (result.stdout, result.stderr) == ("a\ufffd\0b", "\ufffd\n")


@pytest.mark.spec("W5")
async def test_nothing_outside_comes_back_through_a_link(world: World) -> None:
    result = await world.run(
        "ln -s /etc/passwd a; ln -s .. b; mkdir c; ln -s / c/root; mkfifo d; echo x > e; ln -s e f"
    )
    assert files_of(result) == {"e": b"x\n", "f": b"e"}


async def test_the_text_of_the_id_comes_back_as_it_was_given(world: World) -> None:
    job_id = JobId(uuid4().bytes_le)
    plain = show_job_id(job_id).replace("-", "").upper()
    world.program("true")
    world.runner.start(job_id, encode(JobRequest(plain, "c", "calcA")))
    assert (await world.end(job_id)).job_id == plain
    world.runner.start(job_id, encode(JobRequest("", "c", "calcA")))
    assert (await world.end(job_id, 2)).job_id == show_job_id(job_id)


async def test_many_jobs_run_at_once_and_do_not_meet(world: World) -> None:
    world.program('echo "$1" > file; sleep 0.05; cat file')
    ids = [world.start(args=[str(number)]) for number in range(20)]
    assert world.runner.running == 20
    results = [await world.end(job_id) for job_id in ids]
    assert [result.stdout for result in results] == [f"{number}\n" for number in range(20)]


async def test_a_thousand_files_come_in_and_go_out(world: World) -> None:
    files = [InputFile(f"in/{number}", content=b"%d" % number) for number in range(1_000)]
    result = await world.run("mkdir out; for f in in/*; do cp $f out/; done", files=files)
    assert files_of(result) == {f"out/{number}": b"%d" % number for number in range(1_000)}


async def test_large_content_comes_in_and_goes_out(world: World) -> None:
    content = os.urandom(2 * MIB)
    result = await world.run("cat in > out; ls", files=[InputFile("in", content=content)])
    assert files_of(result) == {"out": content}


@pytest.mark.spec("W1")
async def test_a_program_can_be_copied_in(tmp_path: Path) -> None:
    world = World(tmp_path, copy_program=True)
    result = await world.run('echo "$0"; ls')
    [directory] = [path for path in world.jobs.iterdir() if path.is_dir()]
    assert result.stdout == f"{directory}/calcA\ncalcA\n"
    assert result.output_archive is None
    result = await world.run("true", files=[InputFile("calcA", content=b"")])
    assert result.reason == "bad-name"
    await world.runner.close()


def test_it_runs_on_either_loop(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path)
        assert (await world.run("echo hello")).stdout == "hello\n"
        assert (await world.run("sleep 1000", timeout_s=0.1)).reason == "timeout"
        await world.runner.close()

    for factory in (asyncio.new_event_loop, new_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())


# What cannot be run.

BAD_REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("bad-name", {"exec_name": ""}),
    ("bad-name", {"exec_name": "../calcA"}),
    ("bad-name", {"exec_name": "/bin/sh"}),
    ("bad-name", {"exec_name": "."}),
    ("unknown-program", {"exec_name": "calcZ"}),
    ("not-executable", {"exec_name": "no-run-bit"}),
    ("not-executable", {"exec_name": "no-first-line"}),
    ("not-executable", {"exec_name": "no-first-line", "limits": JobLimits(cpu_s=5)}),
    ("bad-name", {"files": [InputFile("../x", content=b"")]}),
    ("bad-name", {"files": [InputFile("/etc/x", content=b"")]}),
    ("bad-name", {"files": [InputFile("c:\\x", content=b"")]}),
    ("bad-name", {"files": [InputFile("NUL", content=b"")]}),
    ("bad-name", {"files": [InputFile("a\0", content=b"")]}),
    ("bad-name", {"files": [InputFile("x" * 300, content=b"")]}),
    ("bad-name", {"files": [InputFile(".done", content=b"")]}),
    ("bad-name", {"files": [InputFile("a", content=b""), InputFile("A", content=b"")]}),
    ("bad-name", {"files": [InputFile("a", content=b""), InputFile("a/b", content=b"")]}),
    ("no-cache", {"files": [InputFile("a", cache_id="dataset-v1")]}),
    ("bad-request", {"files": [InputFile("a")]}),
    ("bad-request", {"files": [InputFile(f"{n}", content=b"") for n in range(FILES_PER_JOB_MAX + 1)]}),
    ("bad-request", {"args": ["x"] * (ARGS_PER_JOB_MAX + 1)}),
    ("bad-request", {"args": ["a\0b"]}),
    ("bad-request", {"args": ["x" * 3_000_000]}),
    ("bad-request", {"timeout_s": 0.0}),
    ("bad-request", {"timeout_s": -1.0}),
    ("bad-request", {"timeout_s": 1e12}),
    ("bad-request", {"limits": JobLimits(processes=0)}),
]


@pytest.mark.spec("W1", "W5", "F11")
@pytest.mark.parametrize(("code", "fields"), BAD_REQUESTS, ids=lambda value: str(value)[:60].encode("ascii", "replace"))
async def test_what_cannot_be_run_fails_with_its_code_and_words(
    world: World, code: str, fields: dict[str, Any]
) -> None:
    world.program("true")
    (world.exe / "no-run-bit").write_text("#!/bin/sh\n")
    (world.exe / "no-first-line").write_text("true\n")
    (world.exe / "no-first-line").chmod(0o755)
    job_id = world.start(**fields)
    assert not world.ends, "never from inside start"
    result = await world.end(job_id)
    assert (result.status, result.reason) == ("FAILED", code)
    assert result.stderr.startswith("wakugumi: ")
    assert len(result.stderr) < 500
    assert world.runner.running == 0
    assert loaded(world.runner, job_id) == world.ends[job_id][0][3], "it can be told again"


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"[]", b'{"JobId": 7}', b"\xff", b'{"JobId":"x","Args":[1]}', b'{"JobId":"x","Args":["\\ud800"]}'],
)
async def test_what_is_no_request_fails_as_one(world: World, payload: bytes) -> None:
    job_id = JobId(uuid4().bytes_le)
    world.runner.start(job_id, payload)
    result = await world.end(job_id)
    assert (result.reason, result.job_id) == ("bad-request", show_job_id(job_id))


async def test_a_worker_without_room_takes_no_job(tmp_path: Path) -> None:
    world = World(tmp_path, disk_free_min_bytes=1 << 60)
    result = await world.run("true")
    assert result.reason == "disk"
    await world.runner.close()


async def test_a_job_that_already_runs_is_not_started_twice(world: World) -> None:
    job_id = world.start(world.program("while [ ! -e go ]; do sleep 0.01; done; echo once"))
    world.start(job_id=job_id)
    (world.directory(job_id) / "go").touch()
    assert (await world.end(job_id)).stdout == "once\n"
    assert len(world.ends[job_id]) == 1


async def test_a_listener_that_fails_harms_no_other_job(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug elsewhere")

    whole, world.runner._on_end = world.runner._on_end, broken
    world.start(world.program("true"))
    await eventually(lambda: world.runner.running == 0)
    assert "result not accepted" in caplog.text
    world.runner._on_end = whole
    assert (await world.run("true")).status == "OK"


# Ended by us.


@pytest.mark.spec("W3")
async def test_a_job_that_takes_too_long_is_ended_and_says_what_it_had_to_say(world: World) -> None:
    result = await world.run("echo started; sleep 1000", timeout_s=0.5)
    assert (result.status, result.reason, result.exit_code) == ("FAILED", "timeout", 143)
    assert result.stdout == "started\n"
    assert result.stderr == "wakugumi: the job took longer than its timeout of 0.5 s\n"


@pytest.mark.spec("W3")
async def test_the_runners_own_timeout_holds_where_the_job_names_none(tmp_path: Path) -> None:
    world = World(tmp_path, timeout_s=0.2)
    assert (await world.run("sleep 1000")).reason == "timeout"
    await world.runner.close()


@pytest.mark.spec("W3")
async def test_a_cancelled_job_ends_and_is_told(world: World) -> None:
    job_id = world.start(world.program("touch started; sleep 1000"))
    await eventually((world.directory(job_id) / "started").exists)
    world.runner.kill(job_id)
    world.runner.kill(job_id, "timeout")
    world.runner.kill(JobId(bytes(16)))
    result = await world.end(job_id)
    assert (result.reason, result.stderr) == ("cancelled", "wakugumi: the job was cancelled\n")


async def test_a_job_cancelled_before_its_program_runs_is_never_started(world: World) -> None:
    files = [InputFile("in", content=bytes(2 * MIB))]
    job_id = world.start(world.program(f"touch {world.exe}/ran"), files=files)
    world.runner.kill(job_id)
    result = await world.end(job_id)
    assert (result.reason, result.exit_code) == ("cancelled", None)
    assert not (world.exe / "ran").exists()


async def test_endless_output_ends_the_job_and_its_end_is_told(tmp_path: Path) -> None:
    world = World(tmp_path, output_bytes_max=100 * KIB)
    job_id = world.start(world.program("yes; echo unreachable"))
    result = await world.end(job_id)
    assert (result.status, result.reason) == ("FAILED", "output-limit")
    assert "102400 bytes" in result.stderr
    assert len(result.stdout) == 64 * KIB
    assert os.listdir(world.directory(job_id)) == [".done"]
    await world.runner.close()


@pytest.mark.spec("W8")
async def test_a_broken_limit_is_the_reason(world: World) -> None:
    result = await world.run("while :; do :; done", limits=JobLimits(cpu_s=0.2))
    assert (result.status, result.reason) == ("FAILED", "cpu-limit")
    assert result.stderr == "wakugumi: the job used more than 0.2 s of CPU time, the limit that it asked for\n"


# What does not fit.


def blob_of(ref: BlobRef | msgspec.UnsetType, path: Path) -> bytes:
    """What lies there, which is what the result says."""
    data = path.read_bytes()
    assert ref == BlobRef(hashlib.sha256(data).hexdigest(), len(data))
    return data


@pytest.mark.spec("C5")
async def test_huge_results_hold_up_nobody_but_their_like(world: World) -> None:
    """Three results of 500 GB each, which take minutes to pack although they are holes; then one of 5 MB."""
    program = world.program("truncate -s 500G huge", "huge")
    huge = [world.start(program) for _ in range(3)]
    await eventually(lambda: sum(bool(list(world.directory(job).glob(".waku-*"))) for job in huge) == 2)
    result = await world.run("head -c 5000000 /dev/urandom > noise")
    assert (result.status, result.unpacked_bytes) == ("OK", 5_000_000)
    assert not any(job in world.ends for job in huge)
    for job in huge:
        world.runner.kill(job)
    assert {(await world.end(job)).reason for job in huge} == {"cancelled"}


@pytest.mark.spec("C5", "W6")
@pytest.mark.parametrize("size", [PAYLOAD_BYTES_MAX * 3 // 4 - 2 * KIB, PAYLOAD_BYTES_MAX * 3 // 4 + 2 * KIB])
async def test_files_come_in_the_frame_as_long_as_they_fit_and_by_their_hash_else(world: World, size: int) -> None:
    job_id = world.start(world.program(f"head -c {size} /dev/urandom > big; echo said; echo mine > result.zip"))
    result = await world.end(job_id)
    assert (result.status, result.stdout) == ("OK", "said\n")
    assert result.unpacked_bytes == size + len("mine\n")
    if size < PAYLOAD_BYTES_MAX * 3 // 4:
        assert sorted(files_of(result)) == ["big", "result.zip"]
        assert result.archive_blob is msgspec.UNSET
        return
    directory = world.directory(job_id)
    assert sorted(os.listdir(directory)) == [".done", "result.zip"]
    packed = zipfile.ZipFile(io.BytesIO(blob_of(result.archive_blob, directory / "result.zip")))
    assert (len(packed.read("big")), packed.read("result.zip")) == (size, b"mine\n")
    assert result.output_archive is None
    assert loaded(world.runner, job_id) == world.ends[job_id][0][3]


async def test_a_large_file_that_packs_well_comes_in_the_frame(world: World) -> None:
    job_id = world.start(world.program("truncate -s 40M zeros"))
    assert files_of(await world.end(job_id)) == {"zeros": bytes(40 << 20)}
    assert sorted(os.listdir(world.directory(job_id))) == [".done", "result.zip"]


@pytest.mark.spec("C5")
async def test_a_program_that_failed_with_much_to_say_and_show_failed_by_its_exit_code(world: World) -> None:
    script = "head -c 5000000 /dev/urandom > big; head -c 5000000 /dev/zero | tr '\\0' e >&2; kill -9 $$"
    job_id = world.start(world.program(script))
    result = await world.end(job_id)
    assert result.status == "FAILED"
    assert result.reason == "exit"
    stderr = blob_of(result.stderr_blob, world.directory(job_id) / ".stderr").decode()
    note = "wakugumi: the program was ended by signal 9 (SIGKILL)\n"
    assert stderr == "e" * 5_000_000 + note
    assert result.stderr == "e" * 64 * KIB + "\n" + note
    assert result.archive_blob


async def test_output_that_does_not_fit_is_a_file_beside_and_its_end_is_told(world: World) -> None:
    script = "head -c 5000000 /dev/zero | tr '\\0' x; echo the end; echo err >&2; echo small > file"
    job_id = world.start(world.program(script))
    result = await world.end(job_id)
    assert result.status == "OK"
    assert len(result.stdout) == 64 * KIB
    assert result.stdout.endswith("xxxthe end\n")
    assert result.stderr == "err\n"
    assert files_of(result) == {"file": b"small\n"}, "what fits comes in the frame"
    assert blob_of(result.stdout_blob, world.directory(job_id) / ".stdout") == b"x" * 5_000_000 + b"the end\n"
    assert result.stderr_blob is result.archive_blob is msgspec.UNSET
    assert loaded(world.runner, job_id) == world.ends[job_id][0][3]
    whole = world.runner.kept.load_whole(job_id)
    assert whole is not None
    assert [(part.ref, part.path) for part in whole.parts] == [
        (result.stdout_blob, world.directory(job_id) / ".stdout")
    ]


async def test_output_that_grows_in_json_is_noticed(world: World) -> None:
    job_id = world.start(world.program("head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2"))
    result = await world.end(job_id)
    for ref, name in ((result.stdout_blob, ".stdout"), (result.stderr_blob, ".stderr")):
        assert blob_of(ref, world.directory(job_id) / name) == bytes(1_000_000), "six million characters of JSON each"


async def test_what_a_program_left_in_the_place_of_our_files_is_not_ours(world: World, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    script = f"ln -s {tmp_path}/victim .stdout; ln -s {tmp_path}/victim result.zip; ln -s {tmp_path}/victim .done"
    job_id = world.start(world.program(f"{script}; head -c 5000000 /dev/urandom | tee big"))
    result = await world.end(job_id)
    assert result.status == "OK"
    assert len(blob_of(result.stdout_blob, world.directory(job_id) / ".stdout")) == 5_000_000
    assert (tmp_path / "victim").read_text() == "precious"


async def test_a_part_that_is_gone_or_has_another_size_is_not_answered_for(world: World) -> None:
    job_id = world.start(world.program("head -c 5000000 /dev/urandom > big"))
    await world.end(job_id)
    with (world.directory(job_id) / "result.zip").open("ab") as file:
        file.write(b"more")
    assert world.runner.kept.load(job_id) is None
    (world.directory(job_id) / "result.zip").unlink()
    assert world.runner.kept.load(job_id) is None


async def test_more_than_anyone_takes_stays_where_it_is(world: World) -> None:
    job_id = world.start(world.program("truncate -s 2T big; echo said"))
    result = await world.end(job_id)
    directory = world.directory(job_id)
    assert (result.status, result.reason, result.exit_code, result.output_archive) == ("FAILED", "too-big", 0, None)
    assert f"{2 << 40} in files" in result.stderr
    assert f"in {directory} on worker worker-1" in result.stderr
    assert (directory / "big").stat().st_size == 2 << 40
    assert (directory / ".stdout").read_text() == "said\n"
    assert loaded(world.runner, job_id) == world.ends[job_id][0][3]


async def test_a_leader_that_takes_only_frames_is_told_where_the_rest_is(world: World) -> None:
    large = world.start(world.program("head -c 5000000 /dev/urandom > big; echo said; exit 3", "large"))
    small = world.start(world.program('echo \'"ArchiveBlob":{"Sha256":\'', "small"))
    for job_id in (large, small):
        await world.end(job_id)
    payload = world.ends[small][0][3]
    assert world.runner.kept.in_short(small, payload) == payload
    told = read_result(large, world.runner.kept.in_short(large, world.ends[large][0][3]))
    assert (told.status, told.reason, told.exit_code, told.stdout) == ("FAILED", "too-big", 3, "said\n")
    assert f"in {world.directory(large)} on worker worker-1" in told.stderr
    assert told.archive_blob is msgspec.UNSET


async def test_a_job_that_is_cancelled_while_it_is_packed_ends(world: World) -> None:
    job_id = world.start(world.program("truncate -s 900G big"))
    run = world.runner._runs[job_id]
    await eventually(lambda: run.child is not None and bool(run.child.ended_at))
    world.runner.kill(job_id)
    result = await world.end(job_id)
    assert (result.status, result.reason) == ("FAILED", "cancelled")
    assert os.listdir(world.directory(job_id)) == [".done"]


async def test_a_worker_that_stops_does_not_wait_for_what_is_packed(tmp_path: Path) -> None:
    world = World(tmp_path)
    job_id = world.start(world.program("truncate -s 900G big"))
    await eventually(lambda: any(name.startswith(".waku-") for name in os.listdir(world.directory(job_id))))
    async with asyncio.timeout(DEADLINE_S):
        await world.runner.close()
    assert not world.directory(job_id).exists()


# After a restart, and when time is over.


@pytest.mark.spec("W4")
async def test_a_finished_job_is_answered_from_the_disk_after_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    plain = world.start(world.program("echo out", "plain"))
    rich = world.start(world.program("echo file > file; exit 1", "rich"))
    for job_id in (plain, rich):
        await world.end(job_id)
    await world.runner.close()
    again = World(tmp_path)
    found = dict(again.runner.kept.finished_before())
    assert found.keys() == {plain, rich}
    assert all(0 <= age_s < DEADLINE_S for age_s in found.values())
    for job_id in (plain, rich):
        assert loaded(again.runner, job_id) == world.ends[job_id][0][3]
    assert again.runner.kept.load(JobId(uuid4().bytes_le)) is None
    await again.runner.close()


@pytest.mark.spec("W4", "W7")
async def test_what_an_earlier_life_left_stays_for_as_long_as_if_it_had_ended_now(tmp_path: Path) -> None:
    world = World(tmp_path)
    job_id = world.start(world.program("true"))
    await world.end(job_id)
    await world.runner.close()
    os.utime(world.directory(job_id) / ".done", (1_000_000_000, 1_000_000_000))
    again = World(tmp_path)
    ((found, age_s),) = again.runner.kept.finished_before()
    assert found == job_id
    assert age_s > DONE_TTL_S
    assert not again.runner.kept.sweep()
    assert loaded(again.runner, job_id) == world.ends[job_id][0][3]
    await again.runner.close()


@pytest.mark.spec("L3", "L6")
async def test_a_failure_that_is_unmarked_is_not_there_after_a_restart_and_its_files_go_in_time(tmp_path: Path) -> None:
    world = World(tmp_path, done_ttl_s=0.0)
    job_id = world.start(world.program("exit 1"))
    assert (await world.end(job_id)).worker == "worker-1"
    world.runner.kept.unmark(job_id)
    assert world.runner.kept.load(job_id) is None
    await eventually(lambda: not world.directory(job_id).exists())
    await world.runner.close()


async def test_a_running_job_is_not_unmarked(world: World) -> None:
    job_id = world.start(world.program(f'while [ ! -e "{world.exe}/gate" ]; do sleep 0.01; done; exit 1'))
    world.runner.kept.unmark(job_id)
    (world.exe / "gate").touch()
    await world.end(job_id)
    assert world.runner.kept.load(job_id) is not None


@pytest.mark.spec("L4")
async def test_a_worker_without_a_name_is_called_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    world = World(tmp_path, name="")
    result = await world.run("true")
    assert result.worker == str(UUID(bytes_le=world.runner.worker_id))[:8]
    await world.runner.close()


@pytest.mark.spec("W4")
async def test_what_an_interrupted_job_left_is_cleaned_up(tmp_path: Path) -> None:
    remains = tmp_path / "jobs" / str(uuid4())
    (remains / "sub").mkdir(parents=True)
    (remains / "sub/half").write_text("x")
    world = World(tmp_path)
    assert world.runner.kept.finished_before() == []
    assert not remains.exists()
    await world.runner.close()


async def test_a_job_that_is_run_again_has_a_new_result(world: World) -> None:
    world.program('[ -e "$1" ] && echo second; touch "$1"; touch made')
    job_id = world.start(args=[str(world.exe / "mark")])
    first = await world.end(job_id)
    world.start(job_id=job_id, args=[str(world.exe / "mark")])
    assert world.runner.kept.load(job_id) is None, "while it runs the old one does not count"
    second = await world.end(job_id, 2)
    assert (first.stdout, second.stdout) == ("", "second\n")
    assert loaded(world.runner, job_id) == world.ends[job_id][1][3]


@pytest.mark.spec("W4", "W7")
async def test_results_go_when_their_time_is_over_unless_someone_waits_for_them(tmp_path: Path) -> None:
    owed: set[JobId] = set()
    world = World(tmp_path, done_ttl_s=0.0, is_owed=lambda job_id: job_id in owed)
    world.program("true")
    world.program("head -c 4000000 /dev/urandom > big", "big")
    gone, kept, large = world.start(), world.start(), world.start("big")
    large_kept = world.start(world.program("head -c 20000000 /dev/urandom | tee big", "bigger"))
    owed |= {kept, large_kept}
    for job_id in (gone, kept, large, large_kept):
        await world.end(job_id)
    await eventually(lambda: not world.directory(large).exists())
    await eventually(lambda: world.runner.kept.jobs.keys() == {kept, large_kept})
    assert world.runner.kept.load(kept) is not None
    assert world.runner.kept.load(large_kept) is not None, "with the files that it names"
    later = world.start()
    await world.end(later)
    assert not world.directory(gone).exists(), "its directory serves the later one"
    owed.clear()
    await eventually(lambda: not world.runner.kept.jobs)
    await eventually(lambda: not world.directory(large_kept).exists())
    await world.runner.close()


async def test_time_counts_from_the_last_run(tmp_path: Path) -> None:
    world = World(tmp_path, done_ttl_s=1_000.0)
    job_id = world.start(world.program("true"))
    await world.end(job_id)
    second, jobs = world.runner.kept.seconds[0]
    world.runner.kept.seconds[0] = (second - 2_000, jobs)
    world.runner.kept.jobs[job_id] = second - 2_000
    world.start(job_id=job_id)
    await world.end(job_id, 2)
    assert not world.runner.kept.sweep()
    assert world.runner.kept.load(job_id) is not None
    assert len(world.runner.kept.seconds) == 1
    await world.runner.close()


@pytest.mark.spec("N4", "W4")
async def test_where_results_are_kept_for_days_an_old_one_goes_after_its_days_and_not_before(tmp_path: Path) -> None:
    days = 10 * DONE_TTL_S
    jobs = []
    for age_s in (5 * DONE_TTL_S, 20 * DONE_TTL_S):
        world = World(tmp_path, done_ttl_s=days)  # Each in a life of its own: those of one life share a file.
        jobs.append(world.start(world.program("true")))
        await world.end(jobs[-1])
        await world.runner.close()
        os.utime(world.directory(jobs[-1]) / ".done", (time.time() - age_s,) * 2)
    young, old = jobs
    again = World(tmp_path, done_ttl_s=days)
    again.runner.kept.finished_before()
    ages = {job_id: again.runner._loop.time() - ended_at for job_id, ended_at in again.runner.kept.jobs.items()}
    assert 5 * DONE_TTL_S <= ages[young] < 6 * DONE_TTL_S
    assert days - DONE_TTL_S <= ages[old] < days, "a leader has time to fetch it"
    await again.runner.close()


@pytest.mark.spec("N4", "W4")
async def test_beyond_so_many_the_oldest_results_go_earlier_but_none_that_may_be_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.roles.runner.kept_jobs.KEPT_JOBS_MAX", 1)
    world = World(tmp_path, done_ttl_s=10 * DONE_TTL_S)
    old = world.start(world.program("true"))
    await world.end(old)
    second, jobs = world.runner.kept.seconds[0]
    world.runner.kept.seconds[0] = (second - 2 * DONE_TTL_S, jobs)
    world.runner.kept.jobs[old] = second - 2 * DONE_TTL_S
    assert not world.runner.kept.sweep()
    assert old in world.runner.kept.jobs, "there is room for it"
    for job_id in [world.start(), world.start()]:
        await world.end(job_id)
    world.runner.kept.sweep()
    assert old not in world.runner.kept.jobs
    assert len(world.runner.kept.jobs) == 2, "they have just ended"
    await world.runner.close()


@pytest.mark.spec("N4")
async def test_a_job_that_is_ended_by_the_stop_leaves_what_it_made_for_its_time(tmp_path: Path) -> None:
    world = World(tmp_path, interrupted_ttl_s=60.0)
    job_id = world.start(world.program("touch made; sleep 60"))
    await eventually((world.directory(job_id) / "made").exists)
    await world.runner.close()
    assert (world.directory(job_id) / "made").exists()
    again = World(tmp_path, interrupted_ttl_s=60.0)
    assert again.runner.kept.finished_before() == []
    again.start(again.program("ls"), job_id=job_id)
    assert (await again.end(job_id)).stdout == "", "a new run finds nothing of it"
    await again.runner.close()


async def test_a_finished_job_can_be_forgotten(world: World) -> None:
    job_id = world.start(world.program("true"))
    world.runner.kept.forget(job_id)
    await world.end(job_id)
    assert world.directory(job_id).exists(), "not while it ran"
    world.runner.kept.forget(job_id)
    assert not world.directory(job_id).exists()
    assert world.runner.kept.load(job_id) is None
    world.runner.kept.forget(job_id)


@pytest.mark.spec("W3")
async def test_closing_ends_what_runs_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.program("touch started; trap '' TERM; setsid sleep 1000 & while :; do sleep 0.01; done")
    ids = [world.start(), world.start()]
    for job_id in ids:
        await eventually((world.directory(job_id) / "started").exists)
    finished = world.start(world.program("true", "quick"))
    await world.end(finished)
    await world.runner.close()
    assert world.ends.keys() == {finished}, "nobody hears of what was broken off"
    assert world.runner.running == 0
    assert [path.name for path in world.jobs.iterdir() if path.is_dir()] == [show_job_id(finished)]
    world.runner.start(ids[0], b"")
    assert world.runner.running == 0


# The machine.


@pytest.mark.spec("W2")
async def test_what_others_use_of_the_cpu_is_a_share(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.0 <= world.runner.others_cpu_share() <= 1.0
    before = world.runner.own_cpu_s()
    await world.run("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done")
    assert world.runner.own_cpu_s() > before
    assert 0.0 <= world.runner.others_cpu_share() <= 1.0


FULL_DISK = """
import asyncio, os, sys
from pathlib import Path
from uuid import uuid4
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.roles.runner.runner import Runner
from wakugumi.roles.runner.settings import RunnerSettings
from wakugumi.wire.messages.job import JobRequest, read_result
from wakugumi.wire.messages.payload import encode

async def main():
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    job_id = JobId(uuid4().bytes_le)
    def on_end(job_id, end):
        result = read_result(job_id, end.payload)
        print(end.reason, end.ok, result.exit_code, result.stderr.strip(), "fault" if end.fault else "no fault")
        print(runner.kept.load(job_id) == end.payload, os.listdir(runner.folder + "/" + show_job_id(job_id)))
        ended.set_result(None)
    jobs = Path(sys.argv[1])
    settings = RunnerSettings(jobs=jobs, name="w", disk_free_min_bytes=0)
    runner = Runner(loop, settings, Programs(None, {"fill": Path(sys.argv[2])}), on_end)
    runner.start(job_id, encode(JobRequest(show_job_id(job_id), "c", "fill")))
    await ended
    await runner.close()
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("script", "size", "why"),
    [
        ("echo result > file\ncat /dev/zero > ../filler", "200k", "the job's result cannot be kept"),
        ("head -c 6000000 /dev/urandom > file", "8m", "the program's files cannot be packed"),
    ],
)
async def test_a_disk_that_is_full_at_the_end_fails_the_job_and_nothing_else_is_told(
    tmp_path: Path, script: str, size: str, why: str
) -> None:
    fill = tmp_path / "fill"
    fill.write_text(f"#!/bin/sh\n{script}\nexit 0\n")
    fill.chmod(0o755)
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    mount = f"mount -t tmpfs -o size={size},mode=700 none {jobs}"
    private = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*private, "sh", "-c", mount], capture_output=True).returncode != 0:  # noqa: ASYNC221
        pytest.skip("no private mounts allowed here: a full disk cannot be had")
    done = subprocess.run(  # noqa: ASYNC221
        [*private, "sh", "-c", f'{mount} && exec "$0" "$@"', sys.executable, "-c", FULL_DISK, str(jobs), str(fill)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-2:] == [
        f"disk False 0 wakugumi: {why}: No space left on device fault",
        "True ['.done']",
    ], done.stdout + done.stderr


# A machine at its end.


async def probed(world: World) -> str:
    told = asyncio.get_running_loop().create_future()
    world.runner.machine.probe(told.set_result)
    async with asyncio.timeout(DEADLINE_S):
        return str(await told)


@pytest.mark.spec("W9")
async def test_without_room_a_job_is_not_begun_and_a_probe_says_why_until_there_is_room(world: World) -> None:
    world.runner.machine.free_min_bytes = 1 << 60
    result = await world.run("touch made")
    assert (result.reason, result.not_begun) == ("disk", True)
    assert "bytes are free" in world.faults[-1]
    assert "bytes are free" in await probed(world)
    world.runner.machine.free_min_bytes = 0
    assert await probed(world) == ""
    assert (await world.run("true")).status == "OK"
    assert world.faults[-1] == ""
    assert not [path.name for path in world.jobs.iterdir() if path.name.startswith(".probe")]


@pytest.mark.spec("W9")
async def test_a_probe_removes_what_a_killed_worker_left_of_an_earlier_probe(world: World) -> None:
    left = world.jobs / ".probe"
    left.mkdir()
    (left / "file").write_bytes(b"half")
    assert await probed(world) == ""
    assert not left.exists()


@pytest.mark.spec("W9")
async def test_without_descriptors_a_job_is_not_begun_and_a_probe_says_why_until_there_are_some(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    program = world.program("true")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        assert 0.0 <= OthersCpu(lambda: 0.0).share(1e9) <= 1.0, "nobody can look, and nobody dies of it"
        assert busy_share() == 0.0
        result = await world.end(world.start(program))
        why = await probed(world)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (result.reason, result.not_begun) == ("worker-error", True)
    assert "Too many open files" in world.faults[-1]
    assert "Too many open files" in why
    assert "by this machine's fault" in caplog.text
    assert await probed(world) == ""


@pytest.mark.user_dependent
@pytest.mark.spec("W9")
async def test_without_processes_a_job_is_not_begun_and_a_probe_says_why_until_there_are_some(world: World) -> None:
    program = world.program("true")
    with no_new_process():
        result = await world.end(world.start(program))
        why = await probed(world)
    assert (result.reason, result.not_begun) == ("worker-error", True)
    assert "'calcA' could not be started: Resource temporarily unavailable" in world.faults[-1]
    assert "'true' could not be started: Resource temporarily unavailable" in why
    assert await probed(world) == ""
    assert (await world.end(world.start(program))).status == "OK"
    assert world.faults[-1] == ""


@pytest.mark.spec("W9")
async def test_a_job_ends_where_no_further_thread_can_be_started(world: World) -> None:
    program = world.program("wc -c < large > size; head -c 3000000 /dev/zero")
    with no_new_thread():
        job_id = world.start(program, files=[InputFile("large", content=bytes(2_000_000))])
        result = await world.end(job_id)
        assert (result.status, files_of(result)["size"].strip()) == ("OK", b"2000000")
        assert await probed(world) == ""
        assert world.runner.running == 0


async def test_a_runner_closes_where_no_further_thread_can_be_started(tmp_path: Path) -> None:
    runner = World(tmp_path).runner
    with no_new_thread():
        await runner.close()
    await World(tmp_path, shares_folder=False).runner.close()  # The folder is free again.


@pytest.mark.spec("W9")
async def test_a_job_that_needs_a_thread_that_cannot_be_started_is_the_machine_s_fault(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(_name: str) -> str:
        threading.Thread(target=str).start()
        return ""

    monkeypatch.setattr(world.runner._programs, "resolve", resolve)
    with no_new_thread():
        result = await world.end(world.start())
    assert (result.reason, result.not_begun) == ("worker-error", True)
    assert "no thread can be started" in world.faults[-1]


async def test_a_worker_that_can_start_no_thread_does_not_begin(tmp_path: Path) -> None:
    with no_new_thread(), pytest.raises(ConfigError, match="cannot start its 4 threads"):
        World(tmp_path)
    await World(tmp_path, shares_folder=False).runner.close()  # The folder is free again.


@pytest.mark.spec("W9", "F11")
async def test_an_unknown_program_is_not_begun_and_no_fault_of_the_machine(world: World) -> None:
    result = await world.end(world.start("nobody-has-it"))
    assert (result.reason, result.not_begun) == ("unknown-program", True)
    assert world.faults == [""]


@pytest.mark.spec("W9")
async def test_what_fails_by_itself_has_begun_or_will_fail_everywhere(world: World) -> None:
    assert (await world.run("exit 3")).not_begun is msgspec.UNSET
    result = await world.end(world.start(world.program("true"), timeout_s=-1.0))
    assert (result.reason, result.not_begun) == ("bad-request", msgspec.UNSET)
    assert world.faults == ["", ""]
