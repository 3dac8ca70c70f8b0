"""Caches between old peers and a real leader: the bytes of the contract, and nothing that the old do not know."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.kit import old_peers as old
from tests.kit.a_leader import OwnPeer, Running, a_leader
from tests.kit.old_peers import Message, OldClient, OldWorker

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.cache import CacheEntry, Stock, read_put
from wakugumi.wire.messages.payload import encode

pytestmark = pytest.mark.anyio

PUT = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[Running]:
    place = FolderPlace(tmp_path / "blobs")
    async with a_leader(blobs=LeaderBlobs(place, url="")) as running:  # type: ignore[arg-type]
        yield running


async def put(
    client: OldClient, target: str, *contents: bytes, cache_id: str = "data-v1", by_subject: bool = False
) -> None:
    entries = [{"Name": f"f{at}", "Content": base64.b64encode(one).decode()} for at, one in enumerate(contents)]
    request: dict[str, Any] = {"CacheId": cache_id, "Entries": entries}
    if not by_subject:
        request["TargetPattern"] = target
    payload = json.dumps(request).encode()
    await client.send(Message(old.CACHE_PUT, PUT, subject=f"cache.put.{target}", payload=payload))


async def ack(worker: OldWorker, asked: Message, status: str, message: str = "") -> None:
    result = {"CacheId": asked.json["CacheId"], "Status": status, "Message": message}
    subject = f"cache.ack.{asked.json['CacheId']}"
    await worker.send(Message(old.CACHE_ACK, uuid4(), asked.msg_id, subject, json.dumps(result).encode()))


@pytest.mark.spec("C1", "F4")
@pytest.mark.parametrize("by_subject", [False, True])
async def test_an_old_client_and_old_workers_put_a_cache(leader: Running, by_subject: bool) -> None:
    async with OldClient(leader.port) as client, OldWorker(leader.port) as one, OldWorker(leader.port) as two:
        await client.hello("desk")
        await one.hello("job.assign.a.>")
        await two.hello("job.assign.*.x")
        await put(client, "job.assign.a.x", b"\x00\x01", by_subject=by_subject)
        for worker in (one, two):
            asked = await worker.receive()
            assert (asked.type, asked.subject, asked.corr_id) == (old.CACHE_PUT, "cache.put", old.NO_ID)
            assert asked.payload == (
                b'{"CacheId":"data-v1","Entries":[{"Name":"f0","Content":"AAE="}],"TargetPattern":"job.assign.a.x"}'
            )
            await ack(worker, asked, "OK", "added=1 skipped=0")
        answer = await client.receive()
        assert answer == Message(
            old.CACHE_ACK,
            corr_id=PUT,
            subject="cache.ack.data-v1",
            payload=b'{"CacheId":"data-v1","Status":"OK","Message":"sent=2 ok=2 skipped=0 failed=0 silent=0"}',
        )


@pytest.mark.spec("C1", "S2")
async def test_a_cache_uses_no_credit_and_goes_only_where_patterns_overlap(leader: Running) -> None:
    async with OldClient(leader.port) as client, OldWorker(leader.port) as other, OldWorker(leader.port) as worker:
        await client.hello("desk")
        await other.hello("job.assign.b.>", credit=1)
        await worker.hello("job.assign.a.>", credit=1)
        await put(client, "job.*.a.*", b"x")
        asked = await worker.receive()
        await ack(worker, asked, "SKIPPED")
        assert (await client.receive()).json["Status"] == "SKIPPED"
        for subject, peer in (("job.submit.a.x", worker), ("job.submit.b.x", other)):
            job = await client.submit(subject)
            assert (await peer.assigned()).msg_id == job


@pytest.mark.spec("C1")
async def test_no_matching_worker_is_a_failure(leader: Running) -> None:
    async with OldClient(leader.port) as client:
        await client.hello("desk")
        await put(client, "job.assign.nowhere", b"x")
        answer = (await client.receive()).json
        assert answer.keys() == {"CacheId", "Status", "Message"}
        assert (answer["CacheId"], answer["Status"]) == ("data-v1", "FAILED")
        assert "no worker matches" in answer["Message"]


@pytest.mark.spec("C1", "C2")
async def test_what_an_old_worker_refuses_is_told_with_the_counts(leader: Running) -> None:
    async with OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk")
        await worker.hello()
        await put(client, "job.assign.>", b"x")
        await ack(worker, await worker.receive(), "FAILED", "f0 has other content")
        answer = (await client.receive()).json
        assert answer["Status"] == "FAILED"
        assert answer["Message"].startswith("sent=1 ok=0 skipped=0 failed=1 silent=0; ")
        assert answer["Message"].endswith(": f0 has other content")


@pytest.mark.spec("C2")
async def test_an_old_client_cannot_overwrite_a_name(leader: Running) -> None:
    async with OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk")
        await worker.hello()
        await put(client, "job.assign.>", b"x")
        await ack(worker, await worker.receive(), "OK")
        await client.receive()
        await put(client, "job.assign.>", b"y")
        answer = (await client.receive()).json
        assert (answer["Status"], "other content" in answer["Message"]) == ("FAILED", True)


@pytest.mark.spec("C1", "C8")
async def test_what_an_old_client_sends_inline_is_a_manifest_for_our_workers(leader: Running) -> None:
    content = b"some content"
    async with OldClient(leader.port) as client, OwnPeer(leader.port) as worker:
        await client.hello("desk")
        await worker.hello_worker(uuid4())
        await worker.say(fr.encode(fr.STOCK, payload=encode(Stock(True))))
        await put(client, "job.assign.>", content)
        asked = await worker.expect(fr.CACHE_PUT)
        sha256 = hashlib.sha256(content).hexdigest()
        assert read_put(asked.payload).entries == [CacheEntry("f0", sha256=sha256, size=len(content))]
        assert b'"Content"' not in asked.payload


async def test_a_cache_that_fits_no_frame_fails_for_an_old_worker_alone(leader: Running) -> None:
    half = bytes(1_700_000)
    async with OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk")
        await worker.hello()
        await put(client, "job.assign.>", half)
        await ack(worker, await worker.receive(), "OK")
        assert (await client.receive()).json["Status"] == "OK"
        entries = [{"Name": "more", "Content": base64.b64encode(half).decode()}]
        request = {"CacheId": "data-v1", "Entries": entries, "TargetPattern": "job.assign.>"}
        await client.send(Message(old.CACHE_PUT, PUT, subject="cache.put", payload=json.dumps(request).encode()))
        answer = (await client.receive()).json
        assert answer["Status"] == "FAILED"
        assert "does not fit a frame" in answer["Message"]
