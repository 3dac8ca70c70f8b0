"""What is the file of the gateways' state, and can this one be used?"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from wakugumi.adapters.gateway_store import sqlite_file
from wakugumi.adapters.gateway_store.sqlite import SqliteGatewayStore
from wakugumi.adapters.gateway_store.sqlite_file import FILE_NAME, MIGRATIONS, VERSION, open_file
from wakugumi.core.gateway.rows import Content, GatewayJob
from wakugumi.core.ids import JobId
from wakugumi.errors import ConfigError


@pytest.mark.parametrize("is_link", [True, False])
def test_what_is_no_file_is_left_alone(tmp_path: Path, is_link: bool) -> None:
    path, other = tmp_path / "state" / FILE_NAME, tmp_path / "other"
    path.parent.mkdir()
    if is_link:
        path.symlink_to(other)
    else:
        path.mkdir()
    with pytest.raises(ConfigError, match="cannot be used"):
        open_file(path)
    assert not other.exists()


@pytest.mark.anyio
async def test_the_file_is_for_its_user_alone(tmp_path: Path) -> None:
    store = SqliteGatewayStore(tmp_path)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in os.listdir(tmp_path)}
    assert modes == dict.fromkeys((FILE_NAME, f"{FILE_NAME}-shm", f"{FILE_NAME}-wal", "reserve"), 0o600)
    await store.close()


@pytest.mark.parametrize("statement", ["CREATE TABLE other(x)", f"PRAGMA user_version = {VERSION + 1}"])
def test_a_file_of_another_program_or_of_a_later_version_is_refused_unchanged(tmp_path: Path, statement: str) -> None:
    path = tmp_path / FILE_NAME
    if "TABLE" not in statement:
        open_file(path).close()
    with closing(sqlite3.connect(path)) as base:
        base.execute(statement)
        tables = base.execute("SELECT sql FROM sqlite_master").fetchall()
    with pytest.raises(ConfigError, match="is not the state of a gateway of this version"):
        open_file(path)
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("SELECT sql FROM sqlite_master").fetchall() == tables


@pytest.mark.anyio
async def test_a_file_of_the_first_version_is_brought_up_to_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = GatewayJob(job=JobId(uuid4().bytes), name="monday", owner="g1", is_async=True, body=Content(10, bytes(10)))
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_file, "MIGRATIONS", MIGRATIONS[:1])
        patch.setattr(sqlite_file, "VERSION", 1)
        old = SqliteGatewayStore(tmp_path)
        kept, _ = await old.add(row)
        await old.close()
    new = SqliteGatewayStore(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as base:
        assert base.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert await new.get(kept.job) == kept
    assert await new.orphans(10) == [kept.job]
    await new.close()
