"""A leader that was asked to stop and is not done yet: what goes wrong is heard, too."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest
from tests.kit.a_leader import OwnPeer
from tests.kit.eventually import eventually
from tests.kit.old_peers import DEADLINE_S

from wakugumi.adapters.journal.journal import Journal
from wakugumi.adapters.loop.signals import handlers_restored
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.app.cli import call
from wakugumi.app.serve import leader as serve
from wakugumi.app.serve.leader import NoJournal
from wakugumi.errors import JournalError
from wakugumi.limits.wire import DRAIN_DEADLINE_S
from wakugumi.roles.leader.leader import Leader
from wakugumi.roles.leader.settings import LeaderSettings
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.hello import REATTACH, RECEIPTS

pytestmark = pytest.mark.anyio


class BreakableDisk(sqlite3.Connection):
    """It cannot be written to from a moment on."""

    broken: ClassVar[bool] = False

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if self.broken and sql.startswith("INSERT INTO log"):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return super().execute(sql, *args)


@asynccontextmanager
async def leading(
    state: Path | NoJournal, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[tuple[asyncio.Task[int], int]]:
    """`waku leader`, in this process, and its port."""
    tasks = Tasks()
    with handlers_restored():
        running = tasks.start(serve._lead(LeaderSettings(), 0, state), name="leader")
        said = ""
        async with asyncio.timeout(DEADLINE_S):
            while "\n" not in said:
                await asyncio.sleep(0.001)
                said += capsys.readouterr().out
        try:
            yield running, int(said.rpartition(":")[2])
        finally:
            await tasks.close()


async def running_job(client: OwnPeer, worker: OwnPeer) -> UUID:
    job = uuid4()
    await client.hello_client("desk", RECEIPTS)
    await worker.hello_worker(uuid4(), "", RECEIPTS, REATTACH, holds=Holding())
    await worker.credit(1)
    await client.submit(job)
    await client.expect(fr.RECEIPT)
    await worker.expect(fr.ASSIGN_JOB)
    return job


async def logged(caplog: pytest.LogCaptureFixture, said: Callable[[str], bool]) -> None:
    await eventually(lambda: said(caplog.text))


@pytest.mark.spec("L7")
async def test_a_journal_that_fails_while_the_leader_drains_ends_it_at_once_and_with_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened = Journal.open
    monkeypatch.setattr(Journal, "open", lambda folder: opened(folder, factory=BreakableDisk))
    monkeypatch.setattr(BreakableDisk, "broken", False)
    caplog.set_level(logging.INFO)
    async with (
        leading(tmp_path, capsys) as (leader, port),
        OwnPeer(port) as client,
        OwnPeer(port) as worker,
    ):
        job = await running_job(client, worker)
        assert f"journal in {tmp_path}" in caplog.text
        os.kill(os.getpid(), signal.SIGTERM)
        await logged(caplog, lambda text: "draining" in text)
        monkeypatch.setattr(BreakableDisk, "broken", True)
        await worker.ack(job)
        # Without the failure it would wait for the result to be fetched, and then end in peace.
        with pytest.raises(JournalError, match="cannot be written"):
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.shield(leader)
    del leader
    gc.collect()
    assert "leader stopped" not in caplog.text
    assert "never retrieved" not in caplog.text


async def test_a_leader_that_leaves_while_jobs_run_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Leader.drain, "__defaults__", (0.01,))
    caplog.set_level(logging.INFO)
    async with (
        leading(NoJournal("a test"), capsys) as (leader, port),
        OwnPeer(port) as client,
        OwnPeer(port) as worker,
    ):
        await running_job(client, worker)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            assert await asyncio.shield(leader) == 0
    assert f"jobs still run after {DRAIN_DEADLINE_S:g} s" in caplog.text
    assert "a test: no journal" in caplog.text


async def test_a_leader_that_has_nothing_to_wait_for_leaves_without_a_word_about_it(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with leading(NoJournal("a test"), capsys) as (leader, _):
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            assert await asyncio.shield(leader) == 0
    assert "still run" not in caplog.text
    assert "leader stopped" in caplog.text


async def test_a_leader_without_a_journal_is_not_told_a_folder_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["leader", "0", "--memory", "--state", "here"]) == 2
    assert "--memory means that nothing is kept" in capsys.readouterr().err
