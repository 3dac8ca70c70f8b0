"""How is a program started, watched and ended, with everything it has started itself?"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kit.eventually import eventually
from tests.kit.program_world import (
    DEADLINE_S,
    LEAVE_HIDDEN_STRAY,
    LEAVE_STRAY,
    ProgramWorld,
    alive,
    broken,
    own_children,
    texts,
)

from wakugumi.adapters.programs import processes as process
from wakugumi.adapters.programs import strays
from wakugumi.adapters.programs.output_files import Capture, Captures
from wakugumi.adapters.programs.processes import Processes, RunningProgram
from wakugumi.adapters.programs.resource_limits import JobBounds
from wakugumi.errors import Refused
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.job import JobLimits

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world(tmp_path: Path, anyio_backend: str) -> AsyncIterator[ProgramWorld]:
    world = ProgramWorld(tmp_path, kill_grace_s=0.2, output_bytes_max=1 * MIB)
    before = own_children()
    yield world
    await world.processes.close()
    assert own_children() == before, "everything is reaped"


# Starting.


@pytest.mark.spec("W1")
@pytest.mark.parametrize("by_libc", [True, False])
@pytest.mark.parametrize("by_pidfd", [True, False])
async def test_a_program_runs_in_its_directory_with_its_arguments(
    tmp_path: Path, by_libc: bool, by_pidfd: bool
) -> None:
    world = ProgramWorld(tmp_path, by_libc=by_libc, by_pidfd=by_pidfd)
    child = await world.run('pwd; echo "$# $2" >&2; cat; exit 3', "a b", "ü", "")
    assert texts(child) == (f"{world.cwd(child)}\n", "3 ü\n")
    assert (child.exit_code, child.signal, child.reason) == (3, 0, "")
    assert child.abandoned
    await world.processes.close()


@pytest.mark.parametrize("by_libc", [True, False])
async def test_the_environment_is_ours_without_our_settings_and_with_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_libc: bool
) -> None:
    monkeypatch.setenv("WAKU_TOKEN", "secret")
    monkeypatch.setenv("WAKU_JOB_ID", "of a job that started us")
    monkeypatch.setenv("PGPASSWORD", "secret")
    monkeypatch.setenv("OTHER", "stays")
    world = ProgramWorld(tmp_path, by_libc=by_libc)
    child = await world.run("env")
    lines = texts(child)[0].splitlines()
    assert "OTHER=stays" in lines
    assert f"PATH={os.environ['PATH']}" in lines
    assert [line for line in lines if line.startswith(("WAKU", "PG"))] == [f"WAKU_JOB_ID={child.job}"]
    await world.processes.close()


@pytest.mark.parametrize("by_libc", [True, False])
async def test_a_program_gets_no_file_of_ours_and_no_signal_ignored(tmp_path: Path, by_libc: bool) -> None:
    world = ProgramWorld(tmp_path, by_libc=by_libc)
    leak = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leak, True)
    child = await world.run("exec ls -l /proc/self/fd")
    listing = texts(child)[0]
    assert len(listing.splitlines()) == 5, f"a total, 0, 1, 2 and what ls itself opened: {listing}"
    os.close(leak)
    child = await world.run("exec grep SigIgn /proc/self/status")
    ignored = int(texts(child)[0].split()[1], 16)
    assert not [number for number in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> number - 1 & 1]
    await world.processes.close()


async def test_binary_output_arrives_byte_by_byte(world: ProgramWorld) -> None:
    child = await world.run("printf '\\000\\377\\r\\n'; printf '\\200' >&2")
    assert os.pread(child.capture.out, 100, 0) == b"\0\xff\r\n"
    assert texts(child)[1] == "\ufffd"


@pytest.mark.spec("W6")
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
async def test_a_program_that_a_signal_ended_says_which(world: ProgramWorld, number: signal.Signals) -> None:
    child = await world.run(f"kill -{number.value} $$")
    assert (child.exit_code, child.signal, child.reason) == (128 + number, number, "")


@pytest.mark.parametrize(
    ("content", "mode"),
    [
        (b"echo no first line\n", 0o755),
        (b"\x7fELF but not really", 0o755),
        (b"#!/no/such/interpreter\n", 0o755),
        (b"#!/bin/sh\n", 0o644),
    ],
    ids=["script without #!", "wrong format", "interpreter missing", "no run bit"],
)
@pytest.mark.parametrize("by_libc", [True, False])
@pytest.mark.parametrize("limits", [None, JobLimits(cpu_s=10)], ids=["plain", "limited"])
async def test_what_cannot_be_executed_is_told_in_words(
    tmp_path: Path, content: bytes, mode: int, by_libc: bool, limits: JobLimits | None
) -> None:
    ended: list[RunningProgram] = []
    processes = Processes(asyncio.get_running_loop(), ended.append, by_libc=by_libc)
    program = tmp_path / "program"
    program.write_bytes(content)
    program.chmod(mode)
    capture = Captures(str(tmp_path)).take()
    bounds = JobBounds(limits) if limits else None
    try:
        child = processes.start("job", [os.fsencode(program)], str(tmp_path), capture, timeout_s=9, bounds=bounds)
        await eventually(lambda: bool(ended))
        code, text = child.reason, child.why
    except Refused as refused:
        code, text = refused.code, refused.message
    assert code == "not-executable"
    assert "it" in text
    await processes.close()
    capture.close()


@pytest.mark.parametrize("argument", [b"a\0b", b"x" * 3_000_000], ids=["with a NUL", "longer than the kernel takes"])
@pytest.mark.parametrize("by_libc", [True, False])
async def test_arguments_that_no_program_can_get_are_refused(tmp_path: Path, argument: bytes, by_libc: bool) -> None:
    processes = Processes(asyncio.get_running_loop(), lambda _: None, by_libc=by_libc)
    capture = Captures(str(tmp_path)).take()
    with pytest.raises(Refused) as refused:
        processes.start("job", [b"/bin/true", argument], str(tmp_path), capture, timeout_s=9)
    assert refused.value.code == "bad-request"
    await processes.close()
    capture.close()


# Ending.


@pytest.mark.spec("W3")
async def test_a_timeout_ends_the_program_with_all_its_children(world: ProgramWorld) -> None:
    child = world.start("sleep 1000 & echo $! > stray.pid; sleep 1000", timeout_s=1.5)
    grandchild = await world.pid(child)
    await world.end(child)
    assert (child.reason, child.signal) == ("timeout", signal.SIGTERM)
    assert "1.5 s" in child.why
    assert not alive(grandchild)


@pytest.mark.spec("W3")
async def test_a_program_that_ignores_sigterm_is_killed(world: ProgramWorld) -> None:
    child = world.start("trap '' TERM; echo $$ > stray.pid; while :; do sleep 0.05; done")
    pid = await world.pid(child)
    world.processes.kill(child, "cancelled", "")
    await world.end(child)
    assert (child.reason, child.signal) == ("cancelled", signal.SIGKILL)
    assert not alive(pid)


@pytest.mark.spec("W3")
async def test_a_program_may_use_its_grace_and_has_still_failed(world: ProgramWorld) -> None:
    child = world.start("trap 'echo bye; exit 0' TERM; echo $$ > stray.pid; while :; do sleep 0.01; done")
    await world.pid(child)
    world.processes.kill(child, "cancelled", "someone wants it")
    world.processes.kill(child, "timeout", "too late: the first reason stands")
    await world.end(child)
    assert (child.reason, child.why, child.exit_code) == ("cancelled", "someone wants it", 0)
    assert texts(child)[0] == "bye\n"
    world.processes.kill(child, "timeout", "it has ended")
    assert child.reason == "cancelled"


@pytest.mark.spec("W3")
async def test_a_stopped_program_is_ended_too(world: ProgramWorld) -> None:
    child = world.start("kill -STOP $$", timeout_s=0.2)
    assert (await world.end(child)).reason == "timeout"


async def test_endless_output_is_cut_off(world: ProgramWorld) -> None:
    child = await world.run("exec yes")
    assert (child.reason, child.signal) == ("output-limit", signal.SIGKILL)
    child = await world.run("exec yes >&2")
    assert child.reason == "output-limit"


@pytest.mark.parametrize("script", ["exit 3", f"{LEAVE_STRAY}\nexit 3"])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (strays.Strays, "find"),
        (strays.Strays, "reap"),
        (strays.Strays, "give_up"),
        (strays, "kill_with_all_below"),
        (process, "send_to_group"),
        (JobBounds, "explain"),
        (Capture, "measure"),
    ],
)
async def test_the_end_of_a_program_is_told_whatever_fails_meanwhile(
    world: ProgramWorld, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, script: str
) -> None:
    monkeypatch.setattr(process, "HUNT_ROUNDS", 3)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, broken)
        child = await world.run(script, limits=JobLimits(file_bytes=MIB))
    assert child.exit_code == 3
    assert (await world.run("true")).exit_code == 0
    async with asyncio.timeout(DEADLINE_S):
        while world.processes.running or own_children():  # The end of each further program looks for strays again.
            assert (await world.run("true")).exit_code == 0


@pytest.mark.parametrize("broken_call", ["of", "find"])
async def test_a_timeout_ends_its_program_though_its_strays_cannot_be_seen_at_first(
    world: ProgramWorld, monkeypatch: pytest.MonkeyPatch, broken_call: str
) -> None:
    child = world.start("trap '' TERM; echo $$ > own.pid; while true; do sleep 0.01; done", timeout_s=0.5)
    with monkeypatch.context() as patch:
        patch.setattr(strays.Strays, broken_call, broken)
        await eventually(lambda: child.reason == "timeout")
    assert (await world.end(child)).reason == "timeout"


@pytest.mark.spec("W3")
async def test_closing_ends_everything(tmp_path: Path) -> None:
    world = ProgramWorld(tmp_path, kill_grace_s=0.1)
    children = [
        world.start("trap '' TERM; echo $$ > stray.pid; sleep 1000; sleep 1000"),
        world.start(LEAVE_HIDDEN_STRAY + "sleep 1000"),
        world.start(LEAVE_STRAY + "sleep 1000"),
    ]
    pids = [await world.pid(child) for child in children]
    await world.processes.close()
    assert not [pid for pid in pids if alive(pid)]
    assert world.processes.running == 0
    assert {child.reason for child in children} == {"cancelled"}


async def test_no_file_stays_open(tmp_path: Path) -> None:
    world = ProgramWorld(tmp_path)
    await world.run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        for limits in (None, JobLimits(cpu_s=5)):
            world.captures.give_back((await world.run("true", limits=limits)).capture, abandoned=True)
    assert len(os.listdir("/proc/self/fd")) <= before + 2, "one capture waits for the next job"
    await world.processes.close()


# CPU time.


@pytest.mark.spec("W2")
async def test_the_cpu_time_of_jobs_is_counted_while_they_run_and_afterwards(world: ProgramWorld) -> None:
    burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; touch burnt; while [ ! -e go ]; do sleep 0.01; done"
    child = world.start(f"sh -c '{burn}'; true")
    await eventually((world.cwd(child) / "burnt").exists)
    running = world.processes.cpu_s()
    assert running > 0.02
    (world.cwd(child) / "go").touch()
    await world.end(child)
    assert world.processes.cpu_s() >= running
    assert child.cpu_s >= running - 0.03, "the kernel's clock ticks every 10 ms"
