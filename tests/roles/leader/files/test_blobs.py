"""A leader's blobs: told as missing until they are there, served on its own port, removed when nothing needs them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.kit.a_leader import OwnPeer, Running
from tests.kit.http_peer import HttpPeer, ask, sha
from tests.kit.old_peers import DEADLINE_S, OldClient

from wakugumi.adapters.blobs.open_place import open_place
from wakugumi.adapters.blobs.place import FolderPlace, OnBytes
from wakugumi.adapters.blobs.store import BlobStore, Incoming, ref_of_bytes
from wakugumi.errors import Lost, Refused
from wakugumi.limits.files import BLOB_ABANDONED_S, BLOB_UNUSED_S
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.leader import Leader
from wakugumi.roles.leader.settings import LeaderSettings
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.hello import BLOBS, WANTS_CLIENT, HelloClient, Welcome
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.anyio

A, B = ref_of_bytes(b"a"), ref_of_bytes(b"b")


def fill(store: BlobStore, content: bytes, used_ago_s: float = 0.0) -> str:
    incoming = store.begin(ref_of_bytes(content))
    incoming.write(content)
    incoming.finish()
    os.utime(store.path(incoming.ref.sha256), (time.time() - used_ago_s,) * 2)
    return incoming.ref.sha256


@asynccontextmanager
async def leading(blobs: LeaderBlobs | None) -> AsyncIterator[Running]:
    leader = Leader(blobs=blobs)
    try:
        yield Running(leader, await leader.listen("127.0.0.1", 0))
    finally:
        await leader.close()


class Elsewhere:
    """A place that a look takes time for."""

    url = "s3://bucket"

    def __init__(self, *there: BlobRef) -> None:
        self.there = set(there)
        self.asked: list[BlobRef] = []
        self.is_lost = False
        self.threads: set[int] = set()
        self.removing = threading.Event()
        self.may_remove = threading.Event()

    def has(self, ref: BlobRef) -> bool:
        self.asked.append(ref)
        self.threads.add(threading.get_ident())
        if self.is_lost:
            raise Lost("it does not answer", "dead")
        return ref in self.there

    def put(self, ref: BlobRef, source: Path, on_bytes: OnBytes = lambda _: None) -> None:
        raise NotImplementedError

    def fetch(self, ref: BlobRef, into: Incoming, on_bytes: OnBytes = lambda _: None) -> None:
        into.close()
        raise Lost("it does not answer", "dead")

    def remove(self, sha256: str) -> None:
        """Takes as long as the test likes."""
        self.removing.set()
        assert self.may_remove.wait(DEADLINE_S)
        self.there = {ref for ref in self.there if ref.sha256 != sha256}


def asked(blobs: LeaderBlobs, *refs: BlobRef) -> asyncio.Future[list[str]]:
    told: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
    blobs.missing(refs, told.set_result)
    return told


async def missing(blobs: LeaderBlobs, *refs: BlobRef) -> list[str]:
    async with asyncio.timeout(DEADLINE_S):
        return await asked(blobs, *refs)


def test_a_folder_is_asked_at_once(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    fill(place.store, b"a")
    told: list[list[str]] = []
    LeaderBlobs(place, url="").missing([A, B, BlobRef(A.sha256, 2)], told.append)
    assert told == [[B.sha256, A.sha256]]


def test_a_blob_is_read_and_verified(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    fill(place.store, b"a")
    blobs = LeaderBlobs(place, url="")
    assert blobs.read([A, A]) == {A.sha256: b"a"}
    with pytest.raises(Refused, match="no blob"):
        blobs.read([A, B])
    kept = Path(place.store.path(A.sha256))
    kept.chmod(0o600)
    kept.write_bytes(b"x")
    with pytest.raises(Refused) as refused:
        blobs.read([A])
    assert refused.value.code == "blob-broken"


def test_a_place_that_cannot_be_reached_is_a_refusal() -> None:
    with pytest.raises(Refused, match="a blob cannot be fetched: it does not answer") as refused:
        LeaderBlobs(Elsewhere(A), url="").open(A)
    assert refused.value.code == "worker-error"


async def test_an_object_store_is_asked_in_a_thread_and_what_it_has_is_remembered() -> None:
    place = Elsewhere(A)
    blobs = LeaderBlobs(place, url=place.url)
    assert await missing(blobs, A, B) == [B.sha256]
    assert threading.get_ident() not in place.threads
    place.there.add(B)
    assert await missing(blobs, A, B) == []
    assert await missing(blobs, A, B) == []
    assert place.asked == [A, B, B]
    await blobs.close()


async def test_what_was_removed_for_nobody_needs_it_is_not_remembered() -> None:
    place = Elsewhere(A, B)
    place.may_remove.set()
    blobs = LeaderBlobs(place, url=place.url, sweeps=True)
    blobs.is_held = lambda blob: blob == B.sha256
    assert await missing(blobs, A, B) == []
    blobs.free([A.sha256, B.sha256])
    assert await missing(blobs, A, B) == [A.sha256]
    assert place.there == {B}
    await blobs.close()


@pytest.mark.spec("C5")
async def test_what_is_just_being_removed_is_not_told_to_be_there() -> None:
    place = Elsewhere(A, B)
    blobs = LeaderBlobs(place, url=place.url, sweeps=True)
    blobs.is_held = lambda _: False
    blobs.free([A.sha256])
    assert await asyncio.to_thread(place.removing.wait, DEADLINE_S)
    looks = [asked(blobs, A, B) for _ in range(2)]
    assert await missing(blobs, B) == [], "nobody else waits for that"
    assert not any(look.done() for look in looks)
    place.may_remove.set()
    assert [await look for look in looks] == [[A.sha256]] * 2
    place.there.add(A)
    assert await missing(blobs, A) == []
    await blobs.close()


async def test_what_is_just_being_removed_from_a_folder_is_not_told_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = FolderPlace(tmp_path)
    fill(place.store, b"a")
    may_remove = threading.Event()
    remove = place.store.remove
    monkeypatch.setattr(place.store, "remove", lambda blob: may_remove.wait(DEADLINE_S) and remove(blob))
    blobs = LeaderBlobs(place, url="")
    blobs.is_held = lambda _: False
    blobs.free([A.sha256])
    look = asked(blobs, A)
    assert not look.done()
    may_remove.set()
    assert await look == [A.sha256]
    await blobs.close()


@pytest.mark.spec("C5")
async def test_nothing_is_removed_from_a_place_that_others_may_use(tmp_path: Path) -> None:
    folder = FolderPlace(tmp_path)
    fill(folder.store, b"a")
    for place in (folder, Elsewhere(A)):
        blobs = LeaderBlobs(place, url=place.url)
        blobs.is_held = lambda _: False
        blobs.free([A.sha256])
        assert await missing(blobs, A) == []
        await blobs.close()


async def test_a_store_that_does_not_answer_may_have_it(caplog: pytest.LogCaptureFixture) -> None:
    place = Elsewhere(A)
    place.is_lost = True
    blobs = LeaderBlobs(place, url=place.url)
    assert await looked(blobs, A, B) == ([], [A.sha256, B.sha256])
    assert await missing(blobs, A) == [A.sha256], "whoever is asked to put it there finds out"
    assert "does not answer" in caplog.text
    place.is_lost = False
    assert await looked(blobs, A, B) == ([B.sha256], [])
    await blobs.close()


async def looked(blobs: LeaderBlobs, *refs: BlobRef) -> tuple[list[str], list[str]]:
    told: asyncio.Future[tuple[list[str], list[str]]] = asyncio.get_running_loop().create_future()
    blobs.look_for(refs, lambda absent, unknown: told.set_result((absent, unknown)))
    async with asyncio.timeout(DEADLINE_S):
        return await told


async def test_to_forget_many_results_beside_many_known_blobs_costs_no_more_than_they_are() -> None:
    class Counted(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    refs = [BlobRef(Counted(f"{number:064x}"), 1) for number in range(1_000)]
    place = Elsewhere(*refs)
    place.may_remove.set()
    blobs = LeaderBlobs(place, url=place.url, sweeps=True)
    blobs.is_held = lambda _: False
    assert await missing(blobs, *refs) == []
    Counted.compared = 0
    blobs.free([Counted(ref.sha256) for ref in refs[::10]])
    assert Counted.compared < 1_000
    await blobs.close()


async def test_a_leader_serves_its_blobs_beside_its_frames(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    async with leading(LeaderBlobs(place, url="")) as leader, OwnPeer(leader.port) as client:
        await client.say(fr.encode(fr.HELLO_CLIENT, payload=encode(HelloClient("own", 4, [*WANTS_CLIENT]))))
        welcome = msgspec.json.decode((await client.frame()).payload, type=Welcome)
        assert BLOBS in welcome.wants
        assert welcome.blobs == ""
        assert (await ask(leader.port, "PUT", f"/blobs/{A.sha256}", body=b"a")).status == 201
        assert (await ask(leader.port, "GET", f"/blobs/{A.sha256}")).body == b"a"
        await leader.serves()
        there = open_place(f"http://127.0.0.1:{leader.port}")
        assert await asyncio.to_thread(there.has, A)


async def test_a_leader_whose_blobs_are_elsewhere_says_where_and_serves_none(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    fill(place.store, b"a")
    async with leading(LeaderBlobs(place, url=place.url)) as leader, OwnPeer(leader.port) as client:
        await client.say(fr.encode(fr.HELLO_CLIENT, payload=encode(HelloClient("own", 4, [*WANTS_CLIENT]))))
        assert msgspec.json.decode((await client.frame()).payload, type=Welcome).blobs == tmp_path.as_uri()
        assert (await ask(leader.port, "GET", f"/blobs/{A.sha256}")).status == 404


async def test_http_connections_count_and_frames_beyond_the_maximum_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leading(LeaderBlobs(FolderPlace(tmp_path), url="")) as leader:
        leader.leader.hub.connections_max = 2
        async with HttpPeer(leader.port) as one, HttpPeer(leader.port) as two:
            assert (await one.ask("HEAD", f"/blobs/{A.sha256}")).status == 404
            assert (await two.ask("HEAD", f"/blobs/{A.sha256}")).status == 404
            async with OldClient(leader.port) as client:
                assert await client.reader.read() == b""
        await leader.until(lambda _: leader.leader.hub.connections == 0)
        await leader.serves()


async def test_frames_count_and_http_connections_beyond_the_maximum_are_closed(tmp_path: Path) -> None:
    async with leading(LeaderBlobs(FolderPlace(tmp_path), url="")) as leader:
        leader.leader.hub.connections_max = 2
        async with OldClient(leader.port) as client, HttpPeer(leader.port) as one:
            await client.hello("desk-1")
            assert (await one.ask("HEAD", f"/blobs/{A.sha256}")).status == 404
            async with HttpPeer(leader.port) as two:
                assert await two.is_cut_off()
            assert (await one.ask("HEAD", f"/blobs/{A.sha256}")).status == 404
        await leader.until(lambda _: leader.leader.hub.connections == 0)


async def test_who_says_nothing_is_cut_off_whatever_it_would_have_spoken(tmp_path: Path) -> None:
    leader = Leader(settings=LeaderSettings(hello_deadline_s=0.05), blobs=LeaderBlobs(FolderPlace(tmp_path), url=""))
    port = await leader.listen("127.0.0.1", 0)
    try:
        async with HttpPeer(port) as silent, HttpPeer(port) as slow:
            await slow.say(b"GET")
            assert await silent.is_cut_off()
            assert await slow.is_cut_off()
    finally:
        await leader.close()


async def test_a_leader_that_closes_ends_its_transfers_and_leaves_what_came(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    content = os.urandom(4 << 20)
    async with leading(LeaderBlobs(FolderPlace(tmp_path), url="")) as leader, HttpPeer(leader.port) as peer:
        await peer.head("PUT", f"/blobs/{sha(content)}", f"Content-Length: {len(content)}")
        await peer.say(content[: 2 << 20])
        await leader.until(lambda _: store.received(sha(content)))
        await leader.leader.close()
        assert await peer.is_cut_off()
    assert store.received(sha(content)) > 0
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.to_thread(begin_patiently, store, ref_of_bytes(content))


def begin_patiently(store: BlobStore, ref: BlobRef) -> None:
    """The thread that closes it may be a moment late."""
    from wakugumi.errors import Refused

    while True:
        try:
            return store.begin(ref).close()
        except Refused:
            time.sleep(0.001)


async def test_what_nothing_needs_is_removed_when_it_is_too_much_or_old(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    held, free, old = (
        fill(place.store, b"held", 2 * BLOB_UNUSED_S),
        fill(place.store, b"free", 3600),
        fill(place.store, b"old!", 2 * BLOB_UNUSED_S),
    )
    left = place.store.begin(A)
    left.close()
    os.utime(f"{tmp_path}/.incoming/{A.sha256}", (time.time() - 2 * BLOB_ABANDONED_S,) * 2)
    roomy = LeaderBlobs(place, url="")
    await roomy.sweep(place.store)
    assert {entry.sha256 for entry in place.store.entries()} == {held, free, old}, "nobody said yet what is needed"
    roomy.is_held = {held}.__contains__
    await roomy.sweep(place.store)
    assert {entry.sha256 for entry in place.store.entries()} == {held, free}
    assert os.listdir(tmp_path / ".incoming") == []
    tight = LeaderBlobs(place, url="", bytes_max=5)
    tight.is_held = {held}.__contains__
    await tight.sweep(place.store)
    assert {entry.sha256 for entry in place.store.entries()} == {held}


async def test_a_leader_sweeps_its_own_folder_by_itself_and_a_shared_one_never(tmp_path: Path) -> None:
    own, shared = FolderPlace(tmp_path / "own"), FolderPlace(tmp_path / "shared")
    for place in (own, shared):
        fill(place.store, b"old!", 2 * BLOB_UNUSED_S)
    both = [LeaderBlobs(own, url=""), LeaderBlobs(shared, url=shared.url)]
    for blobs in both:
        blobs.begin(lambda _: False)
    async with asyncio.timeout(DEADLINE_S):
        while list(own.store.entries()):  # noqa: ASYNC110 - a folder rings no bell
            await asyncio.sleep(0.001)
    assert len(list(shared.store.entries())) == 1
    for blobs in both:
        await blobs.close()


@pytest.mark.parametrize("told", ["then", "failed"])
async def test_a_look_that_fails_in_an_unforeseen_way_is_told(
    told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = Elsewhere(A)
    blobs = LeaderBlobs(place, url=place.url)

    def has(_ref: BlobRef) -> bool:
        raise ZeroDivisionError("nobody thought of this")

    monkeypatch.setattr(place, "has", has)
    if told == "then":
        assert await missing(blobs, A, B) == [A.sha256, B.sha256]
    else:
        failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        blobs.missing([A], lambda _: None, failed.set_result)
        async with asyncio.timeout(DEADLINE_S):
            assert isinstance(await failed, ZeroDivisionError)
    assert caplog.messages == ["look for blobs failed"]
    await blobs.close()
