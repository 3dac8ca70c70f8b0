"""A real leader with caches, and peers that say what a worker and a client of ours say."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from tests.kit.a_leader import OwnPeer, Running, a_leader
from tests.kit.old_peers import DEADLINE_S, OldClient, OldWorker

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.blobs.tokens import check_token
from wakugumi.adapters.journal.journal import Journal
from wakugumi.core.files import events as se
from wakugumi.core.leader import events as ev
from wakugumi.core.leader import questions as qu
from wakugumi.errors import Lost
from wakugumi.limits.files import BLOB_STORE_BYTES
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.leader import Leader
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.cache import (
    SKIPPED,
    CacheEntry,
    CachePutRequest,
    CachePutResult,
    FailedWorker,
    FetchFailure,
    Source,
    Stock,
    Want,
    read_cache_put,
    read_put,
)
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.job import FAILED, OK
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.anyio

A, B = b"alpha" * 100, b"beta" * 100
SHA_A, SHA_B = (hashlib.sha256(content).hexdigest() for content in (A, B))


class Client(OwnPeer):
    async def put(self, cache_id: str, *contents: bytes, target: str = "job.assign.>", **fields: Any) -> bytes:
        entries = [
            CacheEntry(f"f{at}", sha256=ref_of_bytes(content).sha256, size=len(content))
            for at, content in enumerate(contents)
        ]
        return await self.send_put(CachePutRequest(cache_id, entries, target, **fields))

    async def send_put(self, request: CachePutRequest) -> bytes:
        msg_id = uuid4().bytes
        await self.say(fr.encode(fr.CACHE_PUT, msg_id, subject="cache.put", payload=encode(request)))
        return msg_id

    async def answer(self, msg_id: bytes) -> CachePutResult:
        frame = await self.expect(fr.CACHE_ACK)
        assert frame.corr_id == msg_id
        found = msgspec.json.decode(frame.payload, type=CachePutResult)
        assert frame.subject == f"cache.ack.{found.cache_id}"
        return found

    async def asks(self, question: object) -> Any:
        return json.loads((await self.ask(encode(question))).payload)


class Fetcher(OwnPeer):
    """A worker of ours, one frame at a time."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.id = uuid4()
        self.url = f"http://127.0.0.1:{1024 + self.id.int % 60_000}"

    async def joins(self, patterns: str = "", stock: Stock | None = None, *, name: str = "") -> None:
        await self.hello_worker(self.id, patterns, name=name)
        await self.stock(stock or Stock(True, self.url, "the key"))

    async def stock(self, stock: Stock) -> None:
        await self.say(fr.encode(fr.STOCK, payload=encode(stock)))

    async def put(self) -> tuple[Frame, CachePutRequest]:
        frame = await self.expect(fr.CACHE_PUT)
        assert frame.subject == "cache.put"
        return frame, read_put(frame.payload)

    async def acks(self, put: Frame, status: str = OK, message: str = "added=1 skipped=0") -> None:
        cache_id = read_cache_put(put.payload)
        result = CachePutResult(cache_id, status, message)
        subject = f"cache.ack.{cache_id}"
        await self.say(fr.encode(fr.CACHE_ACK, corr_id=put.msg_id, subject=subject, payload=encode(result)))

    async def want(self, want: Want, msg_id: bytes | None = None) -> bytes:
        msg_id = msg_id or uuid4().bytes
        await self.say(fr.encode(fr.WANT, msg_id, payload=encode(want)))
        return msg_id

    async def source(self, want: bytes) -> Source:
        frame = await self.expect(fr.SOURCE)
        assert frame.corr_id == want
        return msgspec.json.decode(frame.payload, type=Source)

    async def takes(self, status: str = OK) -> CachePutRequest:
        put, request = await self.put()
        await self.acks(put, status)
        return request


@asynccontextmanager
async def a_leader_with_caches(folder: Path, *contents: bytes) -> AsyncIterator[Running]:
    place = FolderPlace(folder / "blobs")
    for content in contents:
        keep(place, content)
    async with a_leader(blobs=LeaderBlobs(place, url="")) as running:  # type: ignore[arg-type]
        yield running
        assert running.leader.caches is not None
        assert not running.leader.caches.drive.failed.done()
        running.leader.caches.machine.check()


