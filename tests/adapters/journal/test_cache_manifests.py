"""A leader's caches on its disk: real files, also broken ones, and a disk that does not take them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.kit.eventually import eventually

from wakugumi.adapters.journal.cache_manifests import Manifests
from wakugumi.core.files.events import CacheFile, DropCache, KeepCache, SpreadKeep
from wakugumi.core.subject import Pattern
from wakugumi.errors import ConfigError

pytestmark = pytest.mark.anyio

SHA = "ab" * 32
BAD = (
    '{"cache":"bad","version":"v","targets":[],"pinned":false,"created":0,'
    '"files":[{"name":"%s","sha256":"%s","size":%d}]}'
)


def record(cache_id: str = "data-1", *names: str, pinned: bool = False, age_s: float = 0.0) -> KeepCache:
    files = tuple(CacheFile(name, SHA, 5) for name in names or ("a", "b/ü.bin"))
    return KeepCache(cache_id, "v1", files, (Pattern("job.assign.>"), Pattern("job.x")), pinned, age_s)


@asynccontextmanager
async def manifests_in(folder: Path) -> AsyncIterator[Manifests]:
    manifests = Manifests(folder)
    manifests.begin(asyncio.get_running_loop())
    try:
        yield manifests
    finally:
        await manifests.close()


async def kept(manifests: Manifests, *records: SpreadKeep) -> None:
    done = asyncio.Event()
    manifests.commit(records, done.set)
    assert not manifests.idle
    async with asyncio.timeout(20):
        await done.wait()


@pytest.mark.spec("C6")
async def test_what_was_kept_is_loaded_and_what_was_dropped_is_not(tmp_path: Path) -> None:
    async with manifests_in(tmp_path / "caches") as manifests:
        await kept(manifests, record("one"), record("two", age_s=100.0), record("three"))
        await kept(manifests, record("one", "a", "b/ü.bin", "c", pinned=True), DropCache("three"), DropCache("never"))
        assert manifests.idle
    found = list(Manifests(tmp_path / "caches").load())
    assert [one.cache_id for one in found] == ["one", "two"]
    assert (found[0].files, found[0].pinned) == (record("one", "a", "b/ü.bin", "c").files, True)
    assert found[0].targets == record().targets
    assert 100.0 <= found[1].age_s < 160.0
    assert sorted(os.listdir(tmp_path / "caches")) == ["one.json", "two.json"]


async def test_a_target_that_is_refused_today_is_still_read(tmp_path: Path) -> None:
    """An earlier version took characters that nobody sees."""
    unseen = msgspec.structs.replace(record("one"), targets=(Pattern("job.assign.calc\u202ea"),))
    async with manifests_in(tmp_path) as manifests:
        await kept(manifests, unseen)
    assert [one.targets for one in Manifests(tmp_path).load()] == [unseen.targets]


async def test_what_is_given_is_done_in_order(tmp_path: Path) -> None:
    order: list[int] = []
    async with manifests_in(tmp_path) as manifests:
        for at in range(20):
            manifests.commit([record(f"c{at % 3}")] if at % 2 else [], lambda at=at: order.append(at))  # type: ignore[misc]
        manifests.commit([DropCache("c0")], None)
        await kept(manifests, record("last"))
    assert order == list(range(20))
    assert {one.cache_id for one in Manifests(tmp_path).load()} == {"c1", "c2", "last"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        '{"cache":"other","version":"v","targets":[],"pinned":false,"created":0,"files":[]}',
        '{"cache":"bad","version":"v","targets":["a..b"],"pinned":false,"created":0,"files":[]}',
        BAD % ("../a", SHA, 1),
        BAD % ("a", "x", 1),
        BAD % ("a", SHA, -1),
    ],
)
async def test_a_broken_file_is_set_aside_with_a_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    async with manifests_in(tmp_path) as manifests:
        await kept(manifests, record("good"))
    (tmp_path / "bad.json").write_text(text)
    (tmp_path / ".scratch").write_text("half of someth")
    with caplog.at_level(logging.ERROR):
        assert [one.cache_id for one in Manifests(tmp_path).load()] == ["good"]
    assert "bad.json" in caplog.text
    assert (tmp_path / "bad.broken").read_text() == text
    assert [one.cache_id for one in Manifests(tmp_path).load()] == ["good"]


async def test_a_disk_that_does_not_take_it_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "caches"
    async with manifests_in(folder) as manifests:
        folder.rmdir()
        done = asyncio.Event()
        with caplog.at_level(logging.ERROR):
            manifests.commit([record("one")], done.set)
            await eventually(lambda: "cache not kept yet" in caplog.text)
        assert not done.is_set()
        folder.mkdir()
        async with asyncio.timeout(20):
            await done.wait()
    assert json.loads((folder / "one.json").read_text())["cache"] == "one"


async def test_what_the_disk_never_takes_does_not_hold_up_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "caches"
    called: list[bool] = []
    async with manifests_in(folder) as manifests:
        folder.rmdir()
        manifests.commit([record("one")], lambda: called.append(True))
    assert called == []


def test_a_folder_that_cannot_be_used_is_a_matter_of_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError):
        Manifests(tmp_path / "file" / "caches")
