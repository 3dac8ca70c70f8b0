"""What every store of a gateway's state must do, whatever it is built on. A new one is a line in STORES."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from wakugumi.adapters.gateway_store.interface import GatewayStore
from wakugumi.adapters.gateway_store.sqlite import SqliteGatewayStore
from wakugumi.core.gateway.rows import (
    DONE,
    FAILED,
    QUEUED,
    RUNNING,
    Content,
    GatewayJob,
    Totals,
)
from wakugumi.core.ids import JobId

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G5")]


class Clock:
    """The store's own."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


Opens = Callable[[], Awaitable[GatewayStore]]
"""Each call opens the same state again, as another gateway does."""


async def sqlite(folder: Path, clock: Clock) -> GatewayStore:
    return SqliteGatewayStore(folder, clock, uptime=clock)


STORES: dict[str, Callable[[Path, Clock], Awaitable[GatewayStore]]] = {"sqlite": sqlite}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
async def opens(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Opens]:
    opened: list[GatewayStore] = []

    async def open_one() -> GatewayStore:
        opened.append(await STORES[request.param](tmp_path / "state", clock))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


def a_row(owner: str = "g1", **more: object) -> GatewayJob:
    return GatewayJob(job=JobId(uuid4().bytes), name="monday", owner=owner, **more)  # type: ignore[arg-type]


def changed(row: GatewayJob, **more: object) -> GatewayJob:
    return msgspec.structs.replace(row, **more)


async def test_a_row_comes_back_as_it_was_written_through_any_gateway(opens: Opens) -> None:
    first, second = await opens(), await opens()
    row = a_row(
        is_async=True,
        query="arg=1&arg=2",
        headers={"Content-Type": "multipart/form-data; boundary=x"},
        body=Content(3, b"a\0b"),
        group="a",
        tries=2,
    )
    kept, is_new = await first.add(row)
    assert is_new
    assert kept == changed(row, version=kept.version, accepted_at=kept.accepted_at, changed_at=kept.changed_at)
    assert kept.version > 0
    assert await second.get(row.job) == kept


async def test_who_only_looks_gets_no_contents_and_can_change_a_row_without_losing_them(opens: Opens) -> None:
    store = await opens()
    kept, _ = await store.add(a_row(body=Content(4, b"body"), state=RUNNING))
    seen = await store.get(kept.job, contents=False)
    assert seen is not None
    assert seen.body == Content(4)
    assert await store.replace(seen, changed(seen, tries=7)) is not None
    found = await store.get(kept.job)
    assert found is not None
    assert (found.body, found.tries) == (Content(4, b"body"), 7)


async def test_what_is_not_there_is_none(opens: Opens) -> None:
    assert await (await opens()).get(JobId(bytes(16))) is None


async def test_an_id_is_added_once_and_the_second_gateway_learns_whose_it_is(opens: Opens) -> None:
    first, second = await opens(), await opens()
    kept, _ = await first.add(a_row("g1"))
    found, is_new = await second.add(changed(a_row("g2"), job=kept.job))
    assert (found, is_new) == (kept, False)


async def test_of_two_who_change_the_same_row_one_wins(opens: Opens) -> None:
    first, second = await opens(), await opens()
    kept, _ = await first.add(a_row())
    ours = await first.replace(kept, changed(kept, state=RUNNING, group="a"))
    assert ours is not None
    assert await second.replace(kept, changed(kept, state=RUNNING, group="b")) is None
    assert await second.get(kept.job) == ours
    assert ours.group == "a"


async def test_the_first_result_stays(opens: Opens) -> None:
    first, second = await opens(), await opens()
    kept, _ = await first.add(a_row(state=RUNNING))
    done = changed(kept, state=DONE, status=200, head={"Waku-Status": "OK"}, answer=Content(3, b"zip"))
    assert await second.replace(kept, done) is not None
    assert await first.replace(kept, changed(done, answer=Content(5, b"other"))) is None
    found = await first.get(kept.job)
    assert found is not None
    assert found.answer == Content(3, b"zip")


async def test_a_body_is_dropped_with_the_change_that_says_so_and_a_content_stays_otherwise(opens: Opens) -> None:
    store = await opens()
    kept, _ = await store.add(a_row(body=Content(4, b"body")))
    running = await store.replace(kept, changed(kept, state=RUNNING))
    assert running is not None
    found = await store.get(kept.job)
    assert found is not None
    assert found.body == Content(4, b"body")
    await store.replace(running, changed(running, state=DONE, body=None, answer=Content(9, None, "ab-cd")))
    found = await store.get(kept.job)
    assert found is not None
    assert (found.body, found.answer, found.files) == (None, Content(9, None, "ab-cd"), {"ab-cd"})


async def test_a_row_is_removed_only_by_who_knows_how_it_stands(opens: Opens) -> None:
    store = await opens()
    kept, _ = await store.add(a_row())
    newer = await store.replace(kept, changed(kept, tries=1))
    assert newer is not None
    assert not await store.remove(kept)
    assert await store.get(kept.job) == newer
    assert await store.remove(newer)
    assert await store.get(kept.job) is None
    assert await store.replace(newer, newer) is None


async def test_a_lease_holds_for_its_time_by_the_clock_of_the_store(opens: Opens, clock: Clock) -> None:
    first, second = await opens(), await opens()
    assert not await second.is_held("g1")
    await first.hold("g1", 10.0)
    clock.now += 9
    assert await second.is_held("g1")
    await first.hold("g1", 10.0)
    clock.now += 9
    assert await second.is_held("g1")
    clock.now += 2
    assert not await second.is_held("g1")


