"""A real worker with metrics of its own, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kit import a_node
from tests.kit.eventually import eventually
from tests.kit.http_peer import DEADLINE_S

from wakugumi.adapters.net.address import Address
from wakugumi.roles.runner.settings import WorkerSettings
from wakugumi.roles.runner.worker import Worker


@asynccontextmanager
async def working(folder: Path, leader: int) -> AsyncIterator[tuple[Worker, int]]:
    """A worker with metrics of its own, and where those are."""
    settings = WorkerSettings(
        leader=Address("127.0.0.1", leader),
        programs=a_node.make_programs(folder),
        jobs=folder / "jobs",
        slots=2,
        cpu_cap=None,
        metrics=Address("127.0.0.1", 0),
        name="w",
    )
    worker = Worker(settings)
    serving = asyncio.get_running_loop().create_task(worker.run(), name="worker under test")
    try:
        await eventually(lambda: worker.metrics_port is not None)
        assert worker.metrics_port is not None
        yield worker, worker.metrics_port
    finally:
        worker.request_stop()
        worker.request_stop()
        async with asyncio.timeout(DEADLINE_S):
            await serving
