"""The journal: what was reported as safe is there, whatever happened; what is not safe is not reported."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.kit.a_journal import DEADLINE_S, WORKER, World, job_id, kept, leaves_in, opened, records_in, whole

from wakugumi.adapters.journal import disk_reserve, journal, reader, writer
from wakugumi.adapters.journal import file as journal_file
from wakugumi.adapters.journal.file import VERSION
from wakugumi.adapters.journal.journal import Journal
from wakugumi.adapters.journal.maintenance import check
from wakugumi.core.ids import JobId, Verdict
from wakugumi.core.leader.journal.entries import (
    DropLeaves,
    ForgetJob,
    KeepAttempt,
    KeepDelivered,
    KeepOutcome,
    KeepResult,
    LeaderKeep,
)
from wakugumi.errors import ConfigError, JournalError
from wakugumi.limits.journal import JOURNAL_BACKLOG_BYTES_MAX, JOURNAL_FREE_MIN_BYTES, JOURNAL_RESERVE_BYTES
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


@pytest.mark.spec("L7")
async def test_what_was_committed_is_there_after_a_restart_in_order_and_numbered_without_gaps(tmp_path: Path) -> None:
    records: list[list[LeaderKeep]] = [
        [kept(1), kept(2, b"\0" * 100_000)],
        [KeepAttempt(job_id(1), WORKER, "rack1-7"), KeepOutcome(job_id(1), "worker-lost", "almost…")],
        [KeepResult(job_id(1), True, "ok", b"bytes"), KeepResult(job_id(2), False, "", Verdict("dead", "why"))],
        [KeepDelivered(job_id(1)), ForgetJob(job_id(1)), whole(2, b"its request"), whole(3, None)],
    ]
    async with opened(tmp_path / "deep" / "state") as world:
        assert world.journal.next_leaf == 1
        assert list(world.journal.leaves()) == []
        for leaf in records:
            await world.commit(*leaf)
        assert world.journal.next_leaf == 5
    found = leaves_in(tmp_path / "deep" / "state")
    assert [leaf.records for leaf in found] == records
    assert [leaf.number for leaf in found] == [1, 2, 3, 4]
    assert all(0 <= later.written_at - leaf.written_at < 3600 for leaf, later in pairwise(found))
    async with opened(tmp_path / "deep" / "state") as world:
        assert world.journal.next_leaf == 5
        await world.commit(kept(4))
        assert [leaf.number for leaf in world.journal.leaves()] == [1, 2, 3, 4, 5]


async def test_the_folder_and_what_is_in_it_belong_to_the_user_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as world:
        await world.commit(kept(1))
        assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
        for name in ("journal.sqlite", "journal.sqlite-wal", "lock"):
            assert stat.S_IMODE((tmp_path / "state" / name).stat().st_mode) == 0o600


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


async def test_dropped_leaves_are_gone_and_the_numbers_go_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        for number in range(1, 201):
            world.journal.commit([kept(number)], None)
        await world.commit(whole(7, 7), DropLeaves(201))
        await world.commit(kept(300))
    assert [leaf.number for leaf in leaves_in(tmp_path)] == [201, 202]
    assert records_in(tmp_path)[0][0] == whole(7, b"job 7")
    async with opened(tmp_path) as world:
        assert world.journal.next_leaf == 203


async def test_a_leaf_is_not_dropped_while_someone_waits_for_what_is_in_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        for number in range(1, 20):
            await world.commit(kept(number))
        answers: dict[JobId, bytes] = {}
        # As the drive does it: what was decided before the drop is performed when it is safe, which is when it asks.
        for number in range(1, 20):
            world.journal.commit(
                [KeepDelivered(job_id(99))],
                lambda number=number: world.journal.load(number, [job_id(number)], answers.update),
            )
        await world.commit(DropLeaves(39))
        await world.look_until(lambda: len(answers) == 19)
    assert answers == {job_id(number): b"job %d" % number for number in range(1, 20)}
    assert [leaf.number for leaf in leaves_in(tmp_path)] == [39]


async def test_the_write_ahead_log_stays_bounded(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        largest = 0
        for number in range(40):
            await world.commit(kept(number, os.urandom(MIB)))
            await world.commit(kept(number))
            largest = max(largest, (tmp_path / "journal.sqlite-wal").stat().st_size)
        assert writer.WAL_BYTES <= largest < writer.WAL_BYTES * 2
    assert not (tmp_path / "journal.sqlite-wal").exists()


async def test_reading_all_leaves_holds_one_at_a_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        for number in range(100):
            world.journal.commit([kept(number, bytes(200_000))], None)
        await world.commit()
        tracemalloc.start()
        count = sum(1 for _ in world.journal.leaves())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert count == 100
        assert peak < 3_000_000


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


# Disks that are full.


def small_disk(folder: Path) -> tuple[type[sqlite3.Connection], list[int]]:
    """A connection to a file that may not grow until the reserve is given up, and then by the pages last listed."""
    disk_reserve = [1_000_000]

    class Small(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql.startswith("INSERT INTO log"):
                pages = super().execute("PRAGMA page_count").fetchone()[0]
                free = super().execute("PRAGMA freelist_count").fetchone()[0]
                given_up = 0 if (folder / "reserve").exists() else disk_reserve[-1]
                super().execute(f"PRAGMA max_page_count = {max(1, pages - free) + given_up}")
            return super().execute(sql, *values)

    return Small, disk_reserve


async def test_the_reserve_is_there_in_full(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        there = (tmp_path / "reserve").stat()
        assert there.st_size == JOURNAL_RESERVE_BYTES
        assert there.st_blocks * 512 >= JOURNAL_RESERVE_BYTES
        await world.commit()
    before = (tmp_path / "reserve").stat().st_mtime_ns
    async with opened(tmp_path):
        assert (tmp_path / "reserve").stat().st_mtime_ns == before


@pytest.mark.spec("L7", "L9")
async def test_a_full_disk_costs_the_reserve_and_nothing_else(tmp_path: Path) -> None:
    factory, disk_reserve = small_disk(tmp_path)
    free = [JOURNAL_FREE_MIN_BYTES]
    big = [kept(number, os.urandom(MIB)) for number in range(12)]
    async with opened(tmp_path, factory=factory, free_bytes=lambda: free[0]) as world:
        disk_reserve.append(100_000)
        for record in big:
            await world.commit(record)
        assert world.lows == [True]
        assert not (tmp_path / "reserve").exists()
        free[0] = 2 * JOURNAL_FREE_MIN_BYTES
        await world.until(lambda: world.lows == [True, False])
        assert (tmp_path / "reserve").stat().st_size == JOURNAL_RESERVE_BYTES
        assert world.failures == []
    assert records_in(tmp_path) == [[record] for record in big]


@pytest.mark.spec("L7")
async def test_while_the_disk_is_full_nothing_is_reported_and_then_everything(tmp_path: Path) -> None:
    factory, disk_reserve = small_disk(tmp_path)
    said: list[int] = []
    async with opened(tmp_path, factory=factory) as world:
        disk_reserve.append(0)
        for number in range(12):
            world.journal.commit([kept(number, os.urandom(MIB))], lambda number=number: said.append(number))
        await world.until(lambda: world.lows == [True])
        stuck = len(said)
        assert stuck < 12
        assert not world.journal.idle
        disk_reserve.append(100_000)
        await world.commit()
        assert said == list(range(12))
        assert world.failures == []
    assert len(records_in(tmp_path)) == 12


async def test_a_journal_on_a_full_disk_can_be_closed_and_has_all_that_was_reported(tmp_path: Path) -> None:
    factory, disk_reserve = small_disk(tmp_path)
    said: list[int] = []
    async with opened(tmp_path, factory=factory) as world:
        await world.commit(kept(100))
        disk_reserve.append(0)
        for number in range(20):
            world.journal.commit([kept(number, os.urandom(MIB))], lambda number=number: said.append(number))
        await world.until(lambda: world.lows == [True])
    assert len(said) < 20
    assert [leaf[0].job for leaf in records_in(tmp_path)] == [job_id(n) for n in [100, *said]]  # type: ignore[union-attr]


async def test_little_room_is_told_before_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [JOURNAL_FREE_MIN_BYTES - 1]
    async with opened(tmp_path, free_bytes=lambda: free[0]) as world:
        await world.until(lambda: world.lows == [True])
        await world.commit(kept(1))
        free[0] = 2 * JOURNAL_FREE_MIN_BYTES - 2 * writer.WAL_BYTES
        monkeypatch.setattr(disk_reserve, "LOOK_S", 0.0)
        for number in range(3):
            await world.commit(kept(number))
        assert world.lows == [True]
        free[0] = 2 * JOURNAL_FREE_MIN_BYTES
        await world.until(lambda: world.lows == [True, False])


async def filled(world: World, mib: int) -> None:
    for number in range(mib):
        world.journal.commit([kept(number, os.urandom(MIB))], None)
    await world.commit()


@pytest.mark.spec("L9")
async def test_a_disk_that_the_journal_itself_filled_is_not_short_when_its_leaves_are_gone(tmp_path: Path) -> None:
    disk = JOURNAL_FREE_MIN_BYTES + 110 * MIB

    def free() -> int:
        taken = sum(path.stat().st_size for path in tmp_path.glob("journal.sqlite*"))
        return max(0, disk - taken)

    async with opened(tmp_path, free_bytes=free) as world:
        while not world.lows:
            await filled(world, 8)
        await world.commit(DropLeaves(world.journal.next_leaf))
        await world.until(lambda: world.lows == [True, False])
        assert free() < 2 * JOURNAL_FREE_MIN_BYTES, "it is the room inside that counts"
    async with opened(tmp_path, free_bytes=free) as world:
        await world.commit(kept(1))
        assert world.lows == []


async def test_room_inside_is_of_no_use_without_some_for_the_write_ahead_log(tmp_path: Path) -> None:
    use = journal_file.Use(1000 * MIB, 900 * MIB)
    free = [disk_reserve.BESIDE_MIN_BYTES]
    there = disk_reserve.DiskRoom(tmp_path, lambda: free[0])
    there.prepare(use)
    assert not there.low
    free[0] -= 1
    there.look(0.0, use)
    assert there.low
    free[0] = 2 * disk_reserve.BESIDE_MIN_BYTES - 1
    there.look(1.0, use)
    assert there.low
    free[0] += 1
    there.look(2.0, use)
    assert not there.low


@pytest.mark.parametrize("rest", [0, 5])
async def test_what_is_free_inside_is_given_back_to_the_disk_and_what_lives_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: int
) -> None:
    monkeypatch.setattr(disk_reserve, "SURPLUS_BYTES", 16 * MIB)
    monkeypatch.setattr(disk_reserve, "KEPT_BYTES", 9 * MIB)
    file = tmp_path / "journal.sqlite"
    async with opened(tmp_path) as world:
        await filled(world, 30)
        large = file.stat().st_size
        assert large > 16 * MIB
        before = world.journal.next_leaf - rest
        kept_then = [leaf for leaf in world.journal.leaves() if leaf.number >= before]
        await world.commit(DropLeaves(before))
        await world.look_until(lambda: file.stat().st_size < (10 + rest) * MIB)
        await world.commit(kept(99))
        assert list(world.journal.leaves())[:rest] == kept_then
    assert [leaf.number for leaf in leaves_in(tmp_path)] == list(range(before, 33))


async def test_a_disk_without_room_gets_back_what_the_log_needs_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_reserve, "LOOK_S", 0.01)
    monkeypatch.setattr(writer, "LOOK_S", 0.01)
    file = tmp_path / "journal.sqlite"
    free = [JOURNAL_FREE_MIN_BYTES]
    async with opened(tmp_path, free_bytes=lambda: free[0]) as world:
        await filled(world, 50)
        large = file.stat().st_size
        await world.commit(DropLeaves(world.journal.next_leaf))
        free[0] = 0
        while not world.lows:
            await world.commit(kept(1))
        await world.look_until(lambda: file.stat().st_size < large - 16 * MIB)


def failing(times: int, code: int) -> type[sqlite3.Connection]:
    """A connection that does not write, so many times."""
    left = [times]

    class Failing(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql.startswith("INSERT INTO log") and left[0]:
                left[0] -= 1
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = code
                raise error
            return super().execute(sql, *values)

    return Failing


@pytest.mark.spec("L9")
@pytest.mark.parametrize("number", [errno.EDQUOT, errno.ENOSPC])
async def test_a_quota_that_is_used_up_is_a_full_disk_and_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def used_up(_file: object) -> None:
        raise OSError(number, os.strerror(number))

    async with opened(tmp_path, factory=failing(3, sqlite3.SQLITE_IOERR_WRITE)) as world:
        monkeypatch.setattr(os, "fsync", used_up)
        await world.commit(kept(1))
        assert world.lows[:1] == [True], "its next look may already have found room"
        assert world.failures == []
        assert not (tmp_path / "probe").exists()
        monkeypatch.undo()
    assert records_in(tmp_path) == [[kept(1)]]


async def test_on_a_disk_without_any_room_the_reserve_is_what_it_is_opened_with(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.commit(kept(1))
    assert (tmp_path / "reserve").exists()
    async with opened(tmp_path, free_bytes=lambda: JOURNAL_RESERVE_BYTES - 1) as world:
        assert not (tmp_path / "reserve").exists()
        await world.until(lambda: world.lows == [True])
        assert [leaf.records for leaf in world.journal.leaves()] == [[kept(1)]]


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


CHILD = """
import asyncio, resource, sys
from pathlib import Path
from wakugumi.adapters.journal.journal import Journal
from wakugumi.core.leader.journal.entries import KeepJob

