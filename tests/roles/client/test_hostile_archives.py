"""Whatever archive a worker sends, only what it said is written, and only under names that an honest worker sends."""

from __future__ import annotations

import asyncio
import io
import os
import zipfile
from pathlib import Path

import pytest
from msgspec import UNSET
from tests.kit.hostile_archives import ARCHIVES, FILE, GOOD, Hostile, bomb, packed

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.http.page import Reply, Stream
from wakugumi.adapters.jobdir.large_parts import ARCHIVE
from wakugumi.app.work.map.output import RECORD, OutFolder, Record
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.runner import ARCHIVE_ENTRIES_MAX, HOSTILE_NAMES_MAX, UNPACKED_UNSAID_BYTES
from wakugumi.roles.client.result import Result
from wakugumi.roles.http.zip_response import answer_of
from wakugumi.wire.messages.job import FAILED, JobResult

pytestmark = pytest.mark.spec("W1", "W5")


def record_of(hostile: Hostile) -> JobResult:
    said = UNSET if hostile.unpacked_bytes is None else hostile.unpacked_bytes
    return JobResult("id", output_archive=hostile.data, unpacked_bytes=said, exit_code=0)


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", ARCHIVES)
def test_extract_writes_what_is_honest_and_nothing_else(name: str, large: bool, tmp_path: Path) -> None:
    hostile = ARCHIVES[name]
    record, place = record_of(hostile), ""
    if large:
        shelf = FolderPlace(tmp_path / "blobs")
        ref = ref_of_bytes(hostile.data)
        (tmp_path / "archive").write_bytes(hostile.data)
        shelf.put(ref, tmp_path / "archive")
        record, place = JobResult("id", archive_blob=ref, unpacked_bytes=record.unpacked_bytes), shelf.url
    result = Result(record, "job", place=place)
    folder = tmp_path / "top" / "out"
    if hostile.files is None:
        with pytest.raises((Refused, PeerError)):
            result.extract(folder)
        assert files_in(folder) == set()
    else:
        paths = result.extract(folder)
        assert {path.relative_to(folder).as_posix() for path in paths} == hostile.files == files_in(folder)
        assert result.left_out == hostile.left_out
        assert Result(record, "job", place=place).extract_counted(folder) == len(paths)
    assert os.listdir(folder.parent) == ["out"]


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_map_keeps_what_is_honest_and_says_why_it_has_nothing_else(name: str, tmp_path: Path) -> None:
    hostile = ARCHIVES[name]
    folder = OutFolder(str(tmp_path))
    bare = Record("", "job", "", [], "OK", 0, "", 1.0, "w")
    record = folder.put("one", Result(record_of(hostile), "job"), bare)
    folder.close()
    ours = {"stdout.txt", "stderr.txt", RECORD}
    if hostile.files is None:
        assert (record.status, record.reason in {"bad-result", "too-many-bytes"}) == (FAILED, True)
        assert files_in(tmp_path / "one") == {"error.txt"} | ours
    else:
        assert record == bare
        assert files_in(tmp_path / "one") == hostile.files | ours
        assert folder.left_out == hostile.left_out


def body_of(reply: Reply) -> bytes:
    async def read(stream: Stream) -> bytes:
        return b"".join([piece async for piece in stream.pieces])

    return asyncio.run(read(reply.body)) if isinstance(reply.body, Stream) else reply.body


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", ARCHIVES)
def test_a_leader_passes_no_hostile_name_on_over_http(name: str, large: bool, tmp_path: Path) -> None:
    hostile = ARCHIVES[name]
    record, parts = record_of(hostile), {}
    if large:
        parts = {ARCHIVE: tmp_path / "archive"}
        parts[ARCHIVE].write_bytes(hostile.data)
        record = JobResult("id", archive_blob=ref_of_bytes(hostile.data), exit_code=0)

    async def answer() -> tuple[Reply, bytes]:
        reply = await answer_of("job", record, parts)
        if isinstance(reply.body, Stream):
            return reply, b"".join([piece async for piece in reply.body.pieces])
        return reply, reply.body

    if not hostile.over_http:
        with pytest.raises(Refused) as refused:
            asyncio.run(answer())
        assert refused.value.code == "bad-result"
        return
    reply, body = asyncio.run(answer())
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        names = set(archive.namelist()) - {"stdout.txt", "stderr.txt"}
    if hostile.files is not None:
        assert names == hostile.files
    assert reply.headers.get("Waku-Left-Out") == (str(hostile.left_out) if hostile.left_out else None)


def test_dot_files_come_if_they_are_asked_for(tmp_path: Path) -> None:
    hostile = Hostile(packed(GOOD, (".config", b"x", FILE), (".waku.json", b"{}", FILE), ("a\x1b", b"x", FILE)), 99)
    result = Result(record_of(hostile), "job")
    result.extract(tmp_path, dot_files=True)
    assert files_in(tmp_path) == {"good", ".config"}
    assert result.left_out == 2


