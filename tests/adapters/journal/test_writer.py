"""When does a commit count as done, and what if the disk is slow or fails?"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.kit.a_journal import DEADLINE_S, job_id, kept, leaves_in, opened, records_in, whole
from tests.kit.journal_processes import child

from wakugumi.adapters.journal import journal, writer
from wakugumi.core.leader.journal.entries import (
    DropLeaves,
    KeepDelivered,
)
from wakugumi.errors import JournalError
from wakugumi.limits.journal import JOURNAL_BACKLOG_BYTES_MAX
from wakugumi.limits.units import MIB

pytestmark = pytest.mark.anyio


def counting() -> tuple[type[sqlite3.Connection], list[str]]:
    """A connection that notes what is inserted."""
    said: list[str] = []

    class Counting(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql.startswith("INSERT INTO log"):
                said.append(sql)
            return super().execute(sql, *values)

    return Counting, said


async def test_done_is_said_in_the_order_of_the_commits_also_by_those_who_only_ask(tmp_path: Path) -> None:
    said: list[int] = []
    async with opened(tmp_path) as world:
        for number in range(1, 301):
            records = [] if number % 3 == 0 else [kept(number)]
            done = None if number % 5 == 0 else lambda number=number: said.append(number)
            world.journal.commit(records, done)
        assert said == []
        await world.commit()
    assert said == [number for number in range(1, 301) if number % 5]
    assert len(records_in(tmp_path)) == 200


async def test_commits_of_one_turn_share_a_few_transactions(tmp_path: Path) -> None:
    factory, inserts = counting()
    async with opened(tmp_path, factory=factory) as world:
        for number in range(200):
            world.journal.commit([kept(number)], lambda: None)
        await world.commit()
        assert 4 <= len(inserts) <= 20


async def test_who_asks_while_nothing_waits_is_told_in_the_next_turn(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        said: list[str] = []
        world.journal.commit([], lambda: said.append("safe"))
        world.journal.commit([], None)
        assert (said, world.journal.idle, world.journal.next_leaf) == ([], True, 1)
        await asyncio.sleep(0)
        assert said == ["safe"]


async def test_what_nobody_waits_for_goes_with_the_next_commit(tmp_path: Path) -> None:
    factory, inserts = counting()
    async with opened(tmp_path, factory=factory) as world:
        world.journal.commit([kept(1)], None)
        world.journal.commit([kept(2)], None)
        assert not world.journal.idle
        await world.commit(kept(3))
        assert world.journal.idle
        assert [sql.count("(?") for sql in inserts] == [3]


async def test_who_is_patient_is_told_with_the_next_commit_or_a_moment_later(tmp_path: Path) -> None:
    factory, inserts = counting()
    async with opened(tmp_path, factory=factory) as world:
        said: list[int] = []
        world.journal.commit([kept(1)], None)
        world.journal.commit([kept(2)], lambda: said.append(2), patient=True)
        world.journal.commit([], lambda: said.append(0), patient=True)
        await world.commit(kept(3))
        assert said == [2, 0]
        assert [sql.count("(?") for sql in inserts] == [3]
        world.journal.commit([kept(4)], lambda: said.append(4), patient=True)
        assert not world.journal.idle
        await world.look_until(lambda: world.journal.idle)
        assert said == [2, 0, 4]


async def test_what_nobody_waits_for_is_written_all_the_same_if_nothing_follows(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.journal.commit([kept(1)], None)
        assert not world.journal.idle
        await world.look_until(lambda: world.journal.idle)
        assert len(list(world.journal.leaves())) == 1
        world.journal.commit([kept(2)], None)
    assert records_in(tmp_path) == [[kept(1)], [kept(2)]]


async def test_a_payload_that_is_named_by_its_leaf_is_fetched_when_it_is_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.commit(kept(1), kept(2))
        world.journal.commit([kept(3)], None)
        world.journal.commit([whole(1, 1), whole(3, 2), KeepDelivered(job_id(9))], None)
        await world.commit(whole(2, 1), whole(1, 3))
    assert records_in(tmp_path)[2:] == [
        [whole(1, b"job 1"), whole(3, b"job 3"), KeepDelivered(job_id(9))],
        [whole(2, b"job 2"), whole(1, b"job 1")],
    ]


async def test_a_payload_that_is_nowhere_stops_the_journal_and_harms_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.commit(kept(1))
        world.journal.commit([whole(2, 1), DropLeaves(2)], pytest.fail)
        await world.until(lambda: bool(world.failures))
        assert "leaf 1 lacks a job" in str(world.failures[0])
    assert records_in(tmp_path) == [[kept(1)]]


async def test_the_write_ahead_log_stays_bounded(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        largest = 0
        for number in range(40):
            await world.commit(kept(number, os.urandom(MIB)))
            await world.commit(kept(number))
            largest = max(largest, (tmp_path / "journal.sqlite-wal").stat().st_size)
        assert writer.WAL_BYTES <= largest < writer.WAL_BYTES * 2
    assert not (tmp_path / "journal.sqlite-wal").exists()


async def test_a_slow_disk_is_told_of_before_too_much_waits(tmp_path: Path) -> None:
    slow, go_on = threading.Event(), threading.Event()

    class Slow(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql.startswith("INSERT INTO log"):
                slow.set()
                assert go_on.wait(DEADLINE_S)
            return super().execute(sql, *values)

    async with opened(tmp_path, factory=Slow) as world:
        for number in range(JOURNAL_BACKLOG_BYTES_MAX // MIB):
            assert not world.journal.behind
            world.journal.commit([kept(number, bytes(MIB))], lambda: None)
        assert world.journal.behind
        assert world.behinds == [True]
        go_on.set()
        await world.commit()
        assert world.behinds == [True, False]
        assert not world.journal.behind


async def test_a_payload_that_is_still_to_be_fetched_weighs_what_it_will(tmp_path: Path) -> None:
    gate = threading.Event()

    class Slow(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql.startswith("INSERT INTO log"):
                assert gate.wait(DEADLINE_S)
            return super().execute(sql, *values)

    half = JOURNAL_BACKLOG_BYTES_MAX // 2
    async with opened(tmp_path, factory=Slow) as world:
        world.journal.commit([kept(1)], None)
        world.journal.commit([whole(1, 1, size=half)], lambda: None)
        assert not world.journal.behind
        world.journal.commit([whole(1, 1, size=half)], lambda: None)
        assert world.journal.behind
        gate.set()
        await world.commit()
        assert world.behinds == [True, False]
    assert records_in(tmp_path)[1:] == [[whole(1, b"job 1", size=half)]] * 2


async def test_a_commit_that_takes_long_is_told_once_and_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal, "SLOW_S", 0.02)
    gate = threading.Event()

    class Slow(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql.startswith("INSERT INTO log"):
                assert gate.wait(DEADLINE_S)
            return super().execute(sql, *values)

    async with opened(tmp_path, factory=Slow) as world:
        world.journal.commit([kept(1)], lambda: None)
        await world.look_until(lambda: bool(caplog.messages))
        world.journal.commit([kept(2)], lambda: None)
        monkeypatch.setattr(journal, "SLOW_S", 60.0)
        gate.set()
        await world.commit()
    told, over = caplog.messages
    assert "nothing was committed" in told
    assert "does not answer" in told
    assert "commits go on" in over
    assert world.stalls == ["the journal's disk does not answer", ""]


# Disks that fail.


@pytest.mark.spec("L7")
@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_READONLY])
async def test_after_a_failed_commit_nothing_is_tried_again_and_nothing_reported(tmp_path: Path, code: int) -> None:
    inserts = 0

    class Failing(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            nonlocal inserts
            if sql.startswith("INSERT INTO log"):
                inserts += 1
                if inserts == 2:
                    error = sqlite3.OperationalError("disk I/O error")
                    error.sqlite_errorcode = code
                    raise error
            return super().execute(sql, *values)

    async with opened(tmp_path, factory=Failing) as world:
        await world.commit(kept(1))
        world.journal.commit([kept(2)], pytest.fail)
        await world.until(lambda: bool(world.failures))
        world.journal.commit([kept(3)], pytest.fail)
        world.journal.commit([], pytest.fail)
    assert inserts == 2
    [failure] = world.failures
    assert isinstance(failure, JournalError)
    assert f"the journal {tmp_path}/journal.sqlite cannot be written: disk I/O error" in str(failure)
    assert "waku store check" in failure.hint
    assert records_in(tmp_path) == [[kept(1)]]


@pytest.mark.spec("L7")
def test_a_disk_that_takes_no_more_bytes_ends_it_and_what_was_reported_is_there(tmp_path: Path) -> None:
    out, err = child(tmp_path, 9 * MIB).communicate(timeout=DEADLINE_S)
    *numbers, last = out.splitlines()
    assert last.startswith(f"failed: the journal {tmp_path}/journal.sqlite cannot be written: "), err
    assert [leaf.number for leaf in leaves_in(tmp_path)][: len(numbers)] == [int(number) for number in numbers]


@pytest.mark.spec("L7")
def test_whatever_was_reported_before_a_kill_is_there_and_the_folder_is_free(tmp_path: Path) -> None:
    reported = 0
    for kills in range(4):
        process = child(tmp_path)
        assert process.stdout is not None
        while reported % 500 != 499 - kills:
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            assert int(line) > reported
            reported = int(line)
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()  # With what was read ahead: `communicate` would begin in the middle of a line.
        process.communicate(timeout=DEADLINE_S)
        reported = max([reported, *(int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n"))])
        found = [leaf.number for leaf in leaves_in(tmp_path)]
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= reported
        reported = len(found)