async def main(folder, limit):
    journal = Journal.open(Path(folder))
    failed = asyncio.get_running_loop().create_future()
    journal.begin(asyncio.get_running_loop(), failed.set_result, lambda low: None)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    number = journal.next_leaf
    while not failed.done():
        records = [KeepJob(number.to_bytes(16, "big"), "c", 4, "job.assign.x", "x", 1.0, 0, b"p" * 3000)] * 5
        journal.commit(records, lambda number=number: print(number, flush=True))
        number += 1
        await asyncio.sleep(0 if number % 50 else 0.01)
    print("failed:", failed.result(), flush=True)
    await journal.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def child(folder: Path, limit: int = 0) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", CHILD, str(folder), str(limit)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


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


async def crashed(folder: Path, copy: Path, leaves: int) -> None:
    """What a disk has after a power cut: the files of a journal that was not closed."""
    async with opened(folder) as world:
        for number in range(1, leaves + 1):
            await world.commit(kept(number, b"%d " % number * 300))
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("reserve", "lock", "*-shm"))


@pytest.mark.spec("L7")
async def test_a_torn_write_ahead_log_costs_only_what_was_torn(tmp_path: Path) -> None:
    await crashed(tmp_path / "state", tmp_path / "crashed", 20)
    log_bytes = (tmp_path / "crashed" / "journal.sqlite-wal").read_bytes()
    found = []
    for cut in [0, 31, 33, *range(4_000, 160_000, 7_777), len(log_bytes)]:
        torn = tmp_path / f"torn-{cut}"
        shutil.copytree(tmp_path / "crashed", torn)
        (torn / "journal.sqlite-wal").write_bytes(log_bytes[:cut])
        numbers = [leaf.number for leaf in leaves_in(torn)]
        assert numbers == list(range(1, len(numbers) + 1))
        found.append(len(numbers))
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, 20)
    assert len(set(found)) > 5


