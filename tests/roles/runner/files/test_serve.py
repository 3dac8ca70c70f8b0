"""How do other workers fetch from this one? Two real workers, and a leader that tells one of the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kit.inputs_world import WANT, InputsWorld, large
from tests.kit.tls_grid import TlsGrid
from tests.kit.worker_bench import Bench
from tests.kit.workers_leader import WorkersLeader

from wakugumi.adapters.access.certificates import make_server_certificate
from wakugumi.adapters.access.dialled import url_of
from wakugumi.adapters.blobs.open_place import open_place
from wakugumi.adapters.blobs.store import BlobStore, ref_of_bytes
from wakugumi.adapters.blobs.tokens import make_token
from wakugumi.adapters.net.address import Address
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.roles.runner.files.serve import Serving, serve, where_to_serve
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.anyio


class Shop:
    """A door, and what is behind it."""

    def __init__(self, serving: Serving, store: BlobStore, folder: Path) -> None:
        self.serving = serving
        self.store = store
        self.folder = folder

    def bring(self, content: bytes) -> BlobRef:
        ref = ref_of_bytes(content)
        incoming = self.store.begin(ref)
        incoming.write(content)
        incoming.finish()
        return ref

    async def fetch(self, ref: BlobRef, token: str, leader: str = "") -> bytes:
        there = BlobStore(self.folder / "there")
        await asyncio.to_thread(open_place(self.serving.url, token, leader).fetch, ref, there.begin(ref))
        return await asyncio.to_thread(Path(there.path(ref.sha256)).read_bytes)


@pytest.fixture
async def shop(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Shop]:
    store = BlobStore(tmp_path / "here")
    serving = await serve(store, Address("127.0.0.1", 0), None)
    yield Shop(serving, store, tmp_path)
    await serving.close()


@pytest.mark.spec("C8")
async def test_a_content_is_given_to_who_has_a_token_for_it(shop: Shop) -> None:
    ref = shop.bring(large())
    assert await shop.fetch(ref, make_token(shop.serving.key, ref.sha256, time.time())) == large()


@pytest.mark.spec("C8")
async def test_without_the_right_token_nothing_is_given(shop: Shop) -> None:
    ref, other = shop.bring(large()), shop.bring(large(1))
    now = time.time()
    for token in ("", "x", make_token("00" * 32, ref.sha256, now), make_token(shop.serving.key, other.sha256, now)):
        with pytest.raises(Refused):
            await shop.fetch(ref, token)
    with pytest.raises(Refused):
        await shop.fetch(ref, make_token(shop.serving.key, ref.sha256, now - 86_400))


@pytest.mark.spec("C8")
async def test_nothing_can_be_put_there(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "evil").write_bytes(b"evil")
    ref = ref_of_bytes(b"evil")
    place = open_place(shop.serving.url, make_token(shop.serving.key, ref.sha256, time.time()))
    with pytest.raises(Refused):
        await asyncio.to_thread(place.put, ref, tmp_path / "evil")
    assert not shop.store.has(ref)


@pytest.mark.spec("C8")
async def test_one_worker_fetches_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    worlds = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        leader = WorkersLeader()
        await leader.open()
        worlds.append(InputsWorld(leader, Bench(tmp_path / name), tmp_path / name))
    one, two = worlds
    try:
        for world in worlds:
            await world.worker()
        await one.cached("models", a=large())
        url, key = one.stock[0]["Url"], one.stock[0]["Key"]
        assert key != two.stock[0]["Key"]
        ref = ref_of_bytes(large())
        job = two.assign(a=large())
        want = await two.next(WANT)
        two.answer(want, ref, url, Token=make_token(key, ref.sha256, time.time()))
        assert (await two.ended(job))["Stdout"] == large().decode("utf-8", "replace") + "\n"
        assert not two.place.has(ref), "the leader gave nothing"
        job = two.assign(a=large(1))
        first = await two.next(WANT)
        two.answer(first, ref_of_bytes(large(1)), url, Token=make_token(key, ref.sha256, time.time()))
        assert (await two.next(WANT)).json["Failed"] == {"Url": url, "Why": "dead"}
    finally:
        for world in worlds:
            await world.bench.close()
            await world.leader.close()


@pytest.mark.parametrize(
    ("leader", "said", "advertised", "where"),
    [
        ("127.0.0.1", None, None, Address("127.0.0.1", 0)),
        ("localhost", None, None, Address("127.0.0.1", 0)),
        ("grid.example", None, None, None),
        ("grid.example", Address("10.0.0.7", 7000), None, Address("10.0.0.7", 7000)),
        ("grid.example", Address("0.0.0.0", 7000), Address("w7.example", 7000), Address("0.0.0.0", 7000)),
    ],
)
def test_a_worker_serves_where_it_is_told_or_on_its_leaders_machine(
    leader: str, said: Address | None, advertised: Address | None, where: Address | None
) -> None:
    assert where_to_serve(Address(leader, 5000), said, advertised) == where


def test_a_place_that_nobody_could_find_is_refused() -> None:
    with pytest.raises(ConfigError, match="address for other workers"):
        where_to_serve(None, Address("0.0.0.0", 7000), None)
    with pytest.raises(ConfigError, match="--advertise"):
        where_to_serve(None, None, Address("w7.example", 7000))


@pytest.mark.spec("C8", "O1")
async def test_a_worker_with_a_certificate_serves_workers_of_its_grid_over_tls(tmp_path: Path) -> None:
    grid = TlsGrid(tmp_path / "grid")
    made = make_server_certificate(grid.ca, "worker", [], ["127.0.0.1"])
    (tmp_path / "worker.pem").write_bytes(made.certificate)
    (tmp_path / "worker.key").write_bytes(made.key)
    entry = grid.entry(5000, grid.key("rack-1"))
    own = entry._replace(certificate=tmp_path / "worker.pem", certificate_key=tmp_path / "worker.key")
    serving = await serve(BlobStore(tmp_path / "here"), Address("127.0.0.1", 0), None, own)
    shop = Shop(serving, BlobStore(tmp_path / "here"), tmp_path)
    ref = shop.bring(large())
    token = make_token(serving.key, ref.sha256, time.time())
    assert serving.url.startswith("https://127.0.0.1:")
    assert await shop.fetch(ref, token, url_of(Address("127.0.0.1", 5000), entry)) == large()
    other = TlsGrid(tmp_path / "other")
    stranger = url_of(Address("127.0.0.1", 5001), other.entry(5001, other.key()))
    with pytest.raises(Lost, match="is not believed"):
        await shop.fetch(shop.bring(b"more"), token, stranger)
    await serving.close()


async def test_a_worker_without_a_certificate_serves_as_before(tmp_path: Path) -> None:
    grid = TlsGrid(tmp_path / "grid")
    entry = grid.entry(5000, grid.key("rack-1"))
    serving = await serve(BlobStore(tmp_path / "here"), Address("127.0.0.1", 0), None, entry)
    assert serving.url.startswith("http://")
    await serving.close()
