"""Blobs over HTTP as a stranger says it: every answer, every trick with names, ranges and encodings."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.kit.eventually import eventually
from tests.kit.http_peer import DEADLINE_S, HttpPeer, a_door, ask, sha

from wakugumi.adapters.blobs import http_pages
from wakugumi.adapters.blobs.routes import blob_routes
from wakugumi.adapters.blobs.store import BlobStore, Incoming, ref_of_bytes
from wakugumi.adapters.blobs.tokens import make_token
from wakugumi.adapters.blobs.zstd_stream import zstd
from wakugumi.errors import Refused
from wakugumi.limits.files import TOKEN_S
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.anyio

CONTENT = bytes(range(256)) * 4
NAME = sha(CONTENT)
PATH = f"/blobs/{NAME}"


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path)


@asynccontextmanager
async def serving(store: BlobStore, **options: object) -> AsyncIterator[int]:
    async with a_door(blob_routes(store, **({"writable": True} | options))) as listener:  # type: ignore[arg-type]
        yield listener.port


@pytest.fixture
async def port(store: BlobStore) -> AsyncIterator[int]:
    async with serving(store) as port:
        yield port


def put(store: BlobStore, content: bytes) -> str:
    incoming = store.begin(ref_of_bytes(content))
    incoming.write(content)
    incoming.finish()
    return incoming.ref.sha256


# Putting.


@pytest.mark.spec("C4", "C5")
async def test_what_is_put_is_there_and_the_second_time_it_is_there_already(port: int, store: BlobStore) -> None:
    assert (await ask(port, "HEAD", PATH)).status == 404
    assert (await ask(port, "PUT", PATH, body=CONTENT)).status == 201
    assert store.has(BlobRef(NAME, len(CONTENT)))
    assert (await ask(port, "PUT", PATH, body=CONTENT)).status == 200
    head = await ask(port, "HEAD", PATH)
    assert (head.status, head.head["content-length"], head.head["etag"]) == (200, str(len(CONTENT)), f'"{NAME}"')
    assert head.head["accept-ranges"] == "bytes"


async def test_an_empty_blob_is_a_blob(port: int) -> None:
    assert (await ask(port, "PUT", f"/blobs/{sha(b'')}")).status == 201
    answer = await ask(port, "GET", f"/blobs/{sha(b'')}")
    assert (answer.status, answer.body) == (200, b"")


async def test_several_pieces_in_chunks_with_the_size_said_beside(port: int, store: BlobStore) -> None:
    content = os.urandom(3 * MIB + 5)
    async with HttpPeer(port) as peer:
        await peer.head("PUT", f"/blobs/{sha(content)}", "Transfer-Encoding: chunked", f"Waku-Size: {len(content)}")
        for at in range(0, len(content), 100_000):
            piece = content[at : at + 100_000]
            await peer.say(b"%x\r\n%b\r\n" % (len(piece), piece))
        await peer.say(b"0\r\n\r\n")
        assert (await peer.answer()).status == 201
    assert store.has(ref_of_bytes(content))


@pytest.mark.spec("C4")
@pytest.mark.parametrize("content", [CONTENT[:-1] + b"!", bytes(len(CONTENT))])
async def test_wrong_content_is_refused_and_nothing_of_it_stays(port: int, store: BlobStore, content: bytes) -> None:
    answer = await ask(port, "PUT", PATH, body=content)
    assert (answer.status, answer.code) == (422, "blob-broken")
    assert "waku-received" not in (await ask(port, "HEAD", PATH)).head
    assert list(store.entries()) == []


@pytest.mark.parametrize(
    ("lines", "status", "code"),
    [
        (("Transfer-Encoding: chunked",), 400, "bad-request"),
        (("Content-Length: 5", "Waku-Size: 6"), 422, "blob-broken"),
        (("Content-Length: 5", "Waku-Size: five"), 400, "bad-request"),
        (("Content-Length: 5", "Waku-Size: -5"), 400, "bad-request"),
        (("Content-Length: 5", "Waku-Size: " + "9" * 30), 400, "bad-request"),
        (("Content-Length: 5", "Content-Encoding: gzip"), 415, "bad-request"),
        (("Content-Length: 5", "Content-Encoding: zstd"), 400, "bad-request"),
        (("Content-Length: 5", "Content-Range: bytes 0-4/*"), 400, "bad-request"),
        (("Content-Length: 5", "Content-Range: bytes 4-0/5"), 400, "bad-request"),
        (("Content-Length: 5", "Content-Range: bytes 0-4/9"), 400, "bad-request"),
        (("Content-Length: 5", "Content-Range: bytes 5-9/10", "Waku-Size: 10"), 409, "conflict"),
        (("Content-Length: 5", "Content-Range: bytes 1-4/5"), 400, "bad-request"),
        (("Content-Length: 5", f"Content-Range: bytes 0-{'9' * 40}/5"), 400, "bad-request"),
        (("Content-Length: 5", f"Content-Range: bytes {10**17}-{10**17 + 4}/{10**17 + 5}"), 413, "too-big"),
        ((f"Content-Length: {10**17}",), 413, "too-big"),
    ],
)
async def test_a_head_that_promises_what_cannot_be_is_refused_before_anything_comes(
    port: int, store: BlobStore, lines: tuple[str, ...], status: int, code: str
) -> None:
    async with HttpPeer(port) as peer:
        await peer.head("PUT", PATH, *lines)
        answer = await peer.answer()
    assert (answer.status, answer.code) == (status, code)
    assert store.received(NAME) == 0


@pytest.mark.parametrize(
    "name",
    [
        *["", "x", NAME[:-1], NAME + "0", NAME.upper(), f"../{NAME}", f"%2e%2e/{NAME}", f"{NAME}/", f"./{NAME}"],
        *[f"{NAME[:-1]}%00", "..%2f..%2fetc%2fpasswd", f"{NAME[:2]}/{NAME}", f".incoming/{NAME}", "%61" + NAME[1:]],
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
async def test_names_with_tricks_are_refused(port: int, store: BlobStore, name: str, method: str) -> None:
    put(store, CONTENT)
    answer = await ask(port, method, f"/blobs/{name}", body=b"x" if method == "PUT" else b"")
    assert answer.status == 400
    assert method == "HEAD" or answer.code == "bad-name"


@pytest.mark.spec("C5")
async def test_a_truncated_upload_is_not_visible_and_goes_on_where_it_ended(port: int, store: BlobStore) -> None:
    content = os.urandom(3 * MIB)
    size, path = len(content), f"/blobs/{sha(content)}"
    async with HttpPeer(port) as peer:
        await peer.head("PUT", path, f"Content-Length: {size}")
        await peer.say(content[: 2 * MIB])
        await eventually(lambda: store.received(sha(content)) >= MIB)
        peer.writer.write_eof()
    await eventually(lambda: is_free(store, ref_of_bytes(content)))
    head = await ask(port, "HEAD", path)
    at = int(head.head["waku-received"])
    assert head.status == 404
    assert MIB <= at <= 2 * MIB

    wrong = await ask(port, "PUT", path, f"Content-Range: bytes {at - 1}-{size - 1}/{size}", body=content[at - 1 :])
    assert (wrong.status, wrong.head["waku-received"]) == (409, str(at))
    right = await ask(port, "PUT", path, f"Content-Range: bytes {at}-{size - 1}/{size}", body=content[at:])
    assert right.status == 201
    assert (await ask(port, "GET", path)).body == content


def is_free(store: BlobStore, ref: BlobRef = BlobRef(NAME, len(CONTENT))) -> bool:  # noqa: B008 - it is frozen
    """Nobody is writing it."""
    try:
        store.begin(ref).close()
    except Refused:
        return False
    return True


async def test_without_a_range_an_upload_begins_anew_whatever_has_come(port: int, store: BlobStore) -> None:
    incoming = store.begin(BlobRef(NAME, len(CONTENT)))
    incoming.write(b"something else")
    incoming.close()
    assert (await ask(port, "PUT", PATH, body=CONTENT)).status == 201


async def test_an_abandoned_upload_is_cleaned_up(port: int, store: BlobStore) -> None:
    async with HttpPeer(port) as peer:
        await peer.head("PUT", PATH, f"Content-Length: {len(CONTENT)}", "Expect: 100-continue")
        await peer.reader.readexactly(25)
        await peer.say(CONTENT[:300])
    await eventually(lambda: is_free(store))
    assert store.remove_abandoned(time.time() + 3601, 3600.0) == 1
    assert "waku-received" not in (await ask(port, "HEAD", PATH)).head


async def test_who_sends_nothing_for_long_gives_its_place_to_others(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_pages, "BLOB_RECEIVED_MIN_S", 0.05)
    other = b"other"
    async with serving(store, uploads_max=1) as port, HttpPeer(port) as half_open:
        await half_open.head("PUT", PATH, f"Content-Length: {len(CONTENT)}")
        await half_open.say(CONTENT[:10])
        assert (await ask(port, "PUT", f"/blobs/{sha(other)}", body=other)).status == 201
        assert await half_open.is_cut_off()


async def test_the_same_upload_twice_at_once_is_told_to_come_again(port: int, store: BlobStore) -> None:
    busy = store.begin(BlobRef(NAME, len(CONTENT)))
    answer = await ask(port, "PUT", PATH, body=CONTENT)
    assert (answer.status, answer.code, answer.head["retry-after"]) == (409, "blob-busy", "1")
    busy.close()
    assert (await ask(port, "PUT", PATH, body=CONTENT)).status == 201


async def test_a_full_disk_is_507(tmp_path: Path) -> None:
    async with serving(BlobStore(tmp_path / "full", free_min_bytes=1 << 60)) as port:
        answer = await ask(port, "PUT", PATH, body=CONTENT)
    assert (answer.status, answer.code) == (507, "disk")


async def test_a_disk_that_fills_up_half_way_is_507_and_what_came_can_be_gone_on_with(
    port: int, store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(2 * MIB)
    write = Incoming.write

    def fills_up(self: Incoming, data: bytes) -> None:
        if self.at + len(data) > MIB:
            raise Refused("disk", "no space left on device")
        write(self, data)

    monkeypatch.setattr(Incoming, "write", fills_up)
    answer = await ask(port, "PUT", f"/blobs/{sha(content)}", body=content)
    assert (answer.status, answer.code) == (507, "disk")
    assert 0 < store.received(sha(content)) <= MIB


async def test_a_blob_larger_than_is_taken_is_413(store: BlobStore) -> None:
    async with serving(store, blob_bytes_max=1000) as port:
        answer = await ask(port, "PUT", PATH, body=CONTENT)
    assert (answer.status, answer.code) == (413, "too-big")


async def test_content_is_asked_for_only_when_it_is_wanted(port: int, store: BlobStore) -> None:
    async with HttpPeer(port) as peer:
        await peer.head("PUT", PATH, f"Content-Length: {len(CONTENT)}", "Expect: 100-continue")
        assert await peer.reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        await peer.say(CONTENT)
        assert (await peer.answer()).status == 201
    async with HttpPeer(port) as peer:
        await peer.head("PUT", PATH, f"Content-Length: {len(CONTENT)}", "Expect: 100-continue")
        assert (await peer.answer()).status == 200, "it is there: nothing is asked for"


async def test_who_sends_what_is_there_gets_the_answer_before_it_has_sent_all(port: int, store: BlobStore) -> None:
    content = os.urandom(32 * MIB)
    put(store, content)
    async with HttpPeer(port) as peer:
        await peer.head("PUT", f"/blobs/{sha(content)}", f"Content-Length: {len(content)}")
        await peer.say(content[:1000])
        assert (await peer.answer()).status == 200


async def test_uploads_beyond_the_maximum_wait_and_are_then_told_to_come_again(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_pages, "UPLOAD_WAIT_S", 0.05)
    async with serving(store, uploads_max=1) as port, HttpPeer(port) as first:
        await first.head("PUT", PATH, f"Content-Length: {len(CONTENT)}")
        await first.say(CONTENT[:-1])
        await eventually(lambda: any(store.incoming.iterdir()))  # `is_free` would begin it, and so be in its way.
        answer = await ask(port, "PUT", f"/blobs/{sha(b'x')}", body=b"x")
        assert (answer.status, answer.code, answer.head["retry-after"]) == (503, "full", "1")
        await first.say(CONTENT[-1:])
        assert (await first.answer()).status == 201
        monkeypatch.undo()  # The place is free a moment after the answer.
        assert (await ask(port, "PUT", f"/blobs/{sha(b'x')}", body=b"x")).status == 201


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.spec("C5")
@pytest.mark.usefixtures("many_files")
async def test_a_thousand_uploads_at_once_all_arrive(port: int, store: BlobStore) -> None:
    contents = [b"%d" % number * 5000 for number in range(1000)]

    async def upload(content: bytes) -> int:
        async with HttpPeer(port) as peer:
            await peer.head("PUT", f"/blobs/{sha(content)}", f"Content-Length: {len(content)}")
            await ready()
            await peer.say(content)
            return (await peer.answer()).status

    begun = 0
    all_begun = asyncio.Event()

    async def ready() -> None:
        nonlocal begun
        begun += 1
        if begun == len(contents):
            all_begun.set()
        await all_begun.wait()

    assert set(await asyncio.gather(*map(upload, contents))) == {201}
    assert {entry.sha256 for entry in store.entries()} == {sha(content) for content in contents}


# Packed content.


def packed(content: bytes) -> bytes:
    return zstd.compress(content)


async def test_packed_content_is_unpacked_and_verified(port: int, store: BlobStore) -> None:
    content = b"again and again " * 200_000
    lines = ("Content-Encoding: zstd", f"Waku-Size: {len(content)}")
    assert (await ask(port, "PUT", f"/blobs/{sha(content)}", *lines, body=packed(content))).status == 201
    assert store.has(ref_of_bytes(content))


def wide(content: bytes) -> bytes:
    """Right content, packed so that unpacking it takes 128 MiB."""
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    return packer.compress(content) + packer.flush()


@pytest.mark.spec("C4")
@pytest.mark.parametrize("bomb", ["large", "wide", "garbage", "tail", "short"])
async def test_packed_content_that_is_no_good_is_refused(port: int, store: BlobStore, bomb: str) -> None:
    body = {
        "large": packed(bytes(512 * MIB)),
        "wide": wide(CONTENT),
        "garbage": b"this is no zstd at all",
        "tail": packed(CONTENT) + packed(CONTENT),
        "short": packed(CONTENT)[:-3],
    }[bomb]
    answer = await ask(port, "PUT", PATH, "Content-Encoding: zstd", f"Waku-Size: {len(CONTENT)}", body=body)
    assert (answer.status, answer.code) == (422, "blob-broken")
    assert store.received(NAME) <= len(CONTENT)
    assert list(store.entries()) == []


@pytest.mark.parametrize(
    ("content", "accepts", "is_packed"),
    [
        (b"again and again " * 200_000, "gzip, zstd", True),
        (b"again and again " * 200_000, "zstd;q=0.5", True),
        (b"again and again " * 200_000, "zstd;q=0", False),
        (b"again and again " * 200_000, "gzip", False),
        (os.urandom(3 * MIB), "zstd", False),
        (b"", "zstd", False),
    ],
    ids=["named", "weight", "no", "other", "random", "empty"],
)
async def test_what_gets_smaller_is_packed_for_who_asks(
    port: int, store: BlobStore, content: bytes, accepts: str, is_packed: bool
) -> None:
    name = put(store, content)
    answer = await ask(port, "GET", f"/blobs/{name}", f"Accept-Encoding: {accepts}")
    assert answer.status == 200
    assert ("content-encoding" in answer.head) == is_packed
    assert (zstd.decompress(answer.body) if is_packed else answer.body) == content


async def test_a_part_is_never_packed(port: int, store: BlobStore) -> None:
    name = put(store, bytes(MIB))
    answer = await ask(port, "GET", f"/blobs/{name}", "Accept-Encoding: zstd", "Range: bytes=1-")
    assert (answer.status, len(answer.body)) == (206, MIB - 1)


# Getting.


@pytest.mark.parametrize(
    ("wanted", "status", "start", "end"),
    [
        ("bytes=0-0", 206, 0, 1),
        ("bytes=0-1023", 206, 0, 1024),
        ("bytes=1000-", 206, 1000, 1024),
        ("bytes=1000-99999", 206, 1000, 1024),
        ("bytes=-24", 206, 1000, 1024),
        ("bytes=-99999", 206, 0, 1024),
        ("bytes=1023-1023", 206, 1023, 1024),
        ("bytes=1024-", 416, 0, 0),
        ("bytes=99999-", 416, 0, 0),
        ("bytes=-0", 416, 0, 0),
        ("bytes=999999999999999999-", 416, 0, 0),
        (f"bytes={'9' * 300}-", 200, 0, 1024),
        ("bytes=5-2", 200, 0, 1024),
        ("bytes=-", 200, 0, 1024),
        ("bytes=--5", 200, 0, 1024),
        ("bytes=0-1,5-9", 200, 0, 1024),
        ("bytes=0-9,3-12", 200, 0, 1024),
        ("bytes=" + ",".join(["0-"] * 500), 200, 0, 1024),
        ("lines=0-1", 200, 0, 1024),
        ("bytes=１-２", 200, 0, 1024),
        ("bytes= 0-1", 200, 0, 1024),
    ],
)
async def test_range_games(port: int, store: BlobStore, wanted: str, status: int, start: int, end: int) -> None:
    """One range that makes sense is given; what makes none, or is several, counts as not said, as RFC 9110 has it."""
    put(store, CONTENT)
    answer = await ask(port, "GET", PATH, f"Range: {wanted}")
    assert answer.status == status
    if status == 416:
        assert answer.head["content-range"] == "bytes */1024"
        return
    assert answer.body == CONTENT[start:end]
    if status == 206:
        assert answer.head["content-range"] == f"bytes {start}-{end - 1}/1024"


@pytest.mark.spec("C5")
async def test_a_large_blob_comes_whole(port: int, store: BlobStore) -> None:
    content = os.urandom(5 * MIB + 7)
    name = put(store, content)
    assert (await ask(port, "GET", f"/blobs/{name}")).body == content


async def test_so_many_are_served_at_once_and_others_are_told_to_come_again(store: BlobStore) -> None:
    name = put(store, os.urandom(32 * MIB))
    async with serving(store, serving_max=1) as port, asyncio.timeout(DEADLINE_S):
        async with HttpPeer(port) as deaf:
            await deaf.head("GET", f"/blobs/{name}")
            assert b" 200 OK" in await deaf.reader.readuntil(b"\r\n\r\n")
            answer = await ask(port, "GET", PATH)
            assert (answer.status, answer.code, answer.head["retry-after"]) == (503, "full", "1")
        while (answer := await ask(port, "GET", PATH)).status == 503:
            pass
        assert answer.status == 404


async def test_who_asks_and_does_not_read_is_cut_off(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_pages, "BLOB_RECEIVED_MIN_S", 0.05)
    name = put(store, os.urandom(32 * MIB))
    async with a_door(blob_routes(store, writable=False)) as listener, HttpPeer(listener.port) as deaf:
        await deaf.head("GET", f"/blobs/{name}")
        assert b" 200 OK" in await deaf.reader.readuntil(b"\r\n\r\n")
        await eventually(lambda: listener.http_port.connections == 0)


@pytest.mark.parametrize("packed", [False, True])
async def test_what_is_changed_while_it_is_sent_is_cut_off_before_it_is_a_lie(store: BlobStore, packed: bool) -> None:
    content = b"".join(bytes([number]) * 600 + os.urandom(400) for number in range(256)) * 256
    name = put(store, content)
    got = b""

    def change() -> None:
        path = Path(store.path(name))
        path.chmod(0o600)
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"!")

    async with serving(store) as port, HttpPeer(port) as peer, asyncio.timeout(DEADLINE_S):
        await peer.head("GET", f"/blobs/{name}", "Accept-Encoding: zstd" if packed else "Accept-Encoding: identity")
        assert (b"zstd" in await peer.reader.readuntil(b"\r\n\r\n")) == packed
        change()
        with suppress(ConnectionError):
            while piece := await peer.reader.read(MIB):
                got += piece
    assert len(got) < len(content)
    assert not got.endswith(b"0\r\n\r\n"), "that would be an end in good order"


async def test_what_is_sent_is_counted_packed_or_not(port: int, store: BlobStore) -> None:
    name = put(store, b"again and again " * 200_000)
    answer = await ask(port, "GET", f"/blobs/{name}", "Accept-Encoding: zstd")
    assert store.sent_bytes == len(answer.body) > 0


async def test_a_worker_serves_only_who_has_a_token_and_takes_nothing(store: BlobStore) -> None:
    put(store, CONTENT)
    now = time.time()
    async with serving(store, writable=False, key="c0ffee") as port:

        async def status(method: str, token: str) -> int:
            return (await ask(port, method, PATH, f"Authorization: {token}")).status

        good = make_token("c0ffee", NAME, now)
        assert [await status("GET", f"Bearer {good}"), await status("HEAD", f"bearer {good}")] == [200, 200]
        assert (await ask(port, "GET", PATH)).status == 401
        for bad in ("", "x", make_token("c0ffee", sha(b"other"), now), make_token("c0ffee", NAME, now - TOKEN_S - 5)):
            assert await status("GET", f"Bearer {bad}") == 401
        answer = await ask(port, "PUT", PATH, f"Authorization: Bearer {good}", body=CONTENT)
        assert (answer.status, answer.head["allow"]) == (405, "GET, HEAD")