async def damaged(folder: Path, find: bytes, replace: bytes) -> None:
    """A journal with bytes of its file changed by the disk."""
    async with opened(folder) as world:
        for number in range(1, 6):
            await world.commit(kept(number, b"payload of %d" % number))
    content = (folder / "journal.sqlite").read_bytes()
    assert content.count(find) >= 1
    (folder / "journal.sqlite").write_bytes(content.replace(find, replace))


async def test_a_flipped_bit_is_found_and_told_with_a_way_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await damaged(tmp_path, b"payload of 3", b"payload of 2")
    with pytest.raises(ConfigError, match="is damaged: leaf 3 is not what was written") as told:
        leaves_in(tmp_path)
    assert f"waku store repair {tmp_path}" in told.value.hint
    async with opened(tmp_path) as world:
        caplog.set_level(logging.ERROR)
        assert await world.load(3, 3) == {}
        assert "leaf 3" in caplog.text
        assert await world.load(4, 4) == {job_id(4): b"payload of 4"}


async def test_a_page_that_is_no_page_is_found_and_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        for number in range(1, 60):
            await world.commit(kept(number, b"x" * 1000 + b"number %d" % number))
    content = bytearray((tmp_path / "journal.sqlite").read_bytes())
    page = content.index(b"number 30") // 4096 * 4096
    content[page : page + 64] = b"\xff" * 64
    (tmp_path / "journal.sqlite").write_bytes(content)
    with pytest.raises(ConfigError, match="is damaged"):
        leaves_in(tmp_path)


