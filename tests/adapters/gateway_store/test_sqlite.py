"""The state of the gateways of one machine: what its file and its write-ahead log must bear."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from wakugumi.adapters.gateway_store import sqlite, sqlite_file
from wakugumi.adapters.gateway_store.sqlite import SqliteGatewayStore
from wakugumi.adapters.gateway_store.sqlite_file import FILE_NAME
from wakugumi.core.gateway.rows import Content, GatewayJob
from wakugumi.core.ids import JobId
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.units import MIB

pytestmark = pytest.mark.anyio


def a_row(owner: str = "g1", size: int = 10) -> GatewayJob:
    return GatewayJob(
        job=JobId(uuid4().bytes), name="monday", owner=owner, is_async=True, body=Content(size, bytes(size))
    )


def look_and_close(path: Path) -> None:
    """As a gateway does that ends: the last process to close the file removes its write-ahead log."""
    code = "import sqlite3, sys; base = sqlite3.connect(sys.argv[1]); base.execute('SELECT * FROM job'); base.close()"
    subprocess.run([sys.executable, "-c", code, path], check=True, timeout=20)


@pytest.mark.spec("G5")
async def test_another_process_that_closes_the_file_leaves_the_write_ahead_log_of_who_lives(tmp_path: Path) -> None:
    store, other = SqliteGatewayStore(tmp_path), SqliteGatewayStore(tmp_path)
    await other.close()
    log = tmp_path / f"{FILE_NAME}-wal"
    kept, _ = await store.add(a_row())
    before = log.stat().st_ino
    look_and_close(tmp_path / FILE_NAME)
    assert log.stat().st_ino == before
    await store.flush()
    after = SqliteGatewayStore(tmp_path)
    assert await after.get(kept.job) == kept
    for one in (store, after):
        await one.close()


async def test_the_write_ahead_log_stays_bounded_while_others_never_leave_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "WAL_KEPT_BYTES", MIB // 2)
    monkeypatch.setattr(sqlite, "WAL_MAX_BYTES", MIB)
    store = SqliteGatewayStore(tmp_path)
    log = tmp_path / f"{FILE_NAME}-wal"
    readers: list[sqlite3.Connection] = []
    """One at least looks at an older state whenever something is moved; they leave when they are waited for."""

    def leave(statement: str) -> None:
        while "RESTART" in statement and readers:
            readers.pop().close()

    store._aside.set_trace_callback(leave)
    sizes = []
    for _ in range(60):
        await store.add(a_row(size=100_000))
        readers.append(_reading(tmp_path))
        if len(readers) > 1:
            readers.pop(0).close()
        await store.add(a_row())
        await store.tidy()
        sizes.append(log.stat().st_size)
    assert max(sizes) < 2 * MIB, sizes
    leave("RESTART")
    await store.close()


def _reading(folder: Path) -> sqlite3.Connection:
    base = sqlite3.connect(folder / FILE_NAME, isolation_level=None, check_same_thread=False)
    base.execute("BEGIN")
    base.execute("SELECT count(*) FROM job").fetchall()
    return base


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, "disk-full"), (errno.EDQUOT, "disk-full"), (errno.EIO, "disk")]
)
async def test_a_flush_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    store = SqliteGatewayStore(tmp_path)
    await store.add(a_row())

    def fail(_file: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(Refused) as caught:
            await store.flush()
    assert caught.value.code == code
    await store.flush()
    await store.close()


async def test_the_oldest_of_an_owner_are_found_without_sorting_all_of_them(tmp_path: Path) -> None:
    store = SqliteGatewayStore(tmp_path)
    asked: list[str] = []
    store._base.set_trace_callback(asked.append)
    kept = [(await store.add(a_row()))[0].job for _ in range(3)]
    assert await store.orphans(2) == kept[:2]
    store._base.set_trace_callback(None)
    [query] = [one for one in asked if "ORDER BY accepted_at" in one]
    plan = str(rows(tmp_path, f"EXPLAIN QUERY PLAN {query}"))
    assert "open_jobs" in plan
    assert "TEMP B-TREE" not in plan
    await store.close()


@pytest.mark.spec("G5")
async def test_a_step_of_the_machines_clock_ends_no_lease_and_keeps_none(tmp_path: Path) -> None:
    clocks = {"now": 1_000_000.0, "up": 50.0}
    store = SqliteGatewayStore(tmp_path, lambda: clocks["now"], uptime=lambda: clocks["up"])
    await store.hold("g1", 10.0)
    row, _ = await store.add(a_row())
    for step in (3_600.0, -7_200.0):
        clocks["now"] += step
        assert await store.is_held("g1")
        assert await store.orphans(10) == []
    clocks["up"] += 10.1
    assert not await store.is_held("g1")
    assert await store.orphans(10) == [row.job]
    await store.close()


@pytest.mark.spec("G5")
async def test_after_the_machine_was_started_anew_no_lease_of_before_holds(tmp_path: Path) -> None:
    before = SqliteGatewayStore(tmp_path, uptime=lambda: 1_000.0, boot="monday")
    await before.hold("g1", 1_000.0)
    row, _ = await before.add(a_row())
    await before.close()
    after = SqliteGatewayStore(tmp_path, uptime=lambda: 5.0, boot="tuesday")
    assert not await after.is_held("g1")
    assert await after.orphans(10) == [row.job]
    await after.hold("g2", 10.0)
    assert rows(tmp_path, "SELECT owner FROM lease") == [("g2",)]
    await after.close()


async def test_the_real_clock_is_the_same_in_another_process_and_is_not_the_walls(tmp_path: Path) -> None:
    store = SqliteGatewayStore(tmp_path)
    await store.hold("g1", 60.0)
    code = (
        "import asyncio, pathlib, sys\nfrom wakugumi.adapters.gateway_store.sqlite import SqliteGatewayStore\n"
        "async def main():\n    store = SqliteGatewayStore(pathlib.Path(sys.argv[1]), lambda: 0.0)\n"
        "    print(await store.is_held('g1'), await store.is_held('g2'))\n    await store.close()\nasyncio.run(main())"
    )
    ask = partial(subprocess.run, [sys.executable, "-c", code, tmp_path], check=True, timeout=60, capture_output=True)
    assert (await asyncio.to_thread(ask)).stdout.split() == [b"True", b"False"]
    await store.close()


@pytest.mark.parametrize("fails", [RuntimeError("can't start new thread"), MemoryError(), RecursionError()])
async def test_a_flush_that_fails_in_an_unforeseen_way_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Exception
) -> None:
    store = SqliteGatewayStore(tmp_path)
    await store.add(a_row())

    def start(_thread: threading.Thread) -> None:
        raise fails

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        async with asyncio.timeout(20):
            told = await asyncio.gather(*(store.flush() for _ in range(3)), return_exceptions=True)
    assert [getattr(one, "code", one) for one in told] == ["worker-error"] * 3
    await store.flush()
    await store.close()


async def test_a_flush_that_is_cut_off_by_the_end_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteGatewayStore(tmp_path)
    begun, go_on = threading.Event(), threading.Event()

    def sync(_path: str) -> None:
        begun.set()
        go_on.wait(20)

    monkeypatch.setattr(sqlite, "_sync", sync)
    waiting = asyncio.get_running_loop().create_task(store.flush())
    await asyncio.to_thread(begun.wait, 20)
    await store._tasks.close()
    with pytest.raises(Refused, match="closed"):
        await waiting
    go_on.set()
    await store.close()


async def test_who_ends_while_a_thread_counts_leaves_no_connection_open(tmp_path: Path) -> None:
    """The thread may use it, may be about to, or may have ended: it is closed once, and never under the thread."""
    for turn in range(20):
        store = SqliteGatewayStore(tmp_path)
        begun, go_on = threading.Event(), threading.Event()

        def slow(begun: threading.Event = begun, go_on: threading.Event = go_on) -> None:
            begun.set()
            go_on.wait(20)

        counting = asyncio.get_running_loop().create_task(store._do_aside(slow))
        await asyncio.sleep(0)
        if turn % 2:
            await asyncio.to_thread(begun.wait, 20)
        counting.cancel()
        with suppress(asyncio.CancelledError):
            await counting
        await store.close()
        go_on.set()
        for thread in threading.enumerate():
            if thread.name == "state":
                await asyncio.to_thread(thread.join, 20)
        assert _is_closed(store._aside)
        assert _is_closed(store._base)


async def test_a_store_that_cannot_be_opened_leaves_no_connection_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*args: object, **more: object) -> sqlite3.Connection:
        made.append(connect(*args, **more))  # type: ignore[call-overload]
        return made[-1]

    def fails(_folder: Path) -> None:
        if len(made) > 1:
            raise OSError(errno.EIO, "no")

    monkeypatch.setattr(sqlite3, "connect", noted)
    monkeypatch.setattr(sqlite_file, "sync_folder", fails)
    with pytest.raises(ConfigError):
        SqliteGatewayStore(tmp_path)
    assert len(made) == 2
    assert all(_is_closed(one) for one in made)


def rows(folder: Path, query: str) -> list[tuple[object, ...]]:
    """As another process reads them."""
    with closing(sqlite3.connect(folder / FILE_NAME)) as base:
        return base.execute(query).fetchall()


def _is_closed(base: sqlite3.Connection) -> bool:
    try:
        base.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return True
    return False


FULL_DISK = """
import asyncio, os, pathlib, sys
from uuid import uuid4
from msgspec.structs import replace
from wakugumi.core.gateway.rows import DONE, GatewayJob
from wakugumi.core.gateway.rows import Content
from wakugumi.adapters.gateway_store.sqlite import SqliteGatewayStore
from wakugumi.core.ids import JobId

