"""Can a program be started on this machine, and is there room for what it makes?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.kit.processes import no_new_process

from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.adapters.programs.processes import Processes, RunningProgram
from wakugumi.errors import Sick
from wakugumi.roles.runner.machine_probe import PROBE, MachineProbe

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0


class World:
    """A machine, and what is said of it."""

    def __init__(self, path: Path) -> None:
        loop = asyncio.get_running_loop()
        self.folder = JobsFolder(path)
        self.processes = Processes(loop, self._ended)
        self.threads = ThreadPoolExecutor(1)
        self.machine = MachineProbe(loop, self.folder, self.processes, self.threads, 0)

    def _ended(self, child: RunningProgram) -> None:
        assert child.job == PROBE
        self.machine.ended(child)

    async def probed(self) -> str:
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.machine.probe(told.set_result)
        self.machine.probe(lambda _: told.cancel())  # One at a time: this one is not heard.
        async with asyncio.timeout(DEADLINE_S):
            return await told


@pytest.fixture
async def world(tmp_path: Path, anyio_backend: str) -> AsyncIterator[World]:
    world = World(tmp_path / "jobs")
    yield world
    world.machine.close()
    await world.processes.close()
    world.threads.shutdown()
    world.folder.close()


@pytest.mark.spec("W9")
async def test_a_machine_that_can_start_programs_is_well(world: World) -> None:
    assert await world.probed() == ""
    assert await world.probed() == ""


@pytest.mark.spec("W9")
async def test_a_machine_that_cannot_start_programs_says_why(world: World) -> None:
    with no_new_process():
        assert "could not be started" in await world.probed()
    assert await world.probed() == ""


@pytest.mark.spec("W9")
async def test_a_disk_that_is_too_full_is_asked_again_after_a_probe(world: World) -> None:
    world.machine.check_disk()
    world.machine.free_min_bytes = 1 << 60
    world.machine.check_disk()  # For a second the answer stands.
    assert "are free" in await world.probed()
    with pytest.raises(Sick):
        world.machine.check_disk()


async def test_nobody_hears_of_a_probe_after_the_end(world: World) -> None:
    heard: list[str] = []
    world.machine.probe(heard.append)
    world.machine.close()
    world.threads.shutdown()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert heard == []