async def test_what_belongs_to_a_dead_gateway_is_found_the_oldest_first_and_taken_by_one(
    opens: Opens, clock: Clock
) -> None:
    first, second, third = await opens(), await opens(), await opens()
    await first.hold("g1", 10.0)
    await second.hold("g2", 100.0)
    rows = []
    for state in (QUEUED, RUNNING, DONE, FAILED):
        rows.append((await first.add(a_row("g1", state=state)))[0])
        clock.now += 1
    await second.add(a_row("g2"))
    assert await second.orphans(10) == []
    clock.now += 10
    assert await second.orphans(10) == [rows[0].job, rows[1].job]
    assert await second.orphans(1) == [rows[0].job]
    assert await second.replace(rows[0], changed(rows[0], owner="g2")) is not None
    assert await third.replace(rows[0], changed(rows[0], owner="g3")) is None
    assert await third.orphans(10) == [rows[1].job]


async def test_a_gateway_that_ends_leaves_its_jobs_at_once(opens: Opens) -> None:
    first, second = await opens(), await opens()
    await first.hold("g1", 10.0)
    kept, _ = await first.add(a_row("g1"))
    await first.release("g1")
    assert await second.orphans(10) == [kept.job]


async def test_who_asks_is_not_dead_however_late_it_renews_its_lease(opens: Opens, clock: Clock) -> None:
    store = await opens()
    for owner in ("g1", "g2"):
        await store.hold(owner, 10.0)
    await store.add(a_row("g1"))
    other, _ = await store.add(a_row("g2"))
    clock.now += 20
    assert await store.orphans(10, but="g1") == [other.job]


async def test_the_orphans_of_several_dead_are_told_in_one_order(opens: Opens, clock: Clock) -> None:
    store = await opens()
    added = []
    for owner in ("g2", "g1", "g3", "g1", "g2"):
        added.append((await store.add(a_row(owner)))[0].job)
        clock.now += 1
    assert await store.orphans(10) == added
    assert await store.orphans(3) == added[:3]


async def test_a_clock_that_was_set_back_hides_no_ended_job(opens: Opens, clock: Clock) -> None:
    store = await opens()
    kept, _ = await store.add(a_row(state=DONE))
    clock.now -= 60
    later, _ = await store.add(a_row(state=DONE))
    assert [row.job for row in await store.oldest(10, 0.0)] == [later.job]
    assert [row.job for row in await store.oldest(10)] == [later.job, kept.job]


async def test_ended_jobs_are_counted_and_told_from_the_oldest_on(opens: Opens, clock: Clock) -> None:
    store = await opens()
    await store.hold("g1", 1000.0)
    ended = []
    for number in range(3):
        kept, _ = await store.add(a_row(state=RUNNING))
        answer = Content(10, b"0123456789") if number else Content(7, None, "ab-cd")
        ended.append(await store.replace(kept, changed(kept, state=DONE if number else FAILED, answer=answer)))
        clock.now += 1
    await store.add(a_row())
    await store.add(a_row(state=RUNNING))
    assert await store.totals() == Totals(1, 1, 3, 27)
    found = await store.oldest(10, 2.0)
    assert [row.job for row in found] == [row.job for row in ended[:2] if row]
    assert found[0].files == {"ab-cd"}
    assert [row.job for row in await store.oldest(1, 0.0)] == [found[0].job]
    for row in found:
        assert await store.remove(row)
    assert await store.totals() == Totals(1, 1, 1, 10)


async def test_many_may_ask_for_a_flush_at_once_and_the_rows_outlive_their_gateway(
    opens: Opens, tmp_path: Path, clock: Clock
) -> None:
    store = await opens()
    kept = [(await store.add(a_row(body=Content(1000, bytes(1000)))))[0] for _ in range(20)]
    await asyncio.gather(*(store.flush() for _ in range(20)))
    await store.tidy()
    await store.flush()
    other = await opens()
    for row in kept:
        assert await other.get(row.job) == row


async def test_times_are_the_stores(opens: Opens, clock: Clock) -> None:
    store = await opens()
    kept, _ = await store.add(a_row())
    assert (kept.accepted_at, kept.changed_at) == (clock.now, clock.now)
    clock.now += 5
    later = await store.replace(kept, changed(kept, tries=1))
    assert later is not None
    assert (later.accepted_at, later.changed_at) == (clock.now - 5, clock.now)


async def test_the_open_jobs_of_a_gateway_are_told_in_bites_the_oldest_first(opens: Opens, clock: Clock) -> None:
    store = await opens()
    rows = []
    for number in range(9):
        rows.append((await store.add(a_row(state=RUNNING if number % 2 else QUEUED)))[0])
        clock.now += number % 3 == 2  # some are of the same moment
        await store.add(a_row("g2"))
        await store.add(a_row(state=DONE))
    told, after = [], None
    while bite := await store.open_jobs("g1", 2, after):
        assert len(bite) <= 2
        told += [one.job for one in bite]
        after = bite[-1]
    assert told == [row.job for row in sorted(rows, key=lambda row: (row.accepted_at, row.job))]
    assert await store.open_jobs("nobody", 2) == []


async def test_the_bodies_of_open_jobs_are_counted_until_they_have_ended(opens: Opens) -> None:
    first, second = await opens(), await opens()
    small, _ = await first.add(a_row(body=Content(30, bytes(30))))
    large, _ = await first.add(a_row(body=Content(5_000_000_000, None, "a-file")))
    await first.add(a_row())
    assert (await second.totals()).open_bytes == 5_000_000_030
    running = await first.replace(large, changed(large, state=RUNNING))
    assert running is not None
    assert (await second.totals()).open_bytes == 5_000_000_030
    await first.replace(running, changed(running, state=DONE, body=None, answer=Content(7, bytes(7))))
    assert await first.remove(small)
    totals = await second.totals()
    assert (totals.open_bytes, totals.ended_bytes) == (0, 7)
    assert not second.is_short
