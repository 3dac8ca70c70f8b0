"""How is a program started, watched and ended, with everything it has started itself?"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.eventually import eventually
from tests.kit.processes import has_ended

from wakugumi.adapters.programs import processes as process
from wakugumi.adapters.programs import strays
from wakugumi.adapters.programs.output_files import Capture, Captures
from wakugumi.adapters.programs.process_tree import OwnChildren
from wakugumi.adapters.programs.processes import Processes, RunningProgram
from wakugumi.adapters.programs.resource_limits import JobBounds
from wakugumi.errors import Refused
from wakugumi.limits.units import KIB, MIB
from wakugumi.wire.messages.job import JobLimits

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0

LEAVE_STRAY = """
setsid sh -c 'echo $$ > stray.pid; exec sleep 1000' &
while [ ! -s stray.pid ]; do sleep 0.01; done
"""
LEAVE_HIDDEN_STRAY = """
setsid env -i PATH="$PATH" sh -c 'echo $$ > stray.pid; exec sleep 1000' &
while [ ! -s stray.pid ]; do sleep 0.01; done
"""


class World:
    """Programs written as scripts, each in a directory of its own."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.processes = Processes(asyncio.get_running_loop(), self._on_end, **options)
        self.captures = Captures(str(folder))
        self._ended: dict[str, asyncio.Future[RunningProgram]] = {}
        self._count = 0

    def start(
        self,
        script: str,
        *args: str,
        timeout_s: float = DEADLINE_S,
        interpreter: str = "/bin/sh",
        limits: JobLimits | None = None,
    ) -> RunningProgram:
        self._count += 1
        job = f"job-{self._count}"
        cwd = self.folder / job
        cwd.mkdir()
        program = cwd / "program"
        program.write_text(f"#!{interpreter}\n{script}\n")
        program.chmod(0o755)
        self._ended[job] = asyncio.get_running_loop().create_future()
        command = [os.fsencode(program), *map(os.fsencode, args)]
        bounds = JobBounds(limits) if limits else None
        return self.processes.start(job, command, str(cwd), self.captures.take(), timeout_s=timeout_s, bounds=bounds)

    def start_python(self, script: str, **options: Any) -> RunningProgram:
        return self.start(script, interpreter=sys.executable, **options)

    async def end(self, child: RunningProgram) -> RunningProgram:
        async with asyncio.timeout(DEADLINE_S):
            return await self._ended[child.job]

    async def run(self, script: str, *args: str, **options: Any) -> RunningProgram:
        return await self.end(self.start(script, *args, **options))

    def cwd(self, child: RunningProgram) -> Path:
        return self.folder / child.job

    async def pid(self, child: RunningProgram, name: str = "stray.pid") -> int:
        file = self.cwd(child) / name
        await eventually(lambda: file.exists() and file.read_text().strip() != "")
        return int(file.read_text())

    def _on_end(self, child: RunningProgram) -> None:
        self._ended[child.job].set_result(child)


def alive(pid: int) -> bool:
    """A zombie is: it was not reaped."""
    return os.path.exists(f"/proc/{pid}")


def texts(child: RunningProgram) -> tuple[str, str]:
    child.capture.measure()
    return child.capture.texts(MIB)


def own_children() -> list[int]:
    children = OwnChildren()
    try:
        return children.pids()
    finally:
        children.close()


@pytest.fixture
async def world(tmp_path: Path, anyio_backend: str) -> AsyncIterator[World]:
    world = World(tmp_path, kill_grace_s=0.2, output_bytes_max=1 * MIB)
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
    world = World(tmp_path, by_libc=by_libc, by_pidfd=by_pidfd)
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
    world = World(tmp_path, by_libc=by_libc)
    child = await world.run("env")
    lines = texts(child)[0].splitlines()
    assert "OTHER=stays" in lines
    assert f"PATH={os.environ['PATH']}" in lines
    assert [line for line in lines if line.startswith(("WAKU", "PG"))] == [f"WAKU_JOB_ID={child.job}"]
    await world.processes.close()


@pytest.mark.parametrize("by_libc", [True, False])
async def test_a_program_gets_no_file_of_ours_and_no_signal_ignored(tmp_path: Path, by_libc: bool) -> None:
    world = World(tmp_path, by_libc=by_libc)
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


async def test_binary_output_arrives_byte_by_byte(world: World) -> None:
    child = await world.run("printf '\\000\\377\\r\\n'; printf '\\200' >&2")
    assert os.pread(child.capture.out, 100, 0) == b"\0\xff\r\n"
    assert texts(child)[1] == "\ufffd"


