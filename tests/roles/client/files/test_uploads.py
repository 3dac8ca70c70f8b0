"""How content reaches the leaders that ask for it: scripted leaders over real sockets, places in real folders."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.kit.eventually import eventually
from tests.kit.scripted_leader import Peer, ScriptedLeader, WithPlace, grid_with_place, misses, scripted, sha

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.core.ids import JobId
from wakugumi.core.transfers import uploads
from wakugumi.errors import Lost, Refused
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX, UPLOAD_ROUNDS_MAX
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.roles.client.files.uploads import Uploads
from wakugumi.roles.client.grid import Grid, connect
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.hello import BLOBS, ENV, Welcome
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.anyio

BIG = os.urandom(INLINE_FILE_BYTES_MAX + 1)


def uploads_of(grid: Grid) -> Uploads:
    return grid._session._uploads


async def submitted(peer: Peer) -> fr.Frame:
    frame = await peer.next_but(fr.CAP)
    assert frame.type == fr.SUBMIT_JOB, fr.NAMES[frame.type]
    return frame


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big.bin"
    path.write_bytes(BIG)
    return path


@pytest.mark.spec("C4", "C5")
async def test_what_a_leader_misses_is_put_into_its_place_and_the_same_frame_sent_again(
    tmp_path: Path, big: Path
) -> None:
    async with grid_with_place(tmp_path / "place") as (grid, peer, leader):
        job = await grid.submit("p", files={"big.bin": big, "small.txt": b"small", "large.txt": BIG[::-1]})
        first = await submitted(peer)
        assert json.loads(first.payload)["Files"] == [
            {"Name": "big.bin", "Sha256": sha(BIG), "Size": len(BIG)},
            {"Name": "large.txt", "Sha256": sha(BIG[::-1]), "Size": len(BIG)},
            {"Name": "small.txt", "Content": "c21hbGw="},
        ]
        assert not leader.has(BIG), "nothing is put before it was asked for"
        misses(peer, first.msg_id, BIG, BIG[::-1])
        assert await submitted(peer) == first
        assert leader.has(BIG)
        assert leader.has(BIG[::-1])
        assert not job.done()
        peer.send(fr.RECEIPT, payload=first.msg_id)
        await job.accepted()
        peer.result(JobId(first.msg_id), stdout="done")
        assert (await job).stdout == "done"
        assert grid.transfers() == []
        assert uploads_of(grid).held_bytes == 0
        assert job.request.attached == {}


async def test_what_a_leader_has_already_is_not_put_again(tmp_path: Path, big: Path) -> None:
    async with grid_with_place(tmp_path / "place") as (grid, peer, leader):
        job = await grid.submit("p", files={"big.bin": big})
        frame = await submitted(peer)
        peer.result(JobId(frame.msg_id))
        assert (await job).ok
        assert not leader.has(BIG)


async def test_many_jobs_with_the_same_file_put_it_once(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts: list[str] = []
    all_asked = threading.Event()
    real = FolderPlace.put

    def put(self: FolderPlace, ref: BlobRef, *rest: object) -> None:
        puts.append(ref.sha256)
        assert all_asked.wait(20)
        real(self, ref, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(FolderPlace, "put", put)
    async with grid_with_place(tmp_path / "place", cap=20) as (grid, peer, _leader):
        jobs = [await grid.submit("p", files={"big.bin": big, f"{number}": b"x"}) for number in range(20)]
        frames = [await submitted(peer) for _ in jobs]
        for frame in frames:
            misses(peer, frame.msg_id, BIG)
        on_their_way = uploads_of(grid).machine.transfers.by_key
        await eventually(lambda: [len(each.waiting) for each in on_their_way.values()] == [len(jobs)])
        all_asked.set()
        again = [await submitted(peer) for _ in jobs]
        assert {frame.msg_id for frame in again} == {frame.msg_id for frame in frames}
        assert puts == [sha(BIG)]
        for frame in frames:
            peer.result(JobId(frame.msg_id))
        for job in jobs:
            assert (await job).ok


@pytest.mark.spec("K6")
async def test_after_a_lost_connection_the_put_goes_on_at_the_next_one(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FolderPlace.put

    def lost(*_: object) -> None:
        raise Lost("the line broke")

    monkeypatch.setattr(FolderPlace, "put", lost)
    async with scripted(WithPlace(tmp_path / "place")) as leader, asyncio.TaskGroup() as group:
        assert isinstance(leader, WithPlace)
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}") as grid:
            first = await coming
            job = await grid.submit("p", files={"big.bin": big})
            frame = await submitted(first)
            misses(first, frame.msg_id, BIG)
            await eventually(lambda: bool(grid.transfers()))
            first.hang_up()
            second = await leader.peer()
            assert grid.transfers() == []
            await second.knows_nothing()
            assert await submitted(second) == frame
            monkeypatch.setattr(FolderPlace, "put", real)
            misses(second, frame.msg_id, BIG)
            assert await submitted(second) == frame
            assert leader.has(BIG)
            second.result(JobId(frame.msg_id))
            assert (await job).ok
            assert [frame.type for frame in first.seen].count(fr.SUBMIT_JOB) == 1


async def test_a_put_that_is_lost_is_tried_again_while_the_connection_lives(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FolderPlace.put
    troubles = [Lost("the line broke"), Refused("blob-busy", "someone else"), Refused("blob-broken", "on the way")]

    def put(self: FolderPlace, *rest: object) -> None:
        if troubles:
            raise troubles.pop()
        real(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(FolderPlace, "put", put)
    monkeypatch.setattr(uploads, "RECONNECT_FIRST_S", 0.01)
    async with grid_with_place(tmp_path / "place") as (grid, peer, leader):
        job = await grid.submit("p", files={"big.bin": big})
        frame = await submitted(peer)
        misses(peer, frame.msg_id, BIG)
        assert await submitted(peer) == frame
        assert leader.has(BIG)
        assert not troubles
        peer.result(JobId(frame.msg_id))
        assert (await job).ok


@pytest.mark.spec("K5")
async def test_an_adopted_jobs_files_are_put_where_it_goes(tmp_path: Path, big: Path) -> None:
    async with AsyncExitStack() as stack:
        leaders = [WithPlace(tmp_path / "one"), WithPlace(tmp_path / "two")]
        for leader in leaders:
            await stack.enter_async_context(scripted(leader))
        async with asyncio.TaskGroup() as group:
            coming = [group.create_task(leader.peer()) for leader in leaders]
            url = ",".join(f"127.0.0.1:{leader.port}" for leader in leaders)
            grid = await stack.enter_async_context(connect(url, cap=2, grace_s=0.2))
            peers = [await one for one in coming]
        await eventually(lambda: all(row.connected for row in grid.status().leaders))
        job = await grid.submit("p", files={"big.bin": big})
        frame = await submitted(peers[0])
        misses(peers[0], frame.msg_id, BIG)
        assert await submitted(peers[0]) == frame
        assert leaders[0].has(BIG)
        leaders[0].stop_listening()
        peers[0].hang_up()
        assert await submitted(peers[1]) == frame
        assert not leaders[1].has(BIG)
        misses(peers[1], frame.msg_id, BIG)
        assert await submitted(peers[1]) == frame
        assert leaders[1].has(BIG)
        peers[1].result(JobId(frame.msg_id))
        assert (await job).ok


def alter(path: Path, how: str) -> None:
    match how:
        case "written":
            path.write_bytes(BIG[::-1])
        case "truncated":
            os.truncate(path, 10)
        case "removed":
            path.unlink()
        case "touched":
            os.utime(path, (1, 1))
            path.chmod(0o444)
            path.with_name("copy").write_bytes(path.read_bytes())
            path.with_name("copy").replace(path)
        case _:
            path.with_name("new").write_bytes(BIG[::-1])
            path.with_name("new").replace(path)


@pytest.mark.parametrize("change", ["written", "truncated", "removed", "replaced"])
async def test_a_file_that_is_not_what_it_was_ends_its_job_with_the_reason(
    tmp_path: Path, big: Path, change: str
) -> None:
    async with grid_with_place(tmp_path / "place") as (grid, peer, leader):
        job = await grid.submit("p", files={"big.bin": big})
        other = await grid.submit("p")
        frame, beside = await submitted(peer), await submitted(peer)
        alter(big, change)
        misses(peer, frame.msg_id, BIG)
        with pytest.raises(Refused, match=r"is gone since|was changed since") as caught:
            await job
        assert caught.value.code == "bad-request"
        assert not leader.has(BIG)
        peer.result(JobId(beside.msg_id))
        assert (await other).ok


async def test_a_file_that_was_only_touched_or_replaced_by_the_same_is_sent(tmp_path: Path, big: Path) -> None:
    async with grid_with_place(tmp_path / "place") as (grid, peer, leader):
        job = await grid.submit("p", files={"big.bin": big})
        frame = await submitted(peer)
        alter(big, "touched")
        misses(peer, frame.msg_id, BIG)
        assert await submitted(peer) == frame
        assert leader.has(BIG)
        peer.result(JobId(frame.msg_id))
        assert (await job).ok


async def test_a_place_that_says_no_ends_the_job_with_its_words_and_its_hint(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(*_: object) -> None:
        raise Refused("denied", "not for you", hint="ask the keeper of the bucket")

    monkeypatch.setattr(FolderPlace, "put", no)
    async with grid_with_place(tmp_path / "place") as (grid, peer, _leader):
        job = await grid.submit("p", files={"big.bin": big})
        misses(peer, (await submitted(peer)).msg_id, BIG)
        with pytest.raises(Refused, match="not for you") as caught:
            await job
        assert (caught.value.code, caught.value.hint) == ("denied", "ask the keeper of the bucket")
        assert grid.status().unfinished == 0


async def test_a_place_without_room_is_a_full_leader_and_offered_the_job_again(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tries = FolderPlace.put, 0

    def full(self: FolderPlace, *rest: object) -> None:
        nonlocal tries
        tries += 1
        if tries <= UPLOAD_ROUNDS_MAX + 1:
            raise Refused("disk", "no room there")
        real(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(FolderPlace, "put", full)
    monkeypatch.setattr(uploads, "RECONNECT_FIRST_S", 0.001)
    monkeypatch.setattr(uploads, "RECONNECT_MAX_S", 0.002)
    async with grid_with_place(tmp_path / "place") as (grid, peer, leader):
        job = await grid.submit("p", files={"big.bin": big})
        frame = await submitted(peer)
        while not leader.has(BIG):
            misses(peer, frame.msg_id, BIG)
            assert await submitted(peer) == frame
        peer.result(JobId(frame.msg_id))
        assert (await job).ok


@pytest.mark.spec("K5")
async def test_a_place_without_room_lets_another_leader_have_the_job(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FolderPlace.put

    def put(self: FolderPlace, *rest: object) -> None:
        if self.store is not None and "one" in str(self.store.folder):
            raise Refused("disk", "no room there")
        real(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(FolderPlace, "put", put)
    async with AsyncExitStack() as stack:
        leaders = [WithPlace(tmp_path / "one"), WithPlace(tmp_path / "two")]
        for leader in leaders:
            await stack.enter_async_context(scripted(leader))
        async with asyncio.TaskGroup() as group:
            coming = [group.create_task(leader.peer()) for leader in leaders]
            url = ",".join(f"127.0.0.1:{leader.port}" for leader in leaders)
            grid = await stack.enter_async_context(connect(url, cap=2))
            peers = [await one for one in coming]
        await eventually(lambda: all(row.connected for row in grid.status().leaders))
        job = await grid.submit("p", files={"big.bin": big})
        frame = await submitted(peers[0])
        misses(peers[0], frame.msg_id, BIG)
        assert await submitted(peers[1]) == frame
        misses(peers[1], frame.msg_id, BIG)
        assert await submitted(peers[1]) == frame
        peers[1].result(JobId(frame.msg_id))
        assert (await job).ok


async def test_a_cancel_while_a_place_without_room_is_given_time_ends_the_job(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise Refused("disk", "no room there")

    monkeypatch.setattr(FolderPlace, "put", full)
    monkeypatch.setattr(uploads, "RECONNECT_FIRST_S", 1000.0)
    monkeypatch.setattr(uploads, "RECONNECT_MAX_S", 1000.0)
    async with grid_with_place(tmp_path / "place") as (grid, peer, _leader):
        job = await grid.submit("p", files={"big.bin": big})
        frame = await submitted(peer)
        misses(peer, frame.msg_id, BIG)
        assert await submitted(peer) == frame
        misses(peer, frame.msg_id, BIG)
        await eventually(lambda: any(each.later for each in uploads_of(grid).machine.jobs.values()))
        await job.cancel()
        assert (await job).reason == "cancelled"


async def test_a_place_that_cannot_be_reached_is_told_of_and_given_up_after_a_while(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0

    def lost(*_: object) -> None:
        nonlocal tries
        tries += 1
        raise Lost(f"no route to it, {tries}")

    monkeypatch.setattr(FolderPlace, "put", lost)
    monkeypatch.setattr(uploads, "RECONNECT_FIRST_S", 0.01)
    monkeypatch.setattr(uploads, "UPLOAD_UNREACHED_S", 0.2)
    caplog.set_level("INFO", "wakugumi.client")
    async with grid_with_place(tmp_path / "place") as (grid, peer, _leader):
        job = await grid.submit("p", files={"big.bin": big})
        misses(peer, (await submitted(peer)).msg_id, BIG)
        with pytest.raises(Refused, match=r"no route to it, [0-9]+") as caught:
            await job
        assert tries > 1
        assert "reached from here" in caught.value.hint
    levels = [record.levelname for record in caplog.records if "trying again" in record.message]
    assert levels == ["INFO", *["WARNING"] * (tries - 2)], "the last failure is the end"


async def test_a_place_that_takes_bytes_is_never_given_up(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, until = FolderPlace.put, time.monotonic() + 0.5

    def put(self: FolderPlace, ref: BlobRef, source: Path, on_bytes: Any) -> None:
        if time.monotonic() < until:
            on_bytes(1)
            raise Lost("the line broke")
        real(self, ref, source, on_bytes)

    monkeypatch.setattr(FolderPlace, "put", put)
    monkeypatch.setattr(uploads, "RECONNECT_FIRST_S", 0.01)
    monkeypatch.setattr(uploads, "RECONNECT_MAX_S", 0.01)
    monkeypatch.setattr(uploads, "UPLOAD_UNREACHED_S", 0.2)
    async with grid_with_place(tmp_path / "place") as (grid, peer, leader):
        job = await grid.submit("p", files={"big.bin": big})
        frame = await submitted(peer)
        misses(peer, frame.msg_id, BIG)
        assert await submitted(peer) == frame
        assert leader.has(BIG)
        peer.result(JobId(frame.msg_id))
        assert (await job).ok


@pytest.mark.parametrize(
    ("url", "complaint"),
    [("gopher://somewhere", "place for files cannot be used"), ("file:///nowhere/at-all", "must be a shared one")],
)
async def test_a_place_that_is_none_for_us_ends_the_job(tmp_path: Path, big: Path, url: str, complaint: str) -> None:
    async with scripted(WithPlace(tmp_path / "place")) as leader, asyncio.TaskGroup() as group:
        assert isinstance(leader, WithPlace)
        leader.url = url
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}") as grid:
            peer = await coming
            job = await grid.submit("p", files={"big.bin": big})
            misses(peer, (await submitted(peer)).msg_id, BIG)
            with pytest.raises(Refused, match=complaint) as caught:
                await job
            assert caught.value.code == "not-supported"


async def test_a_job_that_is_cancelled_while_its_files_travel_ends_and_they_stop(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def endless(_self: FolderPlace, _ref: BlobRef, _source: Path, on_bytes: object) -> None:
        try:
            while True:
                on_bytes(1)  # type: ignore[operator]
        finally:
            loop.call_soon_threadsafe(stopped.set)

    monkeypatch.setattr(FolderPlace, "put", endless)
    async with grid_with_place(tmp_path / "place") as (grid, peer, _leader):
        job = await grid.submit("p", files={"big.bin": big})
        frame = await submitted(peer)
        misses(peer, frame.msg_id, BIG)
        await eventually(lambda: any(row.done_bytes for row in grid.transfers()))
        (row,) = grid.transfers()
        assert (row.name, row.total_bytes, row.what) == ("big.bin", len(BIG), "sending")
        await job.cancel()
        result = await job
        assert (result.ok, result.reason) == (False, "cancelled")
        async with asyncio.timeout(10):
            await stopped.wait()
        assert grid.transfers() == []
        assert (await peer.next(fr.CANCEL)).payload == frame.msg_id


async def test_a_job_that_was_cancelled_before_its_files_were_asked_for_ends(tmp_path: Path, big: Path) -> None:
    async with grid_with_place(tmp_path / "place") as (grid, peer, leader):
        job = await grid.submit("p", files={"big.bin": big})
        frame = await submitted(peer)
        await job.cancel()
        await peer.next(fr.CANCEL)
        misses(peer, frame.msg_id, BIG)
        assert (await job).reason == "cancelled"
        assert not leader.has(BIG)


async def test_a_leader_that_asks_for_what_nobody_brought_ends_that_job_alone(tmp_path: Path, big: Path) -> None:
    async with grid_with_place(tmp_path / "place") as (grid, peer, _leader):
        job = await grid.submit("p", files={"big.bin": big})
        misses(peer, (await submitted(peer)).msg_id, BIG, b"/etc/passwd")
        with pytest.raises(Refused, match="nobody brought along") as caught:
            await job
        assert caught.value.code == "no-blob"
        misses(peer, b"x" * 16, BIG)
        other = await grid.submit("p")
        frame = await submitted(peer)
        misses(peer, frame.msg_id, BIG)
        peer.result(JobId(frame.msg_id))
        assert (await other).ok


async def test_a_leader_that_asks_for_ever_is_not_answered_for_ever(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "RECONNECT_FIRST_S", 0.001)
    async with grid_with_place(tmp_path / "place") as (grid, peer, _leader):
        job = await grid.submit("p", files={"big.bin": big})
        for _ in range(UPLOAD_ROUNDS_MAX + 1):
            misses(peer, (await submitted(peer)).msg_id, BIG)
        with pytest.raises(Refused, match="again and again"):
            await job


@pytest.mark.spec("K6")
@pytest.mark.parametrize("own", [True, False])
async def test_an_old_leader_gets_what_fits_a_frame_and_nothing_else(
    tmp_path: Path, big: Path, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "HELLO_DEADLINE_S", 1.1)
    huge = tmp_path / "huge.bin"
    huge.write_bytes(bytes(PAYLOAD_BYTES_MAX * 3 // 4))
    async with scripted(ScriptedLeader(own=own)) as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}", old_leader=True) as grid:
            peer = await coming
            too_large = await grid.submit("p", files={"huge.bin": huge})
            large = await grid.submit("p", files={"big.bin": big, "more": b"more", "big.too": BIG[::-1]}, args=["x"])
            with pytest.raises(Refused, match="an old one that takes only what does") as caught:
                await too_large
            assert caught.value.code == "too-big"
            frame = await peer.next(fr.SUBMIT_JOB)
            told = json.loads(frame.payload)
            assert [(each["Name"], base64.b64decode(each["Content"])) for each in told["Files"]] == [
                ("big.bin", BIG),
                ("big.too", BIG[::-1]),
                ("more", b"more"),
            ]
            assert (told["JobId"], told["Args"]) == (large.id, ["x"])
            peer.result(JobId(frame.msg_id))
            assert (await large).ok
            assert [seen.type for seen in peer.seen].count(fr.SUBMIT_JOB) == 1


@pytest.mark.parametrize("change", ["written", "truncated", "removed", "replaced"])
async def test_for_an_old_leader_too_a_file_must_be_what_it_was(big: Path, change: str) -> None:
    async with scripted(ScriptedLeader(own=False)) as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}", old_leader=True) as grid:
            peer = await coming
            job = await grid.submit("p", files={"big.bin": big})
            alter(big, change)
            peer.welcome()
            with pytest.raises(Refused, match=r"is gone since|was changed since"):
                await job
            assert fr.SUBMIT_JOB not in [seen.type for seen in peer.seen]


async def test_a_leader_whose_welcome_is_slow_gets_its_files_by_reference_all_the_same(
    tmp_path: Path, big: Path
) -> None:
    async with scripted(ScriptedLeader(own=False)) as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}", old_leader=True) as grid:
            peer = await coming
            await eventually(lambda: grid.status().connected)
            assert grid.status().old_leader
            large = await grid.submit("p", files={"big.bin": big})
            small = await grid.submit("p")
            frame = await submitted(peer)
            assert frame.msg_id == small.request.job
            peer.send(fr.WELCOME, payload=encode(Welcome("test", [BLOBS], (tmp_path / "place").as_uri())))
            frame = await submitted(peer)
            assert frame.msg_id == large.request.job
            assert json.loads(frame.payload)["Files"] == [{"Name": "big.bin", "Sha256": sha(BIG), "Size": len(BIG)}]
            for job in (large, small):
                peer.result(job.request.job)
                assert (await job).ok


async def test_a_job_that_is_cancelled_while_its_leader_has_not_said_welcome_ends(tmp_path: Path, big: Path) -> None:
    async with scripted(ScriptedLeader(own=False)) as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}", old_leader=True) as grid:
            peer = await coming
            await eventually(lambda: grid.status().connected)
            job = await grid.submit("p", files={"big.bin": big})
            await eventually(lambda: uploads_of(grid).machine.waits_for_welcome(job.request.job))
            await job.cancel()
            assert (await job).reason == "cancelled"
            peer.send(fr.WELCOME, payload=encode(Welcome("test", [BLOBS], (tmp_path / "place").as_uri())))
            await eventually(lambda: not grid.status().old_leader)
            assert fr.SUBMIT_JOB not in [seen.type for seen in peer.seen]


@pytest.mark.spec("K6")
async def test_what_does_not_fit_an_old_leader_goes_to_one_that_takes_blobs(tmp_path: Path) -> None:
    huge = tmp_path / "huge.bin"
    huge.write_bytes(bytes(PAYLOAD_BYTES_MAX * 3 // 4))
    async with AsyncExitStack() as stack:
        old, new = ScriptedLeader(own=True), WithPlace(tmp_path / "place")
        for leader in (old, new):
            await stack.enter_async_context(scripted(leader))
        async with asyncio.TaskGroup() as group:
            coming = [group.create_task(leader.peer()) for leader in (old, new)]
            grid = await stack.enter_async_context(connect(f"127.0.0.1:{old.port},127.0.0.1:{new.port}"))
            peers = [await one for one in coming]
        await eventually(lambda: all(row.connected for row in grid.status().leaders))
        jobs = [await grid.submit("p", files={"huge.bin": huge}) for _ in range(3)]
        frames = [await submitted(peers[1]) for _ in jobs]
        for frame in frames:
            peers[1].result(JobId(frame.msg_id))
        for job in jobs:
            assert (await job).ok
        assert fr.SUBMIT_JOB not in [seen.type for seen in peers[0].seen]


class KnowsVariables(ScriptedLeader):
    """A leader that takes jobs that set variables, and no blobs."""

    async def peer(self) -> Peer:
        peer = await super().peer()
        peer.send(fr.WELCOME, payload=encode(Welcome("test", [ENV])))
        return peer


@pytest.mark.spec("U8")
async def test_a_job_that_sets_variables_goes_past_an_old_leader_to_one_that_takes_them() -> None:
    async with AsyncExitStack() as stack:
        old, new = ScriptedLeader(own=True), KnowsVariables(own=False)
        for leader in (old, new):
            await stack.enter_async_context(scripted(leader))
        async with asyncio.TaskGroup() as group:
            coming = [group.create_task(leader.peer()) for leader in (old, new)]
            grid = await stack.enter_async_context(connect(f"127.0.0.1:{old.port},127.0.0.1:{new.port}"))
            peers = [await one for one in coming]
        await eventually(lambda: all(row.connected for row in grid.status().leaders))
        jobs = [await grid.submit("p", env={"SEED": str(number)}) for number in range(6)]
        for frame in [await submitted(peers[1]) for _ in jobs]:
            peers[1].result(JobId(frame.msg_id))
        for job in jobs:
            assert (await job).ok
        assert fr.SUBMIT_JOB not in [seen.type for seen in peers[0].seen]


async def test_content_in_memory_counts_once_however_many_jobs_bring_it(tmp_path: Path) -> None:
    async with grid_with_place(tmp_path / "place") as (grid, peer, leader):
        held = uploads_of(grid)
        one = await grid.submit("p", files={"a": BIG})
        two = await grid.submit("p", files={"b": BIG, "c": BIG[::-1]})
        assert held.held_bytes == 2 * len(BIG)
        frames = [await submitted(peer), await submitted(peer)]
        misses(peer, frames[0].msg_id, BIG)
        await submitted(peer)
        assert leader.has(BIG)
        peer.result(JobId(frames[1].msg_id))
        await two
        assert held.held_bytes == len(BIG)
        peer.result(JobId(frames[0].msg_id))
        await one
        assert held.held_bytes == 0


async def test_a_full_leader_that_asks_for_files_has_room_and_others_need_not_wait_for_them(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise Lost("the line broke")

    monkeypatch.setattr(FolderPlace, "put", lost)
    async with grid_with_place(tmp_path / "place") as (grid, peer, _leader):
        large = await grid.submit("p", files={"big.bin": big})
        small = await grid.submit("p")
        frames = [await submitted(peer), await submitted(peer)]
        for frame in frames:
            peer.refuse(JobId(frame.msg_id), "full")
        probe = await submitted(peer)
        assert probe == frames[0]
        misses(peer, probe.msg_id, BIG)
        assert await submitted(peer) == frames[1], "though the files of the first are still on their way"
        peer.result(JobId(frames[1].msg_id))
        assert (await small).ok
        await large.cancel()
        assert (await large).reason == "cancelled"


async def test_leaving_while_files_travel_ends_at_once(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(_self: FolderPlace, _ref: BlobRef, _source: Path, on_bytes: object) -> None:
        while True:
            on_bytes(1)  # type: ignore[operator]

    monkeypatch.setattr(FolderPlace, "put", endless)
    async with asyncio.timeout(20), grid_with_place(tmp_path / "place") as (grid, peer, _leader):
        job = await grid.submit("p", files={"big.bin": big})
        misses(peer, (await submitted(peer)).msg_id, BIG)
        await eventually(lambda: any(row.done_bytes for row in grid.transfers()))
    with pytest.raises(Refused) as caught:
        await job
    assert caught.value.code == "closed"
