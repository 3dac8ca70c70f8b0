"""Putting caches: what each leader is told, how it asks back, and what becomes of it. The leaders are scripted."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from tests.kit.answering_leader import AnsweringLeader
from tests.kit.eventually import eventually
from tests.kit.scripted_leader import Peer, ScriptedLeader, WithPlace, grid_with_place, misses, scripted

from wakugumi import Cached, Client, Executor
from wakugumi.core.client.events import LeaderNo
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.errors import JobFailed, Refused
from wakugumi.limits.wire import FILES_PER_CACHE_MAX
from wakugumi.roles.client import put_cache
from wakugumi.roles.client.files.inputs import Content, InputContents
from wakugumi.roles.client.grid import connect
from wakugumi.roles.client.put_cache import CacheFailure, CacheFiles, CachePut, CacheSummary, summary_of
from wakugumi.roles.client.session.session import Session
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.cache import CachePutResult, FailedWorker
from wakugumi.wire.messages.control import read_question
from wakugumi.wire.messages.job import write_refusal
from wakugumi.wire.messages.payload import encode

pytestmark = pytest.mark.anyio


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def put(files: CacheFiles, **options: object) -> CachePut:
    return CachePut(InputContents(), "c", files, **{"within_s": 5.0, **options})  # type: ignore[arg-type]


def names(files: CacheFiles) -> list[str]:
    return [entry["Name"] for entry in json.loads(put(files)._payload)["Entries"]]


async def put_frame(peer: Peer) -> fr.Frame:
    frame = await peer.next_but(fr.CAP)
    assert frame.type == fr.CACHE_PUT
    return frame


def told(peer: Peer, frame: fr.Frame, status: str, message: str = "", **counts: object) -> None:
    result = CachePutResult("data-1", status, message, **counts)  # type: ignore[arg-type]
    peer.send(fr.CACHE_ACK, frame.msg_id, encode(result), "cache.ack.data-1")


@pytest.mark.spec("C1", "C4")
async def test_a_put_goes_by_manifest_brings_what_is_missing_and_ends_with_a_summary(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"content of a")
    seen: list[CacheSummary] = []
    async with (
        grid_with_place(tmp_path / "place") as (grid, peer, leader),
        asyncio.TaskGroup() as group,
    ):
        files: dict[str, Content] = {"b/c": "see", "a.bin": tmp_path / "a.bin"}
        putting = group.create_task(
            grid.put_cache(
                "data-1",
                files,
                target="job.assign.groupA.>",
                within_s=9,
                share=0.5,
                pinned=True,
                on_progress=seen.append,
            )
        )
        first = await put_frame(peer)
        assert first.subject == "cache.put.job.assign.groupA.>"
        assert json.loads(first.payload) == {
            "CacheId": "data-1",
            "Entries": [
                {"Name": "a.bin", "Sha256": sha(b"content of a"), "Size": 12},
                {"Name": "b/c", "Sha256": sha(b"see"), "Size": 3},
            ],
            "TargetPattern": "job.assign.groupA.>",
            "WithinS": 9,
            "Share": 0.5,
            "Pinned": True,
            "Progress": True,
        }
        misses(peer, first.msg_id, b"see")
        assert await put_frame(peer) == first
        assert leader.has(b"see")
        assert not leader.has(b"content of a")
        told(peer, first, "PROGRESS", "on its way", sent=3, ok=1, waiting=2)
        await eventually(lambda: bool(seen))
        assert (seen[0].status, seen[0].sent, seen[0].ok, seen[0].waiting) == ("PROGRESS", 3, 1, 2)
        failure = FailedWorker("w3", "no room")
        told(peer, first, "OK", "2 of 3", sent=3, ok=1, skipped=1, failed=1, failures=[failure])
        summary = await putting
        assert summary == CacheSummary("data-1", "OK", "2 of 3", 3, 1, 1, 1, 0, 0, [CacheFailure("w3", "no room")], [])
        assert summary.check() is summary
        assert grid._session._uploads.held_bytes == 0


@pytest.mark.parametrize("others", [0, 1])
async def test_a_leader_that_is_lost_and_not_back_in_time_is_not_waited_for(
    tmp_path: Path, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_cache, "PUT_LEADER_GRACE_S", 0.1)
    async with AsyncExitStack() as stack:
        leaders = [WithPlace(tmp_path / str(number)) for number in range(1 + others)]
        for leader in leaders:
            await stack.enter_async_context(scripted(leader))
        async with asyncio.TaskGroup() as group:
            coming = [group.create_task(leader.peer()) for leader in leaders]
            url = ",".join(f"127.0.0.1:{leader.port}" for leader in leaders)
            grid = await stack.enter_async_context(connect(url))
            peers = [await one for one in coming]
        await eventually(lambda: all(row.connected for row in grid.status().leaders))
        async with asyncio.timeout(20):
            put_it = grid.put_cache("data-1", {"a": b"x"}, within_s=0.3)
            putting = grid._session.tasks.start(put_it, name="put", quiet=True)
            frames = [await put_frame(peer) for peer in peers]
            leaders[0].stop_listening()
            peers[0].hang_up()
            if others:
                told(peers[1], frames[1], "OK", sent=1, ok=1)
                summary = await putting
                assert (summary.status, summary.ok, summary.code) == ("FAILED", 1, "no-leader")
                assert f"127.0.0.1:{leaders[0].port} was lost" in summary.message
            else:
                with pytest.raises(Refused, match="was lost") as caught:
                    await putting
                assert caught.value.code == "no-leader"


async def test_a_leader_that_is_there_is_waited_for_however_long_its_content_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_cache, "PUT_LEADER_GRACE_S", 0.01)
    looks = 0
    real = Session.serving

    def serving(self: Session) -> list[tuple[str, LeaderNo]]:
        nonlocal looks
        looks += 1
        return real(self)

    async with grid_with_place(tmp_path / "place") as (grid, peer, _leader), asyncio.TaskGroup() as group:
        putting = group.create_task(grid.put_cache("data-1", {"a": b"x"}, within_s=0.01))
        frame = await put_frame(peer)
        monkeypatch.setattr(Session, "serving", serving)
        await eventually(lambda: looks > 5)
        told(peer, frame, "OK", sent=1, ok=1)
        assert (await putting).succeeded


async def test_after_a_lost_connection_the_same_put_is_sent_again(tmp_path: Path) -> None:
    async with scripted(WithPlace(tmp_path / "place")) as leader, asyncio.TaskGroup() as group:
        assert isinstance(leader, WithPlace)
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}") as grid:
            first = await coming
            putting = group.create_task(grid.put_cache("data-1", {"a": b"x"}))
            frame = await put_frame(first)
            first.hang_up()
            second = await leader.peer()
            assert await put_frame(second) == frame
            misses(second, frame.msg_id, b"x")
            assert await put_frame(second) == frame
            assert leader.has(b"x")
            told(second, frame, "SKIPPED", sent=1, skipped=1)
            assert (await putting).succeeded


@pytest.mark.spec("C1")
async def test_every_leader_gets_the_put_and_what_it_misses(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        leaders = [WithPlace(tmp_path / "one"), WithPlace(tmp_path / "two")]
        for leader in leaders:
            await stack.enter_async_context(scripted(leader))
        async with asyncio.TaskGroup() as group:
            coming = [group.create_task(leader.peer()) for leader in leaders]
            url = ",".join(f"127.0.0.1:{leader.port}" for leader in leaders)
            grid = await stack.enter_async_context(connect(url))
            peers = [await one for one in coming]
        await eventually(lambda: all(row.connected for row in grid.status().leaders))
        async with asyncio.TaskGroup() as group:
            putting = group.create_task(grid.put_cache("data-1", {"a": b"x"}))
            for peer, leader in zip(peers, leaders):
                frame = await put_frame(peer)
                misses(peer, frame.msg_id, b"x")
                assert await put_frame(peer) == frame
                assert leader.has(b"x")
                told(peer, frame, "OK", "all", sent=2, ok=2)
            summary = await putting
        assert (summary.sent, summary.ok, summary.status) == (4, 4, "OK")
        assert all(f"127.0.0.1:{leader.port}: all" in summary.message for leader in leaders)


async def test_a_leader_that_refuses_is_a_failure_beside_others_and_one_that_is_away_is_named(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        leaders = [WithPlace(tmp_path / name) for name in ("one", "two", "three")]
        for leader in leaders:
            await stack.enter_async_context(scripted(leader))
        async with asyncio.TaskGroup() as group:
            coming = [group.create_task(leader.peer()) for leader in leaders]
            url = ",".join(f"127.0.0.1:{leader.port}" for leader in leaders)
            grid = await stack.enter_async_context(connect(url))
            peers = [await one for one in coming]
        await eventually(lambda: all(row.connected for row in grid.status().leaders))
        leaders[2].stop_listening()
        peers[2].hang_up()
        await eventually(lambda: not grid.status().leaders[2].connected)
        async with asyncio.TaskGroup() as group:
            putting = group.create_task(grid.put_cache("data-1", {"a": b"x"}))
            told(peers[0], await put_frame(peers[0]), "OK", "all", sent=2, ok=2)
            peers[1].send(fr.REFUSAL, (await put_frame(peers[1])).msg_id, write_refusal("denied", "not you"))
            summary = await putting
        assert (summary.status, summary.ok) == ("FAILED", 2)
        assert "not you" in summary.message
        assert summary.unasked == [f"127.0.0.1:{leaders[2].port}"]


async def test_what_cannot_be_sent_ends_the_put_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    async with grid_with_place(tmp_path / "place") as (grid, peer, _leader), asyncio.TaskGroup() as group:
        putting = group.create_task(_caught(grid.put_cache("data-1", {"a": path})))
        frame = await put_frame(peer)
        path.unlink()
        misses(peer, frame.msg_id, b"x")
        assert "is gone since" in str(await putting)
        refused = group.create_task(_caught(grid.put_cache("data-1", {"a": b"x"})))
        frame = await put_frame(peer)
        peer.send(fr.REFUSAL, frame.msg_id, write_refusal("denied", "not you"))
        assert (await refused).code == "denied"
        told(peer, frame, "OK")  # Nobody waits for it any more, and nobody is hurt.
        again = group.create_task(grid.put_cache("data-1", {"a": b"x"}))
        told(peer, await put_frame(peer), "FAILED", "no worker matches")
        with pytest.raises(JobFailed, match="no worker matches"):
            (await again).check()


async def test_an_old_leader_keeps_no_caches() -> None:
    async with (
        scripted(ScriptedLeader(own=False)) as leader,
        connect(f"127.0.0.1:{leader.port}", old_leader=True) as grid,
    ):
        assert (await _caught(grid.put_cache("data-1", {"a": b"x"}))).code == "not-supported"


async def _caught(work: object) -> Refused:
    with pytest.raises(Refused) as caught:
        await work  # type: ignore[misc]
    return caught.value


async def test_questions_about_caches_go_to_all_who_may_know(tmp_path: Path) -> None:
    row = an.CacheRow("data-1", 2, 15, "job.assign.>", True, "v1", 3, 2, 60.0, 5.0, 7)
    async with grid_with_place(tmp_path / "place") as (grid, peer, _leader), asyncio.TaskGroup() as group:
        whole = an.CacheAnswer(row, [an.CacheEntryRow("a", 12, "ab")], [an.CacheWorkerRow("w", "rack1", "ready")])
        exchanges: list[tuple[object, object, qu.Question, msgspec.Struct]] = [
            (grid.caches(7), [row], qu.AskCaches(7), an.CachesAnswer([row], 1, 15)),
            (grid.cache("data-1"), whole, qu.AskCache("data-1"), whole),
            (grid.pin_cache("data-1", pinned=False), [row], qu.AskPin("data-1", False), row),
            (grid.drop_cache("data-1"), [row], qu.AskDropCache("data-1"), row),
        ]
        for work, expected, question, answer in exchanges:
            asking = group.create_task(work)  # type: ignore[arg-type]
            asked = await peer.next(fr.ASK)
            assert read_question(asked.payload) == question
            peer.send(fr.ASK, asked.msg_id, encode(answer))
            assert await asking == expected
        dropping = group.create_task(_caught(grid.drop_cache("gone")))
        asked = await peer.next(fr.ASK)
        peer.send(fr.ASK, asked.msg_id, write_refusal("no-cache", "there is no cache gone"), "refused")
        assert (await dropping).code == "no-cache"
        assert (await _caught(grid.cache("../x"))).code == "bad-name"


def test_a_folder_stands_for_all_files_below_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "sub" / "deep").mkdir(parents=True)
    for name in ("a", ".hidden", "sub/b", "sub/deep/данные"):
        (folder / name).write_text(name)
    (folder / "alias").symlink_to("sub/b")
    everything = [".hidden", "a", "alias", "sub/b", "sub/deep/данные"]
    assert names(folder) == everything
    assert names({"x": folder, "y": b""}) == [*(f"x/{name}" for name in everything), "y"]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("../secret", "leads outside"),
        ("/etc/passwd", "leads outside"),
        ("sub", "is a link to a folder"),
        ("nowhere", "leads nowhere"),
        ("/dev/null", "leads outside"),
    ],
)
def test_a_link_that_leads_outside_or_to_no_file_is_refused_and_not_left_out(
    tmp_path: Path, target: str, why: str
) -> None:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("s")
    (folder / "link").symlink_to(target)
    with pytest.raises(Refused, match=why):
        put(folder)


def test_what_can_be_no_cache_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes" / "pipe")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("x")
    bad: list[tuple[str, CacheFiles]] = [
        ("bad-name", {"a": b"", "A": b""}),
        ("bad-name", {"a": b"", "a/b": b""}),
        ("bad-name", {"../a": b""}),
        ("bad-name", {"x": tmp_path / "data", "x/file": b""}),
        ("bad-request", {}),
        ("bad-request", tmp_path / "file"),
        ("bad-request", tmp_path / "nowhere"),
        ("bad-request", tmp_path / "empty"),
        ("bad-request", tmp_path / "pipes"),
        ("bad-request", {"a": tmp_path / "nowhere"}),
        ("bad-request", {"a": Cached("other")}),
        ("bad-request", {f"{number}": b"" for number in range(FILES_PER_CACHE_MAX + 1)}),
        ("too-big", {f"{'x' * 240}/{'y' * 240}/{number}": b"" for number in range(FILES_PER_CACHE_MAX)}),
    ]
    for code, files in bad:
        with pytest.raises(Refused) as caught:
            put(files)
        assert caught.value.code == code, str(caught.value)
    with pytest.raises(Refused, match="more than") as caught:
        put({f"{number}": b"" for number in range(FILES_PER_CACHE_MAX + 1)})
    assert "archive" in caught.value.hint
    for options in ({"target": "a..b"}, {"within_s": 0}, {"within_s": float("nan")}, {"share": 1.5}, {"share": -1}):
        with pytest.raises(Refused):
            put({"a": b""}, **options)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="a cache id is"):
        CachePut(InputContents(), "../c", {"a": b""}, within_s=1)


def test_a_leader_without_matching_workers_spoils_nothing_and_a_conflict_does() -> None:
    good = CachePutResult("c", "OK", "fine", sent=2, ok=2)
    nobody = CachePutResult("c", "FAILED", "in whatever words", code="no-worker")
    conflict = CachePutResult("c", "FAILED", "no worker has 'a' with another content here", code="conflict")
    assert summary_of("c", {"x": good, "y": nobody}).status == "OK"
    assert summary_of("c", {"x": good, "y": nobody}).code == ""
    assert summary_of("c", {"x": nobody, "y": conflict}).code == "conflict"
    assert summary_of("c", {"x": nobody, "y": nobody}).code == "no-worker"
    assert summary_of("c", {"x": nobody, "y": nobody}).status == "FAILED"
    assert summary_of("c", {"x": nobody}).message == "in whatever words"
    assert summary_of("c", {"x": good, "y": conflict}).status == "FAILED"
    assert summary_of("c", {"x": CachePutResult("c", "SKIPPED", "", sent=1, skipped=1)}).status == "SKIPPED"


def test_a_client_without_a_loop_and_an_executor_put_caches_too() -> None:
    class Keeps(AnsweringLeader):
        def _reply(self, frame: fr.Frame) -> bytes:
            if frame.type != fr.CACHE_PUT:
                return super()._reply(frame)
            result = encode(CachePutResult("c", "OK", "", sent=1, ok=1))
            return fr.encode(fr.CACHE_ACK, corr_id=frame.msg_id, payload=result)

    leader = Keeps()
    leader.answer = an.CachesAnswer([], 0, 0)
    try:
        with Client(leader.address) as grid:
            assert grid.put_cache("c", {"a": b"x"}).check().ok == 1
            assert grid.caches() == []
            assert grid.transfers() == []
            pool = Executor(grid)
            assert pool.put_cache("c", {"a": b"x"}).ok == 1
            pool.shutdown()
    finally:
        leader.close()