@pytest.mark.spec("W6")
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
async def test_a_program_that_a_signal_ended_says_which(world: World, number: signal.Signals) -> None:
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
async def test_a_timeout_ends_the_program_with_all_its_children(world: World) -> None:
    child = world.start("sleep 1000 & echo $! > stray.pid; sleep 1000", timeout_s=1.5)
    grandchild = await world.pid(child)
    await world.end(child)
    assert (child.reason, child.signal) == ("timeout", signal.SIGTERM)
    assert "1.5 s" in child.why
    assert not alive(grandchild)


@pytest.mark.spec("W3")
async def test_a_program_that_ignores_sigterm_is_killed(world: World) -> None:
    child = world.start("trap '' TERM; echo $$ > stray.pid; while :; do sleep 0.05; done")
    pid = await world.pid(child)
    world.processes.kill(child, "cancelled", "")
    await world.end(child)
    assert (child.reason, child.signal) == ("cancelled", signal.SIGKILL)
    assert not alive(pid)


@pytest.mark.spec("W3")
async def test_a_program_may_use_its_grace_and_has_still_failed(world: World) -> None:
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
async def test_a_stopped_program_is_ended_too(world: World) -> None:
    child = world.start("kill -STOP $$", timeout_s=0.2)
    assert (await world.end(child)).reason == "timeout"


async def test_endless_output_is_cut_off(world: World) -> None:
    child = await world.run("exec yes")
    assert (child.reason, child.signal) == ("output-limit", signal.SIGKILL)
    child = await world.run("exec yes >&2")
    assert child.reason == "output-limit"


@pytest.mark.spec("W3")
@pytest.mark.parametrize(
    "stray", [LEAVE_STRAY, LEAVE_HIDDEN_STRAY], ids=["in another session", "and with no environment"]
)
@pytest.mark.parametrize("how", ["ends", "timeout", "kill"])
async def test_nothing_is_left_of_a_job_that_is_over(world: World, stray: str, how: str) -> None:
    if how == "ends":
        child = world.start(stray)
    else:
        child = world.start(f"{stray} sleep 1000", timeout_s=2.0 if how == "timeout" else DEADLINE_S)
    pid = await world.pid(child)
    if how == "kill":
        assert alive(pid)
        world.processes.kill(child, "cancelled", "")
    await world.end(child)
    assert not alive(pid)
    assert child.abandoned
    assert (child.exit_code == 0) == (how == "ends")


@pytest.mark.spec("W3")
async def test_a_child_in_the_background_does_not_outlive_its_job(world: World) -> None:
    child = await world.run("sleep 1000 & echo $! > stray.pid")
    assert not alive(await world.pid(child))
    assert child.exit_code == 0


@pytest.mark.spec("W3")
async def test_without_proc_at_least_the_group_of_a_job_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnChildren, "known", False)
    monkeypatch.setattr(OwnChildren, "pids", lambda _: [])
    world = World(tmp_path)
    child = await world.run("sleep 1000 & echo $! > stray.pid")
    pid = await world.pid(child)
    await eventually(lambda: has_ended(pid))
    assert not child.abandoned, "who knows"
    await world.processes.close()


async def test_a_stray_that_cannot_be_killed_delays_one_job_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "_HUNT_ROUNDS", 3)
    with monkeypatch.context() as undying:
        undying.setattr(strays, "kill_with_all_below", len)
        child = await world.run(LEAVE_STRAY)
        pid = await world.pid(child)
        assert alive(pid)
        assert not child.abandoned, "it may still write to what was its stdout"
        assert "cannot be killed" in caplog.text
        caplog.clear()
        assert not (await world.run("true")).abandoned
        assert not caplog.text
    await world.run("true")
    waiting = world.start("while [ ! -e go ]; do sleep 0.01; done")
    await eventually(lambda: not alive(pid))
    (world.cwd(waiting) / "go").touch()
    await world.end(waiting)
    assert (await world.run("true")).abandoned


def broken(*_: object, **__: object) -> Any:
    raise RuntimeError("nobody foresaw this")


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
    world: World, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, script: str
) -> None:
    monkeypatch.setattr(process, "_HUNT_ROUNDS", 3)
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
    world: World, monkeypatch: pytest.MonkeyPatch, broken_call: str
) -> None:
    child = world.start("trap '' TERM; echo $$ > own.pid; while true; do sleep 0.01; done", timeout_s=0.5)
    with monkeypatch.context() as patch:
        patch.setattr(strays.Strays, broken_call, broken)
        await eventually(lambda: child.reason == "timeout")
    assert (await world.end(child)).reason == "timeout"


