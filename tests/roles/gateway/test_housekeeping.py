"""A gateway while nobody asks: its lease, what the dead left, and what is old."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace
from tests.kit.eventually import eventually

from wakugumi.adapters.gateway_store.interface import DONE, RUNNING, GatewayJob, Totals
from wakugumi.adapters.gateway_store.sqlite import SqliteGatewayStore
from wakugumi.adapters.http.spool import Content, Spools
from wakugumi.core.gateway.groups import GroupAt, Groups
from wakugumi.core.ids import JobId
from wakugumi.roles.gateway import housekeeping
from wakugumi.roles.gateway.gateway import Flight, Gateway
from wakugumi.roles.gateway.group_calls import GroupCalls
from wakugumi.roles.gateway.housekeeping import Housekeeper

pytestmark = pytest.mark.anyio


class Store(SqliteGatewayStore):
    """With a clock that a test sets, and counts of what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.now = 1_000_000.0
        self.held = self.counted = self.looked = self.got = 0
        self.step_s = 0.0
        """What passes with each look for orphans."""
        super().__init__(folder, lambda: self.now, uptime=lambda: self.now)

    async def get(self, job: JobId, *, contents: bool = True) -> GatewayJob | None:
        self.got += 1
        return await super().get(job, contents=contents)

    async def hold(self, owner: str, lease_s: float) -> None:
        self.held += 1
        await super().hold(owner, lease_s)

    async def orphans(self, most: int, *, but: str = "") -> list[JobId]:
        self.looked += 1
        self.now += self.step_s
        return await super().orphans(most, but=but)

    async def totals(self) -> Totals:
        self.counted += 1
        return await super().totals()


class Idle(Gateway):
    """It forwards nothing."""

    def pump(self) -> None:
        pass


@asynccontextmanager
async def a_gateway(folder: Path) -> AsyncIterator[tuple[Gateway, Store]]:
    store, spools = Store(folder), Spools(folder / "contents")
    calls = GroupCalls(Groups([GroupAt("a", "http://127.0.0.1:1")]))
    gateway = Idle("me", store, spools, calls)
    try:
        yield gateway, store
    finally:
        await gateway.close()
        await calls.close()
        spools.close()
        await store.close()


async def add(store: Store, count: int, **more: object) -> list[GatewayJob]:
    more = {"owner": "dead"} | more
    rows = [GatewayJob(job=JobId(uuid4().bytes), name="monday", **more) for _ in range(count)]  # type: ignore[arg-type]
    return [(await store.add(row))[0] for row in rows]


@pytest.mark.spec("G5")
async def test_a_gateway_serves_before_it_has_taken_over_what_the_dead_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wakugumi.gateway")
    async with a_gateway(tmp_path) as (gateway, store):
        await add(store, 500, is_async=True, body=Content(1, b"x"))
        await add(store, 3)
        keeper = Housekeeper(gateway)
        await keeper.start()
        assert (keeper.taken_over, await store.is_held("me")) == (0, True)
        turns = 0
        async with asyncio.timeout(20):
            while keeper.taken_over < 500:
                turns += 1
                await asyncio.sleep(0)
        assert turns >= 10, "others have their turns meanwhile"
        await eventually(lambda: "taken over" in caplog.text)
        told = [record.message for record in caplog.records if "taken over" in record.message]
        assert told == ["jobs taken over from dead gateways count=500"]
        await keeper.close()
        assert await store.totals() == Totals(500, open_bytes=500)


