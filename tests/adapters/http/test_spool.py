"""A body that is received once and read by several, however large; and nothing of it is left that nobody keeps."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from wakugumi.adapters.http import spool as module
from wakugumi.adapters.http.spool import Spool, Spools
from wakugumi.core.gateway.rows import Content
from wakugumi.core.ids import JobId
from wakugumi.errors import Lost, Refused

pytestmark = pytest.mark.anyio

JOB = JobId(bytes(range(16)))
DEADLINE_S = 20.0


@pytest.fixture
def spools(tmp_path: Path) -> Iterator[Spools]:
    made = Spools(tmp_path / "spool", memory_max=1000)
    yield made
    made.close()


class Source:
    """Pieces that come when the test says so."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()

    def say(self, *pieces: bytes | Exception | None) -> None:
        for piece in pieces:
            self._pieces.put_nowait(piece)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            if isinstance(piece, Exception):
                raise piece
            yield piece


async def all_of(pieces: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(DEADLINE_S):
        return b"".join([piece async for piece in pieces])


async def filled(spools: Spools, *pieces: bytes) -> Spool:
    source, spool = Source(), spools.new()
    source.say(*pieces, None)
    coming = aiter(source)
    if not await spool.begin(coming):
        await spool.fill(coming)
    return spool


async def test_a_small_body_stays_in_memory(spools: Spools) -> None:
    spool = await filled(spools, b"ab", b"cd")
    assert (spool.data, spool.size, spool.is_whole) == (b"abcd", 4, True)
    assert await all_of(spool.pieces()) == b"abcd"
    assert await spool.keep(JOB) == Content(4, b"abcd")
    spool.close()
    assert os.listdir(spools.folder) == []


async def test_a_large_body_goes_to_the_disk_without_a_name_and_is_read_by_several(spools: Spools) -> None:
    parts = [bytes([n]) * 700_000 for n in range(5)]
    spool = await filled(spools, *parts)
    assert spool.data is None
    assert os.listdir(spools.folder) == []
    assert await asyncio.gather(all_of(spool.pieces()), all_of(spool.pieces())) == [b"".join(parts)] * 2
    spool.close()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(spool._file)


async def test_a_reader_follows_while_it_grows(spools: Spools) -> None:
    source, spool = Source(), spools.new()
    coming = aiter(source)
    source.say(b"x" * 1001)
    assert not await spool.begin(coming)
    reading = aiter(spool.pieces())
    assert await anext(reading) == b"x" * 1001
    filling = asyncio.get_running_loop().create_task(spool.fill(coming))
    source.say(b"y" * (1 << 20))
    async with asyncio.timeout(DEADLINE_S):
        assert (await anext(reading))[:2] == b"yy"
    source.say(b"z", None)
    assert (await all_of(reading))[-2:] == b"yz"
    await filling
    assert spool.is_whole
    spool.close()


async def test_what_ends_too_early_ends_its_readers_and_leaves_nothing(spools: Spools) -> None:
    source, spool = Source(), spools.new()
    coming = aiter(source)
    source.say(b"x" * 1001, Lost("the client is gone"))
    assert not await spool.begin(coming)
    reading = asyncio.get_running_loop().create_task(all_of(spool.pieces()))
    with pytest.raises(Lost, match="the client is gone"):
        await spool.fill(coming)
    with pytest.raises(Lost, match="the client is gone"):
        await reading
    assert not spool.is_whole
    spool.close()
    assert os.listdir(spools.folder) == []


async def test_more_than_is_allowed_is_refused(spools: Spools) -> None:
    source, spool = Source(), spools.new(1500)
    coming = aiter(source)
    source.say(b"x" * 1001, b"x" * 500)
    assert not await spool.begin(coming)
    with pytest.raises(Refused) as caught:
        await spool.fill(coming)
    assert caught.value.code == "too-big"
    spool.close()


async def test_a_whole_one_can_be_kept_under_a_name_that_says_whose_it_is(spools: Spools) -> None:
    spool = await filled(spools, b"x" * 5000)
    content = await spool.keep(JOB)
    spool.close()
    assert (content.size, content.data) == (5000, None)
    assert os.listdir(spools.folder) == [content.file]
    assert list(spools.names(0.0)) == [(content.file, JOB)]
    assert list(spools.names(60.0)) == []
    pieces = spools.read(content)
    assert not isinstance(pieces, bytes)
    assert await all_of(pieces) == b"x" * 5000
    spools.remove(content.file)
    pieces = spools.read(content)
    assert not isinstance(pieces, bytes)
    with pytest.raises(Lost):
        await all_of(pieces)


async def test_a_file_system_without_nameless_files_will_do(spools: Spools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMELESS", 0)
    spool = await filled(spools, b"x" * 5000)
    assert len(os.listdir(spools.folder)) == 1
    assert list(spools.names(0.0)) == []
    content = await spool.keep(JOB)
    spool.close()
    assert os.listdir(spools.folder) == [content.file]


async def test_a_full_disk_is_told(spools: Spools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DISK_FREE_MIN_BYTES", 1 << 60)
    with pytest.raises(Refused) as caught:
        await filled(spools, b"x" * 5000)
    assert caught.value.code == "disk-full"


async def test_a_body_stops_coming_when_the_disk_has_hardly_any_room_left(tmp_path: Path) -> None:
    free = 1 << 40
    spools = Spools(tmp_path / "spool", memory_max=1000, free_bytes=lambda: free)
    source, spool = Source(), spools.new()
    coming = aiter(source)
    source.say(bytes(2_000))
    assert not await spool.begin(coming)
    free = module.DISK_FREE_MIN_BYTES - 1
    source.say(bytes(3_000_000), None)
    with pytest.raises(Refused) as caught:
        await spool.fill(coming)
    assert caught.value.code == "disk-full"
    spool.close()
    spools.close()


async def test_an_answer_may_use_the_room_that_is_kept_for_answers(tmp_path: Path) -> None:
    spools = Spools(tmp_path / "spool", memory_max=1000, free_bytes=lambda: module.DISK_FREE_MIN_BYTES - 1)
    source, spool = Source(), spools.new(is_answer=True)
    coming = aiter(source)
    source.say(bytes(2_000), bytes(3_000_000), None)
    assert not await spool.begin(coming)
    await spool.fill(coming)
    assert (await spool.keep(JOB)).size == 3_002_000
    spool.close()
    spools.close()


async def test_a_machine_without_a_thread_to_spare_is_a_refusal(
    spools: Spools, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(Refused) as caught:
        await spools.beside(lambda: None)
    assert caught.value.code == "worker-error"


@pytest.mark.parametrize("is_kept", [True, False])
async def test_readers_of_a_held_answer_get_the_last_byte_when_it_is_released(spools: Spools, is_kept: bool) -> None:
    spool = spools.new()
    spool.is_held = True
    source = Source()
    source.say(b"x" * 2_000, b"yz", None)
    pieces = aiter(source)
    assert not await spool.begin(pieces)
    reader = spool.pieces()
    await spool.fill(pieces)
    received = b""
    async with asyncio.timeout(DEADLINE_S):
        while len(received) < 2_001:
            received += await anext(reader)
        assert received == b"x" * 2_000 + b"y"
        assert spool.is_whole
        last = asyncio.get_running_loop().create_task(anext(reader))
        await asyncio.sleep(0.01)
        assert not last.done()
        spool.release(None if is_kept else Lost("not stored"))
        if is_kept:
            assert await last == b"z"
            assert [piece async for piece in reader] == []
        else:
            with pytest.raises(Lost):
                await last
    spool.close()


async def test_a_file_that_cannot_be_opened_now_is_not_gone(spools: Spools, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    (spools.folder / "there").write_bytes(b"x")
    with monkeypatch.context() as patch:
        patch.setattr("os.open", fails)
        with pytest.raises(Refused):
            spools.open(Content(1, None, "there"))
    with pytest.raises(Lost):
        spools.open(Content(1, None, "elsewhere"))