async def test_a_listener_that_fails_keeps_nobody_from_closing(tmp_path: Path) -> None:
    processes = Processes(asyncio.get_running_loop(), broken)
    captures = Captures(str(tmp_path))
    processes.start(
        "job", [b"/bin/sh", b"-c", b"setsid sleep 1000 & exit 0"], str(tmp_path), captures.take(), timeout_s=9
    )
    async with asyncio.timeout(DEADLINE_S):
        await processes.close()
    assert own_children() == []


@pytest.mark.spec("W3")
async def test_strays_of_strays_go_too(world: World) -> None:
    child = await world.run(
        """
        setsid sh -c 'setsid sh -c "echo \\$\\$ > stray.pid; sleep 1000 & wait" & wait' &
        while [ ! -s stray.pid ]; do sleep 0.01; done
        """
    )
    assert not alive(await world.pid(child))


@pytest.mark.spec("W3")
async def test_a_stray_of_a_running_job_is_left_alone_until_that_ends(world: World) -> None:
    owner = world.start(LEAVE_STRAY + "while [ ! -e go ]; do sleep 0.01; done")
    pid = await world.pid(owner)
    other = await world.run("true")
    assert other.exit_code == 0
    assert alive(pid)
    (world.cwd(owner) / "go").touch()
    await world.end(owner)
    assert not alive(pid)


@pytest.mark.spec("W3")
async def test_a_stray_that_hides_goes_when_every_job_has_ended_that_could_own_it(world: World) -> None:
    wait = "while [ ! -e go ]; do sleep 0.01; done"
    bystander = world.start(wait)
    owner = world.start(LEAVE_HIDDEN_STRAY)
    pid = await world.pid(owner)
    await world.end(owner)
    assert alive(pid), "it could be the other one's"
    assert not owner.abandoned, "so it may still write to what was the owner's stdout"
    late = world.start(wait)
    (world.cwd(bystander) / "go").touch()
    await world.end(bystander)
    assert not alive(pid), "the late one did not run when it was found"
    (world.cwd(late) / "go").touch()
    await world.end(late)


@pytest.mark.spec("W3")
@pytest.mark.parametrize("leave", ["", "os.setsid()"], ids=["in its group", "each in a session of its own"])
async def test_a_tree_that_keeps_growing_is_ended_whole(world: World, leave: str) -> None:
    # Bounded by itself: 3 + 9 + 27 + 81 processes that try to outlive each other.
    child = world.start_python(
        f"""
import os, time
def grow(depth):
    for _ in range(3 if depth < 4 else 0):
        if os.fork() == 0:
            {leave or "pass"}
            with open("pids", "a") as file:
                print(os.getpid(), file=file)
            grow(depth + 1)
    time.sleep(1000)
grow(0)
"""
    )
    pids = world.cwd(child) / "pids"
    await eventually(lambda: pids.exists() and len(pids.read_text().split()) >= 60)
    world.processes.kill(child, "cancelled", "", at_once=True)
    await world.end(child)
    assert not [pid for pid in pids.read_text().split() if alive(int(pid))]


async def test_orphans_that_end_by_themselves_are_reaped_while_the_job_runs(world: World) -> None:
    child = world.start("(sh -c 'echo $$ > stray.pid; sleep 0.1' &); while [ ! -e go ]; do sleep 0.01; done")
    pid = await world.pid(child)
    await eventually(lambda: not alive(pid))
    assert world.processes.running == 1
    (world.cwd(child) / "go").touch()
    assert (await world.end(child)).exit_code == 0


@pytest.mark.spec("W3")
async def test_closing_ends_everything(tmp_path: Path) -> None:
    world = World(tmp_path, kill_grace_s=0.1)
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
    world = World(tmp_path)
    await world.run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        for limits in (None, JobLimits(cpu_s=5)):
            world.captures.give_back((await world.run("true", limits=limits)).capture, abandoned=True)
    assert len(os.listdir("/proc/self/fd")) <= before + 2, "one capture waits for the next job"
    await world.processes.close()


# Limits.


@pytest.mark.user_dependent
@pytest.mark.spec("W8")
async def test_a_limited_program_runs_as_any_other(world: World) -> None:
    limits = JobLimits(memory_bytes=500 * MIB, cpu_s=30.0, file_bytes=1 * MIB, processes=50)
    child = await world.run('echo "$1"; ulimit -f; grep -c "SigIgn.*1000$" /proc/$$/status', "ü", limits=limits)
    assert texts(child)[0] == f"ü\n{MIB // 512}\n0\n", "and SIGPIPE is not ignored, as it is by Python"
    child = await world.run("exit 5", limits=limits)
    assert (child.exit_code, child.reason) == (5, "")


