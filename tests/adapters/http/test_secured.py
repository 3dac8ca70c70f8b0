"""Blobs over TLS: to a server that proves who it is, with the caller's key, large ones in flat memory, and resumed."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.kit.http_peer import a_door
from tests.kit.shown_keys import ShownKeys
from tests.kit.tls_grid import TlsGrid

from wakugumi.adapters.access.dialled import url_of
from wakugumi.adapters.blobs.open_place import open_place
from wakugumi.adapters.blobs.place_http import HttpPlace
from wakugumi.adapters.blobs.routes import blob_routes
from wakugumi.adapters.blobs.store import BlobStore, ref_of_bytes, ref_of_file
from wakugumi.adapters.blobs.tokens import make_token
from wakugumi.adapters.http.secured import access_at
from wakugumi.adapters.net.address import Address
from wakugumi.errors import Lost, Refused
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.references import BlobRef

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1", "C5")]


@pytest.fixture
def grid(tmp_path: Path) -> TlsGrid:
    return TlsGrid(tmp_path / "grid")


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "there")


@pytest.fixture
def here(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "here")


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """64 MiB that cannot be compressed."""
    path = tmp_path / "large"
    piece = os.urandom(MIB)
    path.write_bytes(b"".join(number.to_bytes(4, "big") + piece[4:] for number in range(64)))
    return path


@asynccontextmanager
async def serving(
    store: BlobStore, tls: ssl.SSLContext, guard: ShownKeys | None = None, key: str | None = None, uploads_max: int = 8
) -> AsyncIterator[int]:
    routes = blob_routes(store, writable=True, key=key, uploads_max=uploads_max)
    async with a_door(routes, guard=guard, tls=tls) as listener:
        yield listener.port


def url_with(grid: TlsGrid, port: int, name: str = "desk-1", role: str = "leader") -> str:
    return url_of(Address("127.0.0.1", port), grid.entry(port, grid.key(name), role))


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def contents(path: Path) -> bytes:
    return path.read_bytes()


class Peak:
    """The most memory that Python had meanwhile, beyond that of the beginning."""

    def __enter__(self) -> Peak:
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes = tracemalloc.get_traced_memory()[1] - self._before
        tracemalloc.stop()


@pytest.mark.parametrize("packs", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("tickets", [0, 2])
async def test_a_large_file_goes_there_and_back_in_flat_memory_with_the_key(
    grid: TlsGrid, store: BlobStore, here: BlobStore, large: Path, tickets: int, packs: bool
) -> None:
    """A server that sends tickets after the handshake does not look like one that answers early."""
    tls, guard, ref = grid.server(), ShownKeys(), ref_of_file(large)
    tls.num_tickets = tickets
    async with serving(store, tls, guard) as port:
        url = url_with(grid, port)
        place = HttpPlace(url, packs=packs)
        with Peak() as peak:
            await asyncio.to_thread(place.put, ref, large)
            await asyncio.to_thread(place.fetch, ref, here.begin(ref))
    assert store.has(ref)
    assert here.has(ref)
    assert peak.bytes < 24 * MIB, peak.bytes
    assert {key.name for key in guard.keys if key is not None} == {"desk-1"}
    assert None not in guard.keys
    assert all(key.secret not in url for key in guard.keys if key is not None)


async def test_transfers_go_on_where_earlier_ones_ended(
    grid: TlsGrid, store: BlobStore, here: BlobStore, large: Path
) -> None:
    content, ref = contents(large), ref_of_file(large)
    for half in (store, here):
        incoming = half.begin(ref)
        incoming.write(content[: 40 * MIB])
        incoming.close()
    sent: list[int] = []
    received: list[int] = []
    async with serving(store, grid.server()) as port:
        place = open_place(url_with(grid, port))
        await asyncio.to_thread(place.put, ref, large, sent.append)
        await asyncio.to_thread(place.fetch, ref, here.begin(ref), received.append)
    assert sent[0] == 40 * MIB
    assert sum(received) == 24 * MIB
    assert store.has(ref)
    assert here.has(ref)


async def test_an_early_answer_ends_an_upload(grid: TlsGrid, store: BlobStore, large: Path) -> None:
    wrong = BlobRef(ref_of_bytes(b"x").sha256, 64 * MIB)
    routes = blob_routes(store, writable=True, blob_bytes_max=MIB)
    async with a_door(routes, tls=grid.server()) as listener:
        sent: list[int] = []
        place = open_place(url_with(grid, listener.port))
        with pytest.raises(Refused) as raised:
            await asyncio.to_thread(place.put, wrong, large, sent.append)
    assert raised.value.code == "too-big"
    assert sum(sent) < wrong.size


@pytest.mark.parametrize("other", ["grid", "role"])
async def test_a_server_that_cannot_prove_who_it_is_gets_no_byte(
    grid: TlsGrid, store: BlobStore, tmp_path: Path, other: str
) -> None:
    tls = TlsGrid(tmp_path / "other").server() if other == "grid" else grid.server("worker")
    guard, ref, file = ShownKeys(), ref_of_bytes(b"content"), written(tmp_path / "file", b"content")
    async with serving(store, tls, guard) as port:
        with pytest.raises(Lost, match="is not believed"):
            await asyncio.to_thread(open_place(url_with(grid, port)).put, ref, file)
    assert guard.keys == []
    assert not store.has(ref)


async def test_two_keys_of_one_process_are_told_apart(grid: TlsGrid, store: BlobStore) -> None:
    guard = ShownKeys()
    async with serving(store, grid.server(), guard) as port:
        urls = [url_with(grid, port, name) for name in ("one", "two")]
        for url in urls:
            await asyncio.to_thread(open_place(url).has, ref_of_bytes(b"x"))
    assert [key.name for key in guard.keys if key is not None] == ["one", "two"]


async def test_a_worker_is_believed_by_the_leaders_authority_and_gets_a_token_alone(
    grid: TlsGrid, store: BlobStore, here: BlobStore
) -> None:
    content = b"content"
    ref = ref_of_bytes(content)
    incoming = store.begin(ref)
    incoming.write(content)
    incoming.finish()
    leader, token = url_with(grid, 5000), make_token("secret", ref.sha256, time.time())
    async with serving(store, grid.server("worker"), key="secret") as port:
        await asyncio.to_thread(open_place(f"https://127.0.0.1:{port}", token, leader).fetch, ref, here.begin(ref))
    assert here.has(ref)
    async with serving(store, grid.server("leader"), key="secret") as port:
        with pytest.raises(Lost, match="is not believed"):
            await asyncio.to_thread(
                open_place(f"https://127.0.0.1:{port}", token, leader).fetch, ref, here.begin(ref_of_bytes(b"other"))
            )
    entry = access_at("https://127.0.0.1:1", token, leader)
    assert entry is not None
    assert (entry.key, entry.role) == (None, "worker")
    assert access_at("http://127.0.0.1:1", token, leader) is None
    assert access_at("https://127.0.0.1:1", "", leader) is None


async def test_a_plain_server_is_told(grid: TlsGrid, store: BlobStore) -> None:
    async with a_door(blob_routes(store, writable=True)) as listener:
        with pytest.raises(Lost, match=r"does not speak TLS|the transfer with https://desk-1@127.0.0.1:\d+ failed"):
            await asyncio.to_thread(open_place(url_with(grid, listener.port)).has, ref_of_bytes(b"x"))