@pytest.mark.parametrize("said", [50_000_000, None])
def test_a_bound_of_the_users_own_is_kept_and_named(said: int | None, tmp_path: Path) -> None:
    hostile = Hostile(bomb(50_000_000), said)
    with pytest.raises(Refused, match=r"more than 1,000 bytes, and that is the bound .* nothing was written") as no:
        Result(record_of(hostile), "job").extract(tmp_path, max_bytes=1_000)
    assert no.value.code == "too-many-bytes"
    assert "--max-bytes" in no.value.hint
    assert files_in(tmp_path) == set()
    Result(record_of(hostile), "job").extract(tmp_path, max_bytes=50_000_000)
    assert files_in(tmp_path) == {"zeros"}


def test_a_bound_of_the_users_own_does_not_excuse_a_worker_that_lied(tmp_path: Path) -> None:
    with pytest.raises(Refused) as no:
        Result(record_of(Hostile(bomb(50_000), 1_000)), "job").extract(tmp_path, max_bytes=100_000)
    assert no.value.code == "bad-result"


def test_an_old_workers_result_may_be_as_large_as_an_honest_one_is(tmp_path: Path) -> None:
    most = Result(record_of(Hostile(bomb(1_000), None)), "job")._bound(None, dot_files=False)
    assert most.bytes_max == UNPACKED_UNSAID_BYTES
    ref = ref_of_bytes(b"x")
    large = Result(JobResult("id", archive_blob=type(ref)(ref.sha256, 1 << 40)), "job")
    assert large._bound(None, dot_files=False).bytes_max == 100 << 40
    assert large._bound(7, dot_files=False).bytes_max == 7


def test_one_file_of_a_bomb_is_not_unpacked_into_memory() -> None:
    result = Result(record_of(Hostile(bomb(50_000_000), 1_000)), "job")
    assert list(result.files) == ["zeros"]
    with pytest.raises(PeerError, match="50,000,000 bytes, more than the result may hold"):
        result.files["zeros"]


async def answered(data: bytes, folder: Path, *, large: bool) -> tuple[Reply, bytes]:
    """What a leader answers for a result with this archive, which is in a file if it is large."""
    result = JobResult("id", output_archive=data, exit_code=0)
    if large:
        (folder / "archive").write_bytes(data)
        result = JobResult("id", archive_blob=ref_of_bytes(data), exit_code=0)
    reply = await answer_of("job", result, {ARCHIVE: folder / "archive"})
    if isinstance(reply.body, bytes):
        return reply, reply.body
    body = b"".join([piece async for piece in reply.body.pieces])
    assert len(body) == reply.body.size
    return reply, body


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("apart", [False, True], ids=["together", "in many folders"])
def test_however_many_dot_files_an_old_worker_sends_the_others_come_over_http(
    tmp_path: Path, apart: bool, large: bool
) -> None:
    """A program that leaves a `.git` folder is honest."""
    count = HOSTILE_NAMES_MAX + 500
    hidden = [(f"{number}/.keep" if apart else f".git/objects/{number}", b"", FILE) for number in range(count)]
    shown = [(f"{number}/file", b"x", FILE) for number in range(0, count, 10)]
    reply, body = asyncio.run(answered(packed(*sorted(hidden + shown)), tmp_path, large=large))
    assert reply.headers["Waku-Left-Out"] == str(count)
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == {name for name, _, _ in shown} | {"stdout.txt", "stderr.txt"}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", ["a\x1b{}", "C:/{}", "a\\{}", ".waku-{}", ".hidden\n{}"])
def test_a_leader_refuses_an_archive_of_many_hostile_names(tmp_path: Path, name: str, large: bool) -> None:
    many = [(name.format(number), b"", FILE) for number in range(HOSTILE_NAMES_MAX + 1)]
    with pytest.raises(Refused, match="more than 1,000 names that no worker sends") as no:
        asyncio.run(answered(packed(*many), tmp_path, large=large))
    assert no.value.code == "bad-result"
    reply, _ = asyncio.run(answered(packed(*many[1:]), tmp_path, large=large))
    assert reply.headers["Waku-Left-Out"] == str(HOSTILE_NAMES_MAX)


def test_no_archive_may_have_more_entries_than_anybody_unpacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ARCHIVE_ENTRIES_MAX >= 1_000_000, "so many were seen in earnest"
    monkeypatch.setattr("wakugumi.adapters.zip.read.ARCHIVE_ENTRIES_MAX", 2)
    three = Hostile(packed(*((f"{number}", b"", FILE) for number in range(3))), 0)
    with pytest.raises(PeerError, match="too many entries: 3"):
        Result(record_of(three), "job").extract(tmp_path)
