"""A result of any size, from the program to the client: a real leader, worker and client, with a folder between them.

The leader's question for what it misses is asked here by a few lines around its `_ack`, so that this holds whatever
else a leader does about blobs.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.kit.scripted_leader import scripted

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.app.show.downloads import ShownTransfer, in_thread
from wakugumi.app.work.map.output import OutFolder, Record
from wakugumi.limits.units import MIB
from wakugumi.roles.client.grid import Grid, connect
from wakugumi.roles.leader.connection import PeerConnection
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.leader import Leader
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.hello import BLOBS, Welcome
from wakugumi.wire.messages.job import JobResult, Missing
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderPlace:
    place = FolderPlace(tmp_path / "place")
    real = PeerConnection._ack

    def ack(self: PeerConnection, frame: Frame) -> None:
        result = msgspec.json.decode(frame.payload, type=JobResult)
        refs = [ref for ref in (result.archive_blob, result.stdout_blob, result.stderr_blob) if ref]
        missing = [ref.sha256 for ref in refs if isinstance(ref, BlobRef) and not place.has(ref)]
        if missing:
            self.link.send(fr.encode(fr.MISSING, corr_id=frame.corr_id, payload=encode(Missing(missing))))
        else:
            real(self, frame)

    monkeypatch.setattr(PeerConnection, "_ack", ack)
    return place


@asynccontextmanager
async def a_grid(folder: Path, place: FolderPlace, **programs: str) -> AsyncIterator[Grid]:
    """The worker is a process of its own: what a test starts beside it must not count as left by a job."""
    (folder / "bin").mkdir()
    for name, script in programs.items():
        path = folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    leader = Leader(blobs=LeaderBlobs(place, url=place.url))
    port = await leader.listen("127.0.0.1", 0)
    where = ["127.0.0.1", str(port), "--programs", str(folder / "bin"), "--jobs", str(folder / "jobs")]
    where += ["--cache", str(folder / "cache")]
    worker = await asyncio.create_subprocess_exec(sys.executable, "-m", "wakugumi", "worker", *where)
    try:
        async with connect(f"waku://127.0.0.1:{port}") as grid:
            yield grid
    finally:
        worker.terminate()
        await worker.wait()
        await leader.close()


@pytest.mark.spec("C5")
async def test_a_file_of_20_mib_and_8_mib_of_output_come_back(tmp_path: Path, place: FolderPlace) -> None:
    script = (
        f"head -c {20 * MIB} /dev/urandom > big; cksum < big; head -c {8 * MIB} /dev/zero | tr '\\0' x; ln -s big 結果"
    )
    async with a_grid(tmp_path, place, make=script) as grid:
        result = (await grid.run("make")).check()
        assert not result.is_complete
        assert result.archive_bytes > 20 * MIB
        written = await asyncio.to_thread(result.extract, tmp_path / "out")
        assert sorted(path.name for path in written) == ["big", "結果"]
        assert (tmp_path / "out/結果").stat().st_size == 20 * MIB
        stdout = await asyncio.to_thread(lambda: result.stdout)
        assert stdout.endswith("x" * 8 * MIB)
        assert int(stdout.split()[1]) == 20 * MIB


async def test_a_small_result_comes_as_ever(tmp_path: Path, place: FolderPlace) -> None:
    async with a_grid(tmp_path, place, make="echo small > file; echo said") as grid:
        result = await grid.run("make")
        assert (result.is_complete, result.stdout, dict(result.files)) == (True, "said\n", {"file": b"small\n"})
    assert dict(result.files) == {"file": b"small\n"}, "also when the grid is gone"


async def test_a_result_is_saved_in_a_thread_and_the_loop_goes_on(tmp_path: Path, place: FolderPlace) -> None:
    record = Record(key="k", job="j", input="", args=[], status="OK", exit_code=0, reason="", run_s=0.1, worker="w")
    async with a_grid(tmp_path, place, make=f"head -c {5 * MIB} /dev/urandom > big") as grid:
        result = await grid.run("make")
        folder = OutFolder(str(tmp_path / "out"))
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.get_running_loop().create_task(count(), name="the loop's turns")
        kept = await in_thread(lambda on_bytes: folder.put("a", result, record, on_bytes), ShownTransfer(0))
        counting.cancel()
        assert (kept.status, (tmp_path / "out/a/big").stat().st_size) == ("OK", 5 * MIB)
        assert turns > 1
        shutil.rmtree(place.store.folder)
        kept = folder.put("b", result, record)
        assert (kept.status, kept.reason) == ("FAILED", "expired")
        assert "no longer kept" in (tmp_path / "out/b/error.txt").read_text()
        folder.close()


async def test_whoever_is_cancelled_leaves_no_thread_at_work(tmp_path: Path) -> None:
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    transfer = ShownTransfer(100)

    def work(on_bytes: object) -> None:
        loop.call_soon_threadsafe(begun.set)
        try:
            while True:
                asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
                on_bytes(1)  # type: ignore[operator]
        finally:
            loop.call_soon_threadsafe(ended.set)

    task = loop.create_task(in_thread(work, transfer), name="a transfer")
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    async with asyncio.timeout(20):
        await ended.wait()


async def waku(grid: Grid, *words: str, cwd: Path) -> tuple[int, str, str]:
    """A command of a user, against the leader of this grid."""
    environment = {"PATH": os.environ["PATH"], "WAKU_LEADER": grid.status().leader, "TMPDIR": str(cwd)}
    command = [sys.executable, "-m", "wakugumi", *words]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, env=environment, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.mark.spec("C5")
async def test_run_and_map_save_what_does_not_fit_a_frame(tmp_path: Path, place: FolderPlace) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "input").write_text("7")
    script = f"head -c {5 * MIB} /dev/urandom > big; head -c {5 * MIB} /dev/zero | tr '\\0' x"
    async with a_grid(tmp_path, place, make=script) as grid:
        code, out, err = await waku(grid, "run", "make", "--out", "made", cwd=here)
        assert (code, len(out), err) == (0, 5 * MIB, "1 file written to made\n")
        assert (here / "made/big").stat().st_size == 5 * MIB
        code, out, err = await waku(grid, "run", "make", cwd=here)
        assert (code, len(out)) == (0, 5 * MIB)
        assert err == "5.0 MiB of files made, and not kept: --out DIR writes them to a folder\n"
        code, _, err = await waku(grid, "map", "make", "input", "--out", "mapped", cwd=here)
        assert (code, "1 of 1 input done" in err) == (0, True)
        assert (here / "mapped/input/big").stat().st_size == 5 * MIB
        assert (here / "mapped/input/stdout.txt").read_text() == "x" * 5 * MIB
        job = await grid.submit("make")
        await job
        code, out, _ = await waku(grid, "jobs", "wait", job.id, "--out", "waited", "-o", "json", cwd=here)
        (told,) = json.loads(out)
        assert (code, told["files"], told["archive_bytes"] > 5 * MIB) == (0, None, True)
        assert (here / "waited" / job.id / "big").stat().st_size == 5 * MIB


async def test_a_leader_that_has_its_blobs_itself_is_asked_at_its_own_address() -> None:
    async with scripted() as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        async with connect(f"waku://127.0.0.1:{leader.port}") as grid:
            peer = await coming
            peer.send(fr.WELCOME, payload=encode(Welcome("test", [BLOBS])))
            job = await grid.submit("calcA")
            (key,) = await peer.submits(1)
            peer.result(key, archive_blob=BlobRef("0" * 64, 5))
            peer.hang_up()
            assert (await job)._place == f"http://127.0.0.1:{leader.port}"