folder = pathlib.Path(sys.argv[1])

async def until_room(store, short):
    async with asyncio.timeout(20):
        while store.is_short != short:
            await store.tidy()
            await asyncio.sleep(0.01)

async def main():
    store = SqliteGatewayStore(folder)
    body = Content(10, bytes(10))
    rows = [
        (await store.add(GatewayJob(job=JobId(uuid4().bytes), name="monday", owner="g1", is_async=True, body=body)))[0]
        for _ in range(20)
    ]
    print("before", store.is_short, (folder / "reserve").exists())
    filler = os.open(folder / "filler", os.O_WRONLY | os.O_CREAT)
    for size in (1 << 20, 1 << 12, 1):
        try:
            while True:
                os.write(filler, os.urandom(size))
        except OSError:
            pass
    for row in rows:
        ended = replace(row, state=DONE, status=200, body=None, answer=Content(100_000, os.urandom(100_000)))
        assert await store.replace(row, ended) is not None
    await store.hold("g1", 10.0)
    totals = await store.totals()
    print("full", store.is_short, (folder / "reserve").exists(), totals.ended, totals.open_bytes)
    os.unlink(folder / "filler")
    os.close(filler)
    await until_room(store, False)
    print("after", store.is_short, (folder / "reserve").exists())
    await store.close()

asyncio.run(main())
"""


@pytest.mark.spec("G3")
def test_on_a_full_disk_it_is_still_written_down_how_accepted_jobs_end(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=192m none {tmp_path}"
    private = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*private, "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("no private mounts allowed here: a full disk cannot be had")
    done = subprocess.run(
        [*private, "sh", "-c", f'{mount} && exec "$0" "$@"', sys.executable, "-c", FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = ["before False True", "full True False 20 0", "after False True"]
    assert done.stdout.splitlines() == said, done.stderr
