"""A body of bytes and parts of files is sent piece by piece, and closed once, whatever happens."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.kit.fake_group import open_files

from wakugumi.adapters.files import READ, Closing
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.sent_parts import READ_BYTES, SentPart, SentParts, read_parts
from wakugumi.errors import Lost

pytestmark = pytest.mark.anyio

LARGE = os.urandom(2 * READ_BYTES + 17)


def body_of(path: Path, size: int, ends: list[int]) -> SentParts:
    """Bytes, a file and bytes again."""
    with ExitStack() as files:
        file = files.enter_context(Closing(os.open(path, READ)))
        parts = [SentPart(b"start", 0, 5), SentPart(file, 0, size), SentPart(b"the end", 3, 7)]
        body = SentParts(parts, 5 + size + 4, files)
    body.done = lambda: ends.append(1)
    return body


async def test_all_parts_are_sent_in_order_and_the_file_is_closed(tmp_path: Path) -> None:
    path, ends = tmp_path / "file", list[int]()
    path.write_bytes(LARGE)
    body = body_of(path, len(LARGE), ends)
    pieces = [piece async for piece in body]
    assert b"".join(pieces) == b"start" + LARGE + b" end"
    assert (body.size, ends) == (sum(map(len, pieces)), [1])
    assert max(map(len, pieces)) <= 65_536
    assert open_files(tmp_path, "") == []


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_a_reader_that_leaves_ends_it_once(tmp_path: Path, count: int) -> None:
    path, ends = tmp_path / "file", list[int]()
    path.write_bytes(LARGE)
    body = body_of(path, len(LARGE), ends)
    for _ in range(count):
        await anext(body)
    assert len(open_files(tmp_path, "")) == 1
    await body.aclose()
    await body.aclose()
    assert (ends, open_files(tmp_path, "")) == ([1], [])


async def test_a_file_that_became_shorter_cuts_the_body(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    body = body_of(path, 4, [])
    with pytest.raises(Lost, match="shorter"):
        assert [piece async for piece in body]
    await body.aclose()


async def test_a_file_is_not_closed_while_a_thread_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, begun, go_on = tmp_path / "file", threading.Event(), threading.Event()
    path.write_bytes(LARGE)
    body, pread = body_of(path, len(LARGE), []), os.pread

    def slow(file: int, count: int, at: int) -> bytes:
        begun.set()
        assert go_on.wait(20)
        return pread(file, count, at)

    monkeypatch.setattr(os, "pread", slow)
    reading = Tasks().start(anext(body), name="reading")
    await asyncio.to_thread(begun.wait, 20)
    reading.cancel()
    await asyncio.sleep(0)
    assert not reading.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await body.aclose()
    assert open_files(tmp_path, "") == []


def test_small_parts_are_joined() -> None:
    assert list(read_parts([SentPart(b"abc", at, at + 1) for at in range(3)])) == [b"abc"]
    assert list(read_parts([])) == []
