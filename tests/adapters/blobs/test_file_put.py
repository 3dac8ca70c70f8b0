"""Does a file on its way to a place tell how far it is, and stop when it is not wanted?"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from wakugumi.adapters.blobs.file_put import FilePut, PutStopped
from wakugumi.adapters.blobs.place import FolderPlace, OnBytes
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.loop.threads import beside
from wakugumi.core.transfers.transfers import PutEnd
from wakugumi.errors import ConfigError, Lost
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.anyio

CONTENT = b"content"
REF = ref_of_bytes(CONTENT)


@pytest.fixture
def place(tmp_path: Path) -> FolderPlace:
    return FolderPlace(tmp_path / "place")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


async def test_content_arrives_and_is_counted(place: FolderPlace, file: Path) -> None:
    put = FilePut(place.url)
    assert put.moved_s == float("inf")
    assert await put.end(beside(lambda: put.send(REF, file), "put")) == PutEnd()
    assert place.has(REF)
    assert put.done_bytes == len(CONTENT)
    assert put.moved_s < float("inf")
    assert not put.is_running


async def test_a_lost_connection_is_an_end_with_the_time_since_the_last_byte(
    place: FolderPlace, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = Lost("the line broke")

    def cut(_place: FolderPlace, _ref: BlobRef, _path: Path, on_bytes: OnBytes) -> None:
        on_bytes(1)
        raise error

    monkeypatch.setattr(FolderPlace, "put", cut)
    put = FilePut(place.url)
    end = await put.end(beside(lambda: put.send(REF, file), "put"))
    assert end.error is error
    assert 0 <= end.moved_s < float("inf")


async def test_a_cancelled_call_stops_the_thread(
    place: FolderPlace, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, stopped = threading.Event(), threading.Event()

    def endless(_place: FolderPlace, _ref: BlobRef, _path: Path, on_bytes: OnBytes) -> None:
        try:
            while True:
                on_bytes(1)
                began.set()
        finally:
            stopped.set()

    monkeypatch.setattr(FolderPlace, "put", endless)
    put = FilePut(place.url)
    task = Tasks().start(put.end(beside(lambda: put.send(REF, file), "put")), name="put", quiet=True)
    assert await asyncio.to_thread(began.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(stopped.wait, 20)
    assert put.is_running, "it may still be about to stop"


def test_a_stopped_put_does_not_begin(place: FolderPlace, file: Path) -> None:
    put = FilePut(place.url)
    put.is_stopped = True
    with pytest.raises(PutStopped):
        put.send(REF, file)
    assert not place.has(REF)


def test_a_place_of_an_unknown_kind_cannot_be_used(file: Path) -> None:
    with pytest.raises(ConfigError):
        FilePut("carrier-pigeon://loft").send(REF, file)
