"""One file of a form: small ones in memory, large ones on disk, and nothing left of what went wrong."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from wakugumi.adapters.http.page import HttpRefusal
from wakugumi.adapters.http.upload import Received, receive_file
from wakugumi.adapters.spool import Spools
from wakugumi.errors import Lost, Refused
from wakugumi.limits.http import FORM_BYTES_MAX
from wakugumi.limits.units import MIB
from wakugumi.wire.form import encode_head, encode_tail

pytestmark = pytest.mark.anyio

B = b"bound"
CONTENT = os.urandom(3 * MIB)


class AVisit:
    """A visit whose body is these pieces, and then this error."""

    method, path, rest, job, peer, is_gone = "POST", "/run/x", "x", "", "here", False

    def __init__(self, pieces: Iterable[bytes], error: BaseException | None = None, length: int | None = None) -> None:
        self._pieces, self._error, self.content_length = pieces, error, length
        self.began = False

    def header(self, name: str) -> str | None:
        return "multipart/form-data; boundary=bound" if name == "Content-Type" else None

    def parameters(self) -> list[str]:
        return []

    def query(self, name: str) -> list[str]:
        return []

    async def pieces(self) -> AsyncIterator[bytes]:
        self.began = True
        for piece in self._pieces:
            yield piece
            await asyncio.sleep(0)
        if self._error is not None:
            raise self._error


def form(content: bytes, name: str = "a.bin", field: str = "file") -> bytes:
    return encode_head(B, field, name) + content + encode_tail(B)


def cut(data: bytes, size: int = 100_000) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def receive(visit: AVisit, folder: Path) -> Received:
    spools = Spools(folder, memory_max=1000)
    try:
        return await receive_file(visit, spools, 4 * MIB)
    finally:
        spools.close()


async def test_a_small_file_stays_in_memory(tmp_path: Path) -> None:
    got = await receive(AVisit(cut(form(b"hello"), 7)), tmp_path)
    assert got == Received("a.bin", b"hello", None, "", 5)
    assert left_in(tmp_path) == []


async def test_an_empty_file_is_a_file(tmp_path: Path) -> None:
    got = await receive(AVisit([form(b"")]), tmp_path)
    assert (got.content, got.size) == (b"", 0)


@pytest.mark.parametrize("size", [1001, MIB, 3 * MIB])
async def test_a_large_file_goes_to_disk(tmp_path: Path, size: int) -> None:
    content = CONTENT[:size]
    got = await receive(AVisit(cut(form(content))), tmp_path)
    assert (got.content, got.sha256, got.size) == (None, hashlib.sha256(content).hexdigest(), size)
    assert got.path is not None
    assert got.path.read_bytes() == content
    assert left_in(tmp_path) == [got.path]


BAD: dict[str, tuple[str, list[bytes]]] = {
    "no end": ("bad-request", cut(form(CONTENT)[:-12])),
    "no part": ("bad-request", [b"--bound--\r\n"]),
    "two files": ("bad-request", cut(form(CONTENT)[:-4] + b"\r\n" + form(b"x")[7:])),
    "another field": ("bad-request", cut(form(CONTENT)[:-4] + b"\r\n" + form(b"x", field="other")[7:])),
    "only another field": ("bad-request", [form(b"x", field="other")]),
    "a way out": ("bad-name", [form(b"x", "../x")]),
    "an encoded way out": ("bad-name", [form(b"x").replace(b"a.bin", b"%2e%2e%2Fx")]),
    "an absolute path": ("bad-name", [form(b"x", "/etc/passwd")]),
    "a NUL": ("bad-name", [form(b"x", "a\0b")]),
    "a file of the runner": ("bad-name", [form(b"x", ".done")]),
    "too large": ("too-big", cut(form(CONTENT + CONTENT))),
    "too much before": ("bad-request", cut(b"x" * MIB)),
    "too much behind": ("too-big", cut(form(CONTENT) + b"x" * (2 * MIB))),
}


@pytest.mark.parametrize(("code", "pieces"), BAD.values(), ids=BAD.keys())
async def test_a_bad_form_is_refused_and_leaves_nothing(tmp_path: Path, code: str, pieces: list[bytes]) -> None:
    with pytest.raises(Refused) as caught:
        await receive(AVisit(pieces), tmp_path)
    assert caught.value.code == code
    assert left_in(tmp_path) == []


async def test_a_length_that_is_too_much_is_refused_before_anything_comes(tmp_path: Path) -> None:
    visit = AVisit([], length=4 * MIB + FORM_BYTES_MAX + 1)
    with pytest.raises(HttpRefusal) as caught:
        await receive(visit, tmp_path)
    assert caught.value.status == 413
    assert not visit.began


@pytest.mark.parametrize("error", [Lost("gone", "dead"), HttpRefusal(408, "too-slow", "…")])
async def test_who_is_gone_in_the_midst_leaves_nothing(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)):
        await receive(AVisit(cut(form(CONTENT)[: 2 * MIB]), error), tmp_path)
    assert left_in(tmp_path) == []


async def test_a_cancelled_upload_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(asyncio.CancelledError):
        await receive(AVisit(cut(form(CONTENT)[: 2 * MIB]), asyncio.CancelledError()), tmp_path)
    assert left_in(tmp_path) == []


async def test_a_disk_that_does_not_take_it_is_told(tmp_path: Path) -> None:
    spools = Spools(tmp_path / "missing", memory_max=1000)
    spools.folder.rmdir()
    with pytest.raises(Refused) as caught:
        await receive_file(AVisit(cut(form(CONTENT))), spools, 4 * MIB)
    assert caught.value.code == "worker-error"
    spools.close()
