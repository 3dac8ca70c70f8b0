"""How does `Grid.map` keep a window of jobs under way? A real client against a scripted leader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.kit.eventually import eventually
from tests.kit.grid_and_peer import grid_and_peer, raises_later
from tests.kit.scripted_leader import Peer, scripted

from wakugumi.core.ids import JobId, job_id_from_name
from wakugumi.errors import Refused
from wakugumi.roles.client import map_window
from wakugumi.roles.client.grid import Grid, connect
from wakugumi.roles.client.job_spec import Task
from wakugumi.roles.client.result import Result
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.job import unpack_ids

pytestmark = pytest.mark.anyio


# Map.


async def answer_all(peer: Peer, **fields: object) -> None:
    while True:
        frame = await peer.frames.get()
        if frame is None:
            return
        if frame.type == fr.SUBMIT_JOB:
            peer.result(JobId(frame.msg_id), stdout=" ".join(json.loads(frame.payload).get("Args", [])))


@asynccontextmanager
async def echoing(**options: int) -> AsyncIterator[tuple[Grid, Peer]]:
    async with grid_and_peer(**options) as (grid, peer), asyncio.TaskGroup() as group:  # type: ignore[arg-type]
        answering = group.create_task(answer_all(peer))
        yield grid, peer
        answering.cancel()


async def test_map_gives_every_item_its_result() -> None:
    async with echoing() as (grid, _peer):
        found = {}
        async for result in grid.map("p", (str(number) for number in range(500)), args=["--n"]):
            assert isinstance(result.item, str)
            assert result.stdout == f"--n {result.item}"
            found[result.item] = result.ok
        assert found == {str(number): True for number in range(500)}
        assert grid.status().unfinished == 0


async def test_map_takes_items_of_every_form(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"s")
    (tmp_path / "large").write_bytes(bytes(200_000))
    items: list[object] = [
        "text",
        7,
        2.5,
        ["a", 1],
        ("b", "c"),
        tmp_path / "small",
        tmp_path / "large",
        {"args": ["d"], "files": {"f": b"x"}, "job_id": "given"},
        Task(args=["e"], program="other", subject="sub", timeout_s=3.0, retries=0),
    ]
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        answering = group.create_task(answer_all(peer))
        common: dict[str, bytes] = {"common": b"c"}
        results = [result async for result in grid.map("p", items, args=["0"], files=common, timeout_s=8, retries=4)]
        assert len(results) == len(items)
        assert all(any(result.item is item for result in results) for item in items)
        said = sorted(result.stdout for result in results)
        assert said == ["0 2.5", "0 7", "0 a 1", "0 b c", "0 d", "0 e", "0 large", "0 small", "0 text"]
        requests = {json.loads(f.payload)["Args"][1]: f for f in peer.seen if f.type == fr.SUBMIT_JOB}
        named = {args: [x["Name"] for x in json.loads(f.payload)["Files"]] for args, f in requests.items()}
        assert named["text"] == ["common"]
        assert named["small"] == ["common", "small"]
        assert named["d"] == ["common", "f"]
        assert requests["d"].msg_id == job_id_from_name("given")
        assert json.loads(requests["e"].payload)["ExecName"] == "other"
        assert (requests["e"].subject, json.loads(requests["e"].payload)["TimeoutS"]) == ("sub", 3.0)
        assert json.loads(requests["text"].payload)["TimeoutS"] == 8
        retries = {args: json.loads(f.payload).get("Retries", 0) for args, f in requests.items()}
        assert retries.pop("e") == 0, "what a task says holds"
        assert set(retries.values()) == {4}
        answering.cancel()


class Counted:
    """Items that count how many were taken."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.taken = 0

    def __iter__(self) -> Iterator[str]:
        while self.taken < self.count:
            self.taken += 1
            yield str(self.taken)

    async def __aiter__(self) -> AsyncIterator[str]:
        while self.taken < self.count:
            await asyncio.sleep(0)
            self.taken += 1
            yield str(self.taken)


@pytest.mark.parametrize("form", ["plain", "async"])
async def test_map_is_never_more_than_its_window_ahead(form: str) -> None:
    items = Counted(300)
    source = iter(items) if form == "plain" else aiter(items)
    async with echoing() as (grid, peer):
        had = 0
        async with grid.map("p", source, window=10) as results:
            async for _ in results:
                had += 1
                assert items.taken - had < 10
                if had % 50 == 0:
                    await eventually(lambda: not peer.frames.qsize())
        assert had == items.taken == 300


@pytest.mark.parametrize("form", ["plain", "async"])
async def test_a_leader_that_answers_nothing_holds_back_the_items(form: str) -> None:
    items = Counted(1000)
    async with grid_and_peer() as (grid, peer):
        results = grid.map("p", iter(items) if form == "plain" else aiter(items), window=7)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(raises_later(asyncio.CancelledError, anext(results)))
            await peer.submits(7)
            for _ in range(100):
                await asyncio.sleep(0)
            assert items.taken == 7
            assert not waiting.done()
            waiting.cancel()