async def test_leaves_that_vanished_at_the_end_are_missed(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        for number in range(1, 60):
            await world.commit(kept(number, b"x" * 1000 + b"number %d" % number))
    content = bytearray((tmp_path / "journal.sqlite").read_bytes())
    page = content.index(b"number 59") // 4096 * 4096
    cells = int.from_bytes(content[page + 3 : page + 5], "big")
    content[page + 3 : page + 5] = (cells - 1).to_bytes(2, "big")
    (tmp_path / "journal.sqlite").write_bytes(content)
    with pytest.raises(ConfigError, match="is damaged"):
        leaves_in(tmp_path)


async def test_a_leaf_that_is_missing_in_the_middle_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        for number in range(1, 6):
            await world.commit(kept(number))
    base = sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)
    base.execute("DELETE FROM log WHERE number = 3")
    base.close()
    with pytest.raises(ConfigError, match="leaf 3 is missing"):
        leaves_in(tmp_path)


async def test_a_leaf_under_another_number_is_not_believed(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.commit(kept(1))
    base = sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)
    base.execute("UPDATE log SET number = 2")
    base.close()
    with pytest.raises(ConfigError, match="leaf 2 is not what was written"):
        leaves_in(tmp_path)


# Folders that cannot be used.


def refusal(folder: Path) -> ConfigError:
    with pytest.raises(ConfigError) as told:
        Journal.open(folder)
    assert told.value.hint
    assert "\n" not in str(told.value)
    return told.value


