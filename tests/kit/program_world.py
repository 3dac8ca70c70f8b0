"""Real programs, run one after the other in a folder, and what is left of them."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from tests.kit.eventually import eventually

from wakugumi.adapters.programs.output_files import Captures
from wakugumi.adapters.programs.process_tree import OwnChildren
from wakugumi.adapters.programs.processes import Processes, RunningProgram
from wakugumi.adapters.programs.resource_limits import bounds_of
from wakugumi.core.runner.programs.job_limits import NO_LIMITS, OperatorLimits
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.job import JobLimits

DEADLINE_S = 30.0


LEAVE_STRAY = """
setsid sh -c 'echo $$ > stray.pid; exec sleep 1000' &
while [ ! -s stray.pid ]; do sleep 0.01; done
"""


LEAVE_HIDDEN_STRAY = """
setsid env -i PATH="$PATH" sh -c 'echo $$ > stray.pid; exec sleep 1000' &
while [ ! -s stray.pid ]; do sleep 0.01; done
"""


class ProgramWorld:
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
        operators: OperatorLimits = NO_LIMITS,
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
        bounds = bounds_of(limits, operators)
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


def broken(*_: object, **__: object) -> Any:
    raise RuntimeError("nobody foresaw this")