@pytest.mark.spec("G5")
async def test_a_gateway_never_takes_over_from_itself_however_late_it_renews_its_lease(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (gateway, store):
        store.step_s = 60.0
        await add(store, 120, is_async=True, body=Content(1, b"x"))
        keeper = Housekeeper(gateway, lease_s=10.0)
        await keeper.start()
        await eventually(lambda: store.looked == 3)
        assert keeper.taken_over == 120
        await keeper.close()


@pytest.mark.parametrize("what", ["orphans", "tidy", "totals", "oldest"])
async def test_the_lease_is_renewed_whatever_else_takes_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    hangs = asyncio.Event()

    async def hang(*_: object, **__: object) -> None:
        hangs.set()
        await asyncio.Event().wait()

    async with a_gateway(tmp_path) as (gateway, store):
        monkeypatch.setattr(store, what, hang)
        keeper = Housekeeper(gateway, lease_s=0.06)
        await keeper.start()
        await hangs.wait()
        before = store.held
        await eventually(lambda: store.held > before + 3)
        await keeper.close()


@pytest.mark.spec("G3")
async def test_an_open_job_that_nobody_sees_to_is_queued_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_gateway(tmp_path) as (gateway, store):
        mine = {"owner": "me", "is_async": True, "body": Content(1, b"x")}
        lost = await add(store, 60, **mine, state=RUNNING, group="a")
        queued, flying, ended, others = [(await add(store, 1, **mine))[0] for _ in range(4)]
        gateway.queue.append(queued.job)
        gateway.flights[flying.job] = Flight(flying, None, None)  # type: ignore[arg-type]
        assert await store.replace(ended, replace(ended, state=DONE)) is not None
        assert await store.replace(others, replace(others, owner="other")) is not None
        (waited_for,) = await add(store, 1, owner="me", state=RUNNING)
        keeper = Housekeeper(gateway, stranded_s=10.0)
        await keeper.find_stranded(100.0)
        await keeper.find_stranded(109.9)
        assert (keeper.stranded, len(gateway.queue)) == (0, 1)
        await keeper.find_stranded(110.0)
        assert keeper.stranded == 60
        assert [gateway.queue.popleft() for _ in range(61)] == [queued.job, *sorted(row.job for row in lost)]
        assert await store.get(waited_for.job) is None, "its client has left, or asks anew"
        assert len([line for line in caplog.messages if "stranded job queued again job=monday" in line]) == 60


async def test_a_job_that_somebody_sees_to_again_is_not_stranded(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (gateway, store):
        (row,) = await add(store, 1, owner="me", is_async=True, body=Content(1, b"x"))
        keeper = Housekeeper(gateway, stranded_s=10.0)
        await keeper.find_stranded(100.0)
        gateway.queue.append(row.job)
        await keeper.find_stranded(106.0)
        gateway.queue.popleft()
        await keeper.find_stranded(112.0)
        assert keeper.stranded == 0
        await keeper.find_stranded(122.0)
        assert keeper.stranded == 1


@pytest.mark.parametrize("what", ["hold", "orphans", "open_jobs", "tidy", "oldest"])
async def test_the_keeper_goes_on_after_a_failure_that_nobody_foresaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    calls = 0
    async with a_gateway(tmp_path) as (gateway, store):
        work = getattr(store, what)

        async def fails(*args: object, **more: object) -> object:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise RecursionError("nobody thought of this")
            return await work(*args, **more)

        monkeypatch.setattr(store, what, fails)
        monkeypatch.setattr(housekeeping, "SWEEP_S", 0.02)
        keeper = Housekeeper(gateway, lease_s=0.06, stranded_s=0.04)
        await keeper.start()
        await eventually(lambda: calls > 4)
        await keeper.close()


async def test_room_is_made_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (gateway, store):
        rows = []
        for _ in range(5):
            rows += await add(store, 1, state=DONE, answer=Content(10, bytes(10)))
            store.now += 1
        store.now -= 3600
        async with asyncio.timeout(20):
            await Housekeeper(gateway, kept_bytes=20).sweep()
        assert [await store.get(row.job) is not None for row in rows] == [False, False, False, True, True]


async def test_a_sweep_ends_when_others_drop_what_it_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def remove(_row: GatewayJob) -> bool:
        await asyncio.sleep(0)
        return False

    async with a_gateway(tmp_path) as (gateway, store):
        await add(store, 3, state=DONE, answer=Content(10, bytes(10)))
        monkeypatch.setattr(store, "remove", remove)
        async with asyncio.timeout(20):
            await Housekeeper(gateway, kept_max=1, kept_s=0.0).sweep()


async def test_many_rows_are_dropped_with_few_counts_and_the_newest_stay(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (gateway, store):
        await add(store, 200, state=DONE, answer=Content(10, bytes(10)))
        keeper = Housekeeper(gateway, kept_bytes=305, kept_max=40)
        await keeper.sweep()
        assert keeper.totals == Totals(0, 0, 30, 300)
        assert store.counted <= 2


async def test_a_large_folder_is_read_in_a_thread_and_others_have_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()
    names, remove = Spools.names, Spools.remove

    def noted(spools: Spools, older_than_s: float) -> Iterator[tuple[str, JobId]]:
        threads.add(threading.get_ident())
        return names(spools, older_than_s)

    def removed(spools: Spools, name: str) -> None:
        threads.add(threading.get_ident())
        remove(spools, name)

    monkeypatch.setattr(Spools, "names", noted)
    monkeypatch.setattr(Spools, "remove", removed)
    async with a_gateway(tmp_path) as (gateway, store):
        kept = []
        for number in range(1000):
            job = JobId(uuid4().bytes)
            name = f"{job.hex()}-{number:x}"
            os.utime(_made(tmp_path / "contents" / name), (0, 0))
            if number != 7:
                kept.append(name)
                answer = Content(9, None, name)
                await store.add(GatewayJob(job=job, name="monday", owner="me", state=DONE, answer=answer))
        sweep = asyncio.get_running_loop().create_task(Housekeeper(gateway).sweep())
        most = 0
        async with asyncio.timeout(20):
            while not sweep.done():
                before = store.got
                await asyncio.sleep(0)
                most = max(most, store.got - before)
        await sweep
        assert 0 < most <= 100, "of the thousand, in one turn"
        assert sorted(os.listdir(tmp_path / "contents")) == sorted(kept)
        assert threading.get_ident() not in threads


def _made(path: Path) -> Path:
    path.touch()
    return path