@pytest.mark.parametrize("way", ["break", "close", "exception"])
async def test_leaving_a_map_early_cancels_what_is_under_way(way: str) -> None:
    async with grid_and_peer() as (grid, peer):
        keys: list[JobId] = []

        async def leave() -> None:
            nonlocal keys
            results = grid.map("p", Counted(100), window=5)
            if way == "close":
                async with results:
                    await first(results)
                return
            async for _ in results:
                if way == "exception":
                    raise KeyError
                break

        async def first(results: AsyncIterator[Result]) -> None:
            await anext(results)

        async with asyncio.TaskGroup() as group:
            leaving = group.create_task(leave() if way != "exception" else raises_later(KeyError, leave()))
            keys = await peer.submits(5)
            peer.result(keys[2])
            await leaving
        await peer.next(fr.CONFIRM)
        cancelled = await peer.next(fr.CANCEL)
        assert set(unpack_ids(cancelled.payload)) == {*keys} - {keys[2]}
        for key in keys:
            peer.result(key, status="FAILED", reason="cancelled")
        await eventually(lambda: grid.status().unfinished == 0)


@pytest.mark.parametrize("form", ["plain", "async"])
async def test_an_exception_of_the_items_comes_out_after_what_is_under_way_was_cancelled(form: str) -> None:
    def plain() -> Iterator[str]:
        yield from "abc"
        raise ZeroDivisionError("mine")

    async def slow() -> AsyncIterator[str]:
        for item in plain():
            yield item

    async with grid_and_peer() as (grid, peer):
        with pytest.raises(ZeroDivisionError, match="mine"):
            async for _ in grid.map("p", plain() if form == "plain" else slow()):
                pass
        keys = await peer.submits(3)
        assert list(unpack_ids((await peer.next(fr.CANCEL)).payload)) == keys


async def test_items_that_take_their_time_do_not_wait_for_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_window, "FILL_S", -1.0)  # Each item takes longer than a turn may.
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        results = grid.map("p", "abc")
        first = group.create_task(anext(results))  # type: ignore[arg-type]
        keys = await peer.submits(3)
        peer.result(keys[0], stdout="42")
        assert (await first).stdout == "42"
        await results.aclose()


async def test_an_item_that_can_be_no_job_is_a_mistake_of_the_caller() -> None:
    async with grid_and_peer() as (grid, _peer):
        with pytest.raises(TypeError, match="not iterable"):
            grid.map("p", 5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="map cannot make a job of set"):
            await anext(grid.map("p", [{1}]))
        with pytest.raises(ValueError, match="a window is 1 to 100 jobs"):
            grid.map("p", [], window=0)
        with pytest.raises(Refused, match="is a path"):
            await anext(grid.map("a/b", ["x"]))


async def test_a_refused_item_is_a_result_and_the_loop_goes_on(tmp_path: Path) -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        nowhere = tmp_path / "nowhere"
        items: list[object] = ["ok", nowhere, "nul\0", {"job_id": "bad id"}, {"program": "a/b"}, "full"]

        async def collect() -> dict[str, Result]:
            return {str(result.item): result async for result in grid.map("p", items)}

        collecting = group.create_task(collect())
        keys = await peer.submits(2)
        peer.result(keys[0])
        peer.refuse(keys[1], "conflict")
        found = await collecting
        assert len(found) == 6
        assert found["ok"].ok
        assert found["full"].reason == "conflict"
        assert found["nul\0"].reason == "bad-request"
        assert "cannot be read" in found[str(nowhere)].stderr
        assert found[str(items[3])].job_id == "bad id"
        assert found[str(items[4])].reason == "bad-name"


async def test_two_items_with_one_id_are_one_job_with_two_results() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        items = [{"job_id": "one"}, {"job_id": "one"}, {"job_id": "one", "args": ["other"]}]

        async def collect() -> list[Result]:
            return [result async for result in grid.map("p", items)]

        collecting = group.create_task(collect())
        (key,) = await peer.submits(1)
        peer.result(key)
        results = await collecting
        assert sum(result.ok for result in results) == 2
        assert [result.reason for result in results if not result.ok] == ["conflict"]
        assert sorted(id(result.item) for result in results) == sorted(map(id, items))


async def test_map_lives_through_a_lost_connection() -> None:
    async with scripted() as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}") as grid:

            async def collect() -> list[Result]:
                return [result async for result in grid.map("p", [str(n) for n in range(20)], window=4)]

            collecting = group.create_task(collect())
            first = await coming
            await first.submits(4)
            first.hang_up()
            second = await leader.peer()
            await second.knows_nothing()
            answering = group.create_task(answer_all(second))
            results = await collecting
            assert sorted(int(result.stdout) for result in results) == list(range(20))
            answering.cancel()


async def test_a_map_is_told_when_the_client_is_closed() -> None:
    async with grid_and_peer(unfinished_max=3) as (grid, peer), asyncio.TaskGroup() as group:
        blocking = await grid.submit("p")
        collecting = group.create_task(raises_later(Refused, anext(grid.map("p", ["x"] * 5, window=3))))
        keys = await peer.submits(3)
        await grid.close()
        await collecting
        await raises_later(Refused, blocking)
    await peer.end()
    cancels = [frame for frame in peer.seen if frame.type == fr.CANCEL]
    assert unpack_ids(cancels[0].payload) == keys[1:], "of the map, and not what was submitted by itself"
