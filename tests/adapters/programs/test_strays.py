"""What does a job leave running, and what becomes of it? Real programs that leave something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kit.eventually import eventually
from tests.kit.processes import has_ended
from tests.kit.program_world import (
    DEADLINE_S,
    LEAVE_HIDDEN_STRAY,
    LEAVE_STRAY,
    ProgramWorld,
    alive,
    broken,
    own_children,
)

from wakugumi.adapters.programs import processes as process
from wakugumi.adapters.programs import strays
from wakugumi.adapters.programs.output_files import Captures
from wakugumi.adapters.programs.process_tree import OwnChildren
from wakugumi.adapters.programs.processes import Processes
from wakugumi.limits.units import MIB

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world(tmp_path: Path, anyio_backend: str) -> AsyncIterator[ProgramWorld]:
    world = ProgramWorld(tmp_path, kill_grace_s=0.2, output_bytes_max=1 * MIB)
    before = own_children()
    yield world
    await world.processes.close()
    assert own_children() == before, "everything is reaped"


@pytest.mark.spec("W3")
@pytest.mark.parametrize(
    "stray", [LEAVE_STRAY, LEAVE_HIDDEN_STRAY], ids=["in another session", "and with no environment"]
)
@pytest.mark.parametrize("how", ["ends", "timeout", "kill"])
async def test_nothing_is_left_of_a_job_that_is_over(world: ProgramWorld, stray: str, how: str) -> None:
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
async def test_a_child_in_the_background_does_not_outlive_its_job(world: ProgramWorld) -> None:
    child = await world.run("sleep 1000 & echo $! > stray.pid")
    assert not alive(await world.pid(child))
    assert child.exit_code == 0


@pytest.mark.spec("W3")
async def test_without_proc_at_least_the_group_of_a_job_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnChildren, "known", False)
    monkeypatch.setattr(OwnChildren, "pids", lambda _: [])
    world = ProgramWorld(tmp_path)
    child = await world.run("sleep 1000 & echo $! > stray.pid")
    pid = await world.pid(child)
    await eventually(lambda: has_ended(pid))
    assert not child.abandoned, "who knows"
    await world.processes.close()


async def test_a_stray_that_cannot_be_killed_delays_one_job_and_no_other(
    world: ProgramWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "HUNT_ROUNDS", 3)
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
async def test_strays_of_strays_go_too(world: ProgramWorld) -> None:
    child = await world.run(
        """
        setsid sh -c 'setsid sh -c "echo \\$\\$ > stray.pid; sleep 1000 & wait" & wait' &
        while [ ! -s stray.pid ]; do sleep 0.01; done
        """
    )
    assert not alive(await world.pid(child))


@pytest.mark.spec("W3")
async def test_a_stray_of_a_running_job_is_left_alone_until_that_ends(world: ProgramWorld) -> None:
    owner = world.start(LEAVE_STRAY + "while [ ! -e go ]; do sleep 0.01; done")
    pid = await world.pid(owner)
    other = await world.run("true")
    assert other.exit_code == 0
    assert alive(pid)
    (world.cwd(owner) / "go").touch()
    await world.end(owner)
    assert not alive(pid)


@pytest.mark.spec("W3")
async def test_a_stray_that_hides_goes_when_every_job_has_ended_that_could_own_it(world: ProgramWorld) -> None:
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
async def test_a_tree_that_keeps_growing_is_ended_whole(world: ProgramWorld, leave: str) -> None:
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


async def test_orphans_that_end_by_themselves_are_reaped_while_the_job_runs(world: ProgramWorld) -> None:
    child = world.start("(sh -c 'echo $$ > stray.pid; sleep 0.1' &); while [ ! -e go ]; do sleep 0.01; done")
    pid = await world.pid(child)
    await eventually(lambda: not alive(pid))
    assert world.processes.running == 1
    (world.cwd(child) / "go").touch()
    assert (await world.end(child)).exit_code == 0