def keep(place: FolderPlace, content: bytes) -> None:
    incoming = place.store.begin(ref_of_bytes(content))
    incoming.write(content)
    incoming.finish()


@pytest.mark.spec("C1", "C2")
async def test_a_put_reaches_the_workers_that_match_and_is_summed_up_for_the_client(tmp_path: Path) -> None:
    async with (
        a_leader_with_caches(tmp_path, A, B) as leader,
        Client(leader.port) as client,
        Client(leader.port) as other,
        Fetcher(leader.port) as one,
        Fetcher(leader.port) as two,
        Fetcher(leader.port) as stranger,
    ):
        await client.hello_client("one")
        await other.hello_client("two")
        await one.joins("groupA")
        await two.joins("job.assign.groupA.*")
        await stranger.joins("groupB")
        put = await client.put("data-1", A, B, target="job.assign.groupA.x")
        asked = await one.takes()
        assert [(entry.name, entry.sha256, entry.size) for entry in asked.entries] == [
            ("f0", SHA_A, len(A)),
            ("f1", SHA_B, len(B)),
        ]
        assert (asked.cache_id, len(asked.version)) == ("data-1", 32)
        assert (await two.takes(SKIPPED)).version == asked.version
        answer = await client.answer(put)
        assert (answer.status, answer.sent, answer.ok, answer.skipped) == ("OK", 2, 1, 1)
        again = await client.put("data-1", A, B, target="job.assign.groupA.x")
        answer = await client.answer(again)
        assert (answer.status, answer.sent, answer.skipped) == ("SKIPPED", 2, 2)
        # Nobody else heard of it: the next frame of each is the answer to what it asks.
        assert (await other.asks(qu.AskCaches()))["total"] == 1
        want = await stranger.want(Want(cache_id="nope", name="f0"))
        assert (await stranger.source(want)).code == "no-cache"


@pytest.mark.spec("C2")
async def test_other_content_under_the_same_name_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    async with (
        a_leader_with_caches(tmp_path, A, B) as leader,
        Client(leader.port) as client,
        Fetcher(leader.port) as worker,
    ):
        await client.hello_client()
        await worker.joins()
        put = await client.put("data-1", A)
        first = await worker.takes()
        assert (await client.answer(put)).status == "OK"
        answer = await client.answer(await client.put("data-1", B))
        assert (answer.status, answer.sent) == ("FAILED", 0)
        assert "'f0'" in answer.message
        put = await client.put("data-1", A, B)
        grown = await worker.takes()
        assert (grown.version, len(grown.entries)) == (first.version, 2)
        assert (await client.answer(put)).status == "OK"


@pytest.mark.spec("C4")
async def test_a_client_is_told_what_content_is_missing_before_anything_happens(tmp_path: Path) -> None:
    async with (
        a_leader_with_caches(tmp_path, A) as leader,
        Client(leader.port) as client,
        Fetcher(leader.port) as worker,
    ):
        await client.hello_client()
        await worker.joins()
        put = await client.put("data-1", A, B)
        missing = await client.expect(fr.MISSING)
        assert (missing.corr_id, json.loads(missing.payload)) == (put, {"Blobs": [SHA_B]})
        assert (await client.asks(qu.AskCaches()))["total"] == 0


@pytest.mark.spec("C8")
async def test_workers_fetch_the_first_copy_from_the_leader_and_then_from_each_other(tmp_path: Path) -> None:
    async with (
        a_leader_with_caches(tmp_path, A) as leader,
        Fetcher(leader.port) as one,
        Fetcher(leader.port) as two,
        Fetcher(leader.port) as three,
    ):
        for worker in (one, two, three):
            await worker.joins()
        ref = Want(SHA_A, len(A))
        for worker in (one, two):
            source = await worker.source(await worker.want(ref))
            assert (source.url, source.sha256, source.size, source.token) == ("", SHA_A, len(A), "")
        want = await three.want(ref)
        await one.stock(Stock(blobs=[SHA_A]))
        source = await three.source(want)
        assert source.url == one.url
        expiry = int(source.token.partition(".")[0])
        assert check_token("the key", SHA_A, source.token, expiry - 60)
        await three.want(Want(SHA_A, len(A), failed=FetchFailure(source.url, "lied")), want)
        assert (await three.source(want)).url == "", "the leader helps out, for nobody else can"


