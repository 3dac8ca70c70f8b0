"""Has a job broken one of its limits? Real programs that do."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kit.program_world import (
    ProgramWorld,
    alive,
    own_children,
    texts,
)

from wakugumi.adapters.programs.resource_limits import JobBounds
from wakugumi.core.runner.programs.job_limits import OperatorLimits
from wakugumi.errors import Refused
from wakugumi.limits.units import KIB, MIB
from wakugumi.wire.messages.job import JobLimits

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world(tmp_path: Path, anyio_backend: str) -> AsyncIterator[ProgramWorld]:
    world = ProgramWorld(tmp_path, kill_grace_s=0.2, output_bytes_max=1 * MIB)
    before = own_children()
    yield world
    await world.processes.close()
    assert own_children() == before, "everything is reaped"


# Limits.


@pytest.mark.user_dependent
@pytest.mark.spec("W8")
async def test_a_limited_program_runs_as_any_other(world: ProgramWorld) -> None:
    limits = JobLimits(memory_bytes=500 * MIB, cpu_s=30.0, file_bytes=1 * MIB, processes=50)
    child = await world.run('echo "$1"; ulimit -f; grep -c "SigIgn.*1000$" /proc/$$/status', "ü", limits=limits)
    assert texts(child)[0] == f"ü\n{MIB // 512}\n0\n", "and SIGPIPE is not ignored, as it is by Python"
    child = await world.run("exit 5", limits=limits)
    assert (child.exit_code, child.reason) == (5, "")


@pytest.mark.spec("W8")
@pytest.mark.parametrize("shell", ["while :; do :; done", "sh -c 'while :; do :; done'; exit $?"])
async def test_too_much_cpu_time_fails_with_that_reason(world: ProgramWorld, shell: str) -> None:
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
async def test_too_large_a_file_fails_with_that_reason(world: ProgramWorld) -> None:
    limits = JobLimits(file_bytes=8 * KIB)
    child = await world.run("exec dd if=/dev/zero of=big bs=1k count=100", limits=limits)
    assert child.reason == "file-limit"
    assert (world.cwd(child) / "big").stat().st_size == 8 * KIB
    child = await world.end(world.start_python("open('big', 'wb').write(bytes(100_000))", limits=limits))
    assert child.reason == "file-limit"
    assert "probably" in child.why, "Python ignores the signal and fails by itself"


@pytest.mark.spec("W8")
async def test_too_much_memory_fails_with_that_reason(world: ProgramWorld) -> None:
    limits = JobLimits(memory_bytes=60 * MIB)
    child = await world.end(world.start_python("x = bytes(1_000_000_000)", limits=limits))
    assert child.reason == "memory-limit"
    assert "probably" in child.why, "it was refused the memory, and ended by itself"


@pytest.mark.spec("W8")
async def test_memory_is_counted_over_all_processes_of_a_job(world: ProgramWorld) -> None:
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
async def test_forking_without_end_fails_with_that_reason(world: ProgramWorld, start: str) -> None:
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


# Limits of the machine's operator.

HOLD = "x = bytearray(200_000_000); x[::4096] = b'x' * len(x[::4096]); import time; time.sleep(1000)"


@pytest.mark.spec("W8")
async def test_a_machines_limit_holds_for_a_job_that_asks_for_none(world: ProgramWorld) -> None:
    child = await world.run("while :; do :; done", operators=OperatorLimits(cpu_s=0.3))
    assert child.reason == "cpu-limit"
    assert child.why == "the job used more than 0.3 s of CPU time, this machine's limit for every job (--job-cpu)"
    child = world.start_python(HOLD, operators=OperatorLimits(memory_bytes=60 * MIB))
    await world.end(child)
    assert child.reason == "memory-limit"
    assert "(--job-memory)" in child.why
    forks = "i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done; wait"
    child = await world.run(forks, operators=OperatorLimits(processes=10))
    assert child.reason == "process-limit"
    assert "(--job-processes)" in child.why


@pytest.mark.spec("W8")
@pytest.mark.parametrize(("asked", "whose"), [(0.2, "the limit that it asked for"), (100.0, "--job-cpu")])
async def test_of_two_limits_the_lower_one_counts(world: ProgramWorld, asked: float, whose: str) -> None:
    operators = OperatorLimits(cpu_s=0.4)
    child = await world.run("while :; do :; done", limits=JobLimits(cpu_s=asked), operators=operators)
    assert child.reason == "cpu-limit"
    assert f"{min(asked, 0.4)} s" in child.why
    assert whose in child.why


@pytest.mark.spec("W8")
async def test_the_kernels_limits_are_set_without_a_stub(world: ProgramWorld) -> None:
    operators = OperatorLimits(memory_bytes=300 * MIB, cpu_s=30.5)
    wait = "until grep -q 'Max data size *314572800 *314572800' /proc/self/limits; do sleep 0.01; done"
    child = world.start(f"{wait}; until [ $(ulimit -t) = 31 ]; do sleep 0.01; done; ulimit -H -t", operators=operators)
    assert child.status_file < 0, "there is none"
    await world.end(child)
    assert texts(child)[0] == "32\n", "the grace between the two signals"
    strict = world.start("true", limits=JobLimits(processes=50), operators=operators)
    assert strict.status_file >= 0, "a job that asks for limits has them from its first moment"


@pytest.mark.spec("W8")
async def test_memory_taken_before_the_kernels_limit_is_set_counts_all_the_same(
    world: ProgramWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobBounds, "set_on", lambda *_: None)
    child = await world.end(world.start_python(HOLD, operators=OperatorLimits(memory_bytes=60 * MIB)))
    assert child.reason == "memory-limit"
    assert child.why.startswith("the job held more than")


@pytest.mark.spec("W8")
async def test_words_of_another_failure_do_not_blame_a_limit_that_the_job_does_not_know(world: ProgramWorld) -> None:
    script = "echo 'connect: Resource temporarily unavailable' >&2; exit 1"
    assert (await world.run(script, operators=OperatorLimits(processes=1_000))).reason == ""
    assert (await world.run(script, limits=JobLimits(processes=1_000))).reason == "process-limit"


@pytest.mark.spec("W8")
@pytest.mark.parametrize("said", [b"tail: memory exhausted", b"MemoryError", b"fork: Cannot allocate memory"])
async def test_words_about_memory_are_a_probable_reason_for_every_limit(said: bytes) -> None:
    for bounds in (JobBounds(JobLimits(memory_bytes=MIB)), JobBounds(JobLimits(), OperatorLimits(memory_bytes=MIB))):
        breach = bounds.explain(1, 0.1, lambda: said)
        assert breach is not None
        assert breach.code == "memory-limit"
        assert "probably" in breach.text
