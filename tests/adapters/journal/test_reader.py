"""How are payloads read back, and what if they cannot be?"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.kit.a_journal import DEADLINE_S, job_id, kept, opened, records_in, whole
from tests.kit.journal_processes import edited

from wakugumi.adapters.journal import reader
from wakugumi.core.leader.journal.entries import (
    KeepDelivered,
)
from wakugumi.errors import JournalError

pytestmark = pytest.mark.anyio


async def test_payloads_are_read_from_the_leaf_that_has_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path) as world:
        await world.commit(*(kept(number) for number in range(10)))
        await world.commit(whole(20, b"twenty"), whole(21, None), KeepDelivered(job_id(3)))
        assert await world.load(1, 3, 4) == {job_id(3): b"job 3", job_id(4): b"job 4"}
        assert await world.load(2, 20, 21, 3) == {job_id(20): b"twenty"}
        assert await world.load(1, 5) == {job_id(5): b"job 5"}
        assert caplog.messages == []
        assert await world.load(7, 1) == {}
        assert len(caplog.messages) == 1
        assert "leaf 7" in caplog.messages[0]


async def test_many_leaves_are_loaded_and_few_are_remembered(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        for number in range(1, 21):
            await world.commit(kept(number))
        for number in [*range(1, 21), *range(20, 0, -1)]:
            assert await world.load(number, number) == {job_id(number): b"job %d" % number}


# Payloads that cannot be read.


def unreadable(times: float) -> tuple[type[sqlite3.Connection], list[str]]:
    """A reader's connection that finds no more open files, so many times, once it is open."""
    said: list[str] = []

    class Unreadable(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if said or "FROM log" in sql:
                said.append(sql)
                if len(said) <= times:
                    error = sqlite3.OperationalError("unable to open database file")
                    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
                    raise error
            return super().execute(sql, *values)

    return Unreadable, said


@pytest.mark.spec("L7")
async def test_what_cannot_be_read_for_a_while_is_read_then(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    factory, said = unreadable(4)
    async with opened(tmp_path, reader_factory=factory) as world:
        await world.commit(kept(1), kept(2))
        assert await world.load(1, 1, 2) == {job_id(1): b"job 1", job_id(2): b"job 2"}
        assert len(said) > 4
        assert world.failures == []
    [told] = caplog.messages
    assert "tried again" in told


@pytest.mark.spec("L7")
async def test_what_can_never_be_read_ends_the_process_and_is_no_verdict_on_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PATIENCE_S", 0.1)
    factory, _ = unreadable(float("inf"))
    answers: list[object] = []
    async with opened(tmp_path, reader_factory=factory) as world:
        await world.commit(kept(1))
        world.journal.load(1, [job_id(1)], answers.append)
        world.journal.load(1, [job_id(1)], answers.append)
        await world.until(lambda: bool(world.failures))
        world.journal.commit([kept(2)], pytest.fail)
    [failure] = world.failures
    assert isinstance(failure, JournalError)
    assert f"the journal {tmp_path}/journal.sqlite cannot be read: " in str(failure)
    assert answers == []
    assert records_in(tmp_path) == [[kept(1)]]


async def test_a_journal_that_cannot_be_read_can_be_closed(tmp_path: Path) -> None:
    factory, said = unreadable(float("inf"))
    answers: list[object] = []
    async with opened(tmp_path, reader_factory=factory) as world:
        await world.commit(kept(1))
        world.journal.load(1, [job_id(1)], answers.append)
        await world.look_until(lambda: bool(said))
    assert (answers, world.failures) == ([], [])


def test_payloads_can_be_read_when_no_file_can_be_opened_any_more(tmp_path: Path) -> None:
    """In a process of its own: it uses up what it may open."""
    code = """
import asyncio, os, resource, sys
from pathlib import Path
from tests.kit.a_journal import job_id, kept, opened

async def main():
    async with opened(Path(sys.argv[1])) as world:
        await world.commit(kept(1))
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        print(await world.load(1, 1) == {job_id(1): b"job 1"}, world.failures)
        for file in held:
            os.close(file)

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
asyncio.run(main())
"""
    words = [sys.executable, "-c", code, str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.stdout == "True []\n", ended.stderr


def test_the_writers_lock_outlives_all_reading(tmp_path: Path) -> None:
    """Without it whoever else looks at the file with the means of SQLite would remove the write-ahead log at the end.

    In a process of its own, as locks are told by process."""
    code = """
import asyncio, sys
from pathlib import Path
from tests.kit.a_journal import job_id, kept, opened

async def main():
    async with opened(Path(sys.argv[1])) as world:
        await world.commit(kept(1))
        list(world.journal.leaves())
        await world.load(1, 1)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await world.commit(kept(2))

asyncio.run(main())
"""
    words = [sys.executable, "-c", code, str(tmp_path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        edited(tmp_path, "SELECT count(*) FROM log")
        assert (tmp_path / "journal.sqlite-wal").exists()
    finally:
        _, err = process.communicate("\n", timeout=DEADLINE_S)
    assert process.returncode == 0, err
    assert records_in(tmp_path) == [[kept(1)], [kept(2)]]
