"""A body that is received once and read by several, however large; and nothing of it is left that nobody keeps."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.fake_group import open_files

from wakugumi.adapters import spool as module
from wakugumi.adapters.gateway_store.sqlite import disk_refused
from wakugumi.adapters.spool import Spool, Spools
from wakugumi.core.gateway.rows import Content
from wakugumi.core.ids import JobId
from wakugumi.errors import Lost, Refused

pytestmark = pytest.mark.anyio

JOB = JobId(bytes(range(16)))
DEADLINE_S = 20.0
BYTES_MAX = 1 << 40


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
    source, spool = Source(), spools.new(BYTES_MAX)
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
    assert len(open_files(spools.folder, "")) == 1
    spool.close()
    assert open_files(spools.folder, "") == []


async def test_a_reader_follows_while_it_grows(spools: Spools) -> None:
    source, spool = Source(), spools.new(BYTES_MAX)
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


@pytest.mark.parametrize("size", [900, 5_000])
async def test_a_part_is_read_while_the_body_grows_and_after_it_was_stored(spools: Spools, size: int) -> None:
    body = os.urandom(size)
    source, spool = Source(), spools.new(BYTES_MAX)
    reading = [asyncio.get_running_loop().create_task(all_of(spool.pieces(at, 300))) for at in (0, 100, size - 300)]
    past_the_end = asyncio.get_running_loop().create_task(all_of(spool.pieces(size - 10, 300)))
    source.say(*(body[at : at + 7] for at in range(0, size, 7)), None)
    await spool.fill(aiter(source))
    assert await asyncio.gather(*reading) == [body[at : at + 300] for at in (0, 100, size - 300)]
    assert await past_the_end == body[-10:]
    content = await spool.keep(JOB)
    spool.close()
    stored = spools.open(content, 100, 300)
    assert (stored if isinstance(stored, bytes) else await all_of(stored)) == body[100:400]


async def test_a_large_body_is_hashed_and_gets_a_name_if_wished(spools: Spools) -> None:
    body = os.urandom(3_000_000)
    source, spool, came = Source(), spools.new(BYTES_MAX, is_hashed=True), list[int]()
    source.say(body[:900_000], body[900_000:], None)
    await spool.fill(aiter(source), came.append)
    path = await spool.name()
    spool.close()
    assert (spool.sha256, came) == (hashlib.sha256(body).hexdigest(), [900_000, 2_100_000])
    assert os.listdir(spools.folder) == [path.name]
    assert path.read_bytes() == body


@pytest.mark.parametrize("size", [0, 900, 3_000_000])
async def test_a_body_that_is_written_in_a_thread_is_read_hashed_and_named_all_the_same(
    spools: Spools, size: int
) -> None:
    body = os.urandom(size)
    spool = spools.new(size, is_hashed=True)

    def write() -> None:
        for at in range(0, size, 300_000):
            spool.write(body[at : at + 300_000])
        spool.finish()

    await asyncio.to_thread(write)
    assert (spool.size, spool.is_whole, spool.data) == (size, True, body if size < 1_000 else None)
    assert (spool.end(100), spool.end(10_000_000)) == (body[-100:], body)
    assert await all_of(spool.pieces()) == body
    with pytest.raises(Refused):
        spool.write(b"x")
    path = await spool.name()
    spool.close()
    assert spool.sha256 == hashlib.sha256(body).hexdigest()
    assert path.read_bytes() == body


async def test_a_large_body_can_be_changed_before_it_gets_a_name(spools: Spools) -> None:
    spool = await filled(spools, b"x" * 5_000)
    with spool.file() as file:
        file.truncate(100)
        file.seek(0)
        file.write(b"y")
    path = await spool.name()
    spool.close()
    assert path.read_bytes() == b"y" + b"x" * 99


async def test_a_cancelled_body_is_closed_when_its_write_has_ended(
    spools: Spools, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, written = threading.Event(), threading.Event(), list[int]()

    def slow(file: int, data: bytes) -> None:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        written.append(os.write(file, data))

    monkeypatch.setattr(module, "write_all", slow)
    source, spool = Source(), spools.new(BYTES_MAX)
    source.say(bytes(5_000))
    filling = asyncio.get_running_loop().create_task(spool.fill(aiter(source)))
    await asyncio.to_thread(begun.wait, DEADLINE_S)
    for _ in range(3):
        filling.cancel()
        await asyncio.sleep(0.01)
        assert not filling.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await filling
    assert written == [5_000]
    spool.close()
    assert os.listdir(spools.folder) == []


async def test_a_stored_content_that_became_shorter_is_lost(spools: Spools) -> None:
    (spools.folder / "short").write_bytes(b"x")
    pieces = spools.open(Content(2, None, "short"))
    assert not isinstance(pieces, bytes)
    with pytest.raises(Lost, match="shorter"):
        await all_of(pieces)


async def test_what_ends_too_early_ends_its_readers_and_leaves_nothing(spools: Spools) -> None:
    source, spool = Source(), spools.new(BYTES_MAX)
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
    pieces = spools.open(content)
    assert not isinstance(pieces, bytes)
    assert await all_of(pieces) == b"x" * 5000
    spools.remove(content.file)
    with pytest.raises(Lost, match="gone"):
        spools.open(content)


@pytest.mark.parametrize(("name", "value"), [("NAMELESS", 0), ("_OPEN_FILES", "/no/proc/self/fd")])
async def test_nameless_files_are_not_needed(
    spools: Spools, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    """A file system may have none, and without /proc none gets a name."""
    monkeypatch.setattr(module, name, value)
    spool = await filled(spools, b"x" * 5000)
    assert len(os.listdir(spools.folder)) == 1
    assert list(spools.names(0.0)) == []
    content, path = await spool.keep(JOB), await spool.name()
    spool.close()
    assert set(os.listdir(spools.folder)) == {content.file, path.name}
    assert path.read_bytes() == b"x" * 5000


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("size", [500, 5_000])
async def test_a_cancelled_name_leaves_no_file(
    spools: Spools, monkeypatch: pytest.MonkeyPatch, is_kept: bool, size: int
) -> None:
    linked, go_on, link = threading.Event(), threading.Event(), os.link

    def slow(*args: Any, **options: Any) -> None:
        link(*args, **options)
        linked.set()
        assert go_on.wait(DEADLINE_S)

    monkeypatch.setattr(spools, "memory_max", 0 if is_kept else 1_000)
    spool = await filled(spools, b"x" * size)
    monkeypatch.setattr(os, "link", slow)
    naming = asyncio.get_running_loop().create_task(spool.keep(JOB) if is_kept else spool.name())  # type: ignore[arg-type]
    await asyncio.to_thread(linked.wait, DEADLINE_S)
    assert len(os.listdir(spools.folder)) == 1
    naming.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await naming
    spool.close()
    assert os.listdir(spools.folder) == []


@pytest.mark.parametrize(("refuse", "code"), [({}, "disk"), ({"refuse": disk_refused}, "disk-full")])
async def test_a_full_disk_is_told_in_the_words_of_the_role(
    tmp_path: Path, refuse: dict[str, Callable[[OSError, str], Refused]], code: str
) -> None:
    spools = Spools(tmp_path, memory_max=1000, free_bytes=lambda: module.DISK_FREE_MIN_BYTES, **refuse)
    with pytest.raises(Refused) as caught:
        await filled(spools, b"x" * 5000)
    assert caught.value.code == code
    with pytest.raises(Refused) as caught:
        spools.check_room(1)
    assert caught.value.code == code
    spools.check_room(0)
    spools.close()


async def test_a_body_stops_coming_when_the_disk_has_hardly_any_room_left(tmp_path: Path) -> None:
    free = 1 << 40
    spools = Spools(tmp_path / "spool", memory_max=1000, free_bytes=lambda: free)
    source, spool = Source(), spools.new(BYTES_MAX)
    coming = aiter(source)
    source.say(bytes(2_000))
    assert not await spool.begin(coming)
    free = module.DISK_FREE_MIN_BYTES - 1
    source.say(bytes(3_000_000), None)
    with pytest.raises(Refused) as caught:
        await spool.fill(coming)
    assert caught.value.code == "disk"
    spool.close()
    spools.close()


async def test_an_answer_may_use_the_room_that_is_kept_for_answers(tmp_path: Path) -> None:
    spools = Spools(tmp_path / "spool", memory_max=1000, free_bytes=lambda: module.DISK_FREE_MIN_BYTES - 1)
    source, spool = Source(), spools.new(BYTES_MAX, is_answer=True)
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
    spool = spools.new(BYTES_MAX)
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
