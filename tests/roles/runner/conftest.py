"""A scripted leader and a bench of real workers, for the tests of runners."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kit.worker_bench import Bench
from tests.kit.workers_leader import WorkersLeader


@pytest.fixture
async def leader() -> AsyncIterator[WorkersLeader]:
    leader = WorkersLeader()
    await leader.open()
    yield leader
    await leader.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.close()


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same waits, shorter."""
    monkeypatch.setattr("wakugumi.core.runner.leader_line.WELCOME_WITHIN_S", 0.1)
    monkeypatch.setattr("wakugumi.core.connections.redial.WORKER_RECONNECT_FIRST_S", 0.02)
