"""Blobs to and from a place over HTTP: resumed, verified, and every way to fail told apart from the others."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.kit.hostile_answers import BODIES
from tests.kit.http_peer import DEADLINE_S, a_door
from tests.kit.scripted_http import says, scripted

from wakugumi.adapters.blobs import http_pages
from wakugumi.adapters.blobs.open_place import open_place
from wakugumi.adapters.blobs.place_http import HttpPlace
from wakugumi.adapters.blobs.routes import blob_routes
from wakugumi.adapters.blobs.store import LINKED_MIN_BYTES, BlobStore, Incoming, ref_of_bytes
from wakugumi.adapters.blobs.tokens import make_token
from wakugumi.adapters.http import paced_answer
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.anyio

CONTENT = os.urandom(3 * MIB + 11)
REF = ref_of_bytes(CONTENT)


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "there")


@pytest.fixture
def here(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "here")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


@asynccontextmanager
async def serving(store: BlobStore, **options: Any) -> AsyncIterator[str]:
    async with a_door(blob_routes(store, **({"writable": True} | options))) as listener:
        yield f"http://127.0.0.1:{listener.port}"


def fill(store: BlobStore, content: bytes) -> None:
    incoming = store.begin(ref_of_bytes(content))
    incoming.write(content)
    incoming.finish()


def leave(store: BlobStore, content: bytes, ref: BlobRef = REF) -> None:
    """What an earlier try has left."""
    incoming = store.begin(ref)
    incoming.write(content)
    incoming.close()


@pytest.mark.spec("C4", "C5")
@pytest.mark.parametrize("packs", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("content", [b"", b"small", os.urandom(2 * MIB), b"again and again " * 300_000])
async def test_a_file_goes_there_and_comes_back(
    store: BlobStore, here: BlobStore, tmp_path: Path, content: bytes, packs: bool
) -> None:
    (tmp_path / "file").write_bytes(content)
    ref = ref_of_bytes(content)
    sent: list[int] = []
    came: list[int] = []
    async with serving(store) as url:
        place = HttpPlace(url, packs=packs)
        assert not await asyncio.to_thread(place.has, ref)
        await asyncio.to_thread(place.put, ref, tmp_path / "file", sent.append)
        assert await asyncio.to_thread(place.has, ref)
        await asyncio.to_thread(place.fetch, ref, here.begin(ref), came.append)
    assert store.has(ref)
    assert here.has(ref)
    assert sum(sent) == sum(came) == len(content)


@pytest.mark.spec("C5")
async def test_a_put_goes_on_where_an_earlier_one_ended(store: BlobStore, source: Path) -> None:
    leave(store, CONTENT[:MIB])
    sent: list[int] = []
    async with serving(store) as url:
        await asyncio.to_thread(open_place(url).put, REF, source, sent.append)
    assert store.has(REF)
    assert sent[0] == MIB, "what is there already counts as done, at once"
    assert sum(sent) == len(CONTENT)


LARGE = os.urandom(LINKED_MIN_BYTES)
LARGE_REF = ref_of_bytes(LARGE)


@pytest.mark.spec("C5")
async def test_a_leader_on_this_machine_gets_a_link_and_verifies_it(store: BlobStore, tmp_path: Path) -> None:
    (source := tmp_path / "source").write_bytes(LARGE)
    sent: list[int] = []
    async with serving(store) as url:
        place = HttpPlace(url)
        await asyncio.to_thread(place.link, LARGE_REF, source)
        assert not store.has(LARGE_REF), "it is not verified yet"
        await asyncio.to_thread(place.put, LARGE_REF, source, sent.append)
        assert source.samefile(store.path(LARGE_REF.sha256))
        assert sum(sent) == len(LARGE)
        await asyncio.to_thread(place.link, LARGE_REF, source)
        assert list(store.begun()) == [], "it is there already"
        source.unlink()
        source.write_bytes(LARGE[:-1] + b"!")
        store.remove(LARGE_REF.sha256)
        await asyncio.to_thread(place.link, LARGE_REF, source)
        with pytest.raises(Refused) as refused:
            await asyncio.to_thread(place.put, LARGE_REF, source)
    assert refused.value.code == "bad-request"
    assert not store.has(LARGE_REF)


@pytest.mark.parametrize("why", ["another leader's folder", "afar", "with a token"])
async def test_without_a_link_the_bytes_are_sent(
    store: BlobStore, here: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    (source := tmp_path / "source").write_bytes(LARGE)
    key = None
    if why == "another leader's folder":
        monkeypatch.setattr(http_pages, "quote", lambda _: str(here.incoming))
    elif why == "afar":
        monkeypatch.setattr(http_pages, "is_loopback", lambda _: False)
    else:
        key = "key"
    async with serving(store, key=key) as url:
        place = HttpPlace(url, make_token(key, LARGE_REF.sha256, time.time()) if key else "")
        await asyncio.to_thread(place.link, LARGE_REF, source)
        assert os.listdir(here.incoming) == os.listdir(store.incoming) == []
        await asyncio.to_thread(place.put, LARGE_REF, source)
    assert store.has(LARGE_REF)
    assert not source.samefile(store.path(LARGE_REF.sha256))


@pytest.mark.spec("C5")
async def test_a_fetch_goes_on_where_an_earlier_one_ended(store: BlobStore, here: BlobStore) -> None:
    fill(store, CONTENT)
    leave(here, CONTENT[:MIB])
    came: list[int] = []
    async with serving(store) as url:
        await asyncio.to_thread(open_place(url).fetch, REF, here.begin(REF), came.append)
    assert here.has(REF)
    assert sum(came) == len(CONTENT) - MIB


async def test_what_is_there_is_not_sent_again(store: BlobStore, source: Path) -> None:
    fill(store, CONTENT)
    async with serving(store, uploads_max=0) as url:
        await asyncio.to_thread(open_place(url).put, REF, source)


async def test_what_is_not_there_is_said_so(store: BlobStore, here: BlobStore) -> None:
    async with serving(store) as url:
        with pytest.raises(Refused) as caught:
            await asyncio.to_thread(open_place(url).fetch, REF, here.begin(REF))
    assert caught.value.code == "no-blob"


async def test_a_token_opens_a_workers_store(store: BlobStore, here: BlobStore) -> None:
    import time

    fill(store, CONTENT)
    async with serving(store, writable=False, key="c0ffee") as url:
        with pytest.raises(Refused) as caught:
            await asyncio.to_thread(open_place(url, "wrong").fetch, REF, here.begin(REF))
        assert caught.value.code == "denied"
        token = make_token("c0ffee", REF.sha256, time.time())
        await asyncio.to_thread(open_place(url, token).fetch, REF, here.begin(REF))
    assert here.has(REF)


async def test_a_place_that_is_busy_is_asked_again_and_then_given_up(store: BlobStore, source: Path) -> None:
    writing = store.begin(REF)
    async with serving(store) as url:
        with pytest.raises(Refused) as caught:
            await asyncio.to_thread(HttpPlace(url, patience_s=0.0).put, REF, source)
        assert caught.value.code == "blob-busy"
        putting = asyncio.get_running_loop().run_in_executor(None, open_place(url).put, REF, source)
        writing.close()
        async with asyncio.timeout(DEADLINE_S):
            await putting
    assert store.has(REF)


async def test_a_source_that_is_busy_is_told_apart(store: BlobStore, here: BlobStore) -> None:
    fill(store, CONTENT)
    async with serving(store, serving_max=0) as url:
        with pytest.raises(Refused) as caught:
            await asyncio.to_thread(open_place(url).fetch, REF, here.begin(REF))
    assert caught.value.code == "full"
    assert caught.value.retry


async def test_more_uploads_than_are_taken_at_once_all_arrive(
    store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_pages, "UPLOAD_WAIT_S", 0.01)
    contents = [b"%d" % number * 200_000 for number in range(12)]

    def put(number: int) -> None:
        path = tmp_path / str(number)
        path.write_bytes(contents[number])
        open_place(url).put(ref_of_bytes(contents[number]), path)

    async with serving(store, uploads_max=1) as url:
        await asyncio.gather(*(asyncio.to_thread(put, number) for number in range(len(contents))))
    assert all(store.has(ref_of_bytes(content)) for content in contents)


@pytest.mark.parametrize("other", [b"x" * len(CONTENT), b"short", CONTENT + b"!"], ids=["same size", "short", "long"])
@pytest.mark.parametrize("packs", [False, True], ids=["plain", "packed"])
async def test_a_file_that_was_changed_since_is_told(store: BlobStore, source: Path, other: bytes, packs: bool) -> None:
    await asyncio.to_thread(source.write_bytes, other)
    async with serving(store) as url:
        with pytest.raises(Refused, match="was changed while it was sent") as caught:
            await asyncio.to_thread(HttpPlace(url, packs=packs).put, REF, source)
    assert caught.value.code == "bad-request"
    assert store.size(REF.sha256) is None


async def test_a_file_that_shrinks_while_it_is_sent_is_told(store: BlobStore, tmp_path: Path) -> None:
    content = bytes(64 * MIB)
    path = tmp_path / "file"
    path.write_bytes(content)

    def shrink(_count: int) -> None:
        os.truncate(path, 10)

    async with serving(store) as url:
        with pytest.raises(Refused, match="was changed while it was sent"):
            await asyncio.to_thread(open_place(url).put, ref_of_bytes(content), path, shrink)


async def test_what_the_caller_raises_ends_a_transfer_and_what_came_is_kept(store: BlobStore, here: BlobStore) -> None:
    fill(store, CONTENT)

    def stop(_count: int) -> None:
        raise KeyboardInterrupt

    def fetch() -> str:
        try:
            open_place(url).fetch(REF, here.begin(REF), stop)
        except KeyboardInterrupt:
            return "stopped"
        return "not stopped"

    async with serving(store) as url:
        assert await asyncio.to_thread(fetch) == "stopped"
    assert 0 < here.received(REF.sha256) < len(CONTENT)


# Sources that are dead, slow, or lie.


def whole(body: bytes) -> Callable[[socket.socket], object]:
    return says(f"HTTP/1.1 200 OK\nContent-Length: {len(body)}", body)


def fetched(url: str, into: Incoming, **options: Any) -> None:
    HttpPlace(url, **options).fetch(REF, into)


def test_one_that_ends_half_way_is_dead_and_what_came_is_kept(here: BlobStore) -> None:
    half = says(f"HTTP/1.1 200 OK\nContent-Length: {REF.size}", CONTENT[: 2 * MIB])
    with scripted(half) as url, pytest.raises(Lost, match="after 2097152 of") as caught:
        fetched(url, here.begin(REF))
    assert caught.value.why == "dead"
    assert here.received(REF.sha256) == 2 * MIB


def test_one_where_nobody_listens_is_dead(here: BlobStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(Lost, match="nobody listens there") as caught:
        fetched(url, here.begin(REF))
    assert caught.value.why == "dead"


@pytest.mark.parametrize("answer", [says("nonsense"), says("HTTP/1.1 500 Oops\nContent-Length: 0"), lambda _: None])
def test_one_that_talks_nonsense_is_dead(here: BlobStore, answer: Callable[[socket.socket], object]) -> None:
    with scripted(answer) as url, pytest.raises(Lost) as caught:
        fetched(url, here.begin(REF))
    assert caught.value.why == "dead"


def test_one_that_sends_nothing_for_long_is_slow(here: BlobStore) -> None:
    done = threading.Event()

    def stalls(peer: socket.socket) -> None:
        says(f"HTTP/1.1 200 OK\nContent-Length: {REF.size}", CONTENT[:MIB])(peer)
        done.wait(DEADLINE_S)

    with scripted(stalls) as url:
        with pytest.raises(Lost, match=r"nothing for 0\.05 s") as caught:
            fetched(url, here.begin(REF), stall_s=0.05)
        done.set()
    assert caught.value.why == "slow"


@pytest.mark.parametrize("length", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
def test_one_that_sends_next_to_nothing_for_long_is_slow(
    here: BlobStore, monkeypatch: pytest.MonkeyPatch, length: str
) -> None:
    monkeypatch.setattr(paced_answer, "BLOB_RECEIVED_MIN_S", 0.2)
    done = threading.Event()

    def drips(peer: socket.socket) -> None:
        says(f"HTTP/1.1 200 OK\n{length}")(peer)
        with suppress(OSError):
            for _ in range(2000):
                if done.wait(0.01):
                    break
                peer.sendall(b"1\r\nx\r\n" if "chunked" in length else b"x")

    with scripted(drips) as url:
        with pytest.raises(Lost, match="less than 65536 bytes") as caught:
            fetched(url, here.begin(REF))
        done.set()
    assert caught.value.why == "slow"


@pytest.mark.parametrize("name", BODIES)
def test_one_that_refuses_with_nonsense_is_dead(here: BlobStore, name: str) -> None:
    body = BODIES[name]
    with (
        scripted(says(f"HTTP/1.1 500 No\nContent-Length: {len(body)}", body)) as url,
        pytest.raises(Lost) as caught,
    ):
        fetched(url, here.begin(REF))
    assert caught.value.why == "dead"


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500, 503, 507])
@pytest.mark.parametrize("code", ["disk", "worker-error", "blob-broken", "bad-request"])
def test_what_a_source_says_of_its_own_trouble_is_never_taken_for_ours(here: BlobStore, status: int, code: str) -> None:
    leave(here, CONTENT[:MIB])
    body = b'{"code":"%s","detail":"oh"}' % code.encode()
    with (
        scripted(says(f"HTTP/1.1 {status} No\nContent-Length: {len(body)}", body)) as url,
        pytest.raises(Lost) as caught,
    ):
        fetched(url, here.begin(REF))
    assert caught.value.why == "dead"
    assert here.received(REF.sha256) == MIB


def test_one_that_takes_nothing_for_long_is_slow(source: Path) -> None:
    done = threading.Event()

    def stalls(peer: socket.socket) -> None:
        peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        done.wait(DEADLINE_S)

    large = BlobRef(REF.sha256, 64 * MIB)
    os.truncate(source, large.size)
    with scripted(says("HTTP/1.1 404 Not Found\nContent-Length: 0"), stalls) as url:
        with pytest.raises(Lost) as caught:
            HttpPlace(url, stall_s=0.05).put(large, source)
        done.set()
    assert caught.value.why == "slow"


@pytest.mark.spec("C4")
@pytest.mark.parametrize("body", [b"x" * REF.size, CONTENT + b"more"], ids=["other", "longer"])
def test_one_that_lies_is_found_out_and_nothing_of_it_stays(here: BlobStore, body: bytes) -> None:
    with scripted(whole(body)) as url, pytest.raises(Refused) as caught:
        fetched(url, here.begin(REF))
    assert caught.value.code == "blob-broken"
    assert here.received(REF.sha256) == 0
    assert here.size(REF.sha256) is None


def test_a_packed_lie_is_bounded_by_what_was_promised(here: BlobStore) -> None:
    from wakugumi.adapters.blobs.zstd_stream import zstd

    bomb = zstd.compress(bytes(256 * MIB))
    head = f"HTTP/1.1 200 OK\nContent-Encoding: zstd\nContent-Length: {len(bomb)}"
    with scripted(says(head, bomb)) as url, pytest.raises(Refused) as caught:
        fetched(url, here.begin(REF))
    assert caught.value.code == "blob-broken"


def test_one_that_knows_no_ranges_sends_all_of_it_again(here: BlobStore) -> None:
    leave(here, CONTENT[:MIB])
    with scripted(whole(CONTENT)) as url:
        fetched(url, here.begin(REF))
    assert here.has(REF)


def test_one_whose_blob_ends_before_what_we_have_lies(here: BlobStore) -> None:
    leave(here, CONTENT[:MIB])
    with scripted(says("HTTP/1.1 416 No\nContent-Length: 0")) as url, pytest.raises(Refused) as caught:
        fetched(url, here.begin(REF))
    assert caught.value.code == "blob-broken"


def test_an_answer_before_all_was_sent_is_heard(source: Path) -> None:
    def refuses(peer: socket.socket) -> None:
        peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        says("HTTP/1.1 507 Full\nContent-Length: 0")(peer)
        while peer.recv(MIB):
            pass

    there_is_none = says("HTTP/1.1 404 Not Found\nContent-Length: 0")
    with scripted(there_is_none, refuses) as url, pytest.raises(Refused) as caught:
        HttpPlace(url).put(REF, source)
    assert caught.value.code == "disk"


@pytest.mark.parametrize(
    "url", ["http://", "http://:80", "http://a:x", "http://a:99999", "gopher://a", "a:5000", "s3://", "http://[", "//["]
)
def test_what_is_no_place_is_told(url: str) -> None:
    with pytest.raises(ConfigError, match="is no place for blobs"):
        open_place(url)


def test_a_source_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be read") as caught:
        HttpPlace("http://127.0.0.1:1").put(REF, tmp_path / "nothing")
    assert caught.value.code == "bad-request"
