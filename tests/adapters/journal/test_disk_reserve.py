"""What does a journal do about a disk that is full, or soon will be?"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.kit.a_journal import World, job_id, kept, leaves_in, opened, records_in

from wakugumi.adapters.journal import disk_reserve, writer
from wakugumi.adapters.journal import file as journal_file
from wakugumi.core.leader.journal.entries import (
    DropLeaves,
)
from wakugumi.limits.journal import JOURNAL_FREE_MIN_BYTES, JOURNAL_RESERVE_BYTES
from wakugumi.limits.units import MIB

pytestmark = pytest.mark.anyio


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
