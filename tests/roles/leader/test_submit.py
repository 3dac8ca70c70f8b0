"""A real leader with a real place: jobs and results that name blobs, and peers that leave, cancel or come again."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.kit.a_leader import OwnPeer, Running, a_leader
from tests.kit.old_peers import DEADLINE_S

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.core.access.identity import Identity
from wakugumi.core.ids import ConnId, JobId
from wakugumi.core.requirements import Requirements
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.submit import Submissions
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.cache import CacheEntry, CachePutRequest
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.job import SubmitHead, read_refusal
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef, FileHead

pytestmark = pytest.mark.anyio

CONTENT = b"content of a file"
REF = ref_of_bytes(CONTENT)
OTHER = ref_of_bytes(b"another file")


class SlowBlobs(LeaderBlobs):
    """Looks only when it is told to."""

    def __init__(self, place: FolderPlace) -> None:
        super().__init__(place, url=place.url)
        self.looks: list[Callable[[], None]] = []

    def missing(
        self,
        refs: Sequence[BlobRef],
        then: Callable[[list[str]], None],
        failed: Callable[[Exception], None] | None = None,
        *,
        asker: Identity | None = None,
    ) -> None:
        self.looks.append(lambda: LeaderBlobs.missing(self, refs, then, failed, asker=asker))

    async def look(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not self.looks:  # noqa: ASYNC110 - nobody rings a bell
                await asyncio.sleep(0.001)
        self.looks.pop(0)()


def put(place: FolderPlace, content: bytes) -> None:
    incoming = place.store.begin(ref_of_bytes(content))
    incoming.write(content)
    incoming.finish()


@pytest.fixture
def place(tmp_path: Path) -> FolderPlace:
    return FolderPlace(tmp_path / "blobs")


@pytest.fixture
async def leader(place: FolderPlace) -> AsyncIterator[Running]:
    async with a_leader(blobs=LeaderBlobs(place, url=place.url, sweeps=True)) as leader:
        yield leader


@asynccontextmanager
async def a_client(leader: Running, *wants: str) -> AsyncIterator[OwnPeer]:
    async with OwnPeer(leader.port) as peer:
        await peer.hello_client("own", *wants)
        yield peer


@asynccontextmanager
async def a_worker(leader: Running, *wants: str, credit: int = 1) -> AsyncIterator[OwnPeer]:
    async with OwnPeer(leader.port) as peer:
        await peer.hello_worker(uuid4(), "job.assign.calcA", *wants, holds=Holding())
        if credit:
            await peer.credit(credit)
        yield peer


def file(ref: BlobRef, name: str = "in.bin") -> dict[str, object]:
    return {"Name": name, "Sha256": ref.sha256, "Size": ref.size}


async def is_told(peer: OwnPeer, job: UUID, *missing: BlobRef) -> None:
    frame = await peer.expect(fr.MISSING)
    assert UUID(bytes_le=frame.corr_id) == job
    assert json.loads(frame.payload) == {"Blobs": [ref.sha256 for ref in missing]}


async def is_refused(peer: OwnPeer, job: UUID) -> tuple[str, str]:
    frame = await peer.expect(fr.REFUSAL)
    assert UUID(bytes_le=frame.corr_id) == job
    refusal = read_refusal(frame.payload)
    return refusal.code, refusal.message


@pytest.mark.spec("C5", "C7")
async def test_a_job_is_taken_once_its_blobs_are_there(leader: Running, place: FolderPlace) -> None:
    put(place, b"another file")
    async with a_client(leader) as client, a_worker(leader) as worker:
        job = uuid4()
        files = [file(REF), file(OTHER, "b"), file(REF, "c")]
        await client.submit(job, Files=files)
        await is_told(client, job, REF)
        assert not leader.machine.jobs
        put(place, CONTENT)
        await client.submit(job, Files=files)
        assert await client.expect_ids(fr.RECEIPT) == [job]
        assigned = await worker.expect(fr.ASSIGN_JOB)
        assert json.loads(assigned.payload)["Files"] == files
        known = leader.machine.jobs[JobId(job.bytes_le)]
        assert known.requirements is not None
        assert known.requirements.files == (REF.sha256, OTHER.sha256)
        assert leader.leader.blobs is not None
        assert leader.leader.blobs.is_held(REF.sha256)


async def test_a_blob_of_another_size_is_missing(leader: Running, place: FolderPlace) -> None:
    put(place, CONTENT)
    async with a_client(leader) as client:
        job = uuid4()
        await client.submit(job, Files=[file(BlobRef(REF.sha256, REF.size + 1))])
        await is_told(client, job, REF)


@pytest.mark.spec("L6")
async def test_a_known_job_is_not_asked_for_its_blobs_again(leader: Running, place: FolderPlace) -> None:
    put(place, CONTENT)
    async with a_client(leader) as client:
        job = uuid4()
        await client.submit(job, Files=[file(REF)])
        assert await client.expect_ids(fr.RECEIPT) == [job]
        place.remove(REF.sha256)
        await client.submit(job, Files=[file(REF)])
        assert await client.expect_ids(fr.RECEIPT) == [job]


async def test_a_cache_needs_nothing_of_the_leaders_place(leader: Running) -> None:
    async with a_client(leader) as client, a_worker(leader) as worker:
        job = uuid4()
        await client.submit(job, Files=[{"Name": "a", "CacheId": "data-v1"}], Key="k")
        assert await client.expect_ids(fr.RECEIPT) == [job]
        await worker.expect(fr.ASSIGN_JOB)
        known = leader.machine.jobs[JobId(job.bytes_le)]
        assert known.requirements is not None
        assert (known.requirements.key, known.requirements.files) == ("k", ("cache:data-v1",))
        assert leader.leader.caches is not None
        assert leader.leader.caches.machine.shelf.is_needed("cache:data-v1")


@pytest.mark.spec("F11")
@pytest.mark.parametrize(
    ("files", "code"),
    [
        ([{"Name": "a", "Sha256": "A" * 64, "Size": 1}], "bad-request"),
        ([{"Name": "a", "Sha256": "a" * 64, "Size": -1}], "bad-request"),
        ([{"Name": "a", "Sha256": "a" * 64, "Size": 1, "Content": "eA=="}], "bad-request"),
        ([{"Name": "a", "CacheId": "../etc"}], "bad-name"),
        ([{"Name": "a", "Sha256": ["a"], "Size": 1}], "bad-request"),
    ],
)
async def test_a_reference_that_can_be_none_is_refused_at_once(
    leader: Running, files: list[dict[str, object]], code: str
) -> None:
    async with a_client(leader) as client:
        job = uuid4()
        await client.submit(job, Files=files)
        assert (await is_refused(client, job))[0] == code
        await leader.serves()


@pytest.mark.spec("F11", "C7")
async def test_who_did_not_say_that_it_knows_blobs_cannot_name_any(leader: Running, place: FolderPlace) -> None:
    put(place, CONTENT)
    async with a_client(leader, "receipts") as client, a_worker(leader, "receipts") as worker:
        job = uuid4()
        await client.submit(job, Files=[file(REF)])
        code, text = await is_refused(client, job)
        assert code == "not-supported"
        assert "hello" in text
        await client.submit(job)
        await worker.expect(fr.ASSIGN_JOB)
        await worker.ack(job, ArchiveBlob={"Sha256": REF.sha256, "Size": REF.size})
        await client.expect(fr.RECEIPT)
        result = json.loads((await client.expect(fr.RESULT)).payload)
        assert (result["Status"], result["Reason"]) == ("FAILED", "not-supported")


async def test_a_leader_without_a_place_says_so() -> None:
    async with a_leader() as leader, a_client(leader) as client:
        job = uuid4()
        await client.submit(job, Files=[file(REF)])
        code, text = await is_refused(client, job)
        assert code == "not-supported"
        assert "keeps no blobs" in text


@pytest.mark.spec("C5", "C7")
async def test_a_result_is_taken_once_its_blobs_are_there_and_they_go_with_it(
    leader: Running, place: FolderPlace
) -> None:
    async with a_client(leader) as client, a_worker(leader) as worker:
        job = uuid4()
        await client.submit(job)
        await client.expect(fr.RECEIPT)
        await worker.expect(fr.ASSIGN_JOB)
        blob = {"Sha256": REF.sha256, "Size": REF.size}
        await worker.ack(job, ArchiveBlob=blob)
        await is_told(worker, job, REF)
        assert leader.machine.jobs[JobId(job.bytes_le)].result is None
        put(place, CONTENT)
        await worker.ack(job, ArchiveBlob=blob)
        assert await worker.expect_ids(fr.CONFIRM) == [job]
        result = json.loads((await client.expect(fr.RESULT)).payload)
        assert result["ArchiveBlob"] == blob
        assert leader.machine.holds(REF.sha256)


async def test_a_forgotten_results_blobs_are_removed(place: FolderPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.roles.leader.files.expected_blobs.BLOB_NAMED_S", 0.0)
    put(place, CONTENT)
    put(place, b"another file")
    async with (
        a_leader(blobs=LeaderBlobs(place, url=place.url, sweeps=True)) as leader,
        a_client(leader) as client,
        a_worker(leader) as worker,
    ):
        job, needs = uuid4(), uuid4()
        await client.submit(needs, Files=[file(OTHER)])
        await client.expect(fr.RECEIPT)
        assert (await worker.expect(fr.ASSIGN_JOB)).msg_id == needs.bytes_le
        await worker.credit(1)
        await client.submit(job)
        await client.expect(fr.RECEIPT)
        await worker.expect(fr.ASSIGN_JOB)
        await worker.ack(
            job,
            ArchiveBlob={"Sha256": REF.sha256, "Size": REF.size},
            StdoutBlob={"Sha256": OTHER.sha256, "Size": OTHER.size},
        )
        await client.expect(fr.RESULT)
        await client.ask(b'{"ask":"cancel","jobs":["%s"],"forget":true}' % str(job).encode())
        async with asyncio.timeout(DEADLINE_S):
            while place.has(REF):  # noqa: ASYNC110 - nobody rings a bell
                await asyncio.sleep(0.001)
        assert place.has(OTHER), "a job needs it"


@pytest.mark.parametrize("kind", ["submit", "ack"])
async def test_who_leaves_while_its_blobs_are_looked_for_is_forgotten(place: FolderPlace, kind: str) -> None:
    blobs = SlowBlobs(place)
    put(place, CONTENT)
    async with a_leader(blobs=blobs) as leader, a_client(leader) as client, a_worker(leader) as worker:
        job = uuid4()
        if kind == "ack":
            await client.submit(job)
            await client.expect(fr.RECEIPT)
            await worker.expect(fr.ASSIGN_JOB)
            await worker.ack(job, ArchiveBlob={"Sha256": REF.sha256, "Size": REF.size})
            leaver, before = worker, len(leader.leader.peers)
        else:
            await client.submit(job, Files=[file(REF)])
            leaver, before = client, len(leader.leader.peers)
        await leader.until(lambda _: blobs.looks)
        leaver.die()
        await leader.until(lambda _: len(leader.leader.peers) < before)
        await blobs.look()
        await leader.serves()
        known = leader.machine.jobs.get(JobId(job.bytes_le))
        assert known is None or known.result is None


async def test_a_job_that_is_cancelled_while_its_blobs_are_looked_for_is_not_taken(place: FolderPlace) -> None:
    blobs = SlowBlobs(place)
    put(place, CONTENT)
    async with a_leader(blobs=blobs) as leader, a_client(leader) as client:
        job = uuid4()
        await client.submit(job, Files=[file(REF)])
        await leader.until(lambda _: blobs.looks)
        await client.say_ids(fr.CANCEL, job)
        await client.is_heard_by(leader)
        await blobs.look()
        await leader.serves()
        assert JobId(job.bytes_le) not in leader.machine.jobs


async def test_what_was_just_named_is_not_removed(
    leader: Running, place: FolderPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert leader.leader.blobs is not None
    async with a_client(leader) as client:
        job = uuid4()
        await client.submit(job, Files=[file(REF)])
        await is_told(client, job, REF)
        assert leader.leader.blobs.is_held(REF.sha256), "it is on its way"
        assert not leader.leader.blobs.is_held(OTHER.sha256)
        monkeypatch.setattr(leader.leader.caches, "pins", {OTHER.sha256}.__contains__)
        assert leader.leader.blobs.is_held(OTHER.sha256), "it is a file of a cache"


def age(place: FolderPlace, ref: BlobRef) -> None:
    """Nobody has asked for it for an hour."""
    os.utime(place.store.path(ref.sha256), (time.time() - 3_600,) * 2)


async def still_there(blobs: LeaderBlobs, place: FolderPlace, ref: BlobRef) -> bool:
    """Is it, after all that may be removed is?"""
    age(place, ref)
    await blobs.sweep(place.store)
    return ref.sha256 in {entry.sha256 for entry in place.store.entries()}


@pytest.mark.spec("C5")
@pytest.mark.parametrize("kind", ["submit", "ack", "put"])
@pytest.mark.parametrize("ends", ["came", "left"])
async def test_what_came_first_is_not_removed_while_the_rest_is_on_its_way(
    place: FolderPlace, kind: str, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.roles.leader.files.expected_blobs.BLOB_NAMED_S", 0.0)
    put(place, CONTENT)
    # It is swept here and not by itself: a sweep that has just begun would not know what is named meanwhile, and `age`
    # takes away by what that is known.
    blobs = LeaderBlobs(place, url="", bytes_max=0, sweeps=False)
    async with a_leader(blobs=blobs) as leader, a_client(leader) as client, a_worker(leader) as worker:
        job = uuid4()
        if kind == "ack":
            await client.submit(job)
            await client.expect(fr.RECEIPT)
            await worker.expect(fr.ASSIGN_JOB)
        peer = worker if kind == "ack" else client

        async def say() -> None:
            if kind == "put":
                entries = [
                    CacheEntry(f"f{at}", sha256=ref.sha256, size=ref.size) for at, ref in enumerate((REF, OTHER))
                ]
                payload = encode(CachePutRequest("data", entries, ">"))
                await client.say(fr.encode(fr.CACHE_PUT, job.bytes_le, subject="cache.put", payload=payload))
            elif kind == "submit":
                await client.submit(job, Files=[file(REF), file(OTHER, "b")])
            else:
                named = [{"Sha256": ref.sha256, "Size": ref.size} for ref in (REF, OTHER)]
                await worker.ack(job, ArchiveBlob=named[0], StdoutBlob=named[1])

        await say()
        await is_told(peer, job, OTHER)
        assert await still_there(blobs, place, REF)
        if ends == "left":
            before = len(leader.leader.peers)
            peer.die()
            await leader.until(lambda _: len(leader.leader.peers) < before)
            assert not await still_there(blobs, place, REF)
        else:
            put(place, b"another file")
            await say()
            await leader.until(lambda machine: machine.holds(REF.sha256) or blobs.is_held(REF.sha256))
            await leader.serves()
            assert not blobs.expected.asked
            assert await still_there(blobs, place, REF), "it is needed as what it is"


@pytest.mark.parametrize("how", ["cancelled", "failed", "bad"])
async def test_what_does_not_come_again_needs_nothing(leader: Running, place: FolderPlace, how: str) -> None:
    assert leader.leader.blobs is not None
    expected = leader.leader.blobs.expected
    async with a_client(leader) as client, a_worker(leader) as worker:
        job = uuid4()
        if how == "cancelled":
            await client.submit(job, Files=[file(REF)])
            await is_told(client, job, REF)
            assert expected.asked
            await client.say_ids(fr.CANCEL, job)
            await client.is_heard_by(leader)
        else:
            await client.submit(job)
            await client.expect(fr.RECEIPT)
            await worker.expect(fr.ASSIGN_JOB)
            await worker.ack(job, ArchiveBlob={"Sha256": REF.sha256, "Size": REF.size})
            await is_told(worker, job, REF)
            assert expected.asked
            if how == "failed":
                await worker.ack(job, Status="FAILED", Reason="disk")
            else:
                await worker.ack(job, ArchiveBlob={"Sha256": "none", "Size": 1})
            await worker.expect(fr.CONFIRM)
        assert not expected.asked


async def test_what_is_needed_again_by_now_is_not_removed_with_a_forgotten_result(
    leader: Running, place: FolderPlace
) -> None:
    assert leader.leader.blobs is not None
    put(place, CONTENT)
    put(place, b"another file")
    async with a_client(leader) as client:
        await client.submit(uuid4(), Files=[file(REF)])
        await client.expect(fr.RECEIPT)
        leader.leader.blobs.free([REF.sha256, OTHER.sha256])
        async with asyncio.timeout(DEADLINE_S):
            while place.has(OTHER):  # noqa: ASYNC110 - nobody rings a bell
                await asyncio.sleep(0.001)
        assert place.has(REF)


def wants_of(submissions: Submissions, head: SubmitHead) -> Requirements | None:
    event, _ = submissions.event_of(ConnId(1), True, JobId(b"j" * 16), "job.submit.calcA", head, b"", 0, b"")
    return event.requirements


async def test_a_million_different_files_leave_nothing_behind_in_memory(leader: Running) -> None:
    submissions = leader.leader.submissions
    heads = [
        SubmitHead(files=(FileHead(cache_id=hashlib.sha256(b"%d" % number).hexdigest()),)) for number in range(5_000)
    ]
    async with a_client(leader):
        for head in heads:
            wants_of(submissions, head)
        assert submissions.remembered_wants <= 1_000
        first, second = (wants_of(submissions, heads[0]) for _ in range(2))
        assert first is second, "a million jobs that name the same share it"


@pytest.mark.spec("L9")
async def test_what_jobs_with_very_many_files_ask_for_is_not_remembered_before_they_are_accepted(
    leader: Running,
) -> None:
    submissions = leader.leader.submissions
    async with a_client(leader):
        for number in range(20):
            files = tuple(FileHead(cache_id=f"c{number}-{at}") for at in range(100))
            wants = wants_of(submissions, SubmitHead(files=files))
            assert wants is not None
            assert len(wants.files) == 100
        assert not submissions.remembered_wants


class Broken(FolderPlace):
    """Fails in a way that nobody foresaw, as often as it is told to."""

    failures = 0

    def has(self, ref: BlobRef) -> bool:
        self.failures -= 1
        if self.failures >= 0:
            raise RuntimeError("can't start new thread")
        return super().has(ref)


@pytest.mark.spec("C5", "F11")
async def test_a_look_that_fails_in_an_unforeseen_way_refuses_the_job(tmp_path: Path) -> None:
    place = Broken(tmp_path / "blobs")
    put(place, CONTENT)
    async with a_leader(blobs=LeaderBlobs(place, url="")) as leader, a_client(leader) as client:
        place.failures = 1
        job = uuid4()
        await client.submit(job, Files=[file(REF)])
        code, text = await is_refused(client, job)
        assert code == "worker-error"
        assert "can't start new thread" in text
        assert not leader.leader.submissions.looking
        await client.submit(job, Files=[file(REF)])
        assert await client.expect_ids(fr.RECEIPT) == [job]


@pytest.mark.spec("C7", "W7")
async def test_a_look_that_fails_for_a_result_ends_the_connection_and_the_result_is_sent_again(tmp_path: Path) -> None:
    place = Broken(tmp_path / "blobs")
    put(place, CONTENT)
    async with a_leader(blobs=LeaderBlobs(place, url="")) as leader, a_client(leader) as client:
        job, worker_id = uuid4(), uuid4()
        await client.submit(job)
        assert await client.expect_ids(fr.RECEIPT) == [job]
        blob = {"Sha256": REF.sha256, "Size": REF.size}
        async with OwnPeer(leader.port) as worker:
            await worker.hello_worker(worker_id, "job.assign.calcA", holds=Holding())
            await worker.credit(1)
            await worker.expect(fr.ASSIGN_JOB)
            place.failures = 1
            await worker.ack(job, ArchiveBlob=blob)
            async with asyncio.timeout(DEADLINE_S):
                assert await worker.reader.read() == b"", "the connection ends"
        async with OwnPeer(leader.port) as worker:
            await worker.hello_worker(worker_id, "job.assign.calcA", holds=Holding(finished=[job.bytes_le]))
            await worker.ack(job, ArchiveBlob=blob)
            await client.expect(fr.RESULT)
        assert not leader.leader.submissions.looking