@pytest.mark.spec("W8")
@pytest.mark.parametrize("shell", ["while :; do :; done", "sh -c 'while :; do :; done'; exit $?"])
async def test_too_much_cpu_time_fails_with_that_reason(world: World, shell: str) -> None:
    child = await world.run(shell, limits=JobLimits(cpu_s=0.3))
    assert child.reason == "cpu-limit"
    assert "0.3 s" in child.why


@pytest.mark.spec("W8")
async def test_the_kernel_ends_what_uses_its_cpu_time_up_between_two_looks() -> None:
    bounds = JobBounds(JobLimits(cpu_s=1.0))
    for exit_code, cpu_s in ((128 + signal.SIGXCPU, 1.0), (128 + signal.SIGKILL, 1.2)):
        breach = bounds.explain(exit_code, cpu_s, lambda: b"")
        assert breach is not None
        assert breach.code == "cpu-limit"
    assert bounds.explain(128 + signal.SIGKILL, 0.1, lambda: b"") is None
    assert bounds.explain(1, 1.2, lambda: b"") is None


@pytest.mark.spec("W8")
async def test_too_large_a_file_fails_with_that_reason(world: World) -> None:
    limits = JobLimits(file_bytes=8 * KIB)
    child = await world.run("exec dd if=/dev/zero of=big bs=1k count=100", limits=limits)
    assert child.reason == "file-limit"
    assert (world.cwd(child) / "big").stat().st_size == 8 * KIB
    child = await world.end(world.start_python("open('big', 'wb').write(bytes(100_000))", limits=limits))
    assert child.reason == "file-limit"
    assert "probably" in child.why, "Python ignores the signal and fails by itself"


@pytest.mark.spec("W8")
async def test_too_much_memory_fails_with_that_reason(world: World) -> None:
    limits = JobLimits(memory_bytes=60 * MIB)
    child = await world.end(world.start_python("x = bytes(1_000_000_000)", limits=limits))
    assert child.reason == "memory-limit"
    assert "probably" in child.why, "it was refused the memory, and ended by itself"


@pytest.mark.spec("W8")
async def test_memory_is_counted_over_all_processes_of_a_job(world: World) -> None:
    child = world.start_python(
        """
import os, time
for _ in range(4):
    if os.fork() == 0:
        break
x = b"x" * 30_000_000
time.sleep(1000)
""",
        limits=JobLimits(memory_bytes=80 * MIB),
    )
    await world.end(child)
    assert child.reason == "memory-limit"
    assert "probably" not in child.why


@pytest.mark.user_dependent
@pytest.mark.spec("W8")
@pytest.mark.parametrize(
    "start", ["sleep 1000 &", "setsid sleep 1000 &"], ids=["in its group", "in sessions of their own"]
)
async def test_forking_without_end_fails_with_that_reason(world: World, start: str) -> None:
    child = world.start(  # and ends by itself, should the limit fail
        f"i=0; while [ $i -lt 200 ]; do {start} echo $! >> pids; i=$((i+1)); done; wait",
        limits=JobLimits(processes=10),
    )
    await world.end(child)
    assert child.reason == "process-limit"
    assert not [pid for pid in (world.cwd(child) / "pids").read_text().split() if alive(int(pid))]


@pytest.mark.spec("W8")
@pytest.mark.parametrize("limits", [JobLimits(cpu_s=0), JobLimits(memory_bytes=-1), JobLimits(processes=2**63)])
async def test_limits_that_make_no_sense_are_refused(limits: JobLimits) -> None:
    with pytest.raises(Refused) as refused:
        JobBounds(limits)
    assert refused.value.code == "bad-request"


# CPU time.


@pytest.mark.spec("W2")
async def test_the_cpu_time_of_jobs_is_counted_while_they_run_and_afterwards(world: World) -> None:
    burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; touch burnt; while [ ! -e go ]; do sleep 0.01; done"
    child = world.start(f"sh -c '{burn}'; true")
    await eventually((world.cwd(child) / "burnt").exists)
    running = world.processes.cpu_s()
    assert running > 0.02
    (world.cwd(child) / "go").touch()
    await world.end(child)
    assert world.processes.cpu_s() >= running
    assert child.cpu_s >= running - 0.03, "the kernel's clock ticks every 10 ms"
