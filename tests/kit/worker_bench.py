"""Real workers in this process, their programs and their jobs folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kit.eventually import eventually
from tests.kit.workers_leader import DEADLINE_S

from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.link import LinkOwner
from wakugumi.roles.runner.settings import WorkerSettings
from wakugumi.roles.runner.worker import Worker


class Bench:
    """Workers, their programs and their jobs folder."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.jobs = folder / "jobs"
        self.runs = folder / "runs"
        self.gate = folder / "gate"
        self._tasks: dict[Worker, asyncio.Task[None]] = {}
        self.program("count", f'echo run >> "{self.runs}"; echo counted "$@"')
        self.program("fail", f'echo run >> "{self.runs}"; echo why >&2; exit 3')
        self.program("wait", f'echo run >> "{self.runs}"; while [ ! -e "{self.gate}" ]; do sleep 0.01; done')

    def program(self, name: str, script: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def worker(self, leader: Address | Callable[[LinkOwner], Any], **settings: Any) -> Worker:
        """Unless told, it has no CPU cap: where other tests run beside, each credit would wait for 2 s (SPEC W2)."""
        settings = {"slots": 2, "cpu_cap": None, **settings}
        worker = Worker(WorkerSettings(leader=leader, programs=self.programs, jobs=self.jobs, **settings))
        self._tasks[worker] = asyncio.get_running_loop().create_task(worker.run(), name="worker under test")
        return worker

    async def stopped(self, worker: Worker) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self._tasks.pop(worker)

    async def close(self) -> None:
        self.gate.touch()  # Also for programs whose worker was another process, and is gone.
        for worker in list(self._tasks):
            worker.request_stop()
            worker.request_stop()
            await self.stopped(worker)

    @property
    def run_count(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0

    async def until_run(self, count: int = 1) -> None:
        """Until so many programs have begun."""
        await eventually(lambda: self.run_count >= count)