async def test_the_second_leader_on_a_folder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        told = refusal(tmp_path)
        assert str(told) == f"another leader (process {os.getpid()}) uses the state folder {tmp_path}"
        await world.commit(kept(1))
    assert len(records_in(tmp_path)) == 1


async def test_also_if_a_cleaner_removed_what_tells_who_has_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        (tmp_path / "lock").unlink()
        assert check(tmp_path).leader == -1
        assert str(refusal(tmp_path)) == f"another leader (process unknown) uses the state folder {tmp_path}"
        await world.commit(kept(1))
    assert check(tmp_path).leader == 0
    assert len(records_in(tmp_path)) == 1


async def test_a_leader_of_an_earlier_version_that_locks_the_file_alone_is_seen(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        print(4711, file=file, flush=True)
        assert "(process 4711)" in str(refusal(tmp_path))
    async with opened(tmp_path) as world:
        await world.commit(kept(1))


def test_a_leader_in_another_process_is_seen_as_well(tmp_path: Path) -> None:
    process = child(tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        assert f"(process {process.pid})" in str(refusal(tmp_path))
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def edited(folder: Path, *statements: str) -> None:
    folder.mkdir(exist_ok=True)
    base = sqlite3.connect(folder / "journal.sqlite", isolation_level=None)
    for statement in statements:
        base.execute(statement)
    base.close()


async def test_a_journal_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.commit(kept(1))
    edited(tmp_path, f"PRAGMA user_version = {VERSION + 1}")
    before = (tmp_path / "journal.sqlite").read_bytes()
    assert f"is of version {VERSION + 1}, and this Wakugumi knows versions up to {VERSION}" in str(refusal(tmp_path))
    assert (tmp_path / "journal.sqlite").read_bytes() == before
    edited(tmp_path, f"PRAGMA user_version = {VERSION}")
    assert len(records_in(tmp_path)) == 1


@pytest.mark.parametrize("statement", ["CREATE TABLE log(x)", "PRAGMA user_version = 1", "PRAGMA application_id = 7"])
def test_a_file_of_someone_else_is_left_alone(tmp_path: Path, statement: str) -> None:
    edited(tmp_path, statement)
    before = (tmp_path / "journal.sqlite").read_bytes()
    assert "is not a journal of Wakugumi" in str(refusal(tmp_path))
    assert (tmp_path / "journal.sqlite").read_bytes() == before


@pytest.mark.parametrize("content", [b"x", b"This is a diary.\n" * 300])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal.sqlite").write_bytes(content)
    assert "is not a journal of Wakugumi" in str(refusal(tmp_path))
    assert (tmp_path / "journal.sqlite").read_bytes() == content


def test_a_journal_that_was_only_begun_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "journal.sqlite").touch()
    assert records_in(tmp_path / "empty") == []
    edited(tmp_path / "early", "PRAGMA journal_mode = WAL")
    assert records_in(tmp_path / "early") == []


def test_a_place_that_cannot_be_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "where it must not be" in str(refusal(tmp_path / "file"))
    assert "where it must not be" in str(refusal(tmp_path / "file" / "state"))
    (tmp_path / "state" / "journal.sqlite").mkdir(parents=True)
    assert "where it must not be" in str(refusal(tmp_path / "state"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "this user may not read and write" in str(refusal(tmp_path))
    assert "this user may not read and write" in str(refusal(tmp_path / "state"))
    tmp_path.chmod(0o700)


def read_only_folders() -> Sequence[Path]:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(words[1]) for words in mounts if "ro" in words[3].split(",") and Path(words[1]).is_dir()]


@pytest.mark.skipif(not read_only_folders(), reason="no disk here is read-only")
def test_a_disk_that_can_only_be_read_is_told(tmp_path: Path) -> None:
    assert "on a disk that can only be read" in str(refusal(read_only_folders()[0] / "state"))


def test_every_kind_of_record_is_written_as_an_array_with_a_number_of_its_own() -> None:
    kinds = LeaderKeep.__args__  # type: ignore[attr-defined]
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert sorted(tags) == list(range(1, len(kinds) + 1))
    assert all(kind.__struct_config__.array_like for kind in kinds)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(DropLeaves(7))) == [8, 7]
