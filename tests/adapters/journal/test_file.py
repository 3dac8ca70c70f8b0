"""Which file is a journal, and is it sound? Damage is found, and files of others are left alone."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest
from tests.kit.a_journal import job_id, kept, leaves_in, opened, records_in
from tests.kit.journal_processes import edited, refusal

from wakugumi.adapters.journal.file import VERSION
from wakugumi.core.leader.journal.entries import (
    DropLeaves,
    LeaderKeep,
)
from wakugumi.errors import ConfigError

pytestmark = pytest.mark.anyio


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


def test_every_kind_of_record_is_written_as_an_array_with_a_number_of_its_own() -> None:
    kinds = LeaderKeep.__args__  # type: ignore[attr-defined]
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert sorted(tags) == list(range(1, len(kinds) + 1))
    assert all(kind.__struct_config__.array_like for kind in kinds)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(DropLeaves(7))) == [8, 7]