@pytest.mark.spec("C8", "O1")
@pytest.mark.parametrize("allowed", [(), ("192.0.2.*",)])
async def test_nobody_is_sent_to_an_address_that_is_not_the_workers_own(
    tmp_path: Path, allowed: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Unless the leader was told of it: without that, the content comes from the leader."""
    async with (
        a_leader_with_caches(tmp_path, A) as leader,
        Fetcher(leader.port) as one,
        Fetcher(leader.port) as two,
    ):
        assert leader.leader.blobs is not None
        leader.leader.blobs.workers_at = allowed
        await one.joins("", Stock(True, "http://192.0.2.8:22/admin", "the key", [SHA_A]))
        await one.source(await one.want(Want(SHA_B, len(B))))  # All before it was heard.
        await two.joins()
        source = await two.source(await two.want(Want(SHA_A, len(A))))
        assert source.url == ("http://192.0.2.8:22" if allowed else "")
    assert ("start the leader with --workers-at" in caplog.text) is not bool(allowed)


async def test_content_that_nobody_has_has_no_source(tmp_path: Path) -> None:
    async with a_leader_with_caches(tmp_path, A) as leader, Fetcher(leader.port) as worker:
        await worker.joins()
        source = await worker.source(await worker.want(Want(SHA_B, len(B))))
        assert (source.code, source.url) == ("no-blob", "")


@pytest.mark.spec("C6")
async def test_a_worker_that_joins_later_is_warmed_unless_it_has_it_all(tmp_path: Path) -> None:
    async with a_leader_with_caches(tmp_path, A) as leader, Client(leader.port) as client:
        await client.hello_client()
        answer = await client.answer(await client.put("data-1", A))
        assert (answer.status, answer.sent, answer.code) == ("FAILED", 0, "no-worker")
        assert "no worker matches" in answer.message
        async with Fetcher(leader.port) as late, Fetcher(leader.port) as knows, OldWorker(leader.port) as old:
            await late.joins(name="late")
            version = (await late.takes()).version
            await knows.joins("", Stock(True, "", "", [SHA_A], caches={"data-1": f"{version}/1"}))
            await old.hello()
            frame = await old.receive()
            assert frame.json == {
                "CacheId": "data-1",
                "Entries": [{"Name": "f0", "Content": base64.b64encode(A).decode()}],
                "TargetPattern": "job.assign.>",
            }
            want = await knows.want(Want(SHA_A, len(A)))
            assert (await knows.source(want)).code == "", "and nothing came before it"
            shown = await client.asks(qu.AskCache("data-1"))
            assert (shown["row"]["workers"], shown["row"]["ready"]) == (3, 2)
            assert {row["state"] for row in shown["workers"]} == {"ready", "asked"}


@pytest.mark.spec("C6")
async def test_caches_are_listed_pinned_and_dropped(tmp_path: Path) -> None:
    async with (
        a_leader_with_caches(tmp_path, A) as leader,
        Client(leader.port) as client,
        Fetcher(leader.port) as worker,
    ):
        await client.hello_client()
        await worker.joins()
        put = await client.put("data-1", A)
        await worker.takes()
        await client.answer(put)
        blobs = leader.leader.blobs
        assert blobs is not None
        assert blobs.store is not None
        await blobs.sweep(blobs.store)
        listed = await client.asks(qu.AskCaches())
        assert (listed["rows"][0]["cache"], listed["rows"][0]["bytes"], listed["bytes"]) == ("data-1", 500, 500)
        assert (listed["blobs"]["store_bytes"], listed["blobs"]["store_budget_bytes"]) == (500, BLOB_STORE_BYTES)
        assert (await client.asks(qu.AskPin("data-1")))["pinned"] is True
        assert (await worker.takes(SKIPPED)).pinned
        assert (await client.asks(qu.AskDropCache("data-1")))["cache"] == "data-1"
        drop = await worker.expect(fr.CACHE_DROP)
        assert json.loads(drop.payload) == {"CacheId": "data-1"}
        assert (await client.asks(qu.AskCaches()))["total"] == 0
        refused = await client.ask(encode(qu.AskCache("data-1")))
        assert (refused.subject, json.loads(refused.payload)["Code"]) == ("refused", "no-cache")


@pytest.mark.spec("C1")
async def test_a_worker_that_fails_and_one_that_leaves_are_told_by_name(tmp_path: Path) -> None:
    async with (
        a_leader_with_caches(tmp_path, A) as leader,
        Client(leader.port) as client,
        Fetcher(leader.port) as full,
        Fetcher(leader.port) as fine,
    ):
        await client.hello_client()
        await full.joins(name="full")
        await fine.joins(name="fine")
        put = await client.put("data-1", A)
        frame, _ = await full.put()
        await full.acks(frame, FAILED, "the disk is full")
        await fine.takes()
        answer = await client.answer(put)
        assert (answer.status, answer.ok, answer.failed) == ("FAILED", 1, 1)
        assert answer.failures == [FailedWorker("full", "the disk is full")]


async def test_caches_outlive_a_leader_with_a_journal(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path / "blobs")
    keep(place, A)
    version = ""
    for life in range(2):
        leader = Leader(Journal.open(tmp_path / "state"), blobs=LeaderBlobs(place, url=""))
        port = await leader.listen("127.0.0.1", 0)
        try:
            async with Client(port) as client, Fetcher(port) as worker:
                await client.hello_client()
                if life == 0:
                    assert (await client.answer(await client.put("data-1", A, pinned=True))).status == "FAILED"
                await worker.joins()
                asked = await worker.takes()
                assert asked.pinned
                assert version in ("", asked.version)
                version = asked.version
                shown = await client.asks(qu.AskCache("data-1"))
                assert shown["entries"] == [{"name": "f0", "size": 500, "sha256": SHA_A}]
        finally:
            await leader.close()


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (CachePutRequest("../x", [CacheEntry("f", b"x")]), "a cache id is"),
        (CachePutRequest("", [CacheEntry("f", b"x")]), "a cache id is"),
        (CachePutRequest("d", [CacheEntry("../f", b"x")]), "'../f'"),
        (CachePutRequest("d", [CacheEntry("f", b"x"), CacheEntry("f", b"y")]), "stands there twice"),
        (CachePutRequest("d", [CacheEntry("f", b"x"), CacheEntry("f/g", b"y")]), "which is a file"),
        (CachePutRequest("d", [CacheEntry("f")]), "neither content nor"),
        (CachePutRequest("d", [CacheEntry("f", sha256="xyz", size=1)]), "neither content nor"),
        (CachePutRequest("d", [CacheEntry("f", sha256=SHA_A, size=10**400)]), "a blob has 0 to"),
        (CachePutRequest("d", [CacheEntry("f", b"x", SHA_A)]), "not what its SHA-256 says"),
        (CachePutRequest("d", []), "at least one file"),
        (CachePutRequest("d", [CacheEntry("f", b"x")], "a..b"), "bad pattern"),
        (CachePutRequest("d", [CacheEntry("f", b"x")], share=0.0), "Share"),
        (CachePutRequest("d", [CacheEntry("f", b"x")], within_s=-1.0), "WithinS"),
    ],
)
async def test_a_put_that_cannot_be_is_failed_with_the_reason(
    tmp_path: Path, request_: CachePutRequest, says: str
) -> None:
    async with a_leader_with_caches(tmp_path) as leader, Client(leader.port) as client:
        await client.hello_client()
        answer = await client.answer(await client.send_put(request_))
        assert answer.status == "FAILED"
        assert says in answer.message
        assert (await client.asks(qu.AskCaches()))["total"] == 0


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (fr.STOCK, b'{"Blobs":["../../etc/passwd"]}'),
        (fr.STOCK, b'{"Gone":[""]}'),
        (fr.STOCK, b'{"Url":"http://x\\ny","Key":"k"}'),
        (fr.STOCK, b'{"Url":"file:///tmp","Key":"k"}'),
        (fr.STOCK, b'{"Url":"s3://bucket","Key":"k"}'),
        (fr.STOCK, b'{"Url":"http://[","Key":"k"}'),
        (fr.WANT, b'{"Sha256":"%s"}' % (b"Z" * 64)),
        (fr.WANT, b'{"Sha256":"%s","Size":-1}' % SHA_A.encode()),
        (fr.WANT, b'{"Sha256":"%s","Size":1%s}' % (SHA_A.encode(), b"0" * 400)),
        (fr.WANT, b"[]"),
        (fr.CACHE_ACK, b"no json"),
    ],
)
async def test_a_worker_that_breaks_the_protocol_is_cut_off(tmp_path: Path, kind: int, payload: bytes) -> None:
    async with a_leader_with_caches(tmp_path) as leader:
        async with Fetcher(leader.port) as worker:
            await worker.joins()
            await worker.say(fr.encode(kind, UUID(int=5).bytes, payload=payload))
            assert await worker.is_cut_off()
        await leader.serves()


async def test_a_want_of_a_cache_whose_name_fills_a_frame_is_answered(tmp_path: Path) -> None:
    async with a_leader_with_caches(tmp_path) as leader, Fetcher(leader.port) as worker:
        await worker.joins()
        room = fr.payload_max("") - len(b'{"CacheId":""}')
        want = await worker.want(Want(cache_id="x" * room))
        assert (await worker.source(want)).code == "no-cache"


async def test_what_cannot_be_done_for_one_connection_ends_that_connection_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_peer: object, _effect: object) -> None:
        raise ValueError("it does not fit a frame")

    async with a_leader_with_caches(tmp_path) as leader:
        assert leader.leader.caches is not None
        for act, effect in (
            (leader.leader.caches.effects, se.SendNoSource),
            (leader.leader.effects, ev.SendWorkerConfirms),
        ):
            works, act[effect] = act[effect], fail
            async with Fetcher(leader.port) as worker:
                await worker.joins()
                if effect is se.SendNoSource:
                    await worker.want(Want(cache_id="nope", name="f0"))
                else:
                    await worker.ack(uuid4())
                assert await worker.is_cut_off()
            act[effect] = works
            assert "it does not fit a frame" in caplog.text, "with where it happened"
            caplog.clear()
        await leader.serves()


async def test_a_job_that_cannot_be_sent_to_a_worker_is_given_to_another(tmp_path: Path) -> None:
    async with (
        a_leader_with_caches(tmp_path) as leader,
        Client(leader.port) as client,
        Fetcher(leader.port) as first,
        Fetcher(leader.port) as second,
    ):
        await client.hello_client()
        works = leader.leader.effects[ev.SendAssign]

        def fail_once(_peer: object, _effect: object) -> None:
            leader.leader.effects[ev.SendAssign] = works
            raise ValueError("it does not fit a frame")

        leader.leader.effects[ev.SendAssign] = fail_once
        await first.hello_worker(first.id, "", "receipts")
        await first.credit(1)
        job = uuid4()
        await client.submit(job)
        assert await first.is_cut_off()
        await second.hello_worker(second.id, "", "receipts")
        await second.credit(1)
        assert UUID(bytes_le=(await second.expect(fr.ASSIGN_JOB)).msg_id) == job


class Store:
    """A store of its own, which answers when the test lets it."""

    url = "s3://bucket/blobs"

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def has(self, ref: BlobRef) -> bool:
        self.asked.append(ref.sha256)
        self.gate.wait(DEADLINE_S)
        if self.error is not None:
            raise self.error
        return ref.sha256 == SHA_A

    def remove(self, _sha256: str) -> None:
        raise AssertionError("nothing is removed")


async def test_a_store_that_does_not_answer_does_not_end_a_want() -> None:
    store = Store()
    async with a_leader(blobs=LeaderBlobs(store, url=store.url)) as leader, Fetcher(leader.port) as worker:  # type: ignore[arg-type]
        await worker.joins()
        store.error = Lost("the store does not answer")
        want = await worker.want(Want(SHA_B, len(B)))
        assert (await worker.source(want)).code == "", "it finds out by itself, and comes again"
        store.error = None
        await worker.want(Want(SHA_B, len(B), failed=FetchFailure("", "dead")), want)
        assert (await worker.source(want)).code == "no-blob", "now we know"


async def test_no_more_is_looked_for_than_a_worker_may_want(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.files.sources.WANTS_PER_WORKER_MAX", 3)
    store = Store()
    async with a_leader(blobs=LeaderBlobs(store, url=store.url)) as leader, Fetcher(leader.port) as worker:  # type: ignore[arg-type]
        await worker.joins()
        store.gate.clear()
        wants = [await worker.want(Want(f"{at:064x}", 5)) for at in range(20)]
        for want in wants[3:]:
            assert (await worker.source(want)).code == "full"
        await worker.want(Want(f"{0:064x}", 5), wants[0])
        store.gate.set()
        assert {(await worker.expect(fr.SOURCE)).corr_id for _ in range(3)} == set(wants[:3])
        assert len(set(store.asked)) == 3
        source = await worker.source(await worker.want(Want(SHA_A, len(A))))
        assert source.code == "", "and then it may want again"


async def test_who_gives_up_is_not_answered_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    async with (
        a_leader_with_caches(tmp_path, A) as leader,
        Fetcher(leader.port) as one,
        Fetcher(leader.port) as two,
        Fetcher(leader.port) as three,
    ):
        for worker in (one, two, three):
            await worker.joins()
        ref = Want(SHA_A, len(A))
        wants = [await worker.want(ref) for worker in (one, two)]
        for worker, want in zip((one, two), wants):
            await worker.source(want)
        third = await three.want(ref)
        await one.want(Want(SHA_A, len(A), failed=FetchFailure("", "given-up")), wants[0])
        assert (await three.source(third)).code == ""
        want = await one.want(Want(cache_id="nope", name="f0"))
        assert (await one.source(want)).code == "no-cache", "and nothing came before it"


async def test_a_leader_without_blobs_answers_that_it_keeps_no_caches() -> None:
    async with a_leader() as leader, Client(leader.port) as client, OldClient(leader.port) as old:
        await client.hello_client()
        await old.hello("old")
        answer, _ = await old.put_cache("d", ">")
        assert "no caches" in answer.json["Message"]
        refused = await client.ask(encode(qu.AskCaches()))
        assert (refused.subject, json.loads(refused.payload)["Code"]) == ("refused", "not-supported")


@pytest.mark.spec("C8")
async def test_a_job_that_names_a_cache_goes_to_a_worker_that_has_it(tmp_path: Path) -> None:
    async with (
        a_leader_with_caches(tmp_path, A) as leader,
        Client(leader.port) as client,
        Fetcher(leader.port) as has_it,
        Fetcher(leader.port) as has_it_not,
    ):
        await client.hello_client("one")
        await has_it.joins("calcA groupA")
        put = await client.put("data-1", A, target="job.assign.groupA")
        await has_it.takes()
        await client.answer(put)
        await has_it_not.joins("calcA")
        assert leader.leader.caches is not None
        holders = leader.leader.caches.holders("cache:data-1")
        assert (list(holders), len(holders), bool(holders)) == ([has_it.id.bytes_le], 1, True)
        assert has_it_not.id.bytes_le not in holders
        assert not leader.leader.caches.holders("cache:data-2")
        for worker, credit in ((has_it, 2), (has_it_not, 9)):
            await worker.say(fr.encode(fr.HOLDING, payload=encode(Holding())))
            await worker.credit(credit)
        await leader.until(lambda machine: sum(worker.credit for worker in machine.roster) == 11)
        jobs = [uuid4() for _ in range(2)]
        for job in jobs:
            await client.submit(job, Files=[{"Name": "f0", "CacheId": "data-1"}])
        assert [UUID(bytes_le=(await has_it.expect(fr.ASSIGN_JOB)).msg_id) for _ in jobs] == jobs
